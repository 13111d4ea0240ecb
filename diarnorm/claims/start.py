"""Claim 14: what gamma and beta start from."""

import math
from pathlib import Path

import torch
from torch import nn

from diarnorm.claims.cells import Cell, Outcome, StudyConfig, run_cells
from diarnorm.claims.curves import curve
from diarnorm.claims.evidence import Evidence, Plot, Table, average, geometric, number, spoken
from diarnorm.model import Model

STOPPED = 10.0
"""Ratio that stands for a run that stopped."""


def cells(config: StudyConfig) -> list[Cell]:
    """Every norm from every gamma; every spread of beta from a gamma of 1, for norms that have one."""
    g = config.grid
    placement, depth, rate = (g.only(name) for name in ("placements", "depths", "learning_rates"))
    starts = [(norm, scale, 0.0) for norm in g.norms for scale in g.scales]
    starts += [(norm, 1.0, spread) for norm in g.norms if norm in ("layer", "batch") for spread in g.offsets if spread]
    return [
        Cell(
            {"norm": norm, "gamma": scale, "beta": spread, "seed": seed},
            config.run(norm, placement, depth, rate, seed),
            lambda model, scale=scale, spread=spread, seed=seed: start_from(model, scale, spread, seed),
        )
        for norm, scale, spread in starts
        for seed in g.seeds
    ]


def start_from(model: Model, scale: float, spread: float, seed: int) -> None:
    """Set gamma of every norm of the encoder, and beta to numbers of this spread."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.encoder.modules():
        if isinstance(module, nn.RMSNorm | nn.LayerNorm | nn.BatchNorm1d):
            module.weight.fill_(scale)
            if spread and not isinstance(module, nn.RMSNorm):
                module.bias.copy_(spread * torch.randn(module.bias.shape, generator=generator))


def starts(config: StudyConfig, folder: Path) -> Evidence | None:
    """Loss at the end over that of the usual start, under the same norm and seed."""
    if 1.0 not in config.grid.scales:
        raise ValueError(f"grid.scales={list(config.grid.scales)} lacks 1, which the others are compared with: add it")
    outcomes = run_cells(cells(config), folder, config.grid.part)
    return None if outcomes is None else evidence_of(outcomes)


def evidence_of(outcomes: list[Outcome]) -> Evidence:
    """Ratios of losses for each gamma and each spread of beta: of a seed the mean over norms, with an interval over
    seeds."""
    usual = {
        (o.facts["norm"], o.facts["seed"]): o.last_loss
        for o in outcomes
        if o.facts["gamma"] == 1 and not o.facts["beta"]
    }
    stopped = sorted({f"{norm}, seed {seed}" for (norm, seed), loss in usual.items() if not math.isfinite(loss)})
    outcomes = [o for o in outcomes if math.isfinite(usual[o.facts["norm"], o.facts["seed"]])]
    ratios = [(o, _ratio(o.last_loss, usual[o.facts["norm"], o.facts["seed"]])) for o in outcomes]
    groups: dict[str, dict[int, list[float]]] = {}
    for o, ratio in ratios:
        if name := group_of(o):
            groups.setdefault(name, {}).setdefault(o.facts["seed"], []).append(ratio)
    measures = [
        geometric(name, [geometric("", own).value for own in by_seed.values()]) for name, by_seed in groups.items()
    ]
    keys = dict.fromkeys((o.facts["norm"], o.facts["gamma"], o.facts["beta"]) for o in outcomes)
    rows = []
    for key in keys:
        own = [(o, r) for o, r in ratios if (o.facts["norm"], o.facts["gamma"], o.facts["beta"]) == key]
        ratio = geometric("", [r for _, r in own])
        loss, der = (average("", [getattr(o, name) for o, _ in own]) for name in ("last_loss", "der"))
        interval = spoken(ratio)
        rows.append((f"{key[0]}, {key[1]:g}, {key[2]:g}", number(loss.value), interval, f"{number(der.value)} %"))
    lines = tuple(
        curve(norm, [o for o in outcomes if o.facts["norm"] == norm and not o.facts["beta"]], "gamma")
        for norm in dict.fromkeys(o.facts["norm"] for o in outcomes)
    )
    columns = ("norm, gamma, spread of beta", "loss at the end", "over that of 1 and 0", "DER")
    return Evidence(
        "start",
        tuple(measures),
        (Table("Starts", columns, tuple(rows)),),
        (Plot("Loss at the end by the start of gamma", "gamma at the start", "loss", lines, log_x=True),),
        (
            f"Same data, order and seed for all starts of a norm; a run that stopped counts as {STOPPED:g} times. "
            "Intervals are Student's, over seeds.",
            *(f"Left out, since the run from gamma 1 stopped itself: {each}." for each in stopped),
        ),
    )


def _ratio(loss: float, usual: float) -> float:
    return min(STOPPED, loss / usual)


def group_of(outcome: Outcome) -> str:
    """Name of the measure that a start counts for: `gamma_0.3`, `beta_1`; empty for the usual one."""
    gamma, beta = outcome.facts["gamma"], outcome.facts["beta"]
    if beta:
        return f"beta_{beta:g}"
    return "" if gamma == 1 else f"gamma_{gamma:g}"
