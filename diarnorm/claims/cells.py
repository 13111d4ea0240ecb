"""Studies that train: a grid of small runs, one cell each, with what a cell leaves behind.

A cell is a run of `diarnorm.training`, watched: the gradients of its first and last block are kept beside its log. It
goes on where it stopped; what is finished is not done again. Several processes share a grid with `grid.part=0/2`,
`1/2`, ...; whoever comes last writes the evidence.
"""

import csv
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from diarnorm.checks import check_choice, check_range
from diarnorm.conformer import PLACEMENTS
from diarnorm.evaluation.config import parse_shard
from diarnorm.files import replacing
from diarnorm.model import Model
from diarnorm.modelfile import as_json
from diarnorm.norms import NORMS
from diarnorm.training.batches import Batch
from diarnorm.training.config import RunConfig
from diarnorm.training.resume import decisive
from diarnorm.training.skips import NothingFiniteError
from diarnorm.training.trainer import Trainer
from diarnorm.training.warmstart import FINISHED, UNFINISHED

LOSSES = ("births", "outputs", "speech")
"""What a cell is judged by, where it has it: losses that do not depend on the run's own decisions."""
WINDOW = 20
"""Steps at the end of a run whose losses are averaged."""
SETTINGS = "cell.json"
"""File in a cell's folder: the settings of its run."""
BIG_FILES = ("last.pt", UNFINISHED, FINISHED)
DEAF = "deaf"
"""Norm of the runs, in their facts, that hear nothing: what the others must be better than."""
Prepare = Callable[[Model], None]


@dataclass(frozen=True)
class GridConfig:
    """What the cells of a study differ in; each study uses what it names."""

    norms: tuple[str, ...] = ("rms", "layer")
    placements: tuple[str, ...] = ("pre",)
    depths: tuple[int, ...] = (6,)
    learning_rates: tuple[float, ...] = (1e-3,)
    scales: tuple[float, ...] = (1.0,)
    """What every norm's gamma starts from."""
    offsets: tuple[float, ...] = (0.0,)
    """Spread of every LayerNorm's beta at the start."""
    seeds: tuple[int, ...] = (0, 1)
    part: str = "0/1"

    def __post_init__(self) -> None:
        for norm in self.norms:
            check_choice("grid.norms", norm, list(NORMS))
        for placement in self.placements:
            check_choice("grid.placements", placement, PLACEMENTS)
        for name in ("depths", "learning_rates", "scales"):
            for value in getattr(self, name):
                check_range(f"grid.{name}", value, above=0)
        empty = [each.name for each in fields(self) if not getattr(self, each.name)]
        if empty:
            raise ValueError(f"grid.{empty[0]} is empty: give one or more")
        parse_shard(self.part, key="grid.part")

    def only(self, name: str) -> Any:
        """The value of a key in which the runs of a study do not differ.

        Raises:
            ValueError: it has several.
        """
        values = getattr(self, name)
        if len(values) > 1:
            raise ValueError(f"grid.{name}={list(values)}: runs of this study do not differ in it, give one value")
        return values[0]


@dataclass(frozen=True)
class StudyConfig(RunConfig):
    """A run, and what its cells differ in."""

    grid: GridConfig = field(default_factory=GridConfig)

    def run(self, norm: str, placement: str, depth: int, learning_rate: float, seed: int) -> RunConfig:
        """The run of one cell."""
        encoder = replace(self.model.encoder, norm=norm, placement=placement, num_blocks=depth)
        train = replace(self.train, learning_rate=learning_rate, seed=seed)
        return RunConfig(replace(self.model, encoder=encoder), self.loss, self.data, train)


@dataclass(frozen=True)
class Cell:
    """A run by what it differs in, `prepare`d before its first step."""

    facts: dict[str, Any]
    run: RunConfig
    prepare: Prepare | None = None
    keep: bool = False
    """Whether its model is wanted afterwards."""

    @property
    def name(self) -> str:
        """A folder's name."""
        return ",".join(f"{key}={value}" for key, value in self.facts.items())


@dataclass(frozen=True)
class Outcome:
    """What a cell came to."""

    facts: dict[str, Any]
    first_loss: float
    """Of the first step."""
    last_loss: float
    """Mean over the last steps; infinite where the run stopped for want of a finite gradient."""
    gradient_at_start: float
    """Gradient of the last block over that of the first, at the first step."""
    gradient_ratio: float
    """The same, median over the run."""
    der: float
    """On held-out conversations, in %; infinite where the run stopped."""
    losses: tuple[float, ...]
    """Of every step."""


class WatchedTrainer(Trainer):
    """A trainer that writes down the gradients of its first and last block."""

    def __init__(self, config: RunConfig, run_dir: Path, prepare: Prepare | None = None) -> None:
        self.prepare = prepare
        super().__init__(config, run_dir)

    def _build(self) -> None:
        super()._build()
        if self.prepare is not None:
            with torch.no_grad():
                self.prepare(self.model)
            self.ema = {name: value.clone() for name, value in self.model.state_dict().items()}

    def _train_step(self, batches: Sequence[Batch]) -> dict[str, float]:
        values = super()._train_step(batches)
        blocks = self.model.encoder.blocks
        sizes = [gradient_size(block) for block in (blocks[0], blocks[len(blocks) - 1])]
        with (self.run_dir / "gradients.csv").open("a", encoding="utf-8") as file:
            file.write(f"{self.step},{sizes[0]:.6e},{sizes[1]:.6e}\n")
        return values


def gradient_size(module: torch.nn.Module) -> float:
    """Norm of the gradient of all matrices of a module; norms' vectors are left out, since not all norms have them."""
    squares = [p.grad.square().sum() for p in module.parameters() if p.grad is not None and p.ndim > 1]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def run_cells(cells: Sequence[Cell], folder: Path, part: str) -> list[Outcome] | None:
    """Run the cells of one part; the outcomes of all, or None while other parts have some to do.

    Raises:
        ValueError: a cell that is there, finished or not, is of a run with other settings.
    """
    number, of = parse_shard(part)
    for cell in cells:
        check_settings(cell, folder / cell.name)
    for at, cell in enumerate(cells):
        if at % of == number and not (path := outcome_path(folder, cell)).exists():
            print(f"{path.parent.name} ({at + 1} of {len(cells)})", file=sys.stderr, flush=True)
            run_cell(cell, path.parent)
    missing = [cell for cell in cells if not outcome_path(folder, cell).exists()]
    if missing:
        print(f"{len(missing)} of {len(cells)} cells are left, such as {missing[0].name}", file=sys.stderr)
        return None
    return [read_outcome(outcome_path(folder, cell)) for cell in cells]


def outcome_path(folder: Path, cell: Cell) -> Path:
    """Where a cell's outcome is kept."""
    return folder / cell.name / "outcome.json"


def check_settings(cell: Cell, folder: Path) -> None:
    """Compare a cell with what its folder is of, if it is there.

    Raises:
        ValueError: that is a run with other settings.
    """
    path = folder / SETTINGS
    if not path.exists():
        return
    kept, own = (decisive(values) for values in (json.loads(path.read_text(encoding="utf-8")), asdict(cell.run)))
    if kept != own:
        raise ValueError(f"{folder} is of a run with other settings: remove it, or choose another with --output")


def run_cell(cell: Cell, folder: Path) -> Outcome:
    """Train one cell to its end, write its outcome, and remove its weights, the model only where it is not wanted.

    Raises:
        ValueError: what is in the folder is of a run with other settings.
    """
    check_settings(cell, folder)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / SETTINGS) as partial:
        partial.write_text(json.dumps(as_json(asdict(cell.run)), sort_keys=True), encoding="utf-8")
    try:
        der, stopped = WatchedTrainer(cell.run, folder, cell.prepare).run()["der"], False
    except NothingFiniteError:
        der, stopped = math.inf, True
    outcome = _outcome(cell, folder, der, stopped=stopped)
    with replacing(folder / "outcome.json") as partial:
        partial.write_text(json.dumps(as_json(asdict(outcome)), allow_nan=False) + "\n", encoding="utf-8")
    for name in BIG_FILES:
        if not (cell.keep and name == FINISHED):
            (folder / name).unlink(missing_ok=True)
    return outcome


def read_outcome(path: Path) -> Outcome:
    """An outcome that was kept."""
    values = json.loads(path.read_text(encoding="utf-8"))
    numbers = {each.name: float(values[each.name]) for each in fields(Outcome) if each.name not in ("facts", "losses")}
    return Outcome(facts=values["facts"], losses=tuple(map(float, values["losses"])), **numbers)


def _outcome(cell: Cell, folder: Path, der: float, *, stopped: bool) -> Outcome:
    with (folder / "log.csv").open(encoding="utf-8") as file:
        losses = [_finite(_loss(row)) for row in csv.DictReader(file)]
    with (folder / "gradients.csv").open(encoding="utf-8") as file:
        sizes = {int(step): (float(first), float(last)) for step, first, last in csv.reader(file)}
    ratios = [last / first for first, last in sizes.values() if 0 < first < math.inf and 0 < last < math.inf]
    tail = losses[-WINDOW:]
    return Outcome(
        facts=cell.facts,
        first_loss=losses[0],
        last_loss=math.inf if stopped else sum(tail) / len(tail),
        gradient_at_start=ratios[0] if ratios else math.inf,
        gradient_ratio=median(ratios) if ratios else math.inf,
        der=der,
        losses=tuple(losses),
    )


def _loss(row: dict[str, str]) -> float:
    return sum(float(row[name]) for name in LOSSES if row.get(name))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def deaf_cells(config: StudyConfig, depths: Sequence[int]) -> list[Cell]:
    """A run for each depth and seed that hears nothing: with the first of the norms, in pre-norm, at the lowest
    learning rate. It learns how often people speak, and no more."""
    g = config.grid
    rate = min(g.learning_rates)
    return [
        Cell(
            {"depth": depth, "placement": "pre", "norm": DEAF, "lr": rate, "seed": seed},
            config.run(g.norms[0], "pre", depth, rate, seed),
            deafen,
        )
        for depth in depths
        for seed in g.seeds
    ]


def deafen(model: Model) -> None:
    """Let nothing of what the model hears into its encoder, now or later."""
    model.encoder.entry.weight.zero_()
    model.encoder.entry.weight.requires_grad_(False)


def is_deaf(outcome: Outcome) -> bool:
    """Whether the run is one of `deaf_cells`."""
    return outcome.facts["norm"] == DEAF


def failures(outcomes: Sequence[Outcome], kind: Sequence[str]) -> list[bool]:
    """Which runs fail: they stopped, or end nearer to the deaf run of the same `kind` (values of these facts) than to
    the best of it. All do where the best is no better than that; deaf runs are among the outcomes, and always fail.

    Raises:
        ValueError: a kind without a deaf run that came to its end.
    """
    keys = [tuple(outcome.facts[name] for name in kind) for outcome in outcomes]
    limits = {}
    for key in set(keys):
        own = [outcome for outcome, other in zip(outcomes, keys, strict=True) if other == key]
        deaf = [o.last_loss for o in own if is_deaf(o) and math.isfinite(o.last_loss)]
        if not deaf:
            what = ", ".join(f"{name}={value}" for name, value in zip(kind, key, strict=True))
            raise ValueError(f"no deaf run of {what} came to its end: give a lower rate, too, in grid.learning_rates")
        best = min(o.last_loss for o in own)
        limits[key] = (best + min(deaf)) / 2
    return [
        is_deaf(outcome) or not outcome.last_loss < limits[key] for outcome, key in zip(outcomes, keys, strict=True)
    ]
