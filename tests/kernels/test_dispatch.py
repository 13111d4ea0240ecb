"""The public functions: what they refuse, which way they take, and that no GPU is asked for."""

import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from diarnorm import kernels
from diarnorm.kernels import add_rms_norm, choose_backend, dispatch, reference, rms_norm
from tests.kernels.oracle import DTYPES, EPS, make_case

of_torch_itself = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:FutureWarning")
"""Dual tensors make torch say so."""
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eps": 0.0}, "eps=0.0 would divide silent frames by zero"),
        ({"eps": -1e-5}, "give a positive number"),
        ({"eps": float("nan")}, "eps=nan"),
        ({"weight": torch.ones(4)}, r"got weight \[4\] for x \[2, 3, 5\]"),
        ({"weight": torch.ones(1, 5)}, "one number per feature"),
        ({"x": torch.ones(())}, "one number per feature"),
        ({"x": torch.ones(2, 3, 5, dtype=torch.long)}, "must be floating point, got torch.int64"),
        ({"mask": torch.ones(2, dtype=torch.bool)}, r"its shape must be \[2, 3\]"),
        ({"mask": torch.ones(2, 3)}, "must be bool"),
        ({"out_dtype": torch.int8}, "out_dtype=torch.int8"),
        ({"backend": "cuda"}, "choose one of auto, eager, triton, op"),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "eager"])
def test_what_is_refused(change: dict[str, Any], message: str, backend: str) -> None:
    given = {"x": torch.ones(2, 3, 5), "weight": torch.ones(5), "eps": EPS, "backend": backend} | change
    with pytest.raises(ValueError, match=message):
        rms_norm(given.pop("x"), given.pop("weight"), given.pop("eps"), **given)


def test_residuals_that_are_refused() -> None:
    x, weight = torch.ones(2, 5), torch.ones(5)
    for backend in ("auto", "eager"):
        with pytest.raises(ValueError, match=r"residual needs the shape of x, got \[5\] for x \[2, 5\]"):
            add_rms_norm(x, torch.ones(5), weight, EPS, backend=backend)
        with pytest.raises(ValueError, match="residual must be floating point"):
            add_rms_norm(x, torch.ones(2, 5, dtype=torch.long), weight, EPS, backend=backend)


@no_gpu
@pytest.mark.parametrize("backend", ["triton"])
def test_triton_without_a_gpu_is_one_sentence(backend: str) -> None:
    with pytest.raises(
        ValueError, match="needs an NVIDIA GPU, and torch finds none here: use backend='auto'"
    ) as caught:
        rms_norm(torch.ones(2, 5), torch.ones(5), EPS, backend=backend)
    assert "\n" not in str(caught.value)


def test_the_way_taken() -> None:
    x = torch.ones(2, 5)
    assert choose_backend(x) == "cpu"
    assert choose_backend(x.to("meta")) == "eager"
    for backend in ("eager", "op"):
        assert choose_backend(x, backend=backend) == backend
    with FakeTensorMode():
        assert choose_backend(torch.empty(2, 5, device="cuda")) == "eager"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A GPU to ask about that is not there, and nothing remembered about any."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(dispatch, "find_spec", lambda name: object())
    for remembered in (dispatch.triton_obstacle, dispatch._announce):
        remembered.cache_clear()
    yield torch.device("cuda", 3)
    for remembered in (dispatch.triton_obstacle, dispatch._announce):
        remembered.cache_clear()


def test_an_old_gpu_is_an_obstacle(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert dispatch.triton_obstacle(gpu) == "compute capability 7.5 is older than 8.0; use a newer GPU"


def test_a_missing_triton_is_said_once(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.warns(RuntimeWarning, match="on cuda:3 run as separate torch operators: Triton is not installed; pip"):
        assert not dispatch._announce(gpu)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not dispatch._announce(gpu)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with FakeTensorMode(), pytest.raises(ValueError, match="cannot run here: Triton is not installed"):
        choose_backend(torch.empty(2, 5, device="cuda:3"), backend="triton")


def test_triton_wants_cuda_tensors_of_its_dtypes(gpu: torch.device) -> None:
    with pytest.raises(ValueError, match="needs CUDA tensors, got cpu: move them"):
        choose_backend(torch.ones(2, 5), backend="triton")
    with FakeTensorMode():
        x = torch.empty(2, 5, device=gpu)
        assert choose_backend(x, backend="triton") == "triton"
        with pytest.raises(ValueError, match="got cuda:3, cpu"):
            choose_backend(x, torch.empty(5), backend="triton")
        with pytest.raises(ValueError, match="float64: use backend='eager'"):
            choose_backend(x.double(), backend="triton")
        for backend in ("triton", "op"):
            with pytest.raises(
                ValueError, match=f"backend='{backend}' needs all tensors on one GPU, got cuda:3, cuda:2"
            ):
                choose_backend(x, torch.empty(5, device="cuda:2"), backend=backend)


def test_memory_of_another_device_is_not_handed_to_the_kernels(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "PLAIN", {Tensor, FakeTensor})
    with FakeTensorMode():
        x, weight, elsewhere = (torch.empty(2, 5, device=name) for name in (gpu, gpu, "cuda:2"))
    assert choose_backend(x, weight) == "triton"
    assert choose_backend(x, elsewhere) == choose_backend(x, weight, torch.ones(2) > 0) == "eager"


def ways_in_transforms(x: Tensor, backend: str) -> dict[str, str]:
    """The way taken for `x` in each kind of transform, for nothing else than to be asked."""
    ways: dict[str, str] = {}

    def ask(name: str) -> Any:
        def asked(y: Tensor) -> Tensor:
            ways[name] = choose_backend(x, backend=backend)
            return y.sum()

        return asked

    y = torch.ones(2, 5)
    torch.func.vmap(ask("vmap"))(y)
    torch.func.grad(ask("grad"))(y)
    torch.func.jvp(ask("jvp"), (y,), (y,))
    make_fx(ask("make_fx"))(y)
    with forward_ad.dual_level():
        ask("dual")(forward_ad.make_dual(y, y))
    return ways


@of_torch_itself
def test_transforms_on_cuda_see_plain_operators(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PLAIN", {Tensor, FakeTensor})
    with FakeTensorMode():
        x = torch.empty(2, 5, device=gpu)
    assert choose_backend(x) == "triton"
    ways = ways_in_transforms(x, "auto")
    assert ways == dict.fromkeys(("vmap", "grad", "jvp", "make_fx", "dual"), "eager")
    assert choose_backend(x) == "triton"


@of_torch_itself
@pytest.mark.parametrize("backend", ["op", "triton"])
def test_kernels_asked_for_by_name_refuse_transforms(backend: str) -> None:
    x, weight = make_case(4, 8).x, torch.ones(8)
    message = f"backend='{backend}' knows neither torch.func nor forward-mode gradients: use backend='eager'"
    with pytest.raises(ValueError, match=message):
        torch.func.vmap(lambda row: rms_norm(row, weight, EPS, backend=backend))(x)
    with forward_ad.dual_level(), pytest.raises(ValueError, match=message):
        rms_norm(forward_ad.make_dual(x, x), weight, EPS, backend=backend)
    with forward_ad.dual_level():
        dual = rms_norm(forward_ad.make_dual(x, x), weight, EPS, backend="eager")
        assert forward_ad.unpack_dual(dual).tangent is not None


def test_mixed_dtypes_are_no_reason_to_fall_back(
    gpu: torch.device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A float32 weight beside bfloat16 activations, and a mask, stay on the kernels; only float64 does not."""
    x, weight, mask = torch.ones(2, 5, dtype=torch.bfloat16), torch.nn.Parameter(torch.ones(5)), torch.ones(2) > 0
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    with caplog.at_level(logging.INFO, logger="diarnorm.kernels.dispatch"):
        assert dispatch._fits(x, weight, None, mask)
        assert dispatch._fits(x, weight, None, mask)
    assert [record.message for record in caplog.records] == ["RMSNorm on cpu: Triton kernels"]
    assert not dispatch._fits(x, weight.double())


@pytest.mark.parametrize("backend", ["auto", "eager", "op"])
def test_every_way_computes_the_definition(backend: str) -> None:
    mask = torch.tensor([[True, False, True], [True, True, False]])
    for dtype in DTYPES:
        for out_dtype in (None, torch.float32, torch.float16):
            case = make_case(2, 3, 33, dtype=dtype)
            residual = make_case(2, 3, 33, seed=1).x
            y = rms_norm(case.x, case.weight, EPS, mask=mask, out_dtype=out_dtype, backend=backend)
            expected = reference.rms_norm(case.x, case.weight, EPS, mask, out_dtype)
            assert y.dtype == (dtype if out_dtype is None else out_dtype)
            step = torch.finfo(y.dtype).eps
            torch.testing.assert_close(y, expected, rtol=4 * step, atol=0)
            got = add_rms_norm(case.x, residual, case.weight, EPS, 0.5, mask=mask, out_dtype=out_dtype, backend=backend)
            both = reference.add_rms_norm(case.x, residual, case.weight, EPS, 0.5, mask, out_dtype)
            for ours, theirs in zip(got, both, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=4 * torch.finfo(ours.dtype).eps, atol=1e-7)


@pytest.mark.parametrize("backend", ["auto", "eager", "op"])
@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5), (0, 2, 5)])
def test_empty_batches(backend: str, shape: tuple[int, ...]) -> None:
    x, weight = torch.zeros(shape, requires_grad=True), torch.ones(5, requires_grad=True)
    y, r = add_rms_norm(x, torch.zeros(shape), weight, EPS, backend=backend)
    (y.sum() + r.sum() + rms_norm(x, weight, EPS, backend=backend).sum()).backward()
    assert y.shape == r.shape == shape
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.zeros(5))


@pytest.mark.parametrize("backend", ["auto", "eager", "op"])
def test_autocast_changes_nothing(backend: str) -> None:
    case = make_case(2, 33, dtype=torch.bfloat16)
    plain = rms_norm(case.x, case.weight, EPS, backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = rms_norm(case.x, case.weight, EPS, backend=backend)
        wide = rms_norm(case.x.float(), case.weight, EPS, backend=backend)
    assert torch.equal(inside, plain)
    assert wide.dtype == torch.float32
    assert torch.equal(wide, rms_norm(case.x.float(), case.weight, EPS, backend=backend))


def test_importing_and_computing_ask_for_no_gpu_and_no_triton() -> None:
    """In a process where Triton cannot be imported and every question to CUDA fails."""
    code = (
        "import sys\n"
        "sys.modules['triton'] = None\n"
        "import torch\n"
        "def refuse(*arguments, **options): raise AssertionError('asked for CUDA')\n"
        "for name in ('is_available', 'current_device', 'get_device_capability', '_lazy_init'):\n"
        "    setattr(torch.cuda, name, refuse)\n"
        "import diarnorm\n"
        "from diarnorm.kernels import add_rms_norm, rms_norm\n"
        "x, weight = torch.ones(2, 5, requires_grad=True), torch.ones(5)\n"
        "(rms_norm(x, weight, 1e-5) + add_rms_norm(x, x, weight, 1e-5)[0]).sum().backward()\n"
        "assert 'diarnorm.kernels.triton_rms' not in sys.modules\n"
    )
    root = Path(kernels.__file__).parent.parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
