"""The live timeline on a terminal: one row per speaker, the last minute of audio, and who speaks now."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from diarnorm.turns import Event, Turn

SPAN_S = 60.0
"""Audio that the timeline shows."""
REFRESH_S = 0.1
"""Shortest time between two pictures."""
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
MARGIN = 32
"""Columns beside the bars: label, seconds, mark."""
MAX_CELLS = 90
"""Longest bar."""


class Row(NamedTuple):
    """One speaker in the timeline."""

    speaker: str
    cells: tuple[bool, ...]
    """Whether the speaker is heard in each equal part of the span, the newest last."""
    is_speaking: bool
    speech_s: float
    """All speech so far."""


class TimelineState:
    """Turns of the last minute and the totals of each speaker, from the events of a stream.

    Memory does not grow with the length of the recording.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._recent: list[Turn] = []
        self._open: dict[str, float] = {}
        self._speech_s: dict[str, float] = {}

    def update(self, events: Sequence[Event], now_s: float) -> None:
        """Take in events; `now_s` is the time of the newest sample."""
        for event in events:
            if isinstance(event, Turn):
                self._open.pop(event.speaker, None)
                self._recent.append(event)
                self._speech_s[event.speaker] = self._speech_s.get(event.speaker, 0.0) + event.duration
            else:
                self._open[event.speaker] = event.time
                self._speech_s.setdefault(event.speaker, 0.0)
        self.now_s = now_s
        self._recent = [turn for turn in self._recent if turn.end > now_s - SPAN_S]

    def rows(self, num_cells: int) -> list[Row]:
        """The rows of all speakers in the order of their first turns."""
        cell_s = SPAN_S / num_cells
        first_s = max(0.0, self.now_s - SPAN_S)
        rows = []
        for speaker, speech_s in self._speech_s.items():
            spans = [(turn.start, turn.end) for turn in self._recent if turn.speaker == speaker]
            running_s = 0.0
            if speaker in self._open:
                spans.append((self._open[speaker], self.now_s))
                running_s = max(0.0, self.now_s - self._open[speaker])
            cells = tuple(
                any(start < first_s + (i + 1) * cell_s and end > first_s + i * cell_s for start, end in spans)
                for i in range(num_cells)
            )
            rows.append(Row(speaker, cells, speaker in self._open, speech_s + running_s))
        return rows


class Timeline:
    """Draws a `TimelineState` on a terminal while its context lasts, and leaves nothing behind.

    `shares_stdout`: standard output goes to the same terminal, so what is printed is put above the picture.
    """

    def __init__(self, name: str, *, shares_stdout: bool, console: Console | None = None) -> None:
        self._name = name
        self._state = TimelineState()
        self._console = console if console is not None else Console(stderr=True)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=shares_stdout,
            get_renderable=self.picture,
        )
        self._drawn_at = -REFRESH_S

    def __enter__(self) -> "Timeline":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, events: Sequence[Event], now_s: float) -> None:
        """Take in events, and draw if the last picture is old enough."""
        self._state.update(events, now_s)
        if time.monotonic() - self._drawn_at >= REFRESH_S:
            self._live.refresh()
            self._drawn_at = time.monotonic()

    def picture(self) -> Group:
        """The timeline as it stands."""
        filled, empty = ("#", ".") if self._console.options.ascii_only else ("━", "·")
        table = Table.grid(padding=(0, 1))
        table.add_column(min_width=10)
        table.add_column()
        table.add_column(justify="right", min_width=10)
        table.add_column(min_width=6)
        num_cells = max(10, min(MAX_CELLS, self._console.width - MARGIN))
        for i, row in enumerate(self._state.rows(num_cells)):
            bar = Text("".join(filled if cell else empty for cell in row.cells), style=COLOURS[i % len(COLOURS)])
            table.add_row(Text(row.speaker), bar, f"{row.speech_s:.1f} s", "speaks" if row.is_speaking else "")
        table.add_row("", Text(axis(self._state.now_s, num_cells), style="dim"), "", "")
        return Group(Text(f"{self._name}  {self._state.now_s:.1f} s", style="bold"), table)


def axis(now_s: float, num_cells: int) -> str:
    """The times at the ends of the bars.

    >>> axis(12.5, 20)
    '0 s             60 s'
    """
    first_s = max(0.0, now_s - SPAN_S)
    left, right = f"{first_s:.0f} s", f"{first_s + SPAN_S:.0f} s"
    return left + right.rjust(num_cells - len(left))
