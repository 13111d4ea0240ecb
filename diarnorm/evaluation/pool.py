"""Independent pieces of work in as many processes as asked for; what fails comes back as a value: the others go on."""

import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def outcomes(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    order: Sequence[int],
    workers: int,
    *,
    with_torch: bool = True,
) -> Iterator[tuple[int, Result | Exception]]:
    """Number of a task and what `work` made of it, as they are done; they are begun in this order.

    `work` is a function of a module, so that other processes find it. `with_torch`: it uses torch, which then runs on
    one CPU thread in every process, so that workers do not fight and results do not depend on their number; in this one
    as before once the tasks are done. An error of another process has a note that says where it was.

    Raises:
        RuntimeError: a process died.
    """
    if workers == 1 or len(tasks) < 2:
        with _one_thread() if with_torch else nullcontext():
            for at in order:
                yield at, _outcome(work, tasks[at])
        return
    context = get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(tasks)), context, initializer=_start_worker, initargs=(with_torch,))
    try:
        futures = {pool.submit(_noted_outcome, work, tasks[at]): at for at in order}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise RuntimeError("a worker died, perhaps for want of memory: try fewer workers") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(with_torch: bool) -> None:
    """Ctrl-C ends a worker without a word: its parent speaks. One whose parent was killed ends, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()
    if with_torch:
        import torch

        torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on one thread, and afterwards as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _outcome(work: Callable[[Task], Result], task: Task) -> Result | Exception:
    try:
        return work(task)
    except Exception as error:
        return error


def _noted_outcome(work: Callable[[Task], Result], task: Task) -> Result | Exception:
    """The same in a worker: the traceback does not come along with an error, so it becomes a note."""
    outcome = _outcome(work, task)
    if isinstance(outcome, Exception):
        outcome.add_note("".join(traceback.format_exception(outcome)))
    return outcome
