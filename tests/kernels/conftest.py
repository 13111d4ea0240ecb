"""Fixtures for the kernels: Triton's interpreter, and memory that shows what was not written and what should not be."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import diarnorm.kernels
from diarnorm.kernels import fused
from tests.kernels.interpreter import interpreting, load_interpreted

SOURCE = Path(diarnorm.kernels.__file__).with_name("triton_rms.py")
GUARD = 1 << 15
"""Elements before and after every result; more than the widest tile, and a multiple of 16 bytes."""
CANARY = 77.0


@pytest.fixture(scope="session")
def interpreted_kernels() -> ModuleType:
    """`diarnorm.kernels.triton_rms`, interpreted."""
    pytest.importorskip("triton")
    return load_interpreted(SOURCE)


@pytest.fixture
def interpreter(interpreted_kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Launches run in Triton's interpreter."""
    monkeypatch.setattr(diarnorm.kernels, "triton_rms", interpreted_kernels, raising=False)
    with interpreting():
        yield


@pytest.fixture
def mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """`mutant(old, new)`: launches run kernels in which every `old` has become `new`."""
    pytest.importorskip("triton")

    def install(old: str, new: str) -> None:
        source = SOURCE.read_text("utf-8")
        assert old in source, "the mutant no longer matches the kernels"
        path = tmp_path / "mutant.py"
        path.write_text(source.replace(old, new), "utf-8")
        monkeypatch.setattr(diarnorm.kernels, "triton_rms", load_interpreted(path), raising=False)

    with interpreting():
        yield install


class GuardedMemory:
    """Memory for results: NaN at first, between canaries."""

    def __init__(self) -> None:
        self.buffers: list[tuple[Tensor, int]] = []

    def like(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """In place of `fused._like`."""
        return self.scratch(*x.shape, like=x, dtype=dtype)

    def scratch(self, *shape: int, like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """In place of `fused._scratch`."""
        size = torch.Size(shape).numel()
        buffer = torch.full((size + 2 * GUARD,), CANARY, dtype=dtype, device=like.device)
        self.buffers.append((buffer, size))
        return buffer[GUARD : GUARD + size].fill_(torch.nan).view(*shape)

    def check(self) -> None:
        """Fail if a canary has changed."""
        for buffer, size in self.buffers:
            around = torch.cat([buffer[:GUARD], buffer[GUARD + size :]])
            assert bool((around == CANARY).all()), "a kernel has written outside its result"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> GuardedMemory:
    """Results lie in guarded memory."""
    guarded_memory = GuardedMemory()
    monkeypatch.setattr(fused, "_like", guarded_memory.like)
    monkeypatch.setattr(fused, "_scratch", guarded_memory.scratch)
    return guarded_memory


@pytest.fixture
def guarded(memory: GuardedMemory) -> Iterator[None]:
    """Results lie in guarded memory, and nothing outside them is written."""
    yield
    memory.check()
