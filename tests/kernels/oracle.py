"""What a kernel must come up to: the definition in float64, stock torch in the same dtype, and the rounding bound."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from diarnorm.kernels import reference

EPS = 1e-5
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
RELATIVE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Largest error, relative to the magnitude before anything cancels."""


class Case(NamedTuple):
    """Inputs of one call and the gradient of its output."""

    x: Tensor
    weight: Tensor
    dy: Tensor
    mask: Tensor | None = None
    eps: float = EPS


class Outcome(NamedTuple):
    """Output and gradients."""

    y: Tensor
    dx: Tensor
    dw: Tensor


def make_case(
    *shape: int,
    dtype: torch.dtype = torch.float32,
    weight_dtype: torch.dtype = torch.float32,
    mask: Tensor | None = None,
    seed: int = 0,
) -> Case:
    """Random inputs; weights between 0.5 and 1.5, of either sign."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator).to(dtype)
    sign = torch.randint(0, 2, shape[-1:], generator=generator) * 2.0 - 1.0
    weight = (sign * (0.5 + torch.rand(shape[-1], generator=generator))).to(weight_dtype)
    return Case(x, weight, torch.randn(shape, generator=generator).to(dtype), mask)


def run(norm: Callable[..., Tensor], case: Case) -> Outcome:
    """Output and gradients of `norm(x, weight, eps, mask)`."""
    x, weight = case.x.detach().requires_grad_(), case.weight.detach().requires_grad_()
    y = norm(x, weight, case.eps, case.mask)
    y.backward(case.dy)
    assert x.grad is not None
    assert weight.grad is not None
    return Outcome(y.detach(), x.grad, weight.grad)


def exact(case: Case) -> Outcome:
    """The definition in float64."""
    wide = Case(case.x.double(), case.weight.double(), case.dy.double(), case.mask, case.eps)
    return run(reference.rms_norm, wide)


def stock(case: Case) -> Outcome:
    """`torch.nn.functional.rms_norm` with everything in x's dtype; masked rows come out as 0."""

    def norm(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> Tensor:
        x = x if mask is None else torch.where(mask[..., None], x, 0.0)
        y = F.rms_norm(x, weight.shape, weight.to(x.dtype), eps)
        return y if mask is None else torch.where(mask[..., None], y, 0.0)

    return run(norm, case)


def assert_accurate(got: Outcome, case: Case) -> None:
    """`got` is close enough to float64, by the largest error of stock torch and by every single element's bound."""
    true, plain, dtype = exact(case), stock(case), case.x.dtype
    assert got.y.dtype == got.dx.dtype == dtype
    assert got.dw.dtype == case.weight.dtype
    for name in ("y", "dx"):
        assert_no_worse(getattr(got, name), getattr(true, name), getattr(plain, name))
    assert_within(got.y, true.y, true.y.abs())
    assert_within(got.dx, true.dx, gradient_magnitude(case))
    if case.weight.dtype == torch.float32:
        rows = max(1, case.x.numel() // case.x.shape[-1])
        worst = float((got.dw.double() - true.dw).abs().max())
        assert worst <= 5e-6 * rows**0.5, f"dW off by {worst:.2e}"


def assert_no_worse(got: Tensor, true: Tensor, plain: Tensor) -> None:
    """Largest error at most twice that of stock torch in the same dtype, plus one unit in the last place."""
    if true.numel() == 0:
        return
    allowed = 2 * (plain.double() - true).abs().max() + torch.finfo(got.dtype).eps * true.abs().max()
    worst = (got.double() - true).abs().max()
    assert worst <= allowed, f"largest error {worst:.3e}, allowed {allowed:.3e}"


def assert_within(got: Tensor, true: Tensor, magnitude: Tensor) -> None:
    """Every element's error at most the dtype's share of its magnitude (plus the smallest number there is)."""
    allowed = RELATIVE[got.dtype] * magnitude + torch.finfo(got.dtype).tiny
    excess = ((got.double() - true).abs() - allowed).nan_to_num(nan=torch.inf)
    assert bool((excess <= 0).all()), f"error exceeds its bound by {float(excess.max()):.3e}"


def gradient_magnitude(case: Case) -> Tensor:
    """Size of dx before its two terms cancel: `rstd (|dy w| + |n| mean|dy w n|)`, n the normalised input."""
    x, dy = case.x.double(), case.dy.double()
    rstd = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + case.eps)
    pull, normed = (dy * case.weight.double()).abs(), (x * rstd).abs()
    magnitude = rstd * (pull + normed * (pull * normed).mean(dim=-1, keepdim=True))
    return magnitude if case.mask is None else torch.where(case.mask[..., None], magnitude, 0.0)
