"""A conversation as numbers: who says which piece when, in which room, over which noise, through which
channel.

A plan is drawn by `simulation.planner` and turned into samples by `simulation.render.render`. Its reference (turns,
activity per frame) is made from the speech activity of its pieces.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float32, Float64, Int64

from diarnorm.timebase import (
    FRAME_SAMPLES,
    SAMPLE_RATE,
    samples_to_frames,
    samples_to_seconds,
    seconds_to_samples,
)
from diarnorm.turns import Turn

NUM_KNOTS = 10
"""Points of a gain curve over frequency, evenly spaced on the mel scale from 0 to 8 kHz."""
NUM_TAPS = 6
"""Early reflections of a room."""
ROOM_SAMPLES = 11_264
"""Longest impulse response of a room (0.7 s)."""
WHITE_SAMPLES = 1 << 22
"""Length of the one stretch of white noise that noises and rooms are cut from."""
SPEECH, CLIP, WHITE = 0, 1, 2
"""Where a piece comes from: the speech, the noise clips, or white noise."""
MU_LAW, A_LAW = 1, 2
"""How a channel is companded to 8 bits; 0 is not at all."""
Level = TypeVar("Level", float, np.ndarray)


class Piece(NamedTuple):
    """A stretch of sound put on a track: `length` samples of a bank from `offset`, heard from sample
    `start` on.

    `gain` scales samples of full scale 1; `utterance` is -1 for noise.
    """

    row: int
    bank: int
    start: int
    offset: int
    length: int
    fade_in: int
    fade_out: int
    utterance: int
    gain: float


class Pieces(NamedTuple):
    """All pieces of a conversation, one entry each; see `Piece`."""

    row: Int64[np.ndarray, " pieces"]
    bank: Int64[np.ndarray, " pieces"]
    start: Int64[np.ndarray, " pieces"]
    offset: Int64[np.ndarray, " pieces"]
    length: Int64[np.ndarray, " pieces"]
    fade_in: Int64[np.ndarray, " pieces"]
    fade_out: Int64[np.ndarray, " pieces"]
    utterance: Int64[np.ndarray, " pieces"]
    gain: Float32[np.ndarray, " pieces"]


class Rooms(NamedTuple):
    """Per track: the room it is heard in, and its own gain curve (dB at the knots).

    `measured` is the number of a measured room, -1 where the room is made up; None where no track has one.
    """

    rt60_s: Float32[np.ndarray, " rows"]
    direct: Float32[np.ndarray, " rows"]
    tail: Float32[np.ndarray, " rows"]
    tail_offset: Int64[np.ndarray, " rows"]
    tap_samples: Int64[np.ndarray, "rows taps"]
    tap_gain: Float32[np.ndarray, "rows taps"]
    eq_db: Float32[np.ndarray, "rows knots"]
    measured: Int64[np.ndarray, " rows"] | None = None


class Channel(NamedTuple):
    """The sum of all tracks goes through: filter, hum, level, swings, DC, clipping, companding, in this order.

    The hum is there from the start, and goes off or on again at each of `hum_switches` (samples, ascending).
    """

    eq_db: Float32[np.ndarray, " knots"]
    band_hz: Float32[np.ndarray, " 2"]
    hum_hz: Int64[np.ndarray, ""]
    hum_gain: Float32[np.ndarray, " 5"]
    hum_switches: Int64[np.ndarray, " switches"]
    level_db: Float32[np.ndarray, ""]
    swing_samples: Int64[np.ndarray, " swings"]
    swing_db: Float32[np.ndarray, " swings"]
    dc: Float32[np.ndarray, ""]
    clip_above_rms_db: Float32[np.ndarray, ""]
    companding: Int64[np.ndarray, ""]


@dataclass(frozen=True)
class Plan:
    """One conversation, ready to render.

    Speakers are numbered by their first activity; tracks 0 .. speakers-1 are theirs, the others are noise.
    `segments` is the reference: slot, start, end in samples, sorted by start. `room_places` are the files and folders
    that measured rooms are read from.
    """

    num_samples: int
    speaker: Int64[np.ndarray, " speakers"]
    factor: Int64[np.ndarray, " speakers"]
    speaker_class: Int64[np.ndarray, " speakers"]
    segments: Int64[np.ndarray, "segments 3"]
    pieces: Pieces
    rooms: Rooms
    channel: Channel
    num_factors: int
    names: tuple[str, ...]
    room_places: tuple[str, ...] = ()

    @property
    def num_speakers(self) -> int:
        """Speakers heard in this conversation."""
        return len(self.speaker)

    @property
    def num_rows(self) -> int:
        """Tracks: speakers, then noises."""
        return len(self.rooms.rt60_s)

    @property
    def num_frames(self) -> int:
        """Whole frames of 80 ms."""
        return samples_to_frames(self.num_samples)

    def turns(self) -> list[Turn]:
        """The reference in seconds, by start."""
        return [
            Turn(samples_to_seconds(int(start)), samples_to_seconds(int(end)), self.names[slot])
            for slot, start, end in self.segments
        ]

    def activity(self) -> Float32[np.ndarray, "frames speakers"]:
        """Share of each frame in which each speaker is active, by the reference."""
        out = np.zeros((self.num_frames, self.num_speakers), dtype=np.float32)
        for slot in range(self.num_speakers):
            out[:, slot] = frame_shares(self.segments[self.segments[:, 0] == slot, 1:], self.num_samples)
        return out

    def source(self) -> Int64[np.ndarray, " frames"]:
        """Per frame `utterance * num_factors + factor` of the only speaker active; -1: none or several."""
        activity = self.activity()
        alone = (activity.max(axis=1, initial=0.0) > 0.5) & ((activity > 0).sum(axis=1) == 1)
        only = activity.argmax(axis=1) if self.num_speakers else np.zeros(self.num_frames, dtype=np.int64)
        out = np.full((self.num_frames, self.num_speakers + 1), -1, dtype=np.int64)
        pieces = self.pieces
        for i in np.flatnonzero((pieces.row < self.num_speakers) & (pieces.bank == SPEECH)):
            first = (pieces.start[i] + FRAME_SAMPLES // 2) // FRAME_SAMPLES
            last = (pieces.start[i] + pieces.length[i] + FRAME_SAMPLES // 2) // FRAME_SAMPLES
            row = pieces.row[i]
            out[first:last, row] = pieces.utterance[i] * self.num_factors + self.factor[row]
        return np.where(alone, out[np.arange(self.num_frames), only], -1)

    def digest(self) -> str:
        """A hash of everything in the plan but where files lie; what a plan does not use does not change it."""
        hasher = hashlib.sha256()
        for item in fields(self):
            value = None if item.name == "room_places" else getattr(self, item.name)
            parts = value if isinstance(value, Pieces | Rooms | Channel) else (value,)
            for part in (part for part in parts if part is not None):
                hasher.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
        return hasher.hexdigest()


def db_to_ratio(db: Level) -> Level:
    """Ratio of amplitudes."""
    return 10 ** (db / 20)


def frame_shares(segments: Int64[np.ndarray, "segments 2"], num_samples: int) -> Float32[np.ndarray, " frames"]:
    """Share of each whole frame that segments cover; they are in order, and no two overlap.

    >>> frame_shares(np.array([[640, 1920]]), 3840).tolist()
    [0.5, 0.5, 0.0]
    """
    length = segments[:, 1] - segments[:, 0]
    covered = np.repeat(np.cumsum(length), 2)
    covered[::2] -= length
    edges = np.arange(samples_to_frames(num_samples) + 1) * FRAME_SAMPLES
    at_edges = np.interp(edges, np.append(0, segments), np.append(0, covered))
    return (np.diff(at_edges) / FRAME_SAMPLES).astype(np.float32)


def aside(rng: np.random.Generator, number: int) -> np.random.Generator:
    """A generator of its own for an addition to plans: it is far ahead of `rng`, which stays where it is, so that what
    the addition does not touch is the same with and without it."""
    bits = rng.bit_generator
    if not isinstance(bits, np.random.PCG64):
        raise ValueError(f"plans are drawn by PCG64, got {type(bits).__name__}: give numpy's default generator")
    return np.random.Generator(bits.jumped(number))


def collect_pieces(pieces: Sequence[Piece], num_samples: int) -> Pieces:
    """Pieces as arrays, cut to `[0, num_samples)`; cut edges do not fade, fades fit into what is left."""
    columns = [np.array(column) for column in zip(*pieces, strict=True)] if pieces else [np.zeros(0)] * 9
    row, bank, start, offset, length, fade_in, fade_out, utterance = (c.astype(np.int64) for c in columns[:8])
    before = np.maximum(-start, 0)
    after = np.maximum(start + length - num_samples, 0)
    start, offset, length = start + before, offset + before, length - before - after
    fade_out = np.minimum(np.where(after > 0, 0, fade_out), np.maximum(length, 0))
    fade_in = np.minimum(np.where(before > 0, 0, fade_in), np.maximum(length - fade_out, 0))
    arrays = (row, bank, start, offset, length, fade_in, fade_out, utterance, columns[8].astype(np.float32))
    return Pieces(*(array[length > 0] for array in arrays))


def knot_frequencies_hz() -> Float64[np.ndarray, " knots"]:
    """Frequencies at which gain curves are given."""
    top = 1127 * np.log(1 + SAMPLE_RATE / 2 / 700)
    return 700 * (np.exp(np.linspace(0, top, NUM_KNOTS) / 1127) - 1)


def close_gaps(
    runs: Sequence[tuple[int, int, int]], num_samples: int, close_gap_s: float, pad_s: float
) -> Int64[np.ndarray, "segments 3"]:
    """Reference segments from runs of speech (slot, start, end in samples).

    Each run grows by `pad_s` on both sides; gaps of one slot shorter than `close_gap_s` are closed; all is
    cut to `[0, num_samples)` and sorted by start.
    """
    pad, gap = seconds_to_samples(pad_s), seconds_to_samples(close_gap_s)
    all_runs = np.array(runs, dtype=np.int64).reshape(-1, 3)
    out = []
    for slot in np.unique(all_runs[:, 0]):
        own = all_runs[all_runs[:, 0] == slot, 1:] + np.array([-pad, pad])
        own = own[np.argsort(own[:, 0], kind="stable")]
        reach = np.maximum.accumulate(own[:, 1])
        new = np.concatenate([[True], own[1:, 0] - reach[:-1] >= max(gap, 1)])
        first = np.flatnonzero(new)
        ends = reach[np.concatenate([first[1:], [len(own)]]) - 1]
        out.append(np.stack([np.full(len(first), slot), own[first, 0], ends], axis=1))
    segments = np.concatenate(out) if out else np.zeros((0, 3), dtype=np.int64)
    segments[:, 1:] = np.clip(segments[:, 1:], 0, num_samples)
    segments = segments[segments[:, 2] > segments[:, 1]]
    return segments[np.lexsort((segments[:, 0], segments[:, 1]))]
