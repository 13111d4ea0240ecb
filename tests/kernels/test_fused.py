"""The host side of the Triton kernels: any strides, copies only where needed, nothing overwritten, direct launches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from diarnorm.kernels import autograd, fused
from diarnorm.kernels.launch import forward_launch, row_alignment
from tests.kernels.oracle import EPS, Case, assert_accurate, make_case, run

DIM = 24


def strided_inputs() -> dict[str, Tensor]:
    """Tensors of 24 features, laid out in the ways that break kernels."""
    flat = make_case(6 * DIM + 1).x
    return {
        "packed": flat[: 6 * DIM].view(2, 3, DIM),
        "every second column": make_case(2, 3, 2 * DIM).x[..., ::2],
        "left part of wider rows": make_case(2, 3, DIM + 5).x[..., :DIM],
        "right part of wider rows": make_case(2, 3, DIM + 5).x[..., 5:],
        "transposed": make_case(2, DIM, 3).x.transpose(1, 2),
        "rows and batch exchanged": make_case(3, 2, DIM).x.transpose(0, 1),
        "expanded over the batch": make_case(1, 3, DIM).x.expand(2, -1, -1),
        "one number": torch.full((1, 1, 1), 0.7).expand(2, 3, DIM),
        "without the first frame": make_case(2, 4, DIM).x[:, 1:],
        "one element off": flat[1:].view(2, 3, DIM),
        "a third of qkv": make_case(2, 3, 3 * DIM).x[..., DIM : 2 * DIM],
        "four dimensions": make_case(2, 1, 3, DIM).x.transpose(1, 2),
        "one row": make_case(DIM).x,
    }


INPUTS = strided_inputs()


def in_bf16(x: Tensor) -> Tensor:
    """The numbers in bfloat16, in the same layout."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    memory = torch.zeros(x.storage_offset() + span, dtype=torch.bfloat16)
    view = memory.as_strided(x.shape, x.stride(), x.storage_offset())
    memory.copy_(x.as_strided(memory.shape, (1,), 0))
    return view


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", INPUTS)
def test_any_layout_of_the_input(layout: str, dtype: torch.dtype, interpreter: None, guarded: None) -> None:
    x = INPUTS[layout] if dtype == torch.float32 else in_bf16(INPUTS[layout])
    assert x.stride() == INPUTS[layout].stride()
    case = Case(x, make_case(DIM).weight, make_case(*x.shape, seed=1).dy.to(dtype))
    before = x.clone()
    assert_accurate(run(autograd.rms_norm, case), case)
    assert torch.equal(x, before)


@pytest.mark.parametrize("layout", [layout for layout in INPUTS if layout not in ("one row", "four dimensions")])
def test_any_layout_of_the_gradient(layout: str, interpreter: None, guarded: None) -> None:
    case = make_case(2, 3, DIM)._replace(dy=INPUTS[layout])
    assert_accurate(run(autograd.rms_norm, case), case)


def test_the_gradient_of_a_sum(interpreter: None, guarded: None) -> None:
    """`.sum()` hands back one number, expanded to all strides 0; in both results of the sum and norm as well."""
    case = make_case(2, 3, DIM)
    ones = case._replace(dy=torch.ones(2, 3, DIM))

    def summed(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> Tensor:
        y, r = autograd.add_rms_norm(x, torch.zeros_like(x), weight, eps)
        return y + 0 * r

    x, weight = case.x.clone().requires_grad_(), case.weight.clone().requires_grad_()
    autograd.rms_norm(x, weight, EPS).sum().backward()
    expected = run(autograd.rms_norm, ones)
    assert x.grad is not None
    assert torch.equal(x.grad, expected.dx)
    x.grad = None
    summed(x, weight, EPS, None).sum().backward()
    torch.testing.assert_close(x.grad, expected.dx)


@pytest.mark.parametrize("weight", [torch.full((1,), 0.7).expand(DIM), make_case(2 * DIM).weight[::2]])
def test_any_layout_of_the_weight(weight: Tensor, interpreter: None, guarded: None) -> None:
    case = make_case(5, DIM)._replace(weight=weight)
    assert_accurate(run(autograd.rms_norm, case), case)


def test_a_weight_off_its_boundary(interpreter: None, guarded: None) -> None:
    case = make_case(5, DIM)._replace(weight=make_case(DIM + 1).weight[1:])
    assert_accurate(run(autograd.rms_norm, case), case)


def test_any_layout_of_the_mask(interpreter: None) -> None:
    mask = torch.tensor([True, False, True])
    x = make_case(4, 3, DIM)
    rows = autograd.rms_norm(x.x, x.weight, EPS, mask.expand(4, -1))
    assert torch.equal(rows, autograd.rms_norm(x.x, x.weight, EPS, mask.repeat(4, 1)))
    assert torch.equal(rows[:, 1], torch.zeros(4, DIM))
    sides = torch.tensor([[True, False, False, True]] * 3).T
    got = autograd.rms_norm(x.x, x.weight, EPS, sides)
    assert torch.equal(got[1:3], torch.zeros(2, 3, DIM))
    assert bool(got[0].all())
    assert bool(got[3].all())


@pytest.mark.parametrize(
    ("layout", "shared"),
    [
        ("packed", True),
        ("expanded over the batch", False),
        ("every second column", False),
        ("transposed", False),
        ("without the first frame", False),
        ("one element off", False),
        ("a third of qkv", True),
        ("one row", True),
    ],
)
def test_a_copy_is_made_only_where_rows_need_one(layout: str, shared: bool) -> None:
    x = INPUTS[layout]
    rows, stride = fused._rows(x, DIM)
    assert (rows.data_ptr() == x.data_ptr()) == shared
    assert torch.equal(rows.as_strided((x.numel() // DIM, DIM), (stride, 1)), x.reshape(-1, DIM))


@pytest.mark.parametrize("dim", [1, 3, 4, 20, 24, 33, 80])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_row_starts_where_the_kernel_is_compiled_for(dim: int, dtype: torch.dtype) -> None:
    for offset in range(9):
        for gap in range(9):
            memory = torch.zeros(offset + 5 * (dim + gap), dtype=dtype)
            x = memory[offset:].view(5, dim + gap)[:, :dim]
            rows, stride = fused._rows(x, dim)
            boundary = row_alignment(dim, x.element_size())
            assert rows.data_ptr() % boundary == 0
            assert stride * x.element_size() % boundary == 0


def test_offsets_beyond_31_bits_reach_the_kernel_as_they_are() -> None:
    """Rows 2^31 elements apart: the stride is passed on, without a copy; the kernels multiply in int64."""
    with torch.device("meta"):
        apart = torch.empty(1).as_strided((3, DIM), (2**31 + 16, 1))
    _, stride = fused._rows(apart, DIM)
    assert stride == 2**31 + 16


@pytest.mark.parametrize(
    ("whole", "dim", "num_rows", "stride"),
    [((2**23 + 16, 256), 256, 2**23 + 16, 256), ((2, 70_000, 3 * 5120), 5120, 140_000, 3 * 5120)],
)
def test_more_elements_than_31_bits_count_are_launched_whole(
    whole: tuple[int, ...], dim: int, num_rows: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows, in one launch each way, without a copy; a grid that CUDA takes."""
    launches = []
    monkeypatch.setattr(fused, "_launch", lambda name, grid, tensors, numbers, *rest: launches.append((grid, numbers)))
    monkeypatch.setattr(fused, "num_multiprocessors", lambda device: 132)
    x = torch.empty(whole, dtype=torch.bfloat16, device="meta")[..., :dim]
    weight = torch.empty(dim, device="meta")
    assert num_rows * stride > 2**31
    y, _ = fused.forward(x, None, weight, EPS, 1.0, None, torch.bfloat16)
    dz, _, dw = fused.backward(y, x, weight, EPS, None)
    assert dw is not None
    assert y.shape == dz.shape == x.shape
    (forward_grid, forward_numbers), (backward_grid, backward_numbers) = launches
    assert forward_numbers[:2] == (num_rows, stride)
    assert backward_numbers[:3] == (num_rows, dim, stride)
    assert forward_grid[0] * forward_launch(dim, 2).rows >= num_rows
    assert max(forward_grid[0], backward_grid[0]) < 2**31
    assert forward_grid[1:] == backward_grid[1:] == (1, 1)


# ---- nothing is overwritten, gradients land where they belong ----------------------------------------------


def test_inputs_and_gradients_stay_as_they_are(interpreter: None) -> None:
    case = make_case(4, DIM)
    x, residual, weight = (t.clone().requires_grad_() for t in (case.x, make_case(4, DIM, seed=1).x, case.weight))
    dy, dr = case.dy.clone(), make_case(4, DIM, seed=2).x
    given = [t.detach().clone() for t in (x, residual, weight, dy, dr)]
    y, r = autograd.add_rms_norm(x, residual, weight, EPS, 0.5)
    torch.autograd.backward([y, r], [dy, dr], retain_graph=True)
    once = [t.grad.clone() for t in (x, residual, weight) if t.grad is not None]
    torch.autograd.backward([y, r], [dy, dr])
    for tensor, before in zip((x, residual, weight, dy, dr), given, strict=True):
        assert torch.equal(tensor.detach(), before)
    for tensor, first in zip((x, residual, weight), once, strict=True):
        assert tensor.grad is not None
        assert torch.equal(tensor.grad, 2 * first)


def test_the_norm_of_a_sum_that_is_used_again(interpreter: None) -> None:
    """`y = norm(x + norm(x))`: the gradient of x is the sum over both ways."""
    case = make_case(4, DIM)

    def twice(norm: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, weight, eps, mask: norm(x + norm(x, weight, eps, mask), weight, eps, mask)

    from diarnorm.kernels import reference

    ours, exact = run(twice(autograd.rms_norm), case), run(twice(reference.rms_norm), case)
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b)


def test_only_one_of_the_two_results_is_used(interpreter: None) -> None:
    case, residual = make_case(4, DIM), make_case(4, DIM, seed=1).x
    mask = torch.tensor([True, False, True, True])
    for used in (0, 1):
        grads = []
        for module in (autograd, __import__("diarnorm.kernels.reference", fromlist=["x"])):
            leaves = [t.clone().requires_grad_() for t in (case.x, residual, case.weight)]
            results = module.add_rms_norm(*leaves, EPS, 0.5, mask)
            results[used].backward(case.dy)
            grads.append([torch.zeros_like(t) if t.grad is None else t.grad for t in leaves])
        for ours, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_without_a_gradient_there_is_no_graph(interpreter: None) -> None:
    case = make_case(4, DIM)
    weight = case.weight.clone().requires_grad_()
    with torch.no_grad():
        assert not autograd.rms_norm(case.x, weight, EPS).requires_grad
    assert not autograd.rms_norm(case.x, case.weight, EPS).requires_grad
    with torch.inference_mode():
        assert autograd.rms_norm(case.x, weight, EPS).isfinite().all()
    y = autograd.rms_norm(case.x, weight, EPS)
    y.backward(case.dy)
    assert weight.grad is not None


def test_the_gradient_of_a_gradient_is_refused(interpreter: None) -> None:
    case = make_case(4, DIM)
    x = case.x.clone().requires_grad_()
    (dx,) = torch.autograd.grad(autograd.rms_norm(x, case.weight, EPS).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


# ---- direct launches ----------------------------------------------------------------------------------------


class RecordingDriver:
    """As much of Triton's driver as a launch needs, for a GPU that is not there: it compiles, and records launches."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": 232448},
            load_binary=lambda *arguments: (1, 2, 32, 0, 1024),
            unload_module=lambda module: None,
        )

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 7

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        """A launcher that writes down the grid, the stream and the kernel's arguments."""
        constants = {path[0] for path in src.constants}

        def launch(*arguments: Any) -> None:
            kernel_arguments = arguments[9:]
            moving = [value for number, value in enumerate(kernel_arguments) if number not in constants]
            numbers = [value.data_ptr() if isinstance(value, Tensor) else value for value in moving]
            self.launches.append((arguments[:4], len(kernel_arguments), numbers))

        return launch


@contextmanager
def driving(driver: RecordingDriver) -> Iterator[None]:
    """Triton's active driver is `driver`; kernels that were compiled for it are forgotten afterwards."""
    from triton.runtime import driver as config

    before, compiled = config._active, dict(fused._compiled)
    config.set_active(driver)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        fused._compiled.clear()
        fused._compiled.update(compiled)
        config._active = before


@pytest.fixture
def driver(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDriver]:
    """Launches are compiled and recorded."""
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    recorder = RecordingDriver()
    with driving(recorder):
        yield recorder


def test_the_direct_launch_is_the_launch_of_triton(driver: RecordingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call goes through Triton's own launch, the next directly: with the same grid, stream and arguments."""
    case, stepped = make_case(37, DIM, dtype=torch.bfloat16), make_case(5, 2 * DIM, dtype=torch.bfloat16).x[:, :DIM]
    memory = torch.zeros(1 << 14, dtype=torch.bfloat16)
    monkeypatch.setattr(fused, "_like", lambda x, dtype: memory[: x.numel()].view(x.shape))
    for _ in range(2):
        autograd.rms_norm(case.x, case.weight, EPS)
    autograd.rms_norm(stepped, case.weight, 1e-6)
    assert len(fused._compiled) == 1
    autograd.rms_norm(case.x, case.weight.bfloat16(), EPS)
    assert len(fused._compiled) == 2
    first, second, third, _ = driver.launches
    assert first == second
    grid_and_stream, num_arguments, moving = third
    assert grid_and_stream == (1, 1, 1, 7)
    assert num_arguments == first[1]
    assert moving[0] == stepped.data_ptr()
    assert moving[-5:] == [5, 2 * DIM, 0, 1e-6, 1.0]


@pytest.mark.parametrize("dim", [33, 32])
def test_one_compiled_kernel_serves_every_layout(dim: int, driver: RecordingDriver) -> None:
    """Triton specialises on values (1, multiples of 16) and alignment unless told not to; direct launches need that."""
    memory, weight = torch.zeros(1 << 14), torch.ones(dim)
    views = [memory[: rows * dim].view(rows, dim) for rows in (1, 16, 37)]
    views += [memory[1 : 1 + 5 * dim].view(5, dim), memory[: 5 * 48].view(5, 48)[:, :dim], memory[:dim].expand(7, dim)]
    mask = torch.ones(64, dtype=torch.bool)
    found = set()
    for offset, x in enumerate(views):
        fused._compiled.clear()
        autograd.rms_norm(x, weight, EPS, mask[offset : offset + x.shape[0]])
        found |= {compiled for compiled, _ in fused._compiled.values()}
    assert len(found) == 1


@pytest.mark.parametrize(("dim", "kernels"), [(DIM, {"forward_tile", "backward_tile"}), (9000, None)])
def test_every_launch_compiles(dim: int, kernels: set[str] | None, driver: RecordingDriver) -> None:
    """Through Triton's own launch, which the interpreter does not have: with all optional arguments, and with none."""
    case, residual = make_case(3, dim, dtype=torch.bfloat16), make_case(3, dim, seed=1).x.requires_grad_()
    mask = torch.tensor([True, False, True])
    x, weight = case.x.requires_grad_(), case.weight.requires_grad_()
    for _ in range(2):
        y, r = autograd.add_rms_norm(x, residual, weight, EPS, 0.5, mask)
        torch.autograd.backward([y, r], [case.dy, residual.detach()])
        autograd.rms_norm(x, weight.detach(), EPS).backward(case.dy)
    names = {key[0] for key in fused._compiled}
    assert names == ({"forward_loop", "backward_loop", "weight_loop"} if kernels is None else kernels)
    grids = [launch[0] for launch in driver.launches]
    assert grids[: len(grids) // 2] == grids[len(grids) // 2 :]
