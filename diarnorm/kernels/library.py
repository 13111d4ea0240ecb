"""The kernels as `torch.library` operators, for graphs that must keep them whole: `backend="op"`.

Inside `torch.compile` the plain definition fuses with its neighbours and is the default; an operator stays one opaque
node. In eager mode the crossing costs microseconds that a direct launch saves. On CUDA the operators launch the Triton
kernels; elsewhere they compute the definition.
"""

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op

from diarnorm.kernels import fused, reference


@custom_op("diarnorm::rms_norm", mutates_args=())
def _rms_norm(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    if x.is_cuda:
        return fused.forward(x, None, weight, eps, 1.0, mask, out_dtype)[0]
    return reference.rms_norm(x, weight, eps, mask, out_dtype).contiguous()


@custom_op("diarnorm::rms_norm_backward", mutates_args=())
def _rms_norm_backward(dy: Tensor, x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    if x.is_cuda:
        dx, _, dw = fused.backward(dy, x, weight, eps, mask)
        assert dw is not None
        return dx, dw
    dx, dw = reference.gradients(dy, x, weight, eps, mask)
    return dx.to(x.dtype).contiguous(), dw.to(weight.dtype)


@custom_op("diarnorm::add_rms_norm", mutates_args=())
def _add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    alpha: float,
    mask: Tensor | None,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    if x.is_cuda:
        y, r = fused.forward(x, residual, weight, eps, alpha, mask, out_dtype)
        assert r is not None
        return y, r
    y, r = reference.add_rms_norm(x, residual, weight, eps, alpha, mask, out_dtype)
    return y.contiguous(), r.contiguous()


@custom_op("diarnorm::add_rms_norm_backward", mutates_args=())
def _add_rms_norm_backward(
    dy: Tensor,
    dr: Tensor,
    r: Tensor,
    weight: Tensor,
    eps: float,
    alpha: float,
    mask: Tensor | None,
    addend_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    if r.is_cuda:
        dresidual, dx, dw = fused.backward(dy, r, weight, eps, mask, dr=dr, alpha=alpha, addend_dtype=addend_dtype)
        assert dw is not None
        return dx.clone() if dx is dresidual else dx, dresidual, dw  # an operator's results are tensors of their own
    dz, dw = reference.gradients(dy, r, weight, eps, mask, dr)
    dx = (alpha * dz).to(addend_dtype).contiguous()
    return dx, dz.to(r.dtype, copy=True).contiguous(), dw.to(weight.dtype)


@_rms_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None, out_dtype: torch.dtype) -> Tensor:
    return x.new_empty(x.shape, dtype=out_dtype)


@_rms_norm_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


@_add_rms_norm.register_fake
def _(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    alpha: float,
    mask: Tensor | None,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape, dtype=out_dtype), residual.new_empty(x.shape)


@_add_rms_norm_backward.register_fake
def _(
    dy: Tensor,
    dr: Tensor,
    r: Tensor,
    weight: Tensor,
    eps: float,
    alpha: float,
    mask: Tensor | None,
    addend_dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    return r.new_empty(r.shape, dtype=addend_dtype), r.new_empty(r.shape), weight.new_empty(weight.shape)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.eps, mask, _ = inputs
    ctx.save_for_backward(x, weight, mask)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, mask = ctx.saved_tensors
    dx, dw = _rms_norm_backward(dy, x, weight, ctx.eps, mask)
    return dx, dw, None, None, None


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, _, weight, ctx.eps, ctx.alpha, mask, _ = inputs
    ctx.addend_dtype = x.dtype
    ctx.save_for_backward(output[1], weight, mask)


def _differentiate_sum(ctx: Any, dy: Tensor, dr: Tensor) -> tuple[Tensor | None, ...]:
    r, weight, mask = ctx.saved_tensors
    dx, dresidual, dw = _add_rms_norm_backward(dy, dr, r, weight, ctx.eps, ctx.alpha, mask, ctx.addend_dtype)
    return dx, dresidual, dw, None, None, None, None


_rms_norm.register_autograd(_differentiate, setup_context=_keep_inputs)
_add_rms_norm.register_autograd(_differentiate_sum, setup_context=_keep_sum)


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, mask: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """As `reference.rms_norm`, as one operator `diarnorm::rms_norm`."""
    return _rms_norm(x, weight, eps, mask, x.dtype if out_dtype is None else out_dtype)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    alpha: float = 1.0,
    mask: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """As `reference.add_rms_norm`, as one operator `diarnorm::add_rms_norm`."""
    dtype = x.dtype if out_dtype is None else out_dtype
    return _add_rms_norm(x, residual, weight, eps, alpha, mask, dtype)
