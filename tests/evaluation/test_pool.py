"""Work in one process and in several: the same results, errors that say where they were, threads as before."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

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


def stay(folder: Path) -> None:
    """Leave a trace of this process, and do not come back."""
    (folder / str(os.getpid())).touch()
    time.sleep(600)


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody asked about does not."""
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # no /proc, or gone in between
        return not Path("/proc").exists()


def until(condition: Callable[[], bool], patience_s: float = 60.0) -> bool:
    """Whether it comes true in this time."""
    end = time.monotonic() + patience_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


@pytest.mark.skipif(os.name == "nt", reason="looks at processes as POSIX has them")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from diarnorm.evaluation.pool import outcomes\n"
        "from tests.evaluation.test_pool import stay\n"
        "list(outcomes(stay, [Path(sys.argv[1])] * 2, range(2), 2, with_torch=False))"
    )
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root)
    try:
        assert until(lambda: len(list(tmp_path.iterdir())) == 2)
    finally:
        parent.kill()
        parent.wait()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert until(lambda: not any(map(is_alive, workers)))


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
