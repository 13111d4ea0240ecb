"""Batches in order, from this process and from workers; what goes wrong in a worker is said in its own words."""

import pytest
import torch
from torch.utils.data import Dataset

from diarnorm.training.loading import load


class Numbers(Dataset):
    """Items that hold their number; number 3 cannot be made."""

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        if number == 3:
            raise ValueError("talk.flac cannot be decoded; remove it")
        return {"mel": torch.tensor([number])}


def load_all() -> list[int]:
    """Items that a worker made."""
    return [int(item["mel"]) for item in load(Numbers(), range(4, 9), 1)]


def test_workers_start_in_a_process_of_joblibs_launcher() -> None:
    """Which has a way to start processes of its own."""
    joblib = pytest.importorskip("joblib")
    with joblib.parallel_config(backend="loky"):
        loaded = joblib.Parallel(n_jobs=2)(joblib.delayed(load_all)() for _ in range(2))
    assert loaded == [[4, 5, 6, 7, 8]] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_items_come_in_order_until_one_cannot_be_made(workers: int) -> None:
    assert [int(item["mel"]) for item in load(Numbers(), range(4, 9), workers)] == [4, 5, 6, 7, 8]
    items = load(Numbers(), range(1, 6), workers)
    assert [int(next(items)["mel"]) for _ in range(2)] == [1, 2]
    with pytest.raises(ValueError, match=r"talk\.flac") as caught:
        next(items)
    assert str(caught.value) == "talk.flac cannot be decoded; remove it"
    notes = getattr(caught.value, "__notes__", [])
    assert len(notes) == (workers > 0)  # here the traceback is still there
    assert all("in __getitem__\n" in note for note in notes)
