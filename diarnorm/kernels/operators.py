"""RMSNorm from few of torch's operators, with a backward pass written by hand: the CPU without the native kernels.

    y = sqrt(dim) * (x / size) * weight,    size = hypot(|x|, sqrt(dim * eps)) = sqrt(sum(x^2) + dim * eps)

Four operators instead of six, two of them on one number per row, and one large temporary instead of three.
Same functions as `native.Native`.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

DTYPES = (torch.float32, torch.float64)
"""What arithmetic runs in."""
NARROW = 2048
"""Widest rows whose length is as exact from `torch.linalg.vector_norm` as from squares summed in a tree."""
PIECE = 1 << 18
"""Numbers per step of the backward pass: temporaries of a megabyte are reused, larger ones come new from the system."""


def rms_norm(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> Tensor:
    """y in x's dtype."""
    dtype = x.dtype
    if dtype != weight.dtype or dtype not in DTYPES:
        wide = width(x, weight)
        x, weight = x.to(wide), weight.to(wide)
    x = x.contiguous()
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y: Tensor = _RMSNorm.apply(x, weight, eps, mask)  # pyright: ignore[reportAssignmentType]
    else:
        y = _forward(x if mask is None else _keep(x, mask), weight, eps)[0]
    return y if y.dtype == dtype else y.to(dtype)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, alpha: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`(y, r)` with `r = residual + alpha * x`; all of one dtype of `DTYPES`."""
    r = _keep(torch.add(residual, x, alpha=alpha), mask)
    return rms_norm(r, weight, eps, mask), r


def width(x: Tensor, weight: Tensor) -> torch.dtype:
    """What arithmetic on both runs in."""
    return torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)


def refuse_second_derivative() -> None:
    """Raise RuntimeError in a backward pass that is itself recorded: gradients written by hand have no gradient."""
    if torch.is_grad_enabled():
        raise RuntimeError("RMSNorm on the CPU has no second derivative: use backend='eager'")


class _RMSNorm(Function):
    """The definition's gradient: with `g = dy * weight` and `n = x * rstd`, `dx = rstd * (g - n * mean(g * n))`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> Tensor:
        x = _keep(x, mask)
        y, size = _forward(x, weight, eps)
        ctx.save_for_backward(x, weight, size, mask)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        refuse_second_derivative()
        x, weight, size, mask = ctx.saved_tensors
        dim = x.shape[-1]
        dx = torch.empty_like(x)
        dy, x, size, rows = (t.reshape(-1, t.shape[-1]) for t in (_keep(dy, mask), x, size, dx))
        pieces = [slice(i, i + PIECE // dim + 1) for i in range(0, max(1, rows.shape[0]), PIECE // dim + 1)]
        dweight = [_backward(dy[i], x[i], size[i], rows[i], weight) for i in pieces]
        return dx, torch.stack(dweight).sum(dim=0), None, None


def _backward(dy: Tensor, x: Tensor, size: Tensor, dx: Tensor, weight: Tensor) -> Tensor:
    """Fills `dx`, returns the weight's gradient; of some of the rows."""
    dim = x.shape[-1]
    rstd = size.reciprocal().mul_(math.sqrt(dim))
    normed = x * rstd
    terms = dy * normed
    with torch.autocast("cpu", enabled=False):
        pull = terms @ weight
    torch.mul(dy, weight, out=dx).addcmul_(normed, pull[:, None], value=-1 / dim).mul_(rstd)
    return terms.sum(dim=0)


def _forward(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """`(y, size)` of contiguous rows."""
    dim = x.shape[-1]
    zero, floor = _constants(dim, eps, x.dtype)
    size = _length(x).hypot_(floor)
    y = x / size
    return torch.addcmul(zero, y, weight, value=math.sqrt(dim), out=y), size


def _length(x: Tensor) -> Tensor:
    """|x| of each row. `vector_norm` adds up a row in few sums: fast, and too coarse for wide rows."""
    if x.shape[-1] <= NARROW:
        return torch.linalg.vector_norm(x, 2, -1, True)
    return x.square().sum(dim=-1, keepdim=True).sqrt_()


def _keep(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, 0.0)


@lru_cache(maxsize=64)
def _constants(dim: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """0 and sqrt(dim * eps) as tensors."""
    with torch.inference_mode(False):
        return torch.zeros((), dtype=dtype, device="cpu"), torch.tensor(math.sqrt(dim * eps), dtype=dtype, device="cpu")
