"""One recording through a stream: turns go to the sinks as they become final; and what there is to say about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diarnorm.commands.interrupts import Interrupted, Interrupts
from diarnorm.commands.sinks import Sink, deliver
from diarnorm.events import Summary, summarize
from diarnorm.timebase import frames_to_seconds
from diarnorm.turns import Turn

if TYPE_CHECKING:
    from diarnorm.audio.mono import Block
    from diarnorm.live import Timeline
    from diarnorm.stream import Stream


@dataclass(frozen=True)
class Outcome:
    """What came of a recording; times in seconds."""

    name: str
    turns: tuple[Turn, ...]
    summary: Summary
    busy_s: float
    """Time the diarizer worked."""
    latency_s: float
    """Activity latency."""
    start_s: float
    """What decisions add: to the start of a known speaker's turn."""
    newcomer_s: float
    """To the start of a newcomer's turn."""
    end_s: float
    """To the end of a turn."""
    max_speakers: int
    notes: tuple[str, ...]

    @property
    def rtf(self) -> float | None:
        """Working time per time of audio; None without audio."""
        return self.busy_s / self.summary.duration_s if self.summary.duration_s > 0 else None


class Session:
    """Runs one recording.

    Sinks get every final turn, also when the input or a sink fails or a signal comes.
    """

    def __init__(self, name: str, stream: Stream, sinks: Sequence[Sink], timeline: Timeline | None = None) -> None:
        self.name = name
        self._stream, self._sinks, self._timeline = stream, sinks, timeline
        self._turns: list[Turn] = []
        self._busy_s = 0.0

    def run(self, blocks: Iterable[Block], interrupts: Interrupts, *, finish_early: bool = False) -> Interrupted | None:
        """Stream all blocks; the signal that ended them early, if one did.

        With `finish_early` what came until then is a whole recording (of a pipe, say) and is finished as one;
        without, only the turns that are final are given.
        """
        arriving, interrupt = interrupts.between(blocks), None
        while True:
            try:
                block = next(arriving, None)
            except Interrupted as signal:
                interrupt, block = signal, None
            if block is None:
                break
            self._step(lambda block=block: self._stream.push(block))
        if interrupt is None or finish_early:
            self._step(self._stream.finish)
        return interrupt

    def _step(self, step: Callable[[], list[Turn]]) -> None:
        started = time.perf_counter()
        turns = step()
        self._busy_s += time.perf_counter() - started
        self._turns += turns
        deliver(self._sinks, self._stream.events)
        if self._timeline is not None:
            self._timeline.update(self._stream.events, self._stream.duration_s)

    def outcome(self, notes: Sequence[str] = ()) -> Outcome:
        """The recording so far, with notes beside the stream's own."""
        extra = self._stream.decision_latency
        silent = () if self._turns else ("no speech found",)
        return Outcome(
            name=self.name,
            turns=tuple(self._turns),
            summary=summarize(self._turns, self._stream.duration_s),
            busy_s=self._busy_s,
            latency_s=self._stream.latency_s,
            start_s=frames_to_seconds(extra.start_frames),
            newcomer_s=frames_to_seconds(extra.newcomer_frames),
            end_s=frames_to_seconds(extra.end_frames),
            max_speakers=self._stream.max_speakers,
            notes=(*silent, *notes, *self._stream.warnings),
        )


def paced(blocks: Iterable[Block], sample_rate: int, speed: float) -> Iterator[Block]:
    """Blocks no faster than `speed` times real time."""
    started, num_samples = time.monotonic(), 0
    for block in blocks:
        num_samples += len(block)
        time.sleep(max(0.0, started + num_samples / sample_rate / speed - time.monotonic()))
        yield block
