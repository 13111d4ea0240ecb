"""Work in one process and in several: the same results, errors that say where they were, threads as before."""

import pytest
import torch

from diarnorm.evaluation.pool import outcomes


def half(number: int) -> float:
    """What workers do here: it is found by its module, and fails in a place of its own."""
    return _checked(number) / 2


def _checked(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    if number == 0:
        raise ZeroDivisionError("nothing to halve")
    return number


@pytest.mark.parametrize("workers", [1, 2])
def test_what_fails_leaves_the_others(workers: int) -> None:
    found = dict(outcomes(half, [1, -1, 0, 3], range(4), workers, with_torch=False))
    assert (found[0], found[3]) == (0.5, 1.5)
    assert [type(found[at]) for at in (1, 2)] == [ValueError, ZeroDivisionError]
    assert str(found[1]) == "-1 is negative"


def test_an_error_of_another_process_says_where_it_was() -> None:
    """Its traceback stays there; `--debug` prints notes."""
    found = dict(outcomes(half, [1, 0], range(2), 2, with_torch=False))
    (note,) = getattr(found[1], "__notes__", [])
    assert "in half\n" in note
    assert "in _checked\n" in note
    assert note.endswith("ZeroDivisionError: nothing to halve\n")


def test_here_the_number_of_threads_comes_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for _ in outcomes(half, [1, 0], range(2), 1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        for _ in outcomes(half, [1, 0], range(2), 1, with_torch=False):
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
