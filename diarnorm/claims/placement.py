"""Claim 8: pre-norm and post-norm, with each norm, at two depths and several learning rates."""

from pathlib import Path

from diarnorm.claims.cells import Cell, Outcome, StudyConfig, deaf_cells, failures, is_deaf, run_cells
from diarnorm.claims.curves import PICTURE, curve, losses_by_rate
from diarnorm.claims.evidence import (
    Evidence,
    Measure,
    Plot,
    Table,
    geometric,
    number,
    share,
    share_difference,
)

KIND = ("depth", "seed")


def cells(config: StudyConfig) -> list[Cell]:
    """All runs, the deaf ones first; without a norm there is nothing to place, so post-norm is left out there."""
    g = config.grid
    return deaf_cells(config, g.depths) + [
        Cell(
            {"depth": depth, "placement": placement, "norm": norm, "lr": rate, "seed": seed},
            config.run(norm, placement, depth, rate, seed),
        )
        for depth in g.depths
        for placement in g.placements
        for norm in g.norms
        for rate in g.learning_rates
        for seed in g.seeds
        if (placement, norm) != ("post", "none")
    ]


def placement(config: StudyConfig, folder: Path) -> Evidence | None:
    """Share of runs that fail, and how gradients differ between the first and the last block."""
    outcomes = run_cells(cells(config), folder, config.grid.part)
    return None if outcomes is None else evidence_of(outcomes)


def evidence_of(outcomes: list[Outcome]) -> Evidence:
    """What the outcomes say; the verdict is about the deepest."""
    failed = dict(zip([tuple(o.facts.values()) for o in outcomes], failures(outcomes, KIND), strict=True))
    deaf = [o for o in outcomes if is_deaf(o)]
    outcomes = [o for o in outcomes if not is_deaf(o)]
    deepest = max(o.facts["depth"] for o in outcomes)
    deep = [o for o in outcomes if o.facts["depth"] == deepest]
    groups = {
        (p, kind): [o for o in deep if o.facts["placement"] == p and (o.facts["norm"] == "none") == (kind == "none")]
        for p in ("pre", "post")
        for kind in ("norm", "none")
    }
    measures: list[Measure] = []
    pairs = [
        (_failed(failed, o), _failed(failed, o, placement="pre"))
        for o in groups["post", "norm"]
        if tuple({**o.facts, "placement": "pre"}.values()) in failed
    ]
    if pairs:
        post, pre = (sum(own) for own in zip(*pairs, strict=True))
        measures.append(share_difference("post_diverged", post, pre, len(pairs)).scaled(100))
    for name, group in (("pre_diverged", groups["pre", "norm"]), ("pre_without_norm", groups["pre", "none"])):
        if group:
            measures.append(share(name, sum(_failed(failed, o) for o in group), len(group)).scaled(100))
    for side in ("post", "pre"):
        # at the first step no learning rate has had an effect: the runs of a norm and seed have one and the same
        ratios = {(o.facts["norm"], o.facts["seed"]): o.gradient_at_start for o in groups[side, "norm"]}
        if ratios:
            measures.append(geometric(f"gradient_ratio_{side}", list(ratios.values())))
    return Evidence(
        "placement",
        tuple(measures),
        (_table([*deaf, *outcomes], failed),),
        _plots(deaf, outcomes),
        (
            "A run fails when it stops, or ends nearer to the run of its depth and seed that hears nothing (deaf) than "
            "to the best of them.",
            f"The verdict is about {deepest} blocks. Gradients are those of all matrices of a block, at the first "
            "step, when learning has not changed them yet.",
            PICTURE,
        ),
    )


def _failed(failed: dict[tuple, bool], outcome: Outcome, **changes: str) -> int:
    return int(failed[tuple({**outcome.facts, **changes}.values())])


def _table(outcomes: list[Outcome], failed: dict[tuple, bool]) -> Table:
    groups: dict[tuple, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(tuple(outcome.facts[name] for name in ("depth", "placement", "norm", "lr")), []).append(
            outcome
        )
    rows = [
        (
            f"{depth}, {where}, {norm}, {rate:g}",
            f"{sum(_failed(failed, o) for o in group)} of {len(group)}",
            number(sum(o.last_loss for o in group) / len(group)),
            number(sum(o.gradient_at_start for o in group) / len(group)),
            number(sum(o.gradient_ratio for o in group) / len(group)),
        )
        for (depth, where, norm, rate), group in groups.items()
    ]
    columns = (
        "blocks, placement, norm, learning rate",
        "fail",
        "loss at the end",
        "gradient last/first, start",
        "median",
    )
    return Table("Runs", columns, tuple(rows))


def _plots(deaf: list[Outcome], outcomes: list[Outcome]) -> tuple[Plot, ...]:
    """Loss at the end over the learning rate, at each depth."""
    depths = sorted({o.facts["depth"] for o in outcomes})
    return tuple(
        losses_by_rate(
            f"{depth} blocks: loss at the end",
            [o for o in deaf if o.facts["depth"] == depth],
            tuple(
                curve(
                    f"{where}, {norm}",
                    [
                        o
                        for o in outcomes
                        if (o.facts["depth"], o.facts["placement"], o.facts["norm"]) == (depth, where, norm)
                    ],
                    "lr",
                )
                for where, norm in dict.fromkeys((o.facts["placement"], o.facts["norm"]) for o in outcomes)
            ),
        )
        for depth in depths
    )
