"""RMSNorm on a GPU: device code only, in Triton. The host side is `fused.py`; nothing imports this before a launch.

`*_tile` kernels hold [ROWS, BLOCK] numbers in registers, BLOCK >= D: every input is read once. `*_loop` kernels walk
along rows that are longer than that. A row's reduction runs in an order fixed by D and the dtypes, whatever the number
of rows. Offsets are int64. Loads are cast to float32 at once and results once, at the end. Rows that are masked out are
not read; their outputs are 0. An optional pointer is None, which compiles its code away.

Names: dy and dr are the incoming gradients of the output y and of the returned sum r, dz the gradient of what was
normalised, dx that of the addend; partials are sums of the weight's gradient, one row per program, added up afterwards
in a fixed order. VECTOR is the number of elements that every row is aligned to (the host sees to it).
"""

# Triton's annotations are values, such as the type of an argument.
# pyright: reportInvalidTypeForm=false, reportAssignmentType=false

import triton
import triton.language as tl

LAUNCHES_DIRECTLY = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 3)
"""Whether a compiled kernel takes the same arguments as its first launch, constants included."""

ANY_VALUE = ["x_ptr", "residual_ptr", "dy_ptr", "dr_ptr", "mask_ptr"]
ANY_VALUE += ["num_rows", "x_stride", "residual_stride", "dy_stride", "dr_stride"]
"""Arguments on whose value nothing is compiled. The pointers among them lead into a caller's memory and need not start
on 16 bytes; all other pointers do."""


@triton.jit
def tile_rows(tile, num_rows, mask_ptr, ROWS: tl.constexpr):
    """Row numbers [ROWS, 1] of a tile, which of them exist, and which of those count."""
    rows = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    exist = rows < num_rows
    live = exist
    if mask_ptr is not None:
        live = exist & (tl.load(mask_ptr + rows, mask=exist, other=0) != 0)
    return rows, exist, live


@triton.jit
def load(pointer, rows, stride, columns, mask, VECTOR: tl.constexpr):
    """Elements of some rows as float32, 0 where `mask` is False."""
    num_bytes: tl.constexpr = min(16, VECTOR * pointer.dtype.element_ty.primitive_bitwidth // 8)
    pointers = tl.multiple_of(pointer + rows * stride + columns, [1, num_bytes])
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_sum(x_ptr, residual_ptr, r_ptr, rows, x_stride, residual_stride, alpha, columns, mask, VECTOR: tl.constexpr):
    """What is normalised: x, or residual + alpha * x as r's dtype holds it."""
    z = load(x_ptr, rows, x_stride, columns, mask, VECTOR)
    if residual_ptr is not None:
        z = load(residual_ptr, rows, residual_stride, columns, mask, VECTOR) + alpha * z
        z = z.to(r_ptr.dtype.element_ty).to(tl.float32)
    return z


@triton.jit
def store(pointer, offsets, value, mask):
    """Cast to the pointer's dtype and write."""
    tl.store(pointer + offsets, value.to(pointer.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=ANY_VALUE)
def forward_tile(
    x_ptr,
    residual_ptr,
    weight_ptr,
    mask_ptr,
    y_ptr,
    r_ptr,
    num_rows: tl.int64,
    x_stride: tl.int64,
    residual_stride: tl.int64,
    eps: tl.float32,
    alpha: tl.float32,
    D: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows, exist, live = tile_rows(tl.program_id(0), num_rows, mask_ptr, ROWS)
    columns = tl.arange(0, BLOCK)[None, :]
    inside = columns < D
    out = tl.multiple_of(rows * D + columns, [1, VECTOR])
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    z = load_sum(x_ptr, residual_ptr, r_ptr, rows, x_stride, residual_stride, alpha, columns, live & inside, VECTOR)
    if residual_ptr is not None:
        store(r_ptr, out, z, exist & inside)
    rstd = tl.rsqrt(tl.sum(z * z, axis=1, keep_dims=True) * (1.0 / D) + eps)
    y = z * rstd * weight
    if mask_ptr is not None:
        y = tl.where(live, y, 0.0)
    store(y_ptr, out, y, exist & inside)


@triton.jit(do_not_specialize=ANY_VALUE)
def forward_loop(
    x_ptr,
    residual_ptr,
    weight_ptr,
    mask_ptr,
    y_ptr,
    r_ptr,
    num_rows: tl.int64,
    x_stride: tl.int64,
    residual_stride: tl.int64,
    eps: tl.float32,
    alpha: tl.float32,
    D: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows, exist, live = tile_rows(tl.program_id(0), num_rows, mask_ptr, ROWS)
    square = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, D, BLOCK):
        columns = first + tl.arange(0, BLOCK)[None, :]
        inside = columns < D
        z = load_sum(x_ptr, residual_ptr, r_ptr, rows, x_stride, residual_stride, alpha, columns, live & inside, VECTOR)
        square += z * z
    rstd = tl.rsqrt(tl.sum(square, axis=1, keep_dims=True) * (1.0 / D) + eps)
    for first in range(0, D, BLOCK):
        columns = first + tl.arange(0, BLOCK)[None, :]
        inside = columns < D
        out = tl.multiple_of(rows * D + columns, [1, VECTOR])
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        z = load_sum(x_ptr, residual_ptr, r_ptr, rows, x_stride, residual_stride, alpha, columns, live & inside, VECTOR)
        if residual_ptr is not None:
            store(r_ptr, out, z, exist & inside)
        y = z * rstd * weight
        if mask_ptr is not None:
            y = tl.where(live, y, 0.0)
        store(y_ptr, out, y, exist & inside)


@triton.jit
def store_gradients(
    dz,
    rows,
    columns,
    exist,
    live,
    inside,
    mask_ptr,
    dr_ptr,
    dr_stride,
    dz_ptr,
    dx_ptr,
    alpha,
    D: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Add r's own gradient, then write dz and, where it differs from dz, dx."""
    if dr_ptr is not None:
        dz += load(dr_ptr, rows, dr_stride, columns, live & inside, VECTOR)
    if mask_ptr is not None:
        dz = tl.where(live, dz, 0.0)
    out = tl.multiple_of(rows * D + columns, [1, VECTOR])
    store(dz_ptr, out, dz, exist & inside)
    if dx_ptr is not None:
        store(dx_ptr, out, alpha * dz, exist & inside)


@triton.jit(do_not_specialize=ANY_VALUE)
def backward_tile(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mask_ptr,
    dr_ptr,
    dz_ptr,
    dx_ptr,
    partials_ptr,
    num_rows: tl.int64,
    dy_stride: tl.int64,
    x_stride: tl.int64,
    dr_stride: tl.int64,
    eps: tl.float32,
    alpha: tl.float32,
    D: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    columns = tl.arange(0, BLOCK)[None, :]
    inside = columns < D
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        rows, exist, live = tile_rows(tile, num_rows, mask_ptr, ROWS)
        x = load(x_ptr, rows, x_stride, columns, live & inside, VECTOR)
        dy = load(dy_ptr, rows, dy_stride, columns, live & inside, VECTOR)
        rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) * (1.0 / D) + eps)
        normed = x * rstd
        slope = tl.sum(dy * weight * normed, axis=1, keep_dims=True) * (1.0 / D)
        dz = rstd * (dy * weight - normed * slope)
        store_gradients(
            dz, rows, columns, exist, live, inside, mask_ptr, dr_ptr, dr_stride, dz_ptr, dx_ptr, alpha, D, VECTOR
        )
        if partials_ptr is not None:
            total += dy * normed
    if partials_ptr is not None:
        program = tl.cast(tl.program_id(0), tl.int64)
        tl.store(partials_ptr + program * D + columns, tl.sum(total, axis=0, keep_dims=True), mask=inside)


@triton.jit(do_not_specialize=ANY_VALUE)
def backward_loop(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mask_ptr,
    dr_ptr,
    dz_ptr,
    dx_ptr,
    rstd_ptr,
    num_rows: tl.int64,
    dy_stride: tl.int64,
    x_stride: tl.int64,
    dr_stride: tl.int64,
    eps: tl.float32,
    alpha: tl.float32,
    D: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows, exist, live = tile_rows(tl.program_id(0), num_rows, mask_ptr, ROWS)
    square = tl.zeros([ROWS, BLOCK], tl.float32)
    dot = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, D, BLOCK):
        columns = first + tl.arange(0, BLOCK)[None, :]
        inside = columns < D
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        x = load(x_ptr, rows, x_stride, columns, live & inside, VECTOR)
        dy = load(dy_ptr, rows, dy_stride, columns, live & inside, VECTOR)
        square += x * x
        dot += dy * weight * x
    rstd = tl.rsqrt(tl.sum(square, axis=1, keep_dims=True) * (1.0 / D) + eps)
    slope = tl.sum(dot, axis=1, keep_dims=True) * (1.0 / D) * rstd
    if rstd_ptr is not None:
        tl.store(rstd_ptr + rows, rstd, mask=exist)
    for first in range(0, D, BLOCK):
        columns = first + tl.arange(0, BLOCK)[None, :]
        inside = columns < D
        weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        x = load(x_ptr, rows, x_stride, columns, live & inside, VECTOR)
        dy = load(dy_ptr, rows, dy_stride, columns, live & inside, VECTOR)
        dz = rstd * (dy * weight - x * rstd * slope)
        store_gradients(
            dz, rows, columns, exist, live, inside, mask_ptr, dr_ptr, dr_stride, dz_ptr, dx_ptr, alpha, D, VECTOR
        )


@triton.jit(do_not_specialize=ANY_VALUE)
def weight_loop(
    dy_ptr,
    x_ptr,
    mask_ptr,
    rstd_ptr,
    partials_ptr,
    num_rows: tl.int64,
    dy_stride: tl.int64,
    x_stride: tl.int64,
    D: tl.constexpr,
    VECTOR: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Partial sums of the weight's gradient for BLOCK columns, after `backward_loop` has left 1/rms of each row."""
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = columns < D
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(num_rows, ROWS), tl.num_programs(0)):
        rows, exist, live = tile_rows(tile, num_rows, mask_ptr, ROWS)
        x = load(x_ptr, rows, x_stride, columns, live & inside, VECTOR)
        dy = load(dy_ptr, rows, dy_stride, columns, live & inside, VECTOR)
        total += dy * x * tl.load(rstd_ptr + rows, mask=exist, other=0.0)
    program = tl.cast(tl.program_id(0), tl.int64)
    tl.store(partials_ptr + program * D + columns, tl.sum(total, axis=0, keep_dims=True), mask=inside)
