"""The kernels compiled for three GPU generations without any of them: loads of 16 bytes, no spills, int64 offsets."""

import re
import subprocess
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from diarnorm.kernels.launch import (
    BACKWARD,
    FORWARD,
    WEIGHT_LOOP,
    Launch,
    backward_launch,
    forward_launch,
    row_vector,
)
from tests.kernels.conftest import SOURCE
from tests.kernels.interpreter import load_module

triton = pytest.importorskip("triton")

ARCHITECTURES = (80, 90, 100)
REGISTERS = 65536
"""Per multiprocessor, on all of them."""
BYTES = {"bf16": 2, "fp32": 4}
PLAIN = ("x_ptr", "weight_ptr", "y_ptr", "dy_ptr", "dz_ptr", "rstd_ptr", "partials_ptr")
SUMMED = (*PLAIN, "residual_ptr", "r_ptr", "dr_ptr", "dx_ptr")
STREAM = ("residual_ptr", "r_ptr", "dr_ptr", "dz_ptr")
"""Pointers of the residual stream, which is float32 beside bfloat16 activations."""


class Binary(NamedTuple):
    """What the compiler made of a kernel."""

    ttir: str
    accesses: Counter[str]
    """Instructions on global memory, e.g. `ld.global.v4.b32`, and how often each stands in the program."""
    registers: int
    local_bytes: int
    """Memory per thread for what found no register."""


def compile_kernel(
    name: str,
    dim: int,
    dtype: str,
    architecture: int,
    pointers: tuple[str, ...] = PLAIN,
    tile: Launch | None = None,
    module: ModuleType | None = None,
) -> Binary:
    """Compile as `fused._launch` would, for `pointers` given and all other optional ones None."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from diarnorm.kernels import triton_rms

    kernel = getattr(triton_rms if module is None else module, name)
    if tile is None:
        tile = _tile(name, dim, dtype)
    constants = {"D": dim, "VECTOR": row_vector(dim), "ROWS": tile.rows, "BLOCK": tile.block}
    signature = {parameter.name: _type(parameter, dtype, pointers) for parameter in kernel.params}
    fixed = {key: constants.get(key) for key, kind in signature.items() if kind == "constexpr"}
    aligned = {
        (number,): [["tt.divisibility", 16]]
        for number, (key, kind) in enumerate(signature.items())
        if kind.startswith("*") and key not in triton_rms.ANY_VALUE
    }
    source = ASTSource(kernel, signature, fixed, aligned)
    target = GPUTarget("cuda", architecture, 32)
    compiled = triton.compile(source, target=target, options={"num_warps": tile.num_warps})
    assert compiled.asm["ptx"].count(".entry") == 1
    accesses = Counter(re.findall(r"(?:ld|st)\.global\S*", compiled.asm["ptx"]))
    return Binary(compiled.asm["ttir"], accesses, *_resources(compiled.asm["cubin"]))


def _tile(name: str, dim: int, dtype: str) -> Launch:
    if name == "weight_loop":
        return WEIGHT_LOOP
    return forward_launch(dim, BYTES[dtype]) if name.startswith("forward") else backward_launch(dim)


def _type(parameter: Any, dtype: str, pointers: tuple[str, ...]) -> str:
    if not parameter.name.endswith("_ptr"):
        return "constexpr" if parameter.is_constexpr else parameter.annotation_type
    if parameter.name not in pointers:
        return "constexpr"
    if parameter.name == "mask_ptr":
        return "*u8"
    float32 = ("weight_ptr", "rstd_ptr", "partials_ptr", *(STREAM if "dx_ptr" in pointers else ()))
    return "*fp32" if parameter.name in float32 else f"*{dtype}"


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers per thread, and bytes of local memory per thread."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    path = Path(triton.knobs.cache.dir) / "resources.cubin"
    path.write_bytes(cubin)
    report = subprocess.run([tool, "--dump-resource-usage", path], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", report)
    assert found is not None, report
    return int(found[1]), int(found[2]) + int(found[3])


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiled earlier, and nothing left in the user's home."""
    folder = tmp_path_factory.getbasetemp() / "triton-cache"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))


def assert_wide(binary: Binary, loads: int, stores: int) -> None:
    """At least so many loads and stores of 16 bytes, and none narrower but the weight's and the partial sums'."""
    assert binary.accesses["ld.global.v4.b32"] >= loads, binary.accesses
    assert binary.accesses["st.global.v4.b32"] >= stores, binary.accesses
    assert not any(access.endswith(("b16", "b8")) for access in binary.accesses), binary.accesses
    assert binary.local_bytes == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_table_at_work(architecture: int) -> None:
    """D = 256 and 8192, the ends of the speech case and of the tiles: 16-byte accesses, all in registers."""
    for dim, dtype in ((256, "bf16"), (8192, "fp32")):
        assert_wide(compile_kernel("forward_tile", dim, dtype, architecture), loads=2, stores=2)
        backward = compile_kernel("backward_tile", dim, dtype, architecture, SUMMED)
        assert_wide(backward, loads=4, stores=3)
        tile = backward_launch(dim)
        assert backward.registers * 32 * tile.num_warps * tile.programs <= REGISTERS


def test_rows_beyond_a_tile() -> None:
    for name in ("forward_loop", "backward_loop", "weight_loop"):
        assert_wide(compile_kernel(name, 16384, "bf16", 90, SUMMED), loads=2, stores=1 if name == "weight_loop" else 2)


@pytest.mark.parametrize(("dim", "width"), [(200, "v4.b32"), (36, "v2.b32"), (33, "b16")])
def test_width_follows_the_row_length(dim: int, width: str) -> None:
    """bf16 rows of 400, 72 and 66 bytes start on 16, 8 and 2."""
    assert f"ld.global.{width}" in compile_kernel("forward_tile", dim, "bf16", 90).accesses


def test_a_mask_costs_no_width() -> None:
    binary = compile_kernel("forward_tile", 256, "bf16", 90, (*PLAIN, "mask_ptr"))
    assert binary.accesses["ld.global.v4.b32"] == 2
    assert binary.accesses["st.global.v4.b32"] == 2


def narrow_offsets(ttir: str) -> list[str]:
    """Lines of a program that multiply row numbers in 32 bits."""
    return [line for line in ttir.splitlines() if "arith.muli" in line and "i64" not in line]


@pytest.mark.parametrize("name", ["forward_tile", "forward_loop", "backward_tile", "backward_loop", "weight_loop"])
def test_offsets_have_64_bits(name: str) -> None:
    """The cheap guard against int32 overflow; the large tensor itself is a GPU test."""
    dim = 16384 if "loop" in name else 256
    tile = Launch(2, 256, 4) if "tile" in name else None
    ttir = compile_kernel(name, dim, "bf16", 90, SUMMED, tile).ttir
    columns = 1 if name == "weight_loop" else 0  # its column number stays far below 2^31
    assert len(narrow_offsets(ttir)) == columns


def test_a_narrow_offset_is_noticed(tmp_path: Path) -> None:
    source, path = SOURCE.read_text("utf-8"), tmp_path / "narrow.py"
    wide = "tl.cast(tile, tl.int64) * ROWS"
    assert wide in source
    path.write_text(source.replace(wide, "tile * ROWS"), "utf-8")
    narrow = load_module(path)
    assert narrow_offsets(compile_kernel("forward_tile", 256, "bf16", 90, module=narrow).ttir)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_whole_table(architecture: int) -> None:
    """Every entry: no spills, and as many backward programs resident as the table says."""
    for dtype, size in BYTES.items():
        for block, tile in FORWARD[size].items():
            assert compile_kernel("forward_tile", block, dtype, architecture, SUMMED).local_bytes == 0, (block, tile)
        for block, tile in BACKWARD.items():
            binary = compile_kernel("backward_tile", block, dtype, architecture, SUMMED)
            assert binary.local_bytes == 0, (block, tile)
            assert binary.registers * 32 * tile.num_warps * tile.programs <= REGISTERS, (block, tile, binary.registers)
