"""Claim 9: the largest learning rate that each norm bears."""

import math
from itertools import pairwise
from pathlib import Path

from diarnorm.claims.cells import Cell, Outcome, StudyConfig, deaf_cells, failures, is_deaf, run_cells
from diarnorm.claims.curves import PICTURE, curve, losses_by_rate
from diarnorm.claims.evidence import Evidence, Measure, Table, average, geometric, number, spoken

KIND = ("seed",)
BELOW = 2.0
"""Where the lowest rate fails, the one that stands for the stable ones is so many times smaller."""


def cells(config: StudyConfig) -> list[Cell]:
    """Every norm at every learning rate, and the deaf runs."""
    g = config.grid
    placement, depth = g.only("placements"), g.only("depths")
    return deaf_cells(config, g.depths) + [
        Cell({"norm": norm, "lr": rate, "seed": seed}, config.run(norm, placement, depth, rate, seed))
        for norm in g.norms
        for rate in sorted(g.learning_rates)
        for seed in g.seeds
    ]


def learning_rates(config: StudyConfig, folder: Path) -> Evidence | None:
    """Ratios of the largest stable learning rates."""
    outcomes = run_cells(cells(config), folder, config.grid.part)
    return None if outcomes is None else evidence_of(outcomes)


def evidence_of(outcomes: list[Outcome]) -> Evidence:
    """Per seed, the largest rate up to which no run of a norm fails; BatchNorm's over each other norm's."""
    states = zip(outcomes, failures(outcomes, KIND), strict=True)
    failed = {(o.facts["norm"], o.facts["lr"], o.facts["seed"]): fails for o, fails in states}
    deaf = [o for o in outcomes if is_deaf(o)]
    silent = spoken(average("", [o.last_loss for o in deaf]))
    outcomes = [o for o in outcomes if not is_deaf(o)]
    norms = list(dict.fromkeys(o.facts["norm"] for o in outcomes))
    seeds = sorted({o.facts["seed"] for o in outcomes})
    rates = sorted({o.facts["lr"] for o in outcomes})
    largest = {
        (norm, seed): largest_stable([failed[norm, rate, seed] for rate in rates], rates)
        for norm in norms
        for seed in seeds
    }
    measures = [
        ratio_of([largest["batch", seed] for seed in seeds], [largest[other, seed] for seed in seeds], other, rates)
        for other in ("none", "rms", "layer")
        if "batch" in norms and other in norms
    ]
    rows = tuple((norm, *(f"{largest[norm, seed]:g}" for seed in seeds)) for norm in norms)
    lines = tuple(curve(norm, [o for o in outcomes if o.facts["norm"] == norm], "lr") for norm in norms)
    ends = [norm for norm in norms if any(largest[norm, seed] == rates[-1] for seed in seeds)]
    notes = [
        "Stable: this run and those of all lower rates end nearer to the best run of their seed than to one that hears "
        f"nothing, whose loss is {silent}. Where the lowest rate fails already, half of it stands. The rates are "
        f"{', '.join(f'{rate:g}' for rate in rates)}. "
        "What a norm bears lies between its rate and the next, which the interval takes in.",
        "With AdamW, whose steps do not grow with the gradient, rates compare otherwise than with SGD, which the claim "
        "was made about. Muon was tried at three rates alone, a factor of five apart, in the study of norms.",
        PICTURE,
    ]
    if ends:
        notes.append(f"{', '.join(ends)}: stable to the end of the range, beyond which nothing is known.")
    columns = ("norm", *(f"seed {seed}" for seed in seeds))
    return Evidence(
        "learning_rate",
        tuple(measures),
        (Table("Largest stable learning rate", columns, rows), _losses(outcomes, norms, rates)),
        (losses_by_rate("Loss at the end", deaf, lines),),
        tuple(notes),
    )


def ratio_of(batch: list[float], other: list[float], norm: str, rates: list[float]) -> Measure:
    """BatchNorm's largest stable rates over those of another norm, seed by seed.

    The rate that a norm bears lies between the largest that was stable and the next: the interval reaches as much
    further, and without end where it lies beyond the range.
    """
    found = geometric(f"batch_over_{norm}", [one / two for one, two in zip(batch, other, strict=True)])
    step = max([BELOW, *(high / low for low, high in pairwise(rates))])
    low = 0.0 if rates[-1] in other or min(batch) < rates[0] else found.low / step
    high = math.inf if rates[-1] in batch or min(other) < rates[0] else found.high * step
    return Measure(found.name, found.value, low, high)


def largest_stable(failed: list[bool], rates: list[float]) -> float:
    """The largest rate up to which nothing fails; half of the lowest, where that does.

    >>> largest_stable([False, False, True, False], [1.0, 2.0, 4.0, 8.0]), largest_stable([True], [1.0])
    (2.0, 0.5)
    """
    largest = rates[0] / BELOW
    for fails, rate in zip(failed, rates, strict=True):
        if fails:
            break
        largest = rate
    return largest


def _losses(outcomes: list[Outcome], norms: list[str], rates: list[float]) -> Table:
    def mean(norm: str, rate: float) -> str:
        losses = [o.last_loss for o in outcomes if (o.facts["norm"], o.facts["lr"]) == (norm, rate)]
        return number(sum(losses) / len(losses))

    return Table(
        "Loss at the end, mean over seeds",
        ("norm", *(f"{rate:g}" for rate in rates)),
        tuple((norm, *(mean(norm, rate) for rate in rates)) for norm in norms),
    )
