"""Claim 11, the training: a model with LayerNorm, trained further with its norm swapped.

Four arms from the same weights, under the same data and seed: `none` keeps LayerNorm; `naive` puts RMSNorm in its
place; `exact` converts first, so that the function is the same; `frozen` is naive with everything but the norms fixed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import cast

from torch import nn

from diarnorm.checkpoint import load_checkpoint, save_checkpoint
from diarnorm.checks import check_range
from diarnorm.claims.cells import Cell, Outcome, StudyConfig, run_cells
from diarnorm.claims.evidence import Evidence, Plot, Series, Table, average, number
from diarnorm.convert import convert, read_off, swap_norm
from diarnorm.files import file_sha256, replacing
from diarnorm.model import Model
from diarnorm.residual import relative_error
from diarnorm.resources import find_model
from diarnorm.training.config import RunConfig

ARMS = ("none", "naive", "exact", "frozen")
SMOOTH = 10
"""Steps over which losses are averaged."""
SLACK = 1.02
"""Recovered: a loss of at most so many times that of the model that was not swapped, at the same step."""


@dataclass(frozen=True)
class FinetuneConfig(StudyConfig):
    """`model` is trained with LayerNorm for `pretrain_steps`, unless `pretrained` names a model that has been."""

    pretrained: str = ""
    pretrain_steps: int = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("pretrain_steps", self.pretrain_steps, low=1)


def finetuning(config: FinetuneConfig, folder: Path) -> Evidence | None:
    """Error of the function, steps to recover, and DER after fine-tuning."""
    first = _pretrained(config, folder)
    if first is None:
        return None
    cells, errors = [], {}
    for seed, path in first.items():
        starts = _starts(path, folder / "starts", seed)
        for arm, (start, model, error) in starts.items():
            errors[arm, seed] = error
            cells.append(_arm(config, arm, seed, start, model))
    outcomes = run_cells(cells, folder, config.grid.part)
    return None if outcomes is None else evidence_of(outcomes, errors)


def _pretrained(config: FinetuneConfig, folder: Path) -> dict[int, Path] | None:
    """A model with LayerNorm for each seed; None while other processes train some.

    Raises:
        ValueError: the model that is given has another norm.
    """
    seeds = config.grid.seeds
    if config.pretrained:
        path = find_model(config.pretrained)
        norm = load_checkpoint(path).model.config.encoder.norm
        if norm != "layer":
            raise ValueError(f"pretrained={config.pretrained} has norm={norm}: give a model trained with norm=layer")
        return dict.fromkeys(seeds, path)
    cells = []
    for seed in seeds:
        run = config.run("layer", "pre", config.grid.depths[0], config.grid.learning_rates[0], seed)
        run = replace(run, train=replace(run.train, num_steps=config.pretrain_steps))
        cells.append(Cell({"pretrained": "layer", "seed": seed}, run, keep=True))
    if run_cells(cells, folder, config.grid.part) is None:
        return None
    return {seed: folder / cell.name / "model.safetensors" for seed, cell in zip(seeds, cells, strict=True)}


def _starts(trained: Path, folder: Path, seed: int) -> dict[str, tuple[Path, Model, float]]:
    """For each arm a file to start from, its model, and by how much its function differs from what was trained.

    The files' names have the first digits of the trained model's hash, so that none is taken for another's.
    """
    checkpoint, digest = load_checkpoint(trained), file_sha256(trained)[:12]
    model = checkpoint.model
    makers: dict[str, Callable[[], Model]] = {
        "none": lambda: model,
        "naive": lambda: swap_norm(model, "rms"),
        "exact": lambda: convert(model, "rms").model,
        "frozen": lambda: swap_norm(model, "rms"),
    }
    found = {}
    folder.mkdir(parents=True, exist_ok=True)
    for arm, make in makers.items():
        path, made = folder / f"{arm}-{seed}-{digest}.safetensors", make()
        if not path.exists():
            with replacing(path) as partial:
                save_checkpoint(partial, replace(checkpoint, model=made))
        found[arm] = path, made, relative_error(read_off(model), read_off(made))
    return found


def _arm(config: FinetuneConfig, arm: str, seed: int, start: Path, model: Model) -> Cell:
    train = replace(config.train, init_from=str(start), seed=seed, learning_rate=config.grid.learning_rates[-1])
    run = RunConfig(model.config, config.loss, config.data, train)
    return Cell({"arm": arm, "seed": seed}, run, freeze if arm == "frozen" else None)


def freeze(model: Model) -> None:
    """Fix everything but the norms of the encoder."""
    norms = {
        id(p)
        for module in model.encoder.modules()
        if isinstance(module, nn.RMSNorm | nn.LayerNorm)
        for p in module.parameters()
    }
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in norms)


def evidence_of(outcomes: list[Outcome], errors: dict[tuple[str, int], float]) -> Evidence:
    """Differences of DER from the arm that keeps its norm, over seeds."""
    by_arm = {arm: [o for o in outcomes if o.facts["arm"] == arm] for arm in ARMS}
    stopped = [o.facts["seed"] for o in by_arm["none"] if not _ended(o)]
    differences = {
        f"{arm}_der": [o.der - kept.der for o, kept in zip(by_arm[arm], by_arm["none"], strict=True) if _ended(kept)]
        for arm in ARMS[1:]
    }
    rows = tuple(_row(arm, own, by_arm["none"], errors) for arm, own in by_arm.items())
    lines = tuple(_curve(arm, by_arm[arm]) for arm in ARMS)
    columns = ("arm", "error of the function", "loss at first", "at the end", "steps to recover, by seed", "DER")
    return Evidence(
        "finetuning",
        tuple(average(name, points) for name, points in differences.items() if points),
        (Table("A model with LayerNorm trained further", columns, rows),),
        (Plot("Fine-tuning after a swap of the norm", "step", "loss", lines),),
        (
            "none keeps LayerNorm; naive puts RMSNorm in its place; exact converts first; frozen is naive with all but "
            "the norms fixed. Same data, order and seed; weights are stored in float16 in between, for all alike.",
            f"Recovered: mean loss of {SMOOTH} steps within {100 * (SLACK - 1):.0f} % of that of the arm that keeps "
            "its norm, at the same step.",
            *(
                f"Without seed {seed}, whose run with its own norm stopped: nothing to compare with."
                for seed in stopped
            ),
        ),
    )


def _row(arm: str, own: list[Outcome], kept: list[Outcome], errors: dict[tuple[str, int], float]) -> tuple[str, ...]:
    """An arm's figures, means over seeds."""
    recovered = [_recovered(one, other) for one, other in zip(own, kept, strict=True)]
    return (
        arm,
        f"{number(100 * mean(errors[arm, o.facts['seed']] for o in own))} %",
        number(mean(mean(o.losses[:SMOOTH]) for o in own)),
        number(mean(o.last_loss for o in own)),
        ", ".join(recovered),
        f"{number(mean(o.der for o in own))} %",
    )


def _ended(outcome: Outcome) -> bool:
    """Whether the run came to its end, so that it has a DER."""
    return math.isfinite(outcome.der)


def _recovered(outcome: Outcome, kept: Outcome) -> str:
    """Steps to recover, in a word; there is nothing to recover to where the run that kept its norm stopped."""
    steps = steps_to_recover(outcome.losses, kept.losses) if _ended(kept) else "-"
    return "never" if steps is None else str(steps)


def steps_to_recover(losses: tuple[float, ...], kept: tuple[float, ...]) -> int | None:
    """The step from which losses are those of the arm that kept its norm; None: not within the run.

    >>> steps_to_recover((2.0,) * 10 + (1.0,) * 10, (1.0,) * 20), steps_to_recover((2.0,) * 12, (1.0,) * 12)
    (10, None)
    """
    for step in range(min(len(losses), len(kept)) - SMOOTH + 1):
        if mean(losses[step : step + SMOOTH]) <= SLACK * mean(kept[step : step + SMOOTH]):
            return step
    return None


def _curve(arm: str, outcomes: list[Outcome]) -> Series:
    """Mean over seeds of losses that are averaged over some steps."""
    length = min(len(o.losses) for o in outcomes)
    ends = range(SMOOTH, length + 1, SMOOTH)
    y = tuple(mean(mean(o.losses[end - SMOOTH : end]) for o in outcomes) for end in ends)
    return Series(arm, cast(tuple[float, ...], tuple(map(float, ends))), y)
