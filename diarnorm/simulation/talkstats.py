"""What conversations are like, counted from their turns: to hold simulated ones beside real ones.

Everything is seconds and shares, from turns alone; levels are added where there are samples. A *pause* is silence after
which the same speaker goes on, a *gap* one after which another begins; silence before the first turn and after the last
is neither.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float64

from diarnorm.manifest import AUDIO_SUFFIXES
from diarnorm.rttm import read_rttm, read_uem
from diarnorm.simulation.speech import decode
from diarnorm.timebase import FRAME_SAMPLES, SAMPLE_RATE
from diarnorm.turns import Turn

PERCENTILES = (5, 25, 50, 75, 95)
Region = tuple[float, float]


@dataclass(frozen=True)
class Talk:
    """One conversation, counted; lengths in seconds.

    `dominance` is the share of the speaking time that the most talkative speaker has. Levels are dBFS: of frames of
    80 ms in which somebody speaks, and of the others; None without samples or without such frames.
    """

    duration_s: float
    speech_s: float
    overlap_s: float
    num_speakers: int
    dominance: float
    turns_s: list[float] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    overlaps_s: list[float] = field(default_factory=list)
    level_db: float | None = None
    quiet_level_db: float | None = None


def frame_power(samples: Float[np.ndarray, " samples"]) -> Float64[np.ndarray, " frames"]:
    """Mean square of each whole frame of 80 ms, at 16 kHz."""
    num_frames = len(samples) // FRAME_SAMPLES
    return np.square(samples[: num_frames * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES), dtype=np.float64).mean(axis=1)


def count_talk(
    turns: Sequence[Turn], regions: Sequence[Region], power: Float64[np.ndarray, " frames"] | None = None
) -> Talk:
    """Count one conversation within `regions` (start, end in seconds, not overlapping).

    `power` is that of its frames, see `frame_power`, for the levels.
    """
    spoken: dict[str, float] = {}
    lengths: dict[str, list[float]] = {"turns_s": [], "pauses_s": [], "gaps_s": [], "overlaps_s": []}
    speech_s = 0.0
    for region in regions:
        own = _joined(turns, region)
        for turn in own:
            spoken[turn.speaker] = spoken.get(turn.speaker, 0.0) + turn.end - turn.start
        lengths["turns_s"] += [turn.end - turn.start for turn in own]
        speech_s += _add_silences(own, lengths)
        lengths["overlaps_s"] += _overlaps(own)
    levels = (None, None) if power is None else _levels(turns, regions, power)
    return Talk(
        duration_s=sum(end - start for start, end in regions),
        speech_s=speech_s,
        overlap_s=sum(lengths["overlaps_s"]),
        num_speakers=len(spoken),
        dominance=max(spoken.values(), default=0.0) / max(sum(spoken.values()), 1e-9),
        **lengths,
        level_db=levels[0],
        quiet_level_db=levels[1],
    )


def _joined(turns: Sequence[Turn], region: Region) -> list[Turn]:
    """Turns within a region, those of one speaker that overlap or touch joined; by start."""
    out: list[Turn] = []
    latest: dict[str, int] = {}
    for turn in sorted(turns):
        start, end = max(turn.start, region[0]), min(turn.end, region[1])
        if end <= start:
            continue
        at = latest.get(turn.speaker)
        if at is not None and start <= out[at].end:
            out[at] = Turn(out[at].start, max(end, out[at].end), turn.speaker)
        else:
            latest[turn.speaker] = len(out)
            out.append(Turn(start, end, turn.speaker))
    return out


def _add_silences(turns: Sequence[Turn], lengths: dict[str, list[float]]) -> float:
    """Put the silences between turns with the pauses or the gaps; returns the seconds in which anybody speaks."""
    speech_s, reach, last = 0.0, None, ""
    for turn in turns:
        if reach is None or turn.start > reach:
            if reach is not None:
                lengths["pauses_s" if turn.speaker == last else "gaps_s"].append(turn.start - reach)
            speech_s += turn.end - turn.start
            reach, last = turn.end, turn.speaker
        elif turn.end > reach:
            speech_s += turn.end - reach
            reach, last = turn.end, turn.speaker
    return speech_s


def _overlaps(turns: Sequence[Turn]) -> list[float]:
    """Lengths of the stretches in which several speak."""
    edges = sorted([(turn.start, 1) for turn in turns] + [(turn.end, -1) for turn in turns])
    out, count, since = [], 0, 0.0
    for time, change in edges:
        if count == 1 and change == 1:
            since = time
        elif count == 2 and change == -1 and time > since:
            out.append(time - since)
        count += change
    return out


def _levels(
    turns: Sequence[Turn], regions: Sequence[Region], power: Float64[np.ndarray, " frames"]
) -> tuple[float | None, float | None]:
    """Level of frames in which somebody speaks throughout, and of those in which nobody does."""
    num_frames = len(power)
    starts = np.arange(num_frames) * FRAME_SAMPLES / SAMPLE_RATE
    ends = starts + FRAME_SAMPLES / SAMPLE_RATE
    inside, spoken, touched = (np.zeros(num_frames, dtype=bool) for _ in range(3))
    for start, end in regions:
        inside |= (starts >= start) & (ends <= end)
    for turn in turns:
        spoken |= (starts >= turn.start) & (ends <= turn.end)
        touched |= (starts < turn.end) & (ends > turn.start)
    return _decibel(power[inside & spoken]), _decibel(power[inside & ~touched])


def _decibel(power: np.ndarray) -> float | None:
    return float(10 * np.log10(power.mean() + 1e-12)) if len(power) else None


@dataclass(frozen=True)
class TalkStatistics:
    """A set of conversations. Shares are pooled over their time; `.._quantiles` are at 5, 25, 50, 75 and 95 %, over
    conversations (shares, dominance and levels) or over all that there are (lengths); empty where there are none."""

    num_conversations: int
    duration_s: float
    speech_share: float
    """Time in which anybody speaks, of all time."""
    overlap_share: float
    """Time in which several speak, of the time in which anybody does."""
    turns_per_minute: float
    num_speakers: list[int]
    """Conversations of 0, 1, 2, ... speakers."""
    speech_quantiles: list[float]
    overlap_quantiles: list[float]
    """Over conversations of several speakers."""
    dominance_quantiles: list[float]
    """Over conversations of several speakers."""
    turn_quantiles_s: list[float]
    pause_quantiles_s: list[float]
    gap_quantiles_s: list[float]
    overlap_quantiles_s: list[float]
    level_quantiles_db: list[float]
    contrast_quantiles_db: list[float]
    """How much louder frames with speech are than those without."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def talk_statistics(talks: Sequence[Talk]) -> TalkStatistics:
    """Pool conversations.

    Raises:
        ValueError: there are none.
    """
    if not talks:
        raise ValueError("there are no conversations to count: give at least one")
    several = [talk for talk in talks if talk.num_speakers > 1]
    duration_s, speech_s = sum(talk.duration_s for talk in talks), sum(talk.speech_s for talk in talks)
    lengths = {name: [x for talk in talks for x in getattr(talk, name)] for name in LENGTHS}
    contrasts = [
        talk.level_db - talk.quiet_level_db
        for talk in talks
        if talk.level_db is not None and talk.quiet_level_db is not None
    ]
    return TalkStatistics(
        num_conversations=len(talks),
        duration_s=round(duration_s, 3),
        speech_share=speech_s / max(duration_s, 1e-9),
        overlap_share=sum(talk.overlap_s for talk in talks) / max(speech_s, 1e-9),
        turns_per_minute=60 * len(lengths["turns_s"]) / max(duration_s, 1e-9),
        num_speakers=np.bincount([talk.num_speakers for talk in talks]).tolist(),
        speech_quantiles=_quantiles([talk.speech_s / max(talk.duration_s, 1e-9) for talk in talks]),
        overlap_quantiles=_quantiles([talk.overlap_s / max(talk.speech_s, 1e-9) for talk in several]),
        dominance_quantiles=_quantiles([talk.dominance for talk in several]),
        turn_quantiles_s=_quantiles(lengths["turns_s"]),
        pause_quantiles_s=_quantiles(lengths["pauses_s"]),
        gap_quantiles_s=_quantiles(lengths["gaps_s"]),
        overlap_quantiles_s=_quantiles(lengths["overlaps_s"]),
        level_quantiles_db=_quantiles([talk.level_db for talk in talks if talk.level_db is not None]),
        contrast_quantiles_db=_quantiles(contrasts),
    )


LENGTHS = ("turns_s", "pauses_s", "gaps_s", "overlaps_s")


def _quantiles(values: Sequence[float]) -> list[float]:
    return [round(float(x), 3) for x in np.percentile(values, PERCENTILES)] if len(values) else []


def read_talks(folder: Path, uem: Path | None = None) -> list[Talk]:
    """Count the RTTM files of a folder. Levels come from recordings of the same names beside them, where there are any;
    without `uem` a conversation ends with its recording, or else with its last turn.

    Raises:
        ValueError: no RTTM files with recordings in them, or one of which the UEM says nothing.
    """
    paths = sorted(folder.glob("*.rttm")) if folder.is_dir() else [folder]
    regions = None if uem is None else read_uem(uem)
    talks = []
    for path in paths:
        for uri, turns in read_rttm(path).items():
            if regions is not None and uri not in regions:
                raise ValueError(f"{uem} says nothing about {uri} of {path}: add it, or leave --uem out")
            samples = _read_samples(path.parent, uri)
            end_s = max((turn.end for turn in turns), default=0.0) if samples is None else len(samples) / SAMPLE_RATE
            power = None if samples is None else frame_power(samples)
            talks.append(count_talk(turns, [(0.0, end_s)] if regions is None else regions[uri], power))
    if not talks:
        raise ValueError(f"{folder} has no RTTM files with recordings in them: give a folder of .rttm files")
    return talks


def _read_samples(folder: Path, uri: str) -> np.ndarray | None:
    """The recording `uri` at 16 kHz, if it lies in the folder."""
    paths = [folder / f"{uri}{suffix}" for suffix in sorted(AUDIO_SUFFIXES)]
    return next((decode(path) for path in paths if path.exists()), None)
