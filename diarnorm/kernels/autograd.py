"""The Triton kernels as differentiable functions, launched directly. Without a gradient to keep, no graph is built.

The gradient of a gradient is refused: ask for `backend="eager"` there.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from diarnorm.kernels import fused


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, mask: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """As `reference.rms_norm`."""
    dtype = x.dtype if out_dtype is None else out_dtype
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _RMSNorm.apply(x, weight, eps, mask, dtype)  # pyright: ignore[reportReturnType]
    return fused.forward(x, None, weight, eps, 1.0, mask, dtype)[0]


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    alpha: float = 1.0,
    mask: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """As `reference.add_rms_norm`."""
    dtype = x.dtype if out_dtype is None else out_dtype
    if torch.is_grad_enabled() and (x.requires_grad or residual.requires_grad or weight.requires_grad):
        return _AddRMSNorm.apply(x, residual, weight, eps, alpha, mask, dtype)  # pyright: ignore[reportReturnType]
    return fused.forward(x, residual, weight, eps, alpha, mask, dtype)  # pyright: ignore[reportReturnType]


class _RMSNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, mask: Tensor | None, out_dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, weight, mask)
        ctx.eps = eps
        return fused.forward(x, None, weight, eps, 1.0, mask, out_dtype)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, weight, mask = ctx.saved_tensors
        dx, _, dw = fused.backward(dy, x, weight, ctx.eps, mask, need_weight=ctx.needs_input_grad[1])
        return dx, dw, None, None, None


class _AddRMSNorm(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor,
        weight: Tensor,
        eps: float,
        alpha: float,
        mask: Tensor | None,
        out_dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor | None]:
        y, r = fused.forward(x, residual, weight, eps, alpha, mask, out_dtype)
        ctx.save_for_backward(r, weight, mask)
        ctx.set_materialize_grads(False)
        ctx.eps, ctx.alpha, ctx.addend_dtype = eps, alpha, x.dtype
        return y, r

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dr: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        r, weight, mask = ctx.saved_tensors
        if dy is None:
            return _gradients_of_sum(dr, ctx.alpha, ctx.addend_dtype, mask)
        dresidual, dx, dw = fused.backward(
            dy,
            r,
            weight,
            ctx.eps,
            mask,
            dr=dr,
            alpha=ctx.alpha,
            addend_dtype=ctx.addend_dtype,
            need_weight=ctx.needs_input_grad[2],
        )
        return dx, dresidual, dw, None, None, None, None


def _gradients_of_sum(
    dr: Tensor | None, alpha: float, addend_dtype: torch.dtype, mask: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients where the norm itself was not used, only the sum."""
    if dr is None:
        return (None,) * 7
    if mask is not None:
        dr = torch.where(mask[..., None], dr, 0.0)
    return (alpha * dr.float()).to(addend_dtype), dr, *(None,) * 5
