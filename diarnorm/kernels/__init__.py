"""RMSNorm, alone and with the residual addition in front of it: one public function each, for every device.

>>> import torch
>>> rms_norm(torch.tensor([3.0, 4.0, 0.0, 0.0]), torch.ones(4), eps=1e-5)
tensor([1.2000, 1.6000, 0.0000, 0.0000])

Importing this needs and asks for no GPU and no Triton. Who does what:

    reference.py    the definition, in torch's operators
    cpu.py          the way on a CPU: native.py (rms.cpp, or numba_rms.py), else operators.py
    triton_rms.py   device code; fused.py its host side; launch.py its launch parameters; autograd.py its gradients
    library.py      the same as torch.library operators
    export.py       the same as ONNX writes it; `export.onnx_spelling(23)` makes each norm one node
    dispatch.py     which of these is taken
"""

from types import ModuleType

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from diarnorm.kernels import cpu
from diarnorm.kernels.check import check_residual, check_rms_norm
from diarnorm.kernels.dispatch import BACKENDS, choose_backend

__all__ = ["BACKENDS", "add_rms_norm", "choose_backend", "rms_norm"]


def rms_norm(
    x: Float[Tensor, "*rows dim"],
    weight: Float[Tensor, " dim"],
    eps: float,
    *,
    mask: Bool[Tensor, "*rows"] | None = None,
    out_dtype: torch.dtype | None = None,
    backend: str = "auto",
) -> Float[Tensor, "*rows dim"]:
    """`y = x / sqrt(mean(x^2) + eps) * weight` over the last dimension, as `out_dtype` (default: x's), differentiable.

    Arithmetic in float32, in float64 where an input is, and one cast at the end; autocast changes nothing. Rows whose
    `mask` is False give 0, get gradient 0 and stay out of the weight's gradient. A silent row (zeros) gives zeros and
    multiplies its gradient by weight / sqrt(eps): 316 at the usual eps of 1e-5. A row's result does not depend on the
    other rows. For `backend` see `dispatch.BACKENDS`; it changes speed, not what is computed. Second derivatives need
    `eager`; `torch.func` and forward-mode gradients need `eager` or `auto`.

    Raises ValueError when shapes or dtypes do not fit, eps is not positive, or the backend cannot run here.
    """
    way = choose_backend(x, weight, mask, backend=backend)
    if way == "cpu":  # checks its arguments itself: on few rows every call counts
        return cpu.rms_norm(x, weight, eps, mask, out_dtype)
    check_rms_norm(x, weight, eps, mask, out_dtype)
    return _module(way).rms_norm(x, weight, eps, mask, out_dtype)


def add_rms_norm(
    x: Float[Tensor, "*rows dim"],
    residual: Float[Tensor, "*rows dim"],
    weight: Float[Tensor, " dim"],
    eps: float,
    alpha: float = 1.0,
    *,
    mask: Bool[Tensor, "*rows"] | None = None,
    out_dtype: torch.dtype | None = None,
    backend: str = "auto",
) -> tuple[Float[Tensor, "*rows dim"], Float[Tensor, "*rows dim"]]:
    """`r = residual + alpha * x` and `y = rms_norm(r)`: (y, r), both differentiable.

    r has residual's dtype, y `out_dtype` (default: x's); y is the norm of the r that is returned, rounding included.
    Conformer's half step is `alpha=0.5`. Everything else as in `rms_norm`; masked rows of y and r are 0.
    """
    way = choose_backend(x, residual, weight, mask, backend=backend)
    if way == "cpu":
        return cpu.add_rms_norm(x, residual, weight, eps, alpha, mask, out_dtype)
    check_rms_norm(x, weight, eps, mask, out_dtype)
    check_residual(x, residual)
    return _module(way).add_rms_norm(x, residual, weight, eps, alpha, mask, out_dtype)


def _module(way: str) -> ModuleType:
    """The module that computes a norm that way; Triton's and the operators are imported when first used."""
    if way == "triton":
        from diarnorm.kernels import autograd as module
    elif way == "op":
        from diarnorm.kernels import library as module
    elif way == "onnx":
        from diarnorm.kernels import export as module
    else:
        from diarnorm.kernels import reference as module
    return module
