"""RMSNorm on the CPU as Numba compiles it: the native path where there is no C++ compiler, only `pip install numba`.

Same functions as `native.Native`, same arithmetic as `rms.cpp`, but that sums over a row run in float64: the order of
every sum depends on the last dimension alone. The loops are compiled at the first call, which takes about a second, and
found in Numba's cache from then on. Calls hand pointers over, which is cheaper than handing arrays over. Gradients of
few rows are slower than in C++, as autograd has to ask Python for them.
"""

import ctypes
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import torch
from numba import carray, cfunc, types  # pyright: ignore[reportPrivateImportUsage]
from torch import Tensor
from torch.autograd import Function

from diarnorm.kernels import operators
from diarnorm.kernels.check import check_residual, check_rms_norm

BLOCK_ROWS = 128
"""Rows per partial gradient of the weight; pieces for threads are whole blocks."""
PIECE = 1 << 18
"""Least numbers per thread."""
FREEDOM = {"reassoc", "contract", "nsz"}
"""What LLVM may do to arithmetic: sum in vectors, fuse; NaN and infinity mean what they mean."""

Kernel = Callable[..., None]


# ---- the loops; Numba compiles them ---------------------------------------------------------------------------


def _forward_rows(
    y_at: Any, z_at: Any, x_at: Any, residual_at: Any, weight_at: Any, mask_at: Any,
    first: int, last: int, dim: int, summed: int, masked: int, alpha: float, eps: float,
) -> None:  # fmt: skip
    """`y = z / sqrt(mean(z^2) + eps) * weight` of some rows; first `z = residual + alpha * x`, if `summed`."""
    shape = (last, dim)
    y, z, x, weight = carray(y_at, shape), carray(z_at, shape), carray(x_at, shape), carray(weight_at, dim)
    residual, mask = carray(residual_at, shape), carray(mask_at, last)
    for i in range(first, last):
        if masked and not mask[i]:
            for j in range(dim):
                y[i, j] = 0
            if summed:
                for j in range(dim):
                    z[i, j] = 0
            continue
        if summed:
            for j in range(dim):
                z[i, j] = residual[i, j] + alpha * x[i, j]
        square = 0.0
        for j in range(dim):
            square += z[i, j] * z[i, j]
        scale = y.dtype.type(1.0 / math.sqrt(square / dim + eps))
        for j in range(dim):
            y[i, j] = z[i, j] * scale * weight[j]


def _backward_rows(
    dz_at: Any, dx_at: Any, parts_at: Any, dy_at: Any, dr_at: Any, z_at: Any, weight_at: Any, mask_at: Any,
    first: int, last: int, dim: int, summed: int, masked: int, alpha: float, eps: float,
) -> None:  # fmt: skip
    """With `g = dy * weight`, `n = z * scale`: `dz = scale * (g - n * mean(g * n))`, plus dr, and `dx = alpha * dz`."""
    shape = (last, dim)
    dz, dy, z, weight = carray(dz_at, shape), carray(dy_at, shape), carray(z_at, shape), carray(weight_at, dim)
    dx, dr, mask = carray(dx_at, shape), carray(dr_at, shape), carray(mask_at, last)
    parts = carray(parts_at, (last // BLOCK_ROWS + 1, dim))
    for i in range(first, last):
        part = parts[i // BLOCK_ROWS]
        if i % BLOCK_ROWS == 0:
            for j in range(dim):
                part[j] = 0
        if masked and not mask[i]:
            for j in range(dim):
                dz[i, j] = 0
            if summed:
                for j in range(dim):
                    dx[i, j] = 0
            continue
        square, along = 0.0, 0.0
        for j in range(dim):
            square += z[i, j] * z[i, j]
            along += dy[i, j] * weight[j] * z[i, j]
        rstd = 1.0 / math.sqrt(square / dim + eps)
        scale, pull = dz.dtype.type(rstd), dz.dtype.type(rstd * (rstd * (along / dim)))
        for j in range(dim):
            n = z[i, j] * scale
            part[j] += dy[i, j] * n
            dz[i, j] = dy[i, j] * weight[j] * scale - n * pull
        if summed:
            for j in range(dim):
                dz[i, j] += dr[i, j]
                dx[i, j] = alpha * dz[i, j]


@lru_cache
def _compile(loop: Callable[..., None], num_pointers: int, dtype: torch.dtype) -> Kernel:
    """`loop` as a function of `num_pointers` addresses (the last is the mask's), five whole numbers, alpha and eps."""
    real, c_real = {torch.float32: (types.float32, ctypes.c_float), torch.float64: (types.float64, ctypes.c_double)}[
        dtype
    ]
    pointers = [*[types.CPointer(real)] * (num_pointers - 1), types.CPointer(types.uint8)]
    signature = types.void(*pointers, *[types.int64] * 5, real, types.float64)
    compiled = cfunc(signature, cache=True, fastmath=FREEDOM)(loop)
    c_types = (*[ctypes.c_void_p] * num_pointers, *[ctypes.c_int64] * 5, c_real, ctypes.c_double)
    return ctypes.CFUNCTYPE(None, *c_types)(compiled.address)  # pyright: ignore[reportCallIssue, reportArgumentType]


# ---- tensors in and out -----------------------------------------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None = None) -> Tensor:
    """y in x's dtype.

    Raises:
        ValueError: arguments that do not fit together.
    """
    dtype = x.dtype
    if dtype is not weight.dtype or dtype not in operators.DTYPES:
        check_rms_norm(x, weight, eps, mask, None)
        wide = operators.width(x, weight)
        return rms_norm(x.to(wide), weight.to(wide), eps, mask).to(dtype)
    if mask is not None or x.shape[-1:] != weight.shape or not eps > 0 or not weight.is_cpu:
        _check(x, weight, eps, mask)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _Norm.apply(x, None, weight, eps, 1.0, mask)  # pyright: ignore[reportReturnType]
    return _forward(x, None, weight, eps, 1.0, mask)[0]


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, alpha: float, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`(y, r)` with `r = residual + alpha * x`; all float32, or all float64.

    Raises:
        ValueError: arguments that do not fit together.
    """
    _check(x, weight, eps, mask)
    if residual.shape != x.shape or not residual.is_cpu:
        check_residual(x, residual)
        raise ValueError("residual must lie in the CPU's memory, as x does: move it with .cpu()")
    if torch.is_grad_enabled() and (x.requires_grad or residual.requires_grad or weight.requires_grad):
        return _Norm.apply(x, residual, weight, eps, alpha, mask)  # pyright: ignore[reportReturnType]
    return _forward(x, residual, weight, eps, alpha, mask)  # pyright: ignore[reportReturnType]


def _check(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> None:
    """Raise ValueError unless memory can be handed to the loops."""
    check_rms_norm(x, weight, eps, mask, None)
    if not weight.is_cpu or (mask is not None and not mask.is_cpu):
        raise ValueError("weight and mask must lie in the CPU's memory, as x does: move them with .cpu()")


class _Norm(Function):
    """Without `residual` there is no second result."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, alpha: float, mask: Tensor | None
    ) -> Any:
        y, r = _forward(x, residual, weight, eps, alpha, mask)
        ctx.save_for_backward(x if r is None else r, weight, mask)
        ctx.eps, ctx.alpha = eps, alpha
        return y if r is None else (y, r)

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dr: Tensor | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        operators.refuse_second_derivative()
        z, weight, mask = ctx.saved_tensors
        return *_backward(dy, dr, z, weight, ctx.eps, ctx.alpha, mask), None, None, None


def _forward(
    x: Tensor, residual: Tensor | None, weight: Tensor, eps: float, alpha: float, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """`(y, r)`, packed; r is None without a residual."""
    x, weight, mask = x.contiguous(), weight.contiguous(), None if mask is None else mask.contiguous()
    y, r, x_at, dim = torch.empty_like(x), None, x.data_ptr(), weight.numel()
    z_at, residual_at = x_at, None
    if residual is not None:
        residual, r = residual.contiguous(), torch.empty_like(x)
        z_at, residual_at = r.data_ptr(), residual.data_ptr()
    pointers = (y.data_ptr(), z_at, x_at, residual_at, weight.data_ptr(), None if mask is None else mask.data_ptr())
    flags = (residual is not None, mask is not None)
    _run(_compile(_forward_rows, 6, x.dtype), pointers, x.numel(), dim, *flags, alpha, eps)
    return y, r


def _backward(
    dy: Tensor, dr: Tensor | None, z: Tensor, weight: Tensor, eps: float, alpha: float, mask: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Gradients of x, residual (None without dr) and weight."""
    dim, dy, z, weight = weight.numel(), dy.contiguous(), z.contiguous(), weight.contiguous()
    parts = z.new_empty(-(-(z.numel() // dim) // BLOCK_ROWS), dim)
    dz, dx, flags = torch.empty_like(z), None, None if mask is None else mask.contiguous()
    if dr is not None:
        dr, dx = dr.contiguous(), torch.empty_like(z)
    tensors = (dz, dx, parts, dy, dr, z, weight, flags)
    pointers = tuple(None if tensor is None else tensor.data_ptr() for tensor in tensors)
    _run(_compile(_backward_rows, 8, z.dtype), pointers, z.numel(), dim, dr is not None, mask is not None, alpha, eps)
    dweight = parts.sum(dim=0)
    return (dz, None, dweight) if dx is None else (dx, dz, dweight)


def _run(kernel: Kernel, pointers: tuple[int | None, ...], count: int, dim: int, *numbers: float) -> None:
    """Call `kernel` on `count` numbers, in pieces on torch's number of threads where there is enough to do."""
    rows = count // dim
    num_threads = 1 if count < 2 * PIECE else min(torch.get_num_threads(), count // PIECE)
    if num_threads == 1:
        kernel(*pointers, 0, rows, dim, *numbers)
        return
    step = -(-rows // (num_threads * BLOCK_ROWS)) * BLOCK_ROWS
    pieces = _pool().map(
        lambda begin: kernel(*pointers, begin, min(begin + step, rows), dim, *numbers), range(0, rows, step)
    )
    for _ in pieces:  # what went wrong in a thread is raised here
        pass


@lru_cache
def _pool() -> ThreadPoolExecutor:
    """One for all calls, whatever torch's number of threads is at the time; its threads start when first needed."""
    return ThreadPoolExecutor(os.cpu_count() or 1, "rms_norm")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
