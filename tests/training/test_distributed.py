"""Several processes: sums, values made by the first, errors in all; alone, nothing changes."""

import os
import sys
import time
from pathlib import Path

import pytest
import torch

from diarnorm.training.distributed import (
    first_of_machine,
    from_first,
    num_processes,
    process_group,
    rank,
    silent_others,
    sum_gradients,
    sum_over_processes,
)
from tests.processes import run_group


def parameters(number: int) -> list[torch.Tensor]:
    """Three with gradients of `number`, but the second only in process 0, the third in none."""
    made = [torch.zeros(2, 3, requires_grad=True) for _ in range(3)]
    made[0].grad = torch.full((2, 3), float(number + 1))
    made[1].grad = torch.full((2, 3), 5.0) if number == 0 else None
    return made


def refuse() -> int:
    raise ValueError("refused by the first")


def in_a_group(folder: Path) -> dict[str, object]:
    """What one of two processes sees."""
    made = parameters(rank())
    sum_gradients(made)
    with first_of_machine():
        if rank() == 0:
            time.sleep(0.2)
            (folder / "made").touch()
        was_made = (folder / "made").exists()
    try:
        from_first(refuse)
        error = ""
    except ValueError as refusal:
        error = str(refusal)
    return {
        "rank": rank(),
        "num": num_processes(),
        "sum": sum_over_processes(torch.tensor([1.0, rank()])),
        "first": from_first(lambda: {"pid": os.getpid()}),
        "gradients": [p.grad for p in made],
        "was_made": was_made,
        "error": error,
    }


def test_two_processes(tmp_path: Path) -> None:
    first, second = run_group(in_a_group, 2, tmp_path, tmp_path)
    assert (first["rank"], second["rank"]) == (0, 1)
    assert first["first"] == second["first"]
    for found in (first, second):
        assert found["num"] == 2
        assert found["sum"].tolist() == [2.0, 1.0]
        ones, some, none = found["gradients"]
        assert ones.tolist() == [[3.0] * 3] * 2
        assert some.tolist() == [[5.0] * 3] * 2
        assert none is None
        assert found["was_made"]
        assert found["error"] == "refused by the first"


def test_alone_nothing_changes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert (rank(), num_processes()) == (0, 1)
    made = parameters(0)
    before = [p.grad for p in made]
    sum_gradients(made)
    assert all(p.grad is gradient for p, gradient in zip(made, before, strict=True))
    values = torch.tensor([1.5])
    assert sum_over_processes(values) is values
    assert from_first(lambda: 7) == 7
    with process_group(), first_of_machine(), silent_others():
        assert num_processes() == 1
        print("heard", file=sys.stderr)
    assert capsys.readouterr().err == "heard\n"
    with pytest.raises(ValueError, match="refused by the first"):
        from_first(refuse)


def test_the_second_of_a_machine_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with silent_others():
        print("not heard", file=sys.stderr)
    print("heard", file=sys.stderr)
    assert capsys.readouterr().err == "heard\n"
