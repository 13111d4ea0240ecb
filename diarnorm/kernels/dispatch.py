"""Which way of computing a norm is taken: by the tensors' device, and by what is being done with the program.

Nothing here asks for CUDA or Triton before a CUDA tensor arrives.
"""

import logging
import warnings
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active, _is_tracing, _len_torch_dispatch_stack
from torch.autograd import forward_ad

logger = logging.getLogger(__name__)

BACKENDS = ("auto", "eager", "triton", "op")
"""What a caller may ask for. `auto`: the best that fits; `eager`: the definition, in torch's operators; `triton`: the
fused GPU kernels, or an error; `op`: these as one `torch.library` operator."""

KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_TAKEN = frozenset({*KERNEL_DTYPES, torch.bool})
PLAIN = frozenset({Tensor, torch.nn.Parameter})
"""Types of tensors that have memory of their own."""
OLDEST_CAPABILITY = (8, 0)


def choose_backend(x: Tensor, *others: Tensor | None, backend: str = "auto") -> str:
    """The way taken for `x` and the `others` that take part: `cpu`, `triton`, `eager`, `op` or `onnx`.

    `auto` is `cpu` on the CPU (native kernels where there are any, else few operators of torch), `triton` on CUDA,
    `eager` elsewhere, under transforms and, so that neighbours fuse, under `torch.compile`; `onnx` while a model is
    written as ONNX.

    Raises ValueError when the backend asked for does not exist, or cannot work on these tensors.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is not known: choose one of {', '.join(BACKENDS)}")
    if torch.compiler.is_compiling() or _is_tracing():
        return _choose_for_graph(backend)
    if backend == "auto":
        if x.is_cpu:
            return "cpu"
        return "triton" if x.is_cuda and not is_transformed() and _fits(x, *others) else "eager"
    if backend != "eager":
        _refuse_transforms(backend)
    if backend == "triton" or (backend == "op" and x.is_cuda):
        _require_triton(backend, x, *others)
    return backend


def is_transformed() -> bool:
    """Whether operators are recorded or transformed where they are called, so that a kernel would go unseen: by
    `torch.jit.trace`, a dispatch mode such as `make_fx`'s, `torch.func`, forward-mode gradients."""
    return (
        _is_tracing()
        or bool(_len_torch_dispatch_stack())
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def _choose_for_graph(backend: str) -> str:
    from diarnorm.kernels.export import spells_onnx

    if spells_onnx():
        return "onnx"
    return "op" if backend in ("op", "triton") else "eager"


def _refuse_transforms(backend: str) -> None:
    """Raise ValueError where the kernels' results would come without tangents, or not at all."""
    if _are_functorch_transforms_active() or forward_ad._current_level >= 0:
        raise ValueError(f"{backend=} knows neither torch.func nor forward-mode gradients: use backend='eager'")


def _require_triton(backend: str, *tensors: Tensor | None) -> None:
    given = [tensor for tensor in tensors if tensor is not None]
    devices = ", ".join(str(tensor.device) for tensor in given)
    if not torch.cuda.is_available():
        raise ValueError(f"{backend=} needs an NVIDIA GPU, and torch finds none here: use backend='auto'")
    if not all(tensor.is_cuda for tensor in given):
        raise ValueError(f"{backend=} needs CUDA tensors, got {devices}: move them with .cuda()")
    if any(tensor.device != given[0].device for tensor in given):
        raise ValueError(f"{backend=} needs all tensors on one GPU, got {devices}: move them with .to(x.device)")
    if (obstacle := triton_obstacle(given[0].device)) is not None:
        raise ValueError(f"{backend=} cannot run here: {obstacle}; or use backend='auto'")
    if unknown := [str(tensor.dtype) for tensor in given if tensor.dtype not in _TAKEN]:
        raise ValueError(f"{backend=} knows float32, bfloat16 and float16, got {unknown[0]}: use backend='eager'")


def _fits(x: Tensor, *others: Tensor | None) -> bool:
    """Whether the Triton kernels take these CUDA tensors; what stands in their way is said once.

    Fake and distributed tensors have operators, but no memory to hand to a kernel; float64 is for checks; memory of
    another device is out of reach.
    """
    device = x.get_device()
    for tensor in (x, *others):
        if tensor is not None and (
            type(tensor) not in PLAIN or tensor.dtype not in _TAKEN or tensor.get_device() != device
        ):
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
