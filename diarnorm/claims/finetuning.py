"""Claim 11, the training: a model with LayerNorm, trained further with its norm swapped.

Four arms from the same weights, under the same data and seed: `none` keeps LayerNorm; `naive` puts RMSNorm in its
place; `exact` converts first, so that the function is the same; `frozen` is naive with everything but the norms fixed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import cast

from torch import nn

from diarnorm.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from diarnorm.claims.cells import Cell, Outcome, StudyConfig, run_cells
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, number, unbounded
from diarnorm.claims.modes import EVAL, der_difference
from diarnorm.claims.modes import errors as evaluated
from diarnorm.claims.quality import pooled_der
from diarnorm.convert import convert, read_off, swap_norm
from diarnorm.evaluation.families import summed
from diarnorm.evaluation.scores import Components
from diarnorm.files import file_sha256, replacing
from diarnorm.model import Model
from diarnorm.residual import relative_error
from diarnorm.resources import find_model
from diarnorm.stream import Diarizer
from diarnorm.training.config import RunConfig
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.rundata import DISPLAY_SEED, RunData
from diarnorm.training.warmstart import FINISHED

ARMS = ("none", "naive", "exact", "frozen")
SMOOTH = 10
"""Steps over which losses are averaged."""
SLACK = 1.02
"""Recovered: a loss of at most so many times that of the model that was not swapped, at the same step."""


@dataclass(frozen=True)
class FinetuneConfig(StudyConfig):
    """`pretrained` is a shipped model, or the path of another, with LayerNorm; `model` is its own, whatever is given.
    What its arms are judged by are the `train.dev_conversations`."""

    pretrained: str = "layer"


Files = Mapping[tuple[str, int], list[Components] | None]
"""By arm and seed: errors of each conversation, the same and in the same order everywhere; None where a run stopped."""


def finetuning(config: FinetuneConfig, folder: Path) -> Evidence | None:
    """Error of the function, steps to recover, and DER after fine-tuning.

    Raises:
        ValueError: a model with another norm, no speech to make conversations of, or settings that do not fit.
    """
    if config.data.speech is None:
        raise ValueError("data.speech=null leaves nothing to simulate: give a manifest or a tree of speakers")
    trained = find_model(config.pretrained)
    checkpoint = load_checkpoint(trained)
    if (norm := checkpoint.model.config.encoder.norm) != "layer":
        raise ValueError(f"pretrained={config.pretrained} has norm={norm}: give a model trained with norm=layer")
    cells, errors = [], {}
    starts = _starts(trained, folder / "starts")
    for seed in config.grid.seeds:
        for arm, (start, model, error) in starts.items():
            errors[arm] = error
            cells.append(_arm(config, arm, seed, start, model))
    outcomes = run_cells(cells, folder, config.grid.part)
    if outcomes is None:
        return None
    conversations = RunData(cells[0].run).conversations(
        config.train.dev_conversations, config.train.dev_duration_s, DISPLAY_SEED
    )
    files = {
        (cell.facts["arm"], cell.facts["seed"]): _errors_of(folder / cell.name / FINISHED, checkpoint, conversations)
        for cell in cells
    }
    before = evaluated(conversations, Diarizer(checkpoint), EVAL)
    return evidence_of(outcomes, errors, files, before)


def _errors_of(path: Path, trained: Checkpoint, conversations: DevelopmentSet) -> list[Components] | None:
    """Errors of an arm under the thresholds of the model that it was trained on from."""
    if not path.exists():
        return None
    return evaluated(conversations, Diarizer(replace(load_checkpoint(path), turns=trained.turns)), EVAL)


def _starts(trained: Path, folder: Path) -> dict[str, tuple[Path, Model, float]]:
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
        path, made = folder / f"{arm}-{digest}.safetensors", make()
        if not path.exists():
            with replacing(path) as partial:
                save_checkpoint(partial, replace(checkpoint, model=made))
        found[arm] = path, made, relative_error(read_off(model), read_off(made))
    return found


def _arm(config: FinetuneConfig, arm: str, seed: int, start: Path, model: Model) -> Cell:
    train = replace(config.train, init_from=str(start), seed=seed, learning_rate=config.grid.only("learning_rates"))
    run = RunConfig(model.config, config.loss, config.data, train)
    return Cell({"arm": arm, "seed": seed}, run, freeze if arm == "frozen" else None, keep=True)


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


def evidence_of(
    outcomes: list[Outcome], errors: Mapping[str, float], files: Files, before: Sequence[Components]
) -> Evidence:
    """Differences of DER from the arm that keeps its norm, over conversations, summed over seeds; `before` are the
    errors of the model that all start from."""
    by_arm = {arm: [o for o in outcomes if o.facts["arm"] == arm] for arm in ARMS}
    stopped = [o.facts["seed"] for o in by_arm["none"] if files["none", o.facts["seed"]] is None]
    seeds = [o.facts["seed"] for o in by_arm["none"] if o.facts["seed"] not in stopped]
    measures = tuple(_difference(arm, seeds, files) for arm in ARMS[1:]) if seeds else ()
    rows = tuple(_row(arm, own, by_arm["none"], errors[arm], files) for arm, own in by_arm.items())
    lines = tuple(_curve(arm, by_arm[arm]) for arm in ARMS)
    columns = ("arm", "error of the function", "loss at first", "at the end", "steps to recover, by seed", "DER")
    return Evidence(
        "finetuning",
        measures,
        (Table("A model with LayerNorm trained further", columns, rows),),
        (Plot("Fine-tuning after a swap of the norm", "step", "loss", lines),),
        (
            "none keeps LayerNorm; naive puts RMSNorm in its place, inside the convolutions, too; exact converts "
            "first, which leaves the norm inside the convolutions as it is; frozen is naive with all but the norms "
            "fixed. Same data, order and seed; weights are stored in float16 in between, for all alike.",
            f"DER on {len(before)} simulated conversations of held-out speakers, under the thresholds of the model "
            f"that all start from, which has {number(100 * pooled_der(before))} % itself. Seconds of errors are summed "
            "over seeds, conversation by conversation; intervals by bootstrap over conversations.",
            f"Recovered: mean loss of {SMOOTH} steps within {100 * (SLACK - 1):.0f} % of that of the arm that keeps "
            "its norm, at the same step.",
            *(
                f"Without seed {seed}, whose run with its own norm stopped: nothing to compare with."
                for seed in stopped
            ),
        ),
    )


def _difference(arm: str, seeds: Sequence[int], files: Files) -> Measure:
    """DER of an arm less that of the one that keeps its norm; infinite where one of its runs stopped."""
    own, kept = ([each for seed in seeds if (each := files[name, seed]) is not None] for name in (arm, "none"))
    if len(own) < len(kept):
        return unbounded(f"{arm}_der", math.inf)
    return der_difference(f"{arm}_der", summed(own), summed(kept))


def _row(arm: str, own: list[Outcome], kept: list[Outcome], error: float, files: Files) -> tuple[str, ...]:
    """An arm's figures, means over seeds."""
    recovered = [_recovered(one, other) for one, other in zip(own, kept, strict=True)]
    scored = [files[arm, o.facts["seed"]] for o in own]
    return (
        arm,
        f"{number(100 * error)} %",
        number(mean(mean(o.losses[:SMOOTH]) for o in own)),
        number(mean(o.last_loss for o in own)),
        ", ".join(recovered),
        f"{number(mean(math.inf if each is None else 100 * pooled_der(each) for each in scored))} %",
    )


def _recovered(outcome: Outcome, kept: Outcome) -> str:
    """Steps to recover, in a word; there is nothing to recover to where the run that kept its norm stopped."""
    steps = steps_to_recover(outcome.losses, kept.losses) if math.isfinite(kept.last_loss) else "-"
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
