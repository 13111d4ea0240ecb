"""Several processes that train one model: which one this is, sums over all of them, what one of them makes for all.

`torchrun` starts the processes and tells each its number in the environment. In a process that is alone nothing here
changes anything.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What a process is told by whoever starts several."""
PATIENCE = timedelta(days=1)
"""How long the others wait while the first process evaluates and tunes."""


def rank() -> int:
    """Number of this process; the first, 0, is the only one that writes, evaluates and prints."""
    return dist.get_rank() if dist.is_initialized() else 0


def num_processes() -> int:
    """Processes that train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def local_rank() -> int:
    """Number of this process among those on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def process_group() -> Iterator[None]:
    """Join the processes that were started together, for the length of the block; each its own GPU, where there are
    any. Tensors on the CPU go through gloo, those on a GPU through nccl."""
    if dist.is_initialized() or not all(name in os.environ for name in ENVIRONMENT):
        yield
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank() % torch.cuda.device_count())
    dist.init_process_group(timeout=PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def silent_others() -> Iterator[None]:
    """Standard error goes nowhere in all but the first process of a machine: what it says, it says for all."""
    with ExitStack() as stack:
        if local_rank() > 0:
            stack.enter_context(redirect_stderr(stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))))
        yield


@contextmanager
def first_of_machine() -> Iterator[None]:
    """Run the block in the first process of each machine, then in the others: what it keeps on disk is made once."""
    if num_processes() == 1:
        yield
        return
    if local_rank() > 0:
        dist.barrier()
    try:
        yield
    finally:
        if local_rank() == 0:
            dist.barrier()


def from_first(make: Callable[[], T]) -> T:
    """What `make` returns in the first process, or the error that it raises there, in all of them."""
    if num_processes() == 1:
        return make()
    box: list[tuple[T | None, Exception | None]] = [(None, None)]
    if rank() == 0:
        try:
            box = [(make(), None)]
        except Exception as error:
            box = [(None, error)]
    dist.broadcast_object_list(box, src=0)
    value, error = box[0]
    if error is not None:
        raise error
    return value  # pyright: ignore[reportReturnType]


def sum_over_processes(values: Tensor) -> Tensor:
    """Sum of `values`, which have the same shape everywhere; in place, without gradient."""
    if num_processes() > 1:
        dist.all_reduce(values)
    return values


def sum_gradients(parameters: Sequence[Tensor]) -> None:
    """Sum the gradients, in one go. A parameter without gradient in any process still has none afterwards."""
    if num_processes() == 1:
        return
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    present = torch.tensor([float(p.grad is not None) for p in parameters], device=gradients[0].device)
    flat = sum_over_processes(torch.cat([present, *(gradient.flatten() for gradient in gradients)]))
    present, *sums = flat.split([len(gradients), *(gradient.numel() for gradient in gradients)])
    for parameter, total, anywhere in zip(parameters, sums, present.tolist(), strict=True):
        parameter.grad = total.view_as(parameter) if anywhere else None
