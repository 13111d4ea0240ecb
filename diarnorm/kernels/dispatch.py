"""Which way of computing a norm is taken: by the tensor's device, and by what is being done with the program.

Nothing here asks for CUDA or Triton before a CUDA tensor arrives.
"""

import logging
import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "eager", "triton", "op")
"""What a caller may ask for. `auto`: the best that fits; `eager`: the definition, in torch's operators; `triton`: the
fused GPU kernels, or an error; `op`: these as one `torch.library` operator."""

KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TAKEN = frozenset({*KERNEL_DTYPES, torch.bool})
_PLAIN = frozenset({Tensor, torch.nn.Parameter})
OLDEST_CAPABILITY = (8, 0)


def choose_backend(x: Tensor, *others: Tensor | None, backend: str = "auto") -> str:
    """The way taken for `x` and the `others` that take part: `cpu`, `triton`, `eager`, `op` or `onnx`.

    `auto` is `cpu` on the CPU (native kernels where there are any, else few operators of torch), `triton` on CUDA,
    `eager` elsewhere and, so that neighbours fuse, under `torch.compile`; `onnx` while a model is written as ONNX.

    Raises ValueError when the backend asked for does not exist, or cannot work on these tensors.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is not known: choose one of {', '.join(BACKENDS)}")
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return _choose_for_graph(backend)
    if backend == "auto":
        if x.is_cpu:
            return "cpu"
        return "triton" if x.is_cuda and _fits(x, *others) else "eager"
    if backend == "triton" or (backend == "op" and x.is_cuda):
        _require_triton(x, *others)
    return backend


def _choose_for_graph(backend: str) -> str:
    from diarnorm.kernels.export import spells_onnx

    if spells_onnx():
        return "onnx"
    return "op" if backend in ("op", "triton") else "eager"


def _require_triton(*tensors: Tensor | None) -> None:
    given = [tensor for tensor in tensors if tensor is not None]
    if not torch.cuda.is_available():
        raise ValueError("backend='triton' needs an NVIDIA GPU, and torch finds none here: use backend='auto'")
    if not all(tensor.is_cuda for tensor in given):
        devices = ", ".join(str(tensor.device) for tensor in given)
        raise ValueError(f"backend='triton' needs CUDA tensors, got {devices}: move them with .cuda()")
    if (obstacle := triton_obstacle(given[0].device)) is not None:
        raise ValueError(f"backend='triton' cannot run here: {obstacle}; or use backend='auto'")
    if unknown := [str(tensor.dtype) for tensor in given if tensor.dtype not in _TAKEN]:
        raise ValueError(f"backend='triton' knows float32, bfloat16 and float16, got {unknown[0]}: use backend='eager'")


def _fits(x: Tensor, *others: Tensor | None) -> bool:
    """Whether the Triton kernels take these CUDA tensors; what stands in their way is said once.

    Fake and distributed tensors have operators, but no memory to hand to a kernel; float64 is for checks.
    """
    for tensor in (x, *others):
        if tensor is not None and (type(tensor) not in _PLAIN or tensor.dtype not in _TAKEN):
            return False
    return _announce(x.device)


@lru_cache
def _announce(device: torch.device) -> bool:
    """Whether there is no obstacle on this GPU. Says once which way norms take there."""
    obstacle = triton_obstacle(device)
    if obstacle is not None:
        warnings.warn(f"norms on {device} run as separate torch operators: {obstacle}", RuntimeWarning, stacklevel=5)
    else:
        logger.info("RMSNorm on %s: Triton kernels", device)
    return obstacle is None


@lru_cache
def triton_obstacle(device: torch.device) -> str | None:
    """Why Triton kernels cannot run on this GPU, with the fix; None when they can."""
    if find_spec("triton") is None:
        return "Triton is not installed; pip install triton"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_CAPABILITY:
        return f"compute capability {capability[0]}.{capability[1]} is older than 8.0; use a newer GPU"
    return None
