"""RMSNorm as ONNX writes it: one `RMSNormalization` node from opset 23 on, below it operators that ONNX Runtime fuses.

ONNX Runtime turns `w * (x / sqrt(mean(x^2) + eps))`, in this spelling, into one `SimplifiedLayerNormalization`; the
reciprocal root of `torch.nn.RMSNorm`'s own export stays eight nodes. That spelling is taken unless one for an opset is
asked for:

    with onnx_spelling(23):
        torch.onnx.export(module, inputs, "norm.onnx", dynamo=True, opset_version=23)
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from diarnorm.kernels import reference

NODE_OPSET = 23
"""First opset with `RMSNormalization`."""

_opset: int | None = None


@contextmanager
def onnx_spelling(opset: int) -> Iterator[None]:
    """Inside, `torch.export` and `torch.onnx.export` see norms as this opset should have them.

    Without it `torch.onnx.export` gets the spelling that every opset understands, and `torch.export` the definition.
    Give the `opset_version` of the export: `RMSNormalization` does not exist in opsets below `NODE_OPSET`.
    """
    global _opset
    before, _opset = _opset, opset
    try:
        yield
    finally:
        _opset = before


def spells_onnx() -> bool:
    """Whether a model is being written as ONNX."""
    return _opset is not None or torch.onnx.is_in_onnx_export()


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, mask: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """As `reference.rms_norm`, spelled for the opset."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)
    wide, gain = x.to(dtype), weight.to(dtype)
    if mask is not None:
        wide = torch.where(mask[..., None], wide, 0.0)
    if _opset is not None and _opset >= NODE_OPSET:
        y = F.rms_norm(wide, gain.shape, gain, eps)
    else:
        y = gain * (wide / torch.sqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps))
    if mask is not None:
        y = torch.where(mask[..., None], y, 0.0)
    return y.to(x.dtype if out_dtype is None else out_dtype)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    alpha: float = 1.0,
    mask: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """As `reference.add_rms_norm`, spelled for the opset."""
    r = reference.add(x, residual, alpha, mask)
    return rms_norm(r, weight, eps, mask, x.dtype if out_dtype is None else out_dtype), r
