"""Ways of computing a norm that are compared: LayerNorm as the measure, RMSNorm as everybody offers it, and ours."""

import logging
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from diarnorm.kernels import choose_backend, native, reference, rms_norm
from diarnorm.norms import EPS, make_norm

BASELINE = "layer_norm"
OURS = "diarnorm"
GPU_PACKAGES = {"liger": ("liger_kernel", "liger-kernel"), "quack": ("quack", "quack-kernels")}
"""Others' kernels: the module that is imported, the package that is installed."""
ONNX_OPSET = 18


class Inputs(NamedTuple):
    """Fresh random inputs, and the gradient of the output."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    dy: Tensor


Bind = Callable[[Inputs], Callable[[], Tensor]]
"""Makes the call that is timed from its inputs."""


class Contestant(NamedTuple):
    """A norm, and what it turned out to run on."""

    name: str
    note: str
    bind: Bind


def make_inputs(
    rows: int, dim: int, dtype: torch.dtype, device: torch.device, *, gradients: bool = False, seed: int = 0
) -> Inputs:
    """Random `[rows, dim]`, a weight around 1; `gradients`: x, weight and bias ask for theirs."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device)

    x, dy = draw(rows, dim).to(dtype), draw(rows, dim).to(dtype)
    weight, bias = (nn.Parameter(start + 0.1 * draw(dim).to(dtype), gradients) for start in (1, 0))
    return Inputs(x.requires_grad_(gradients), weight, bias, dy)


def make_contestants(
    device: torch.device, *, dtype: torch.dtype = torch.float32, backward: bool = False, compiled: bool = True
) -> list[Contestant]:
    """Everything that can run here (see `obstacles`); the baseline comes first."""
    probe = make_inputs(2, 64, torch.float32, device)
    found = [
        Contestant(BASELINE, _dispatched(_layer_norm, probe), _layer_norm),
        Contestant("eager", "six operators of torch", _eager),
        Contestant("F.rms_norm", _dispatched(_torch_rms_norm, probe), _torch_rms_norm),
    ]
    if compiled:
        function = torch.compile(reference.rms_norm, dynamic=True)
        found.append(
            Contestant("torch.compile", "the definition, compiled", lambda i: lambda: function(i.x, i.weight, EPS))
        )
    found.append(Contestant(OURS, describe_ours(probe.x), _ours))
    missing = obstacles(device, dtype, backward=backward)
    makers = {"liger": _liger, "quack": _quack, "onnxruntime": _onnxruntime}
    return found + [contestant for name, make in makers.items() if name not in missing for contestant in make()]


def obstacles(device: torch.device, dtype: torch.dtype = torch.float32, *, backward: bool = False) -> dict[str, str]:
    """Why others cannot take part here, by their names."""
    found = {}
    for name, (module, package) in GPU_PACKAGES.items():
        if device.type != "cuda":
            found[name] = "needs an NVIDIA GPU"
        elif find_spec(module) is None:
            found[name] = f"is not installed: pip install {package}"
    if device.type != "cpu" or dtype != torch.float32 or backward:
        found["onnxruntime"] = "is timed on the CPU, in float32, without gradients"
    elif not all(find_spec(module) for module in ("onnx", "onnxscript", "onnxruntime")):
        found["onnxruntime"] = "is not installed: pip install 'diarnorm[onnx]'"
    return found


def encoder_contestants(device: torch.device) -> list[Contestant]:
    """Layers as the encoder uses them: `norm=layer` as the measure, `norm=rms`."""

    def bind_layer(name: str) -> Bind:
        def bind(inputs: Inputs) -> Callable[[], Tensor]:
            norm: Any = make_norm(name, inputs.x.shape[-1])
            norm.weight = inputs.weight
            if name == "layer":
                norm.bias = inputs.bias
            return lambda: norm(inputs.x)

        return bind

    ours = describe_ours(torch.ones(2, 3, device=device))
    notes = {"layer": "torch's kernel", "rms": ours}
    return [Contestant(f"norm={name}", note, bind_layer(name)) for name, note in notes.items()]


def describe_ours(x: Tensor) -> str:
    """What `diarnorm.kernels.rms_norm` runs on for `x`."""
    way = choose_backend(x)
    if way != "cpu":
        return {"triton": "Triton kernel"}.get(way, way)
    kernels = native.load()
    return "four operators of torch; diarnorm build-native is faster" if kernels is None else kernels.name


def forward_call(bind: Bind, inputs: Inputs) -> Callable[[], object]:
    """A call that computes the output."""
    return bind(inputs)


def training_call(bind: Bind, inputs: Inputs) -> Callable[[], object]:
    """A call that computes the output and the gradients of x and of every parameter that takes part."""
    leaves, dy, norm = inputs[:3], inputs.dy.clone(), bind(inputs)  # some kernels write into the gradient they get
    gradients = torch.autograd.grad(norm(), leaves, dy, allow_unused=True)
    used = [leaf for leaf, gradient in zip(leaves, gradients, strict=True) if gradient is not None]
    return lambda: torch.autograd.grad(norm(), used, dy)


def traffic_bytes(rows: int, dim: int, dtype: torch.dtype, *, backward: bool) -> int:
    """Least traffic with memory: x in, y out; and for the gradients x and dy in, dx out."""
    return (5 if backward else 2) * rows * dim * dtype.itemsize


def _layer_norm(i: Inputs) -> Callable[[], Tensor]:
    shape = i.weight.shape
    return lambda: F.layer_norm(i.x, shape, i.weight, i.bias, EPS)


def _eager(i: Inputs) -> Callable[[], Tensor]:
    return lambda: reference.rms_norm(i.x, i.weight, EPS)


def _torch_rms_norm(i: Inputs) -> Callable[[], Tensor]:
    shape = i.weight.shape
    return lambda: F.rms_norm(i.x, shape, i.weight, EPS)


def _ours(i: Inputs) -> Callable[[], Tensor]:
    return lambda: rms_norm(i.x, i.weight, EPS)


def _liger() -> list[Contestant]:
    function: Any = import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
    return [Contestant("liger", "Triton kernel", lambda i: lambda: function.apply(i.x, i.weight, EPS))]


def _quack() -> list[Contestant]:
    function: Any = import_module("quack").rmsnorm
    return [Contestant("quack", "CuTe kernel", lambda i: lambda: function(i.x, i.weight, eps=EPS))]


def _onnxruntime() -> list[Contestant]:
    """LayerNorm and our RMSNorm, written as ONNX, run by ONNX Runtime, which fuses each to the node that is noted."""

    def make(kind: str) -> Contestant:
        def bind(inputs: Inputs) -> Callable[[], Tensor]:
            session, _ = _session(kind, inputs.x.shape[-1])
            given = {"x": inputs.x.numpy(), "weight": inputs.weight.numpy(), "bias": inputs.bias.numpy()}
            given = {node.name: given[node.name] for node in session.get_inputs()}
            return lambda: torch.from_numpy(session.run(None, given)[0])

        return Contestant(f"ONNX {kind}_norm", _session(kind, 64)[1], bind)

    return [make("layer"), make("rms")]


@lru_cache
def _session(kind: str, dim: int) -> tuple[Any, str]:
    """ONNX Runtime's session for a norm over `dim` features, any number of rows; the nodes that it runs."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        session = onnxruntime.InferenceSession(_onnx_bytes(kind, dim), options, providers=["CPUExecutionProvider"])
        nodes = onnx.load(options.optimized_model_filepath).graph.node
    return session, " ".join(node.op_type for node in nodes)


def _onnx_bytes(kind: str, dim: int) -> bytes:
    class Norm(nn.Module):
        def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return F.layer_norm(x, (dim,), weight, bias, EPS) if kind == "layer" else rms_norm(x, weight, EPS)

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    inputs = (torch.ones(2, dim), torch.ones(dim), torch.ones(dim))
    shapes = ({0: torch.export.Dim("rows", min=1)}, {}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            Norm().eval(), inputs, dynamo=True, opset_version=ONNX_OPSET, dynamic_shapes=shapes, verbose=False
        )
    assert program is not None
    return program.model_proto.SerializeToString()


class _Recorder(TorchDispatchMode):
    """Names of the operators that reach a backend."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **({} if kwargs is None else kwargs))


def _dispatched(bind: Bind, inputs: Inputs) -> str:
    """The operators that a norm turns into on this device."""
    with torch.no_grad(), _Recorder() as recorder:
        bind(inputs)()
    return " ".join(recorder.names)
