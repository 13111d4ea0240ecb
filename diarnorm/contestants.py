"""Ways of computing a norm that are compared: LayerNorm as the measure, RMSNorm as everybody offers it, and ours."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from diarnorm.kernels import choose_backend, native, reference, rms_norm
from diarnorm.norms import EPS

BASELINE = "layer_norm"
OURS = "diarnorm"


class Inputs(NamedTuple):
    """Fresh random inputs, and the gradient of the output."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    dy: Tensor


class Contestant(NamedTuple):
    """A norm, and what it turned out to run on."""

    name: str
    note: str
    norm: Callable[[Inputs], Tensor]


def make_inputs(
    rows: int, dim: int, dtype: torch.dtype, device: torch.device, *, gradients: bool = False, seed: int = 0
) -> Inputs:
    """Random `[rows, dim]`, a weight around 1; `gradients`: x, weight and bias ask for theirs."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    x, dy = draw(rows, dim).to(dtype), draw(rows, dim).to(dtype)
    weight, bias = (1 + 0.1 * draw(dim)).to(dtype), (0.1 * draw(dim)).to(dtype)
    for leaf in (x, weight, bias):
        leaf.requires_grad_(gradients)
    return Inputs(x, weight, bias, dy)


def make_contestants(device: torch.device, *, compiled: bool = True) -> list[Contestant]:
    """Everything that can run on this device; the baseline comes first."""
    probe = make_inputs(2, 64, torch.float32, device)
    found = [
        Contestant(BASELINE, _dispatched(_layer_norm, probe), _layer_norm),
        Contestant("eager", "six operators of torch", _eager),
        Contestant("F.rms_norm", _dispatched(_torch_rms_norm, probe), _torch_rms_norm),
    ]
    if compiled:
        function = torch.compile(_eager, dynamic=True)
        found.append(Contestant("torch.compile", "the definition, compiled", function))
    found.append(Contestant(OURS, describe_ours(probe.x), _ours))
    return found + (_others() if device.type == "cuda" else [])


def describe_ours(x: Tensor) -> str:
    """What `diarnorm.kernels.rms_norm` runs on for `x`."""
    way = choose_backend(x)
    if way != "cpu":
        return {"triton": "Triton kernel"}.get(way, way)
    kernels = native.load()
    return "operators of torch; diarnorm build-native is faster" if kernels is None else kernels.name


def forward_call(norm: Callable[[Inputs], Tensor], inputs: Inputs) -> Callable[[], object]:
    """A call that computes the output."""
    return lambda: norm(inputs)


def training_call(norm: Callable[[Inputs], Tensor], inputs: Inputs) -> Callable[[], object]:
    """A call that computes the output and the gradients of x and of every parameter that takes part."""
    leaves, dy = inputs[:3], inputs.dy.clone()  # some kernels write into the gradient they are given
    gradients = torch.autograd.grad(norm(inputs), leaves, dy, allow_unused=True)
    used = [leaf for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None]
    return lambda: torch.autograd.grad(norm(inputs), used, dy)


def traffic_bytes(rows: int, dim: int, dtype: torch.dtype, *, backward: bool) -> int:
    """Least traffic with memory: x in, y out; and for the gradients x and dy in, dx out."""
    return (5 if backward else 2) * rows * dim * dtype.itemsize


def _layer_norm(inputs: Inputs) -> Tensor:
    return F.layer_norm(inputs.x, inputs.weight.shape, inputs.weight, inputs.bias, EPS)


def _eager(inputs: Inputs) -> Tensor:
    return reference.rms_norm(inputs.x, inputs.weight, EPS)


def _torch_rms_norm(inputs: Inputs) -> Tensor:
    return F.rms_norm(inputs.x, inputs.weight.shape, inputs.weight, EPS)


def _ours(inputs: Inputs) -> Tensor:
    return rms_norm(inputs.x, inputs.weight, EPS)


def _others() -> list[Contestant]:
    """Liger's and QuACK's kernels, where they are installed."""
    found = []
    if find_spec("liger_kernel") is not None:
        function: Any = import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
        found.append(Contestant("liger", "Triton kernel", lambda i: function.apply(i.x, i.weight, EPS)))
    if find_spec("quack") is not None:
        quack: Any = import_module("quack").rmsnorm
        found.append(Contestant("quack", "CuTe kernel", lambda i: quack(i.x, i.weight, eps=EPS)))
    return found


class _Recorder(TorchDispatchMode):
    """Names of the operators that reach a backend."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **({} if kwargs is None else kwargs))


def _dispatched(norm: Callable[[Inputs], Tensor], inputs: Inputs) -> str:
    """The operators that a norm turns into on this device."""
    with torch.no_grad(), _Recorder() as recorder:
        norm(inputs)
    return " ".join(recorder.names)
