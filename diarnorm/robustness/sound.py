"""What corruptions act on, what a corruption is, and how samples, reference turns and marks move together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Float32

from diarnorm.timebase import samples_to_seconds, seconds_to_samples
from diarnorm.turns import Turn, merge_turns

Stretch = tuple[float, float]
"""Start and end in seconds."""
Mel = Float[Any, "*batch mel_frames 80"]
"""Log-mel frames, of torch or NumPy."""


@dataclass(frozen=True, eq=False)
class Sound:
    """A recording at 16 kHz with its reference, and where it was changed.

    `turns` may be empty. `events` are stretches (start, end) in seconds in order of time, in the recording as it is
    now, where something happens: what corruptions that act here or there have changed, and the slope of a level that
    jumps and stays; those that act everywhere (a gain, noise) leave none.
    `inserted` are those of them that the recording did not have before.

    Raises:
        ValueError: samples of another shape or type.
    """

    samples: Float32[np.ndarray, " samples"]
    turns: tuple[Turn, ...] = ()
    events: tuple[Stretch, ...] = ()
    inserted: tuple[Stretch, ...] = ()

    def __post_init__(self) -> None:
        shape, dtype = np.shape(self.samples), getattr(self.samples, "dtype", None)
        if len(shape) != 1 or dtype != np.float32:
            raise ValueError(f"a sound is one channel of float32 samples at 16 kHz, got {list(shape)} of {dtype}")

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return samples_to_seconds(len(self.samples))


OnSamples = Callable[[Sound, float, np.random.Generator], Sound]
OnMel = Callable[[Mel, float], Mel]


@dataclass(frozen=True)
class Corruption:
    """One way to damage a recording, by a number: its severity.

    `severities` are mild, medium and strong; `limits` the least and greatest that make sense; at `neutral`, which may
    lie outside of them, nothing changes. Either `apply` or `apply_mel` is there. `puts_in`: recordings get longer.
    """

    name: str
    unit: str
    meaning: str
    severities: tuple[float, float, float]
    limits: tuple[float, float]
    apply: OnSamples | None = None
    apply_mel: OnMel | None = None
    neutral: float = 0.0
    needs_turns: bool = False
    needs_finite: bool = False
    puts_in: bool = False

    @property
    def acts_on(self) -> Literal["samples", "features"]:
        """Samples before everything, or log-mel frames before the front-end normaliser."""
        return "samples" if self.apply is not None else "features"


def with_samples(sound: Sound, samples: Float[np.ndarray, " samples"], events: Iterable[Stretch] = ()) -> Sound:
    """The same with other samples; `events` are added to those that there are."""
    added = merge_stretches([*sound.events, *events])
    return replace(sound, samples=samples.astype(np.float32, copy=False), events=added)


def insert(sound: Sound, places: Sequence[int], filling: Float[np.ndarray, " inserted"]) -> Sound:
    """The same with something put in before each of the samples `places`, which are in order; each is an event.

    What comes later is shifted, and a turn (or event) that is going on is cut in two around the insertion.
    """
    filler, parts = filling.astype(np.float32), np.split(sound.samples, places)
    samples = np.concatenate([parts[0], *(each for part in parts[1:] for each in (filler, part))])
    length_s = samples_to_seconds(len(filling))
    turns, events, inserted = list(sound.turns), list(sound.events), list(sound.inserted)
    for at_s in map(samples_to_seconds, sorted(places, reverse=True)):
        turns = [Turn(*pair, t.speaker) for t in turns for pair in _around((t.start, t.end), at_s, length_s)]
        events, inserted = (
            [(at_s, at_s + length_s), *(pair for each in old for pair in _around(each, at_s, length_s))]
            for old in (events, inserted)
        )
    return Sound(samples, tuple(sorted(turns)), merge_stretches(events), merge_stretches(inserted))


def _around(stretch: Stretch, at_s: float, length_s: float) -> list[Stretch]:
    """A stretch after something of `length_s` was put in at `at_s`: as it is, shifted, or in two parts."""
    start, end = stretch
    if end <= at_s:
        return [stretch]
    if start >= at_s:
        return [(start + length_s, end + length_s)]
    return [(start, at_s), (at_s + length_s, end + length_s)]


def spread(num_samples: int, lengths: Sequence[int], rng: np.random.Generator) -> list[tuple[int, int]]:
    """A place for each of these lengths, as (start, end) in samples: one in each of as many equal parts of a
    recording, cut off where the recording ends."""
    part, drawn = num_samples / max(1, len(lengths)), rng.random(len(lengths))
    starts = [
        int(part * i + u * max(0.0, part - length)) for i, (u, length) in enumerate(zip(drawn, lengths, strict=True))
    ]
    return [(start, min(start + length, num_samples)) for start, length in zip(starts, lengths, strict=True)]


def in_seconds(places: Iterable[Sequence[int]]) -> list[Stretch]:
    """Stretches of samples as stretches of time; empty ones are left out."""
    return [(samples_to_seconds(int(start)), samples_to_seconds(int(end))) for start, end in places if end > start]


def merge_stretches(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """Their union in order of time; what touches is joined."""
    return tuple(merge_turns(Turn(start, end, "") for start, end in stretches))


def spoken(num_samples: int, turns: Iterable[Turn]) -> Bool[np.ndarray, " samples"]:
    """Samples within at least one of the turns."""
    mask = np.zeros(num_samples, dtype=bool)
    for turn in turns:
        mask[seconds_to_samples(turn.start) : seconds_to_samples(turn.end)] = True
    return mask
