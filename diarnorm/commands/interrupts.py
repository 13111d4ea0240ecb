"""SIGINT and SIGTERM end the input between two blocks, never in the middle of a step or of a line."""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)
T = TypeVar("T")


class Interrupted(KeyboardInterrupt):
    """A signal ended the work."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


class Interrupts:
    """Within its context a first signal is noted, and raised where the program waits for input; a second one is
    raised at once."""

    def __init__(self) -> None:
        self._noted: int | None = None
        self._waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Where a signal may be raised.

        Raises:
            Interrupted: a signal has come, or comes.
        """
        self._waiting = True
        try:
            if self._noted is not None:
                raise Interrupted(self._noted)
            yield
        finally:
            self._waiting = False

    def between(self, items: Iterable[T]) -> Iterator[T]:
        """The items; signals are raised between them only.

        Raises:
            Interrupted: a signal has come.
        """
        iterator = iter(items)
        while True:
            with self.waiting():
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def _handle(self, number: int, frame: FrameType | None) -> None:
        again, self._noted = self._noted is not None, number
        if again or self._waiting:
            raise Interrupted(number)
