"""Batches by number, made in this process or in workers; a mistake that a worker meets arrives in its own words."""

import multiprocessing
import traceback
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from diarnorm.training.heap import keep_freed_memory

AHEAD = 3
"""Batches that each worker makes before they are asked for."""


class Outcomes(Dataset):
    """The items of `batches`, or the ValueError that was met in their place: torch would bury it in a traceback."""

    def __init__(self, batches: Dataset) -> None:
        self.batches = batches

    def __getitem__(self, number: int) -> dict[str, Tensor] | ValueError:
        try:
            return self.batches[number]
        except ValueError as error:
            if get_worker_info() is not None:  # its traceback does not come along, so it becomes a note
                error.add_note("".join(traceback.format_exception(error)))
            return error


def load(batches: Dataset, numbers: range, workers: int) -> Iterator[dict[str, Tensor]]:
    """The items of `batches` by those numbers, in order; `workers=0` makes them in this process.

    Raises:
        ValueError: as `batches` raises it, wherever that was; with `--debug` a note shows where.
    """
    loader = DataLoader(
        Outcomes(batches),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        prefetch_factor=AHEAD if workers else None,
        worker_init_fn=_start_worker,
        multiprocessing_context=_context() if workers else None,
    )
    for item in loader:
        if isinstance(item, ValueError):
            raise item
        yield item


def _context() -> str:
    """How workers start. A process that a launcher started may have a way of its own, as joblib's, by which torch's
    workers do not start: then the platform's."""
    usual = multiprocessing.get_all_start_methods()
    chosen = multiprocessing.get_start_method()
    return chosen if chosen in usual else usual[0]


def _start_worker(_: int) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
