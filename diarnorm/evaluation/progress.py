"""How far an evaluation is: a bar on a terminal, a line now and then elsewhere, both on standard error."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 30.0
"""Time between two lines where standard error is no terminal."""


class EvaluationProgress:
    """Counts tasks; the time left is told from the seconds of audio that are done."""

    def __init__(self, durations_s: Sequence[float]) -> None:
        self._durations_s = durations_s
        self._num_done, self._done_s = 0, 0.0
        self._started = self._said = time.monotonic()
        self._bar = self._task = None
        if sys.stderr is not None and sys.stderr.isatty():
            columns = (TextColumn("evaluate"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[left]} left"), console=Console(stderr=True))
            self._task = self._bar.add_task("", total=len(durations_s), left="?")

    def __enter__(self) -> "EvaluationProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def done(self, at: int) -> None:
        """Task number `at` is done."""
        self._num_done += 1
        self._done_s += self._durations_s[at]
        now = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._num_done, left=self.left(now))
        elif sys.stderr is not None and now - self._said >= LINE_EVERY_S:
            self._said = now
            counted = f"evaluated={self._num_done}/{len(self._durations_s)}"
            print(counted, f"eta={self.left(now)}", file=sys.stderr, flush=True)

    def left(self, now: float) -> str:
        """Time left, hours:minutes:seconds, at the pace so far; `?` before there is one."""
        total_s = sum(self._durations_s)
        share = self._done_s / total_s if total_s > 0 else self._num_done / max(1, len(self._durations_s))
        if share <= 0:
            return "?"
        left_s = round((now - self._started) * (1 - share) / share)
        return f"{left_s // 3600}:{left_s % 3600 // 60:02d}:{left_s % 60:02d}"
