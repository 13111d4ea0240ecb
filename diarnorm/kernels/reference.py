"""The definition: RMSNorm from torch's own operators, on any device, differentiable, in float64 where asked.

    y = x / sqrt(mean(x^2) + eps) * weight      over the last dimension

Every other way of computing it is tested against this one. Arithmetic runs in float32, or in float64 when one of the
inputs is float64; there is one cast, at the end. Rows whose `mask` is False give 0, get gradient 0 and stay out of the
weight's gradient, whatever they hold (NaN included).

Source: B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def rms_norm(
    x: Float[Tensor, "*rows dim"],
    weight: Float[Tensor, " dim"],
    eps: float,
    mask: Bool[Tensor, "*rows"] | None = None,
    out_dtype: torch.dtype | None = None,
) -> Float[Tensor, "*rows dim"]:
    """`x` normalised, as `out_dtype` (default: x's)."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, weight.dtype), torch.float32)
    wide = _keep(x.to(dtype), mask)
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return _keep(wide * scale * weight.to(dtype), mask).to(x.dtype if out_dtype is None else out_dtype)


def add_rms_norm(
    x: Float[Tensor, "*rows dim"],
    residual: Float[Tensor, "*rows dim"],
    weight: Float[Tensor, " dim"],
    eps: float,
    alpha: float = 1.0,
    mask: Bool[Tensor, "*rows"] | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Float[Tensor, "*rows dim"], Float[Tensor, "*rows dim"]]:
    """`r = residual + alpha * x` in residual's dtype, and `y = rms_norm(r)` as `out_dtype` (default: x's).

    y is the norm of the r that is returned, rounding included; masked rows of both are 0.
    """
    r = add(x, residual, alpha, mask)
    return rms_norm(r, weight, eps, mask, x.dtype if out_dtype is None else out_dtype), r


def add(
    x: Float[Tensor, "*rows dim"],
    residual: Float[Tensor, "*rows dim"],
    alpha: float,
    mask: Bool[Tensor, "*rows"] | None = None,
) -> Float[Tensor, "*rows dim"]:
    """`residual + alpha * x`, added in float32 or wider, in residual's dtype; 0 in masked rows."""
    dtype = torch.promote_types(torch.promote_types(x.dtype, residual.dtype), torch.float32)
    return torch.add(_keep(residual.to(dtype), mask), _keep(x.to(dtype), mask), alpha=alpha).to(residual.dtype)


def _keep(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else torch.where(mask[..., None], x, 0.0)


def gradients(
    dy: Float[Tensor, "*rows dim"],
    z: Float[Tensor, "*rows dim"],
    weight: Float[Tensor, " dim"],
    eps: float,
    mask: Bool[Tensor, "*rows"] | None = None,
    dr: Float[Tensor, "*rows dim"] | None = None,
) -> tuple[Float[Tensor, "*rows dim"], Float[Tensor, " dim"]]:
    """Gradients of z and weight in `rms_norm(z, weight, eps, mask)` from its gradient `dy`, in float32 or wider.

    `dr` is z's own gradient from elsewhere. For callers outside autograd; autograd finds the same by itself.
    """
    dtype = torch.promote_types(torch.promote_types(z.dtype, weight.dtype), torch.float32)
    wide, dy = _keep(z.to(dtype), mask), _keep(dy.to(dtype), mask)
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    normed, slope = wide * scale, dy * weight.to(dtype)
    dz = scale * (slope - normed * (slope * normed).mean(dim=-1, keepdim=True))
    if dr is not None:
        dz = dz + dr.to(dtype)
    return _keep(dz, mask), (dy * normed).reshape(-1, weight.shape[0]).sum(dim=0)
