"""What the norms accept, said once for every way of computing them."""

import torch
from torch import Tensor


def check_rms_norm(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None, out_dtype: torch.dtype | None) -> None:
    """Raise ValueError, with what was given, what is needed and the nearest fix, unless the arguments fit together."""
    check_eps(eps)
    if x.ndim == 0 or weight.ndim != 1 or weight.shape[0] != x.shape[-1] or weight.shape[0] == 0:
        raise ValueError(
            f"weight needs one number per feature of x, got weight {list(weight.shape)} for x {list(x.shape)}: "
            "the norm runs over the last dimension"
        )
    if not (x.dtype.is_floating_point and weight.dtype.is_floating_point):
        raise ValueError(
            f"x and weight must be floating point, got {x.dtype} and {weight.dtype}: convert with .float()"
        )
    if mask is not None:
        _check_mask(x, mask)
    if out_dtype is not None and not out_dtype.is_floating_point:
        raise ValueError(f"out_dtype={out_dtype} cannot hold a normalised value: give a floating-point dtype")


def check_eps(eps: float | None) -> None:
    """Raise ValueError unless `eps` is a positive number. None, which torch takes, means another number per dtype."""
    if eps is None or not eps > 0:
        why = "means another number for every dtype" if eps is None else "would divide silent frames by zero"
        raise ValueError(f"eps={eps} {why}: give a positive number, usually 1e-5")


def check_residual(x: Tensor, residual: Tensor) -> None:
    """Raise ValueError unless `residual` has x's shape and holds floating-point numbers."""
    if residual.shape != x.shape:
        raise ValueError(
            f"residual needs the shape of x, got {list(residual.shape)} for x {list(x.shape)}: "
            "expand it to x's shape before the call"
        )
    if not residual.dtype.is_floating_point:
        raise ValueError(f"residual must be floating point, got {residual.dtype}: convert with .float()")


def _check_mask(x: Tensor, mask: Tensor) -> None:
    if mask.shape != x.shape[:-1]:
        raise ValueError(
            f"mask needs one truth value per row of x, got {list(mask.shape)} for x {list(x.shape)}: "
            f"its shape must be {list(x.shape[:-1])}"
        )
    if mask.dtype != torch.bool:
        raise ValueError(f"mask must be bool (True = frame counts), got {mask.dtype}: compare first, e.g. mask > 0")
