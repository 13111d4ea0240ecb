"""Launch parameters of the Triton kernels: one small table, keyed by the padded row length and the element size.

Made offline, so that nothing is tuned or timed at run time and a row's reduction order never depends on the batch.
Forward tiles hold about 32 bytes per thread and operand (two 16-byte loads in flight); backward tiles hold 8 elements
per thread, which keeps their registers at 40-85 per thread. `programs` is how many backward programs are resident on
one multiprocessor at that count. `tests/kernels/test_ahead_of_time.py` compiles the table, checks loads and registers.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch

LONGEST_TILE = 8192
"""Rows up to this many elements stay in registers; longer ones are walked in a loop."""

VECTOR_BYTES = 16
"""Widest load of one thread."""


class Launch(NamedTuple):
    """Tile of one program: `rows` rows of `block` elements, on `num_warps` warps."""

    rows: int
    block: int
    num_warps: int
    programs: int = 1


FORWARD = {
    2: {
        16: Launch(64, 16, 4),
        32: Launch(64, 32, 4),
        64: Launch(32, 64, 4),
        128: Launch(16, 128, 4),
        256: Launch(8, 256, 4),
        512: Launch(4, 512, 4),
        1024: Launch(2, 1024, 4),
        2048: Launch(1, 2048, 4),
        4096: Launch(1, 4096, 8),
        8192: Launch(1, 8192, 16),
    },
    4: {
        16: Launch(64, 16, 4),
        32: Launch(32, 32, 4),
        64: Launch(16, 64, 4),
        128: Launch(8, 128, 4),
        256: Launch(4, 256, 4),
        512: Launch(2, 512, 4),
        1024: Launch(1, 1024, 4),
        2048: Launch(1, 2048, 8),
        4096: Launch(1, 4096, 16),
        8192: Launch(1, 8192, 16),
    },
}
"""By bytes of x's elements, then by block."""

BACKWARD = {
    16: Launch(32, 16, 4, 6),
    32: Launch(32, 32, 4, 6),
    64: Launch(16, 64, 4, 6),
    128: Launch(8, 128, 4, 6),
    256: Launch(4, 256, 4, 6),
    512: Launch(2, 512, 4, 6),
    1024: Launch(1, 1024, 4, 6),
    2048: Launch(1, 2048, 8, 3),
    4096: Launch(1, 4096, 16, 1),
    8192: Launch(1, 8192, 32, 1),
}
"""By block, whatever the dtype."""

FORWARD_LOOP = Launch(1, 4096, 8)
BACKWARD_LOOP = Launch(1, 2048, 8)
WEIGHT_LOOP = Launch(1, 1024, 4, 6)
"""For rows longer than a tile."""


def forward_launch(dim: int, element_bytes: int) -> Launch:
    """Tile of the forward kernel for rows of `dim` elements of 2 or 4 bytes.

    >>> forward_launch(80, 2)
    Launch(rows=16, block=128, num_warps=4, programs=1)
    """
    return FORWARD[element_bytes][_block(dim)] if dim <= LONGEST_TILE else FORWARD_LOOP


def backward_launch(dim: int) -> Launch:
    """Tile of the backward kernel for rows of `dim` elements."""
    return BACKWARD[_block(dim)] if dim <= LONGEST_TILE else BACKWARD_LOOP


def row_vector(dim: int) -> int:
    """Elements that the start of every row is a multiple of when rows of `dim` elements are packed; at most 8.

    >>> [row_vector(dim) for dim in (33, 80, 100, 256)]
    [1, 8, 4, 8]
    """
    return math.gcd(dim, VECTOR_BYTES // 2)


def row_alignment(dim: int, element_bytes: int) -> int:
    """Bytes that the start of every row is a multiple of when rows are packed; at most 16."""
    return min(VECTOR_BYTES, row_vector(dim) * element_bytes)


@lru_cache
def num_multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a GPU; 2 for the CPU, where Triton's interpreter runs the programs one by one."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def _block(dim: int) -> int:
    return max(16, 1 << (dim - 1).bit_length())
