"""Where the time of a changed recording lies in the clean one: silence that was put in has no counterpart there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from diarnorm.timebase import FRAME_SAMPLES, frames_covering, samples_to_seconds, seconds_to_samples

Spans = Sequence[tuple[float, float]]
"""(start, end) in seconds."""


@dataclass(frozen=True)
class TimeMap:
    """Pieces that were put in, (start, end) in samples of the changed recording, in order of time."""

    inserted: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, inserted: Spans) -> "TimeMap":
        """The map from pieces in seconds of the changed recording."""
        return cls(tuple(sorted((seconds_to_samples(start), seconds_to_samples(end)) for start, end in inserted)))

    def clean_frames(self, num_changed: int, num_clean: int) -> Int[np.ndarray, " changed"]:
        """For each frame of the changed recording the clean frame that holds its middle; -1: there is none."""
        middles = np.arange(num_changed) * FRAME_SAMPLES + FRAME_SAMPLES // 2
        clean = middles.copy()
        for start, end in self.inserted:
            clean -= np.where(middles >= end, end - start, 0)
        frames = clean // FRAME_SAMPLES
        inside = [(start <= middles) & (middles < end) for start, end in self.inserted]
        return np.where(np.logical_or.reduce([frames >= num_clean, *inside]), -1, frames)

    def region(self, spans: Spans) -> list[tuple[float, float]]:
        """Spans of the clean recording in the time of the changed one, with what was put in between their ends.

        >>> TimeMap(((16000, 48000),)).region([(0.0, 1.0), (1.5, 3.0)])
        [(0.0, 3.0), (3.5, 5.0)]
        """
        before, points = 0, []
        for start, end in self.inserted:
            points.append((samples_to_seconds(start - before), samples_to_seconds(end - start)))
            before += end - start

        def later(at: float, *, is_end: bool) -> float:
            return at + sum(length for point, length in points if point < at or (is_end and point == at))

        return [(later(start, is_end=False), later(end, is_end=True)) for start, end in spans]


def frames_in(spans: Iterable[tuple[float, float]], num_frames: int) -> Bool[np.ndarray, " frames"]:
    """Which frames have a part in one of the spans."""
    inside = np.zeros(num_frames, bool)
    for start, end in spans:
        first, stop = seconds_to_samples(start) // FRAME_SAMPLES, frames_covering(seconds_to_samples(end))
        inside[max(0, first) : max(0, stop)] = True
    return inside
