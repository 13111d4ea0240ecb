"""Host side of the Triton kernels: rows out of tensors, memory for results, and the launch itself.

Nothing here waits for the device, and nothing a caller passes in is written to. Not differentiable: see `autograd.py`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from diarnorm.kernels.launch import (
    LONGEST_TILE,
    VECTOR_BYTES,
    WEIGHT_LOOP,
    Launch,
    backward_launch,
    forward_launch,
    num_multiprocessors,
    row_alignment,
    row_vector,
)


def forward(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    alpha: float,
    mask: Tensor | None,
    out_dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None]:
    """`y = rms_norm(r)` as `out_dtype`, and `r = residual + alpha * x` in residual's dtype.

    Without a residual y is the norm of x, and r is None.
    """
    dim = weight.shape[0]
    y = _like(x, out_dtype)
    r = None if residual is None else _like(x, residual.dtype)
    num_rows = x.numel() // dim
    if num_rows == 0:
        return y, r
    x_rows, x_stride = _rows(x, dim)
    residual_rows, residual_stride = (None, 0) if residual is None else _rows(residual, dim)
    tile = forward_launch(dim, x.element_size())
    _launch(
        "forward_tile" if dim <= LONGEST_TILE else "forward_loop",
        (_cdiv(num_rows, tile.rows), 1, 1),
        (x_rows, residual_rows, _aligned(weight), _flags(mask), y, r),
        (num_rows, x_stride, residual_stride, float(eps), float(alpha)),
        dim,
        tile,
    )
    return y, r


def backward(
    dy: Tensor,
    z: Tensor,
    weight: Tensor,
    eps: float,
    mask: Tensor | None,
    *,
    dr: Tensor | None = None,
    alpha: float = 1.0,
    addend_dtype: torch.dtype | None = None,
    need_weight: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of z (what was normalised, in its dtype), of the addend x of `z = residual + alpha * x`, and of weight.

    `dr` is z's own gradient from elsewhere. The addend's gradient is z's itself, the same tensor, unless alpha or the
    addend's dtype ask for another.
    """
    dim = weight.shape[0]
    dz = _like(z, z.dtype)
    apart = addend_dtype is not None and (alpha != 1.0 or addend_dtype != z.dtype)
    dx = _like(z, addend_dtype) if apart else None
    if z.numel() == 0:
        dw = torch.zeros_like(weight) if need_weight else None
    else:
        dw = _launch_backward(dy, z, weight, eps, mask, dr, alpha, dz, dx, dim, need_weight)
    return dz, dz if dx is None else dx, dw


def _launch_backward(
    dy: Tensor,
    z: Tensor,
    weight: Tensor,
    eps: float,
    mask: Tensor | None,
    dr: Tensor | None,
    alpha: float,
    dz: Tensor,
    dx: Tensor | None,
    dim: int,
    need_weight: bool,
) -> Tensor | None:
    """Fill dz and dx; the weight's gradient."""
    dy_rows, dy_stride = _rows(dy, dim)
    z_rows, z_stride = _rows(z, dim)
    dr_rows, dr_stride = (None, 0) if dr is None else _rows(dr, dim)
    num_rows, flags, tile = z.numel() // dim, _flags(mask), backward_launch(dim)
    tensors = (dy_rows, z_rows, _aligned(weight), flags, dr_rows, dz, dx)
    numbers = (num_rows, dy_stride, z_stride, dr_stride, float(eps), float(alpha))
    num_tiles = _cdiv(num_rows, tile.rows)
    if dim <= LONGEST_TILE:
        programs = min(num_tiles, tile.programs * num_multiprocessors(z.device))
        partials = _scratch(programs, dim, like=z) if need_weight else None
        _launch("backward_tile", (programs, 1, 1), (*tensors, partials), numbers, dim, tile)
        return None if partials is None else partials.sum(0).to(weight.dtype)
    rstd = _scratch(num_rows, like=z) if need_weight else None
    _launch("backward_loop", (num_tiles, 1, 1), (*tensors, rstd), numbers, dim, tile)
    if rstd is None:
        return None
    column_blocks = _cdiv(dim, WEIGHT_LOOP.block)
    resident = max(1, WEIGHT_LOOP.programs * num_multiprocessors(z.device) // column_blocks)
    programs = min(_cdiv(num_rows, WEIGHT_LOOP.rows), resident)
    partials = _scratch(programs, dim, like=z)
    rows = (dy_rows, z_rows, flags, rstd, partials)
    _launch("weight_loop", (programs, column_blocks, 1), rows, (num_rows, dy_stride, z_stride), dim, WEIGHT_LOOP)
    return partials.sum(0).to(weight.dtype)


def _rows(x: Tensor, dim: int) -> tuple[Tensor, int]:
    """Memory of x's rows of `dim` elements, and the stride from row to row in elements.

    It is x's own where rows can be addressed by one stride, lie dense and start on the boundary that packed rows have,
    otherwise one copy. Rows off that boundary would compile to another kernel with another order of summation.
    """
    if x.is_contiguous() and not x.data_ptr() % VECTOR_BYTES:
        return x, dim
    rows = x.reshape(-1, dim)
    stride = rows.stride(0) if rows.shape[0] > 1 else dim
    boundary = row_alignment(dim, x.element_size())
    on_boundary = rows.data_ptr() % boundary == 0 and stride * x.element_size() % boundary == 0
    if on_boundary and (dim == 1 or rows.stride(1) == 1):
        return rows, stride
    return rows.clone(memory_format=torch.contiguous_format), dim


def _aligned(weight: Tensor) -> Tensor:
    weight = weight.contiguous()
    return weight if weight.data_ptr() % VECTOR_BYTES == 0 else weight.clone()


def _flags(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.reshape(-1).contiguous().view(torch.uint8)


def _like(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Packed memory for a result of x's shape, all of which a kernel writes."""
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


def _scratch(*shape: int, like: Tensor) -> Tensor:
    """Memory for float32 numbers in between."""
    return torch.empty(shape, dtype=torch.float32, device=like.device)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


_compiled: dict[tuple[Any, ...], tuple[Any, tuple[int, ...]]] = {}
"""Kernels that have been launched and their constants, by everything that a kernel is compiled for."""


def _launch(
    name: str,
    grid: tuple[int, int, int],
    tensors: Sequence[Tensor | None],
    numbers: Sequence[int | float],
    dim: int,
    tile: Launch,
) -> None:
    """Launch on the tensors' device and its current stream.

    Triton's own launch works out anew for every argument what it is specialised for; here that is fixed by the key, as
    the kernels fix the types of numbers and the host the alignment of pointers. So from the second call on the
    compiled kernel is launched directly.
    """
    device = tensors[0].get_device()  # pyright: ignore[reportOptionalMemberAccess]
    if device >= 0 and device != torch.cuda.current_device():
        with torch.cuda.device(device):
            return _launch(name, grid, tensors, numbers, dim, tile)
    key = (name, device, dim, *[tensor if tensor is None else tensor.dtype for tensor in tensors])
    if (known := _compiled.get(key)) is not None:
        compiled, constants = known
        return compiled[grid](*tensors, *numbers, *constants)
    from diarnorm.kernels import triton_rms

    constants = (dim, row_vector(dim), tile.rows, tile.block)
    compiled = getattr(triton_rms, name)[grid](*tensors, *numbers, *constants, num_warps=tile.num_warps)
    if compiled is not None and triton_rms.LAUNCHES_DIRECTLY:  # the interpreter compiles nothing
        _compiled[key] = compiled, constants
    return None
