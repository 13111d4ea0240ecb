"""RMSNorm on the CPU, each way: accuracy, layouts, masks, bits of a row, gradients, and who sees plain operators."""

import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from diarnorm.kernels import cpu, native, operators, reference
from tests.kernels.interpreter import load_module
from tests.kernels.oracle import (
    DTYPES,
    EPS,
    Case,
    assert_accurate,
    assert_within,
    exact,
    gradient_magnitude,
    make_case,
    run,
)

DIM = 24
ROWS_OF_TWO_BLOCKS = 300


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> native.Native:
    """The native kernels: the user's where they have been built, else compiled for this session."""
    if (found := native.load_library()) is not None:
        return found
    try:
        native.find_compiler()
    except ValueError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        native.build()
        found = native.load_library()
    native.load.cache_clear()
    assert found is not None
    return found


@pytest.fixture(scope="session")
def with_numba() -> native.Native:
    """What Numba makes of the loops."""
    pytest.importorskip("numba")
    found = native.load_numba()
    assert found is not None
    return found


WAYS = {"native": "compiled", "numba": "with_numba", "operators": None}
"""Names, and the fixtures with their functions."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """`cpu` computes this way."""
    fixture = WAYS[request.param]
    found = None if fixture is None else request.getfixturevalue(fixture)
    monkeypatch.setattr(native, "load", lambda: found)
    return request.param


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Inside, torch runs on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


def layouts(dim: int = DIM) -> dict[str, Tensor]:
    """`[2, 3, dim]` in the ways that break kernels."""
    return {
        "packed": make_case(2, 3, dim).x,
        "every second column": make_case(2, 3, 2 * dim).x[..., ::2],
        "transposed": make_case(2, dim, 3).x.transpose(1, 2),
        "expanded": make_case(1, 3, dim).x.expand(2, -1, -1),
        "one number": torch.full((1, 1, 1), 0.7).expand(2, 3, dim),
        "without the first frame": make_case(2, 4, dim).x[:, 1:],
        "one element off": make_case(6 * dim + 1).x[1:].view(2, 3, dim),
    }


def add_then_norm(alpha: float) -> Callable[..., Tensor]:
    """`add_rms_norm` of halves that add up to x, as a norm of x."""

    def norm(x: Tensor, weight: Tensor, eps: float, mask: Tensor | None) -> Tensor:
        return cpu.add_rms_norm(x, (1 - alpha) * x, weight, eps, alpha, mask)[0]

    return norm


# ---- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dim", [1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 80, 96, 128, 129, 144, 255, 256, 257, 769, 1152, 2880, 3584, 16385]
)
def test_sizes(way: str, dim: int) -> None:
    for rows in (1, 2, 7):
        case = make_case(rows, dim, seed=dim + rows)
        for norm in (cpu.rms_norm, add_then_norm(0.5)):
            got = run(norm, case)
            if dim > 3:
                assert_accurate(got, case)
            else:  # with few features dx is what two equal terms leave, and only the terms have a scale
                assert_within(got.y, exact(case).y, exact(case).y.abs())
                assert_within(got.dx, exact(case).dx, gradient_magnitude(case))


@pytest.mark.parametrize("shape", [(4097, 33), (3, 700, 80)])
def test_many_rows(way: str, shape: tuple[int, ...]) -> None:
    case = make_case(*shape)
    assert_accurate(run(cpu.rms_norm, case), case)
    assert_accurate(run(add_then_norm(0.5), case), case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weight_dtype", DTYPES)
def test_dtypes(way: str, dtype: torch.dtype, weight_dtype: torch.dtype) -> None:
    case = make_case(5, DIM, dtype=dtype, weight_dtype=weight_dtype)
    assert_accurate(run(cpu.rms_norm, case), case)
    with torch.autocast("cpu", torch.bfloat16):
        got = run(cpu.rms_norm, case)
    assert_accurate(got, case)
    assert cpu.rms_norm(case.x, case.weight, EPS, None, torch.float32).dtype == torch.float32


@pytest.mark.parametrize(
    "dtypes", [(torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float16,) * 2]
)
def test_dtypes_of_sum_and_norm(way: str, dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, residual, weight = (
        make_case(5, DIM, dtype=dtypes[0]).x,
        make_case(5, DIM, seed=1).x.to(dtypes[1]),
        make_case(DIM).weight,
    )
    y, r = cpu.add_rms_norm(x, residual, weight, EPS, 0.5)
    assert torch.equal(r, (residual.float() + 0.5 * x.float()).to(dtypes[1]))
    assert y.dtype == dtypes[0]
    expected = reference.rms_norm(r.double(), weight.double(), EPS)
    torch.testing.assert_close(y.double(), expected, rtol=2 * torch.finfo(dtypes[0]).eps, atol=0)


@pytest.mark.parametrize("layout", layouts())
def test_layouts(way: str, layout: str) -> None:
    """Each of the input with each of the gradient."""
    for gradient in layouts().values():
        case = Case(layouts()[layout], make_case(2 * DIM).weight[::2], gradient)
        before = [t.clone() for t in (case.x, case.weight, case.dy)]
        assert_accurate(run(cpu.rms_norm, case), case)
        assert_accurate(run(add_then_norm(1.0), case), case)
        for tensor, kept in zip((case.x, case.weight, case.dy), before, strict=True):
            assert torch.equal(tensor, kept)


@pytest.mark.parametrize("shape", [(0, DIM), (3, 0, DIM), (0, 5, DIM)])
def test_no_rows(way: str, shape: tuple[int, ...]) -> None:
    outcome = run(cpu.rms_norm, make_case(*shape))
    assert outcome.y.shape == outcome.dx.shape == shape
    assert torch.equal(outcome.dw, torch.zeros(DIM))


@pytest.mark.parametrize(("eps", "expected"), [(1e-12, 1.0), (1e-6, 0.0995), (1e-5, 0.0316)])
def test_eps_is_what_was_asked_for(way: str, eps: float, expected: float) -> None:
    y = cpu.rms_norm(torch.full((1, DIM), 1e-4), torch.ones(DIM), eps)
    torch.testing.assert_close(y, torch.full((1, DIM), expected), rtol=2e-3, atol=0)


def test_extremes(way: str) -> None:
    ones = torch.ones(DIM)
    large = torch.full((1, DIM), 300.0, dtype=torch.float16)
    assert torch.equal(cpu.rms_norm(large, ones, EPS), torch.ones_like(large))
    spike = torch.full((1, DIM), 1e-3).index_fill(1, torch.tensor([5]), 1e4)
    torch.testing.assert_close(
        cpu.rms_norm(spike, ones, EPS).double(), exact(Case(spike, ones, spike)).y, rtol=1e-6, atol=0
    )
    silent = run(cpu.rms_norm, Case(torch.zeros(1, DIM), ones, torch.ones(1, DIM)))
    assert torch.equal(silent.y, torch.zeros(1, DIM))
    torch.testing.assert_close(silent.dx, torch.full((1, DIM), 1 / math.sqrt(EPS)))
    silent = run(cpu.rms_norm, Case(torch.zeros(1, DIM), ones, torch.ones(1, DIM), eps=1e-30))
    assert bool(silent.dx.isfinite().all())


def test_not_a_number_stays_in_its_row(way: str) -> None:
    x = make_case(3, DIM).x.index_fill(0, torch.tensor([1]), math.nan)
    y, r = cpu.add_rms_norm(x, torch.zeros_like(x), torch.ones(DIM), EPS)
    for got in (cpu.rms_norm(x, torch.ones(DIM), EPS), y, r):
        assert got.isnan().any(dim=-1).tolist() == [False, True, False]
        assert bool(got[1].isnan().all())


def assert_rows_alone(norm: Callable[..., Tensor], dim: int) -> None:
    """A row has the same bits alone and in any batch."""
    x, weight = make_case(ROWS_OF_TWO_BLOCKS, 5, dim).x, make_case(dim).weight
    y = norm(x, weight, EPS)
    for rows in (1, 2, 7, 64):
        assert torch.equal(norm(x[:rows], weight, EPS), y[:rows])
    assert torch.equal(norm(x[3, 2], weight, EPS), y[3, 2])
    assert torch.equal(norm(x[:, 2], weight, EPS), y[:, 2])


@pytest.mark.parametrize("dim", [1, 7, 64, 80, 129, 256, 2050])
def test_a_row_does_not_depend_on_the_batch(way: str, dim: int) -> None:
    assert_rows_alone(cpu.rms_norm, dim)
    assert_rows_alone(lambda x, w, eps: cpu.add_rms_norm(x, 0.3 * x, w, eps, 0.5)[0], dim)
    x, weight = make_case(5, dim).x, make_case(dim).weight
    learning = cpu.rms_norm(x, weight.clone().requires_grad_(), EPS)
    assert torch.equal(learning, cpu.rms_norm(x, weight, EPS))


def test_threads_change_no_bits(way: str) -> None:
    case = make_case(7001, 80)
    with threads(1):
        alone = run(cpu.rms_norm, case)
    with threads(2):
        together = run(cpu.rms_norm, case)
    names = ("y", "dx") if way == "operators" else ("y", "dx", "dw")
    for name in names:
        assert torch.equal(getattr(together, name), getattr(alone, name))


def test_the_check_of_rows_notices_sums_in_another_order() -> None:
    def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        squares = rows.square()
        total = squares.sum(dim=-1) if rows.shape[0] > 20 else squares.cumsum(dim=-1)[:, -1]
        return x * torch.rsqrt(total / x.shape[-1] + eps).view(*x.shape[:-1], 1) * weight

    with pytest.raises(AssertionError):
        assert_rows_alone(norm, 256)


# ---- masks --------------------------------------------------------------------------------------------------


def assert_masked_rows_are_inert(norm: Callable[..., Tensor]) -> None:
    """Masked rows, whatever they hold, give 0, get gradient 0, and stay out of the weight's gradient."""
    clean = make_case(2, 200, DIM)
    mask = make_case(2, 200, 1, seed=5).x[..., 0] > -0.5
    dirty = clean._replace(
        x=torch.where(mask[..., None], clean.x, math.nan),
        dy=torch.where(mask[..., None], clean.dy, math.inf),
        mask=mask,
    )
    got, expected = run(norm, dirty), run(norm, clean._replace(dy=torch.where(mask[..., None], clean.dy, 0.0)))
    assert torch.equal(got.y, torch.where(mask[..., None], expected.y, 0.0))
    assert torch.equal(got.dx, expected.dx)
    torch.testing.assert_close(got.dw, expected.dw, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("norm", [cpu.rms_norm, add_then_norm(0.5)])
def test_masked_rows_are_inert(way: str, norm: Callable[..., Tensor]) -> None:
    assert_masked_rows_are_inert(norm)


def test_the_check_of_masks_notices_one_that_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "load", lambda: None)
    monkeypatch.setattr(operators, "_keep", lambda x, mask: x)
    with pytest.raises(AssertionError):
        assert_masked_rows_are_inert(cpu.rms_norm)


def test_masked_rows_of_the_sum_are_zero(way: str) -> None:
    x, mask = torch.full((2, 3, DIM), math.nan), torch.tensor([False, True, False]).expand(2, -1)
    x[:, 1] = 1.0
    y, r = cpu.add_rms_norm(x, x, torch.ones(DIM), EPS, 0.5, mask)
    assert torch.equal(r[:, 1], torch.full((2, DIM), 1.5))
    for got in (y, r):
        assert not got[:, ::2].any()


# ---- gradients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_in_float64(way: str, masked: bool) -> None:
    x, residual, weight = (make_case(*shape, seed=seed).x.double() for seed, shape in enumerate([(3, 5), (3, 5), (5,)]))
    inputs = [t.requires_grad_() for t in (x, residual, weight)]
    mask = torch.tensor([True, False, True]) if masked else None
    assert torch.autograd.gradcheck(lambda x, w: cpu.rms_norm(x, w, EPS, mask), (inputs[0], inputs[2]))
    assert torch.autograd.gradcheck(lambda x, r, w: cpu.add_rms_norm(x, r, w, EPS, 0.5, mask), inputs)


def test_gradients_of_sum_and_norm(way: str) -> None:
    x, residual, weight = (
        make_case(ROWS_OF_TWO_BLOCKS, DIM).x,
        make_case(ROWS_OF_TWO_BLOCKS, DIM, seed=1).x,
        make_case(DIM).weight,
    )
    dy, dr = make_case(ROWS_OF_TWO_BLOCKS, DIM, seed=2).x, make_case(ROWS_OF_TWO_BLOCKS, DIM, seed=3).x
    found = {}
    for name, norm, dtype in (("got", cpu, torch.float32), ("true", reference, torch.float64)):
        inputs = [t.to(dtype, copy=True).requires_grad_() for t in (x, residual, weight)]
        results = norm.add_rms_norm(*inputs, EPS, 0.5)
        torch.autograd.backward(results, [dy.to(dtype), dr.to(dtype)])
        found[name] = [*results, *(t.grad for t in inputs)]
    for got, true in zip(found["got"], found["true"], strict=True):
        torch.testing.assert_close(got.double(), true, rtol=1e-5, atol=1e-4)


def test_twice_and_in_parts(way: str) -> None:
    """A second backward pass adds the same again; one result may go unused; results may be inputs of further norms."""
    x, weight = make_case(7, DIM).x.requires_grad_(), make_case(DIM).weight.requires_grad_()
    y, r = cpu.add_rms_norm(x, x, weight, EPS, 0.5)
    y = cpu.rms_norm(r + y, weight, EPS)
    y.sum().backward(retain_graph=True)
    assert x.grad is not None
    once = x.grad.clone()
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * once, rtol=1e-6, atol=1e-6)
    x.grad = None
    cpu.add_rms_norm(x, x, weight, EPS, 0.5)[1].sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 1.5))


def test_needed_gradients_only(way: str) -> None:
    x, weight = make_case(7, DIM).x, make_case(DIM).weight
    for given in ((x.clone().requires_grad_(), weight), (x, weight.clone().requires_grad_())):
        cpu.rms_norm(*given, EPS).sum().backward()
        assert [t.grad is not None for t in given] == [t.requires_grad for t in given]
    assert not cpu.rms_norm(x, weight, EPS).requires_grad
    with torch.inference_mode():
        first = cpu.rms_norm(x, weight, EPS)
    assert torch.equal(first, cpu.rms_norm(x, weight, EPS))


def test_what_was_kept_must_not_change(way: str) -> None:
    x = make_case(7, DIM).x.requires_grad_()
    step = x * 1.0
    y = cpu.rms_norm(step, make_case(DIM).weight, EPS)
    step += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_second_derivative_is_refused(way: str) -> None:
    x = make_case(7, DIM).x.requires_grad_()
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(cpu.rms_norm(x, make_case(DIM).weight, EPS).sum(), x, create_graph=True)


# ---- mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": torch.ones(DIM + 1)}, "weight needs one number per feature"),
        ({"weight": torch.ones(1)}, "weight needs one number per feature"),
        ({"weight": torch.ones(2, DIM)}, "weight needs one number per feature"),
        ({"x": torch.ones(())}, "weight needs one number per feature"),
        ({"x": torch.ones(2, DIM, dtype=torch.int64)}, "must be floating point"),
        ({"eps": 0.0}, "eps=0.0 would divide silent frames by zero"),
        ({"eps": math.nan}, "eps=nan would divide silent frames by zero"),
        ({"eps": None}, "eps=None means another number for every dtype"),
        ({"mask": torch.ones(3, dtype=torch.bool)}, "mask needs one truth value per row"),
        ({"mask": torch.ones(2)}, "mask must be bool"),
    ],
)
def test_mistakes_are_explained(way: str, changes: dict, message: str) -> None:
    given = {"x": torch.ones(2, DIM), "weight": torch.ones(DIM), "eps": EPS, "mask": None, **changes}
    with pytest.raises(ValueError, match=message):
        cpu.rms_norm(**given)
    with pytest.raises(ValueError, match=message):
        cpu.add_rms_norm(given.pop("x"), torch.ones(2, DIM), given.pop("weight"), given.pop("eps"), **given)


# ---- recordings and transforms ------------------------------------------------------------------------------


def nodes(graph: torch.fx.Graph) -> set[str]:
    """Names of the operators called."""
    return {str(node.target) for node in graph.nodes if node.op == "call_function"}


class Norm(torch.nn.Module):
    """`cpu` as a module."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(make_case(DIM).weight)

    def forward(self, x: Tensor) -> Tensor:
        """y of sum and norm."""
        return cpu.add_rms_norm(cpu.rms_norm(x, self.weight, EPS), x, self.weight, EPS, 0.5)[0]


@pytest.mark.parametrize("strict", [False, True])
def test_export_sees_plain_operators(way: str, strict: bool) -> None:
    x = make_case(4, DIM).x
    program = torch.export.export(Norm(), (x,), strict=strict)
    assert nodes(program.graph)
    assert all(name.startswith("aten.") for name in nodes(program.graph))
    torch.testing.assert_close(program.module()(x), Norm()(x))


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:FutureWarning")
def test_a_trace_sees_plain_operators(way: str) -> None:
    traced = torch.jit.trace(Norm(), (make_case(4, DIM).x,))
    graph = str(traced.inlined_graph)  # pyright: ignore[reportAttributeAccessIssue]
    assert "aten::rsqrt" in graph
    assert "diarnorm_native" not in graph


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")
def test_transforms_see_plain_operators(way: str) -> None:
    x, norm = make_case(4, DIM).x, Norm()
    torch.testing.assert_close(torch.func.vmap(norm)(x), norm(x))
    torch.testing.assert_close(torch.func.grad(lambda x: norm(x).sum())(x), torch.func.jacrev(norm)(x).sum(dim=(0, 1)))
    with torch.no_grad(), forward_ad.dual_level():
        dual = norm(forward_ad.make_dual(x, x))
        assert forward_ad.unpack_dual(dual).tangent is not None
    traced = make_fx(norm)(x)
    assert "aten.rsqrt.default" in nodes(traced.graph)


@pytest.mark.compile
def test_compiled_graphs_have_no_breaks(way: str) -> None:
    torch._dynamo.reset()
    x, norm = make_case(4, DIM).x, Norm()
    torch.testing.assert_close(torch.compile(norm, fullgraph=True, backend="aot_eager")(x), norm(x))


def test_meta_tensors_have_shapes(way: str) -> None:
    y = cpu.rms_norm(torch.empty(3, DIM, device="meta"), torch.empty(DIM, device="meta"), EPS)
    assert y.is_meta
    assert y.shape == (3, DIM)


# ---- the native kernels notice what they should -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- n * pull", ""),
        ("part[i] += dy[i] * n", "part[i] += dy[i]"),
        ("i + lane < dim;", "i + lane < dim - 1;"),
        ("dresidual[i] = dx[i] + dr[i]", "dresidual[i] = dx[i]"),
        ("if (mask && !mask[row])", "if (false)"),
    ],
)
def test_mutants_are_caught(
    compiled: native.Native, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = native.SOURCE.read_text("utf-8")
    assert old in text
    name = f"mutant_{sum(old.encode())}"
    source = tmp_path / "mutant.cpp"
    source.write_text(text.replace(old, new).replace("diarnorm_native", name), "utf-8")
    native.compile_operators(source, tmp_path / "mutant.so", native.find_compiler())
    torch.ops.load_library(tmp_path / "mutant.so")
    ops = getattr(torch.ops, name)
    mutant = native.Native("mutant", ops.rms_norm.default, ops.rms_norm.mask, ops.add_rms_norm.default)
    monkeypatch.setattr(native, "load", lambda: mutant)
    with pytest.raises(AssertionError):
        check_everything()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- n * pull", ""),
        ("part[j] += dy[i, j] * n", "part[j] += dy[i, j]"),
        ("square += z[i, j]", "square = z[i, j]"),
        ("dz[i, j] += dr[i, j]", "pass"),
        ("if masked and not mask[i]:", "if False:"),
        ("if i % BLOCK_ROWS == 0:", "if i == 0:"),
    ],
)
def test_mutants_of_the_loops_are_caught(
    with_numba: native.Native, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diarnorm.kernels import numba_rms

    text = Path(numba_rms.__file__).read_text("utf-8")
    assert old in text
    source = tmp_path / "mutant.py"
    source.write_text(text.replace(old, new), "utf-8")
    module = load_module(source)
    mutant = native.Native("mutant", module.rms_norm, module.rms_norm, module.add_rms_norm)
    monkeypatch.setattr(native, "load", lambda: mutant)
    with pytest.raises(AssertionError):
        check_everything()


def test_threads_survive_a_fork(with_numba: native.Native) -> None:
    """A child of a process that has used threads makes its own. (OpenMP's are stuck: no torch operators.)"""
    code = (
        "import multiprocessing, numpy, torch\n"
        "from diarnorm.kernels import numba_rms\n"
        "x, weight = (torch.from_numpy(numpy.ones(shape, 'float32')) for shape in ((8000, 256), 256))\n"
        "def norm():\n"
        "    assert (numba_rms.rms_norm(x, weight, 1e-5).numpy() > 0.9).all()\n"
        "for number in (2, 3):\n"
        "    torch.set_num_threads(number)\n"
        "    norm()\n"
        "assert numba_rms._pool.cache_info().currsize == 1\n"
        "child = multiprocessing.get_context('fork').Process(target=norm, daemon=True)\n"
        "child.start()\n"
        "child.join(30)\n"
        "print(child.exitcode)\n"
    )
    root = Path(native.__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "0\n", done.stderr


def check_everything() -> None:
    """What the tests above ask of the kernels, in brief."""
    case = make_case(ROWS_OF_TWO_BLOCKS, 65)
    assert_accurate(run(cpu.rms_norm, case), case)
    assert_masked_rows_are_inert(cpu.rms_norm)
    test_gradients_of_sum_and_norm("native")


def test_everything_holds_without_a_mutation(way: str) -> None:
    check_everything()
