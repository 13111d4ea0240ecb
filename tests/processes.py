"""Real processes for tests: several that make a process group, and one that can be killed. They start from a server
that has imported torch already."""

import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["diarnorm.training.trainer", "tests.tiny_run"])


def run_group(work: Callable[..., Any], size: int, folder: Path, *arguments: Any) -> list[Any]:
    """What `work(*arguments)` returns in each of `size` processes that form a gloo group; files go to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    members = [CONTEXT.Process(target=_member, args=(work, rank, size, folder, arguments)) for rank in range(size)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    assert [member.exitcode for member in members] == [0] * size
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _member(work: Callable[..., Any], rank: int, size: int, folder: Path, arguments: tuple[Any, ...]) -> None:
    os.environ["LOCAL_RANK"] = str(rank)
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    dist.init_process_group("gloo", meeting, rank=rank, world_size=size, timeout=timedelta(minutes=5))
    torch.save(work(*arguments), folder / f"{rank}.pt")
    dist.destroy_process_group()
