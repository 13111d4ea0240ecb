"""Claim 10: half precision, where sums run, and eps, against float64.

`wide` is what `diarnorm.kernels` does: arithmetic in float32, one cast at the end. `narrow` squares and averages in the
dtype of the input.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diarnorm.claims.evidence import Evidence, Plot, Series, Table, exactly, number
from diarnorm.kernels import reference, rms_norm

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
EPSILONS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
SIZES = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 300.0, 1e3, 1e4, 6e4)
"""RMS of a row; float16 ends at 65504."""
DIM, ROWS = 256, 16
WRONG = 0.02
"""Relative error that rounding to bfloat16 does not explain (it is 0.002)."""
QUIET = 0.01
"""RMS of a row 40 dB under one of RMS 1."""
Norm = Callable[[Tensor, float], Tensor]


Way = tuple[str, str, float]
"""A dtype, where sums run, and eps."""
WIDE, NARROW = "sums in float32", "sums in the dtype"


@torch.no_grad()
def half_precision(seed: int = 0) -> Evidence:
    """Every dtype, accumulation, eps and size of the input."""
    unit = _bounded_rows(seed)
    errors = {
        (dtype, way, eps): [_error(norm, size * unit, DTYPES[dtype], eps) for size in SIZES]
        for dtype in DTYPES
        for way, norm in {WIDE: _wide, NARROW: _narrow}.items()
        for eps in EPSILONS
    }
    gains = {eps: _zero_gain(eps) for eps in EPSILONS}
    lost_db = _levels_lost_db(unit)
    return Evidence(
        "half_precision",
        (
            exactly("wide_wrong", 100 * max(_wrong(errors[dtype, WIDE, 1e-5]) for dtype in DTYPES)),
            exactly("narrow_repaired", 100 * _wrong(errors["float16", NARROW, 1e-4])),
            exactly("loss_db", lost_db[1e-4]),
            exactly("gradient_not_finite", 100.0 * (not math.isfinite(gains[1e-5]))),
        ),
        (_table_of_errors(errors), _table_of_eps(lost_db, gains)),
        (_plot(errors),),
        (
            "The reference is float64 on the rounded input, with the same eps. With sums in float16 squares overflow "
            "from 256 on, and rows become 0, whatever eps; below 2e-4 they underflow, and eps takes over.",
        ),
    )


def _table_of_errors(errors: dict[Way, list[float]]) -> Table:
    return Table(
        "Results off by more than 2 %, of 12 sizes from 1e-5 to 6e4",
        ("dtype", "arithmetic", "eps", "wrong", "largest error"),
        tuple(
            (dtype, way, f"{eps:g}", f"{100 * _wrong(found):.0f} %", number(max(found)))
            for (dtype, way, eps), found in errors.items()
        ),
    )


def _table_of_eps(lost_db: dict[float, float], gains: dict[float, float]) -> Table:
    return Table(
        "What eps costs",
        ("eps", "dB lost at -40 dB", "gain of the gradient on a silent row, float16"),
        tuple((f"{eps:g}", f"{lost_db[eps]:.2f}", number(gains[eps])) for eps in EPSILONS),
    )


def _plot(errors: dict[Way, list[float]]) -> Plot:
    """Three ways in float16, errors kept within what the axis shows."""
    ways = {
        "float32 sums, eps 1e-5": (WIDE, 1e-5),
        "float16 sums, eps 1e-5": (NARROW, 1e-5),
        "float16 sums, eps 1e-4": (NARROW, 1e-4),
    }
    curves = tuple(
        Series(name, SIZES, tuple(min(max(error, 1e-5), 10.0) for error in errors["float16", way, eps]))
        for name, (way, eps) in ways.items()
    )
    title, x, y = "Error of RMSNorm in float16", "RMS of the row", "relative error (1: lost)"
    return Plot(title, x, y, curves, log_x=True, log_y=True, lines=(WRONG,))


def _bounded_rows(seed: int) -> Tensor:
    """Rows of RMS 1 and largest value 1 (signs), so that those of RMS 6e4 still fit into float16."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, (ROWS, DIM), generator=generator).double() * 2 - 1


def _wide(x: Tensor, eps: float) -> Tensor:
    return rms_norm(x, torch.ones(DIM, dtype=x.dtype), eps)


def _narrow(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + eps)


def _error(norm: Norm, x: Tensor, dtype: torch.dtype, eps: float) -> float:
    """Largest error of an output, relative to the right one's largest; infinite where it is not finite."""
    rounded = x.to(dtype)
    right = reference.rms_norm(rounded.double(), torch.ones(DIM, dtype=torch.float64), eps)
    off = (norm(rounded, eps).double() - right).abs().nan_to_num(math.inf, math.inf).max()
    return float(off / right.abs().max())


def _wrong(errors: list[float]) -> float:
    return sum(error > WRONG for error in errors) / len(errors)


def _levels_lost_db(unit: Tensor) -> dict[float, float]:
    """What every eps takes from a quiet row, as measured, which the formula must confirm."""
    measured_db = {eps: _level_loss_db(QUIET * unit, eps) for eps in EPSILONS}
    by_formula_db = {eps: 10 * math.log10(1 + eps / QUIET**2) for eps in EPSILONS}
    if any(abs(measured_db[eps] - by_formula_db[eps]) > 0.1 for eps in EPSILONS):
        raise RuntimeError(f"levels lost to eps are {measured_db} dB, by formula {by_formula_db}")
    return measured_db


def _level_loss_db(x: Tensor, eps: float) -> float:
    """Level of the output under 0 dB, which rows of any size should have."""
    return -20 * math.log10(float(_wide(x.float(), eps).square().mean().sqrt()))


@torch.enable_grad()
def _zero_gain(eps: float) -> float:
    """By how much a row of zeros in float16 multiplies its gradient."""
    x = torch.zeros(1, DIM, dtype=torch.float16, requires_grad=True)
    (dx,) = torch.autograd.grad(_wide(x, eps), x, torch.ones_like(x))
    return float(dx.abs().max())
