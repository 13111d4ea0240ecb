"""RMSNorm on the CPU: the native kernels where they have been built or Numba is there, else few of torch's operators.

Arithmetic runs in float32, or in float64 where an input is, with one cast at the end. The order of every sum depends on
the last dimension alone: a row alone has the bits it has in a batch. Nothing that is given is overwritten. Where a
program is being recorded or transformed (torch.compile, torch.export, torch.jit.trace, torch.func, forward-mode
gradients), the definition in `reference.py` runs instead, so that these see plain operators.
"""

from contextlib import suppress

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from diarnorm.kernels import native, operators, reference
from diarnorm.kernels.check import check_eps, check_residual, check_rms_norm
from diarnorm.kernels.dispatch import PLAIN, is_transformed


def rms_norm(
    x: Float[Tensor, "*rows dim"],
    weight: Float[Tensor, " dim"],
    eps: float,
    mask: Bool[Tensor, "*rows"] | None = None,
    out_dtype: torch.dtype | None = None,
) -> Float[Tensor, "*rows dim"]:
    """As `reference.rms_norm`.

    Raises:
        ValueError: arguments that do not fit together.
    """
    if not _is_plain(x):
        return reference.rms_norm(x, weight, eps, mask, out_dtype)
    if out_dtype is not None and out_dtype != x.dtype:
        check_rms_norm(x, weight, eps, mask, out_dtype)
        return rms_norm(x.to(operators.width(x, weight)), weight, eps, mask).to(out_dtype)
    kernels = native.load()
    if kernels is None:
        if mask is not None or not _is_simple(x, weight, eps):
            check_rms_norm(x, weight, eps, mask, out_dtype)
        y = operators.rms_norm(x, weight, eps, mask)
    else:
        try:
            y = kernels.rms_norm(x, weight, eps) if mask is None else kernels.masked_rms_norm(x, weight, eps, mask)
        except (ValueError, TypeError, RuntimeError):
            check_rms_norm(x, weight, eps, mask, out_dtype)  # says what does not fit
            raise
    return y


def add_rms_norm(
    x: Float[Tensor, "*rows dim"],
    residual: Float[Tensor, "*rows dim"],
    weight: Float[Tensor, " dim"],
    eps: float,
    alpha: float = 1.0,
    mask: Bool[Tensor, "*rows"] | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Float[Tensor, "*rows dim"], Float[Tensor, "*rows dim"]]:
    """As `reference.add_rms_norm`.

    Raises:
        ValueError: arguments that do not fit together.
    """
    if not _is_plain(x):
        return reference.add_rms_norm(x, residual, weight, eps, alpha, mask, out_dtype)
    kernels = native.load()
    check_eps(eps)
    alike = x.dtype is residual.dtype is weight.dtype and x.dtype in operators.DTYPES and out_dtype in (None, x.dtype)
    if alike and kernels is not None:
        with suppress(ValueError):  # the checks below say what does not fit
            return kernels.add_rms_norm(x, residual, weight, eps, alpha, mask)
    check_rms_norm(x, weight, eps, mask, out_dtype)
    check_residual(x, residual)
    if alike:
        return operators.add_rms_norm(x, residual, weight, eps, alpha, mask)
    r = reference.add(x, residual, alpha, mask)
    return rms_norm(r, weight, eps, mask, x.dtype if out_dtype is None else out_dtype), r


def _is_simple(x: Tensor, weight: Tensor, eps: float) -> bool:
    """Whether the full check can be left out: with few rows it would be a fifth of the time."""
    return (
        x.shape[-1:] == weight.shape
        and x.dtype is weight.dtype
        and x.dtype in operators.DTYPES
        and bool(eps)
        and eps > 0
    )


def _is_plain(x: Tensor) -> bool:
    """Whether `x` is numbers to compute with here and now, not something recorded or transformed."""
    return not is_dynamo_compiling() and type(x) in PLAIN and x.is_cpu and not is_transformed()
