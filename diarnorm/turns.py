"""Turns from frames: one causal step function for live and offline use.

Per slot: activity >= `onset` opens a run, which lasts while activity >= `offset`. A silence shorter than
`min_off` is bridged, then runs shorter than `min_on` are thrown away, and both edges move outwards by
`pad`. A turn becomes *final* once its run has closed and its slot's occupant is confirmed; what is final
never changes.

Time is a whole number of frames in here (samples at the end of a recording); seconds are made by one division
on the way out. Any partition of the frames into steps gives the same events in the same order: everything is
decided frame by frame.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, isfinite
from numbers import Integral
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from diarnorm.runs import ACTIVE, CONFIRMED, OCCUPIED, RunEvent, RunLedger, Slot, TurnState
from diarnorm.timebase import SAMPLE_RATE, frames_covering, frames_to_samples, samples_to_seconds

MAX_SPEAKERS = 64
"""Most labels that a stream can be asked for."""
SHORTEST_TURN_SAMPLES = SAMPLE_RATE // 1000
"""One millisecond, the resolution of RTTM: a shorter rest at the end of a recording is no turn."""


def check_max_speakers(max_speakers: int) -> None:
    """Refuse a number of labels out of range.

    Raises:
        ValueError: not a whole number from 1 to 64.
    """
    if not isinstance(max_speakers, Integral):
        raise ValueError(f"max_speakers={max_speakers!r} is not a whole number")
    if not 1 <= max_speakers <= MAX_SPEAKERS:
        raise ValueError(f"max_speakers={max_speakers} is out of range: give 1 to {MAX_SPEAKERS}")


@dataclass(frozen=True, slots=True, order=True)
class Turn:
    """One speaker's speech in [start, end), in seconds; turns sort by onset.

    >>> Turn(0.5, 2.0, "speaker_1").duration
    1.5
    """

    start: float
    end: float
    speaker: str

    def __post_init__(self) -> None:
        if not (0 <= self.start < self.end and isfinite(self.end)):
            raise ValueError(
                f"a turn needs 0 <= start < end in seconds, got start={self.start}, end={self.end} for {self.speaker!r}"
            )

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, order=True)
class TurnStart:
    """News that a turn which is sure to come began at `time` seconds (the `start` of the later `Turn`)."""

    time: float
    speaker: str


Event = Turn | TurnStart


@dataclass(frozen=True)
class TurnConfig:
    """Thresholds on activity and lengths in frames of 80 ms.

    `confirm_frames`: exclusive speech after which the occupant of a slot counts as a speaker. `hold_frames`:
    how long (from its end) a final turn waits for an earlier turn of an occupant who is not confirmed; after
    that the earlier turn is given up. `undivided`: speech of which it is not sure whose it is, as while a newcomer is
    not yet told from a known voice, is still speech: the activity of the likeliest occupant counts as that of anybody,
    `1 - prod(1 - a)`.
    """

    onset: float = 0.5
    offset: float = 0.45
    min_on_frames: int = 2
    min_off_frames: int = 4
    pad_frames: int = 0
    confirm_frames: float = 6
    hold_frames: int = 50
    undivided: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.offset <= self.onset <= 1:
            raise ValueError(f"thresholds need 0 <= offset <= onset <= 1, got onset={self.onset}, offset={self.offset}")
        for name, least in (("min_on_frames", 1), ("min_off_frames", 0), ("pad_frames", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.min_off_frames < 2 * self.pad_frames:
            raise ValueError(
                f"min_off_frames={self.min_off_frames} is less than twice pad_frames={self.pad_frames}: "
                f"padded turns could overlap; give min_off_frames >= {2 * self.pad_frames} or "
                f"pad_frames <= {self.min_off_frames // 2}"
            )
        if not self.confirm_frames > 0:
            raise ValueError(f"confirm_frames must be above 0, got {self.confirm_frames}")
        if self.hold_frames < self.close_frames:
            raise ValueError(
                f"hold_frames={self.hold_frames} is less than the {self.close_frames} silent frames that "
                f"close a turn; give hold_frames >= {self.close_frames}"
            )

    @property
    def close_frames(self) -> int:
        """Silent frames that close a run: `min_off_frames`, but always more than padding would fill."""
        return max(self.min_off_frames, 2 * self.pad_frames + 1)


class DecisionLatency(NamedTuple):
    """Frames that decisions on turns add to the latency of the activity; see `decision_latency`."""

    start_frames: int
    """From a known speaker's first active frame to its `TurnStart`."""
    newcomer_frames: int
    """The same for a newcomer who speaks alone."""
    end_frames: int
    """From a confirmed speaker's last active frame to the final `Turn`, when nothing earlier is pending."""
    longest_end_frames: int
    """The same when an earlier turn of an unconfirmed occupant is pending all the while."""


def decision_latency(config: TurnConfig) -> DecisionLatency:
    """Latency of decisions, in frames, on top of the latency of the activity itself."""
    newcomer_frames = max(config.min_on_frames, ceil(config.confirm_frames))
    return DecisionLatency(config.min_on_frames, newcomer_frames, config.close_frames, config.hold_frames)


def init_state(num_slots: int) -> TurnState:
    """State before the first frame of a recording."""
    return TurnState(num_frames=0, slots=(Slot(),) * num_slots, held=(), num_speakers=0)


def step(
    config: TurnConfig,
    state: TurnState,
    activity: Float[np.ndarray, "frames slots"],
    count: Float[np.ndarray, "frames slots"],
) -> tuple[list[Event], TurnState]:
    """Take in frames and give the events that they settle.

    activity: probability per frame and slot (NaN is silence). count: exclusive speech, in frames, that the
    slot's occupant has after the frame. 0 is a free slot; a fall to 0 drops the occupant, of whom nothing
    more comes out and whose label is never given again; at `confirm_frames` the occupant is a speaker. A
    run that closes while its slot is free belongs to nobody.

    Every `Turn` has its `TurnStart` earlier on: when a confirmed slot's run reaches `min_on_frames`, or at
    confirmation. The labels `speaker_1`, `speaker_2`, ... are given in the order of first `TurnStart`s.
    `Turn`s come out in the order of their ends.

    Errors: ValueError when the shapes do not fit one another or the state.
    """
    last = np.array([[slot.bits for slot in state.slots]], dtype=np.uint8)
    bits = _slot_bits(config, last, np.asarray(activity), np.asarray(count))
    frames, slots = np.nonzero(bits != np.concatenate([last, bits])[:-1])
    ledger = _ledger(config, state)
    for frame, slot, new in zip(frames.tolist(), slots.tolist(), bits[frames, slots].tolist(), strict=True):
        ledger.change(slot, new, state.num_frames + frame)
    num_frames = state.num_frames + len(bits)
    ledger.settle_until(num_frames)
    return _in_seconds(config, ledger.events), ledger.state(num_frames)


def finish(config: TurnConfig, state: TurnState, num_samples: int) -> list[Event]:
    """Events that the end of the recording settles; `state` stays as it is.

    Open runs close at the true end, turns are clipped to `num_samples` (at 16 kHz), and those shorter than
    1 ms are dropped. Occupants who are not confirmed are discarded, with one exception: where nobody is
    confirmed at the end of the recording, each occupant with a run of `min_on_frames` is taken for a
    speaker, so that a single short utterance is not lost.

    Errors: ValueError when the state has seen more frames than the samples cover.
    """
    if state.num_frames > frames_covering(num_samples):
        raise ValueError(
            f"{num_samples} samples cover {frames_covering(num_samples)} frames, but step was given "
            f"{state.num_frames}; give it frames of the recording only"
        )
    ledger = _ledger(config, state)
    ledger.conclude(state.num_frames)
    return _in_seconds(config, ledger.events, num_samples)


def merge_turns(turns: Iterable[Turn]) -> list[tuple[float, float]]:
    """Union of the turns of all speakers, as (start, end) in seconds in order of time; touching turns join.

    >>> merge_turns([Turn(1.0, 2.0, "a"), Turn(1.5, 3.0, "b"), Turn(4.0, 5.0, "a")])
    [(1.0, 3.0), (4.0, 5.0)]
    """
    merged: list[tuple[float, float]] = []
    for turn in sorted(turns):
        if merged and turn.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], turn.end))
        else:
            merged.append((turn.start, turn.end))
    return merged


def attributed(
    activity: Float[np.ndarray, "frames slots"], count: Float[np.ndarray, "frames slots"]
) -> Float[np.ndarray, "frames slots"]:
    """The same, with the activity of anybody in the likeliest occupied slot, where one is occupied; NaN is silence.

    >>> attributed(np.array([[0.5, 0.4, 0.0]]), np.array([[9.0, 0.0, 0.0]])).round(3).tolist()
    [[0.7, 0.4, 0.0]]
    """
    activity = np.nan_to_num(activity)
    likely = np.where(count > 0, activity, -1.0)
    top = (count > 0) & (np.arange(activity.shape[1]) == likely.argmax(axis=1, keepdims=True))
    return np.where(top, 1.0 - np.prod(1.0 - activity, axis=1, keepdims=True), activity)


def _ledger(config: TurnConfig, state: TurnState) -> RunLedger:
    return RunLedger(state, min_on=config.min_on_frames, close=config.close_frames, hold=config.hold_frames)


def _slot_bits(
    config: TurnConfig,
    last: UInt8[np.ndarray, "1 slots"],
    activity: Float[np.ndarray, "frames slots"],
    count: Float[np.ndarray, "frames slots"],
) -> UInt8[np.ndarray, "frames slots"]:
    """Bits per frame and slot: active after hysteresis, occupied, confirmed; `last` are those before."""
    if activity.shape != count.shape or activity.ndim != 2 or activity.shape[1] != last.shape[1]:
        raise ValueError(
            f"activity and count must both be [frames, {last.shape[1]}] for this state, "
            f"got {list(activity.shape)} and {list(count.shape)}"
        )
    if config.undivided:
        activity = attributed(activity, count)
    occupied = count > 0
    dropped = ~occupied & np.concatenate([last & OCCUPIED > 0, occupied])[:-1]
    opens = (activity >= config.onset) & ~dropped
    closes = ~(activity >= config.offset) | dropped
    # Row 0 stands for the state. Each frame looks up the latest row in which a threshold decided.
    deciding_row = np.where(opens | closes, np.arange(1, len(activity) + 1)[:, None], 0)
    verdicts = np.concatenate([last & ACTIVE > 0, opens])
    active = np.take_along_axis(verdicts, np.maximum.accumulate(deciding_row, axis=0), axis=0)
    confirmed = count >= config.confirm_frames
    return (active * ACTIVE + occupied * OCCUPIED + confirmed * CONFIRMED).astype(np.uint8)


def _in_seconds(config: TurnConfig, runs: list[RunEvent], num_samples: int | None = None) -> list[Event]:
    """Padded and named events; a run of which less than 1 ms lies before the end `num_samples` has none."""
    events: list[Event] = []
    for label, start, end in runs:
        start_samples = frames_to_samples(max(0, start - config.pad_frames))
        end_samples = frames_to_samples((start + 1 if end is None else end) + config.pad_frames)
        if num_samples is not None:
            end_samples = min(end_samples, num_samples)
        if end_samples - start_samples < SHORTEST_TURN_SAMPLES:
            continue
        speaker, start_s = f"speaker_{label}", samples_to_seconds(start_samples)
        if end is None:
            events.append(TurnStart(start_s, speaker))
        else:
            events.append(Turn(start_s, samples_to_seconds(end_samples), speaker))
    return events
