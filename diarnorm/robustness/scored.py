"""One model on one changed recording: turns scored, and everything compared with the clean run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diarnorm.evaluation.recordings import Region
from diarnorm.evaluation.scores import FileScore
from diarnorm.evaluation.scoring import score_recording
from diarnorm.robustness import measures
from diarnorm.robustness.conditions import Condition
from diarnorm.robustness.corruption import Sound
from diarnorm.robustness.passes import Trace
from diarnorm.robustness.timemap import Spans, TimeMap, frames_in
from diarnorm.timebase import samples_to_seconds


@dataclass(frozen=True)
class Rules:
    """How things are scored and measured; see `RobustnessConfig`."""

    collar_s: float
    skip_overlap: bool
    edge_s: float
    recovery_distance: float
    recovery_hold_s: float


@dataclass(frozen=True)
class Before:
    """The same recording as it was: what the model made of it, and its length."""

    trace: Trace
    num_samples: int


def measure(
    sound: Sound, trace: Trace, before: Before | None, region: Region | None, condition: Condition, rules: Rules
) -> dict[str, Any]:
    """The measurements of a `Record`, by name. `region` is what is scored of the clean recording; None: all.

    Raises:
        ValueError: the length changed in a way that does not tell where the region went.
    """
    end_s = samples_to_seconds(len(sound.samples))
    changes = None if before is None else TimeMap.between(before.num_samples, len(sound.samples), sound.events)
    if region is not None and changes is None:
        raise ValueError(
            f"{condition.name} changes the length of a recording in a way that leaves its UEM behind: leave it out"
        )
    spans = [(0.0, end_s)] if region is None or changes is None else changes.region(region)
    whole = _score(sound, trace, spans, rules)
    halves = [(0.0, end_s / 2), (end_s / 2, end_s)] if condition.with_halves else []
    events = list(sound.events)
    return {
        "errors": whole.errors,
        "merged": whole.merged,
        "halves": tuple(_score(sound, trace, _within(spans, half), rules).errors for half in halves),
        "num_turns": len(trace.turns),
        "num_speakers": whole.num_hypothesis_speakers,
        "event_s": sum(max(0.0, end - start - 2 * rules.edge_s) for start, end in events),
        "event_speech_s": measures.speech_in(trace.turns, events, edge_s=rules.edge_s),
        "rms": tuple(measures.levels(trace.powers) or ()),
        "event_rms": _tuple(measures.levels(trace.powers, frames_in(events, len(trace.activity)))),
        **_compared(sound, trace, before, changes, rules),
    }


def _compared(
    sound: Sound, trace: Trace, before: Before | None, changes: TimeMap | None, rules: Rules
) -> dict[str, Any]:
    """What needs the clean run, and what is set beside it."""
    num_frames, events = len(trace.activity), list(sound.events)
    marked = frames_in(events, num_frames)
    attention = uniform = None
    if trace.attention is not None:
        attention = measures.attention_share(trace.attention, marked, trace.chunk)
        uniform = measures.uniform_share(num_frames, trace.attention.shape[-1], marked, trace.chunk)
    found: dict[str, Any] = {
        "drift": None,
        "attention": _tuple(attention),
        "clean_attention": None,
        "uniform_attention": uniform,
        "recovery_s": (),
    }
    if before is None or changes is None:
        return found
    clean = before.trace
    frames = changes.clean_frames(num_frames, len(clean.activity))
    speech = frames_in([(turn.start, turn.end) for turn in sound.turns], num_frames)
    distance = measures.distances(clean.activity, trace.activity, frames)
    return {
        **found,
        "drift": measures.drift(clean.embedding, trace.embedding, frames, speech),
        "clean_attention": _tuple(measures.clean_shares(clean, frames, events)),
        "recovery_s": tuple(
            measures.recovery(distance, events, tolerance=rules.recovery_distance, hold_s=rules.recovery_hold_s)
        ),
    }


def _score(sound: Sound, trace: Trace, spans: Spans, rules: Rules) -> FileScore:
    return score_recording("", sound.turns, trace.turns, spans, rules.collar_s, rules.skip_overlap)


def _within(spans: Spans, part: tuple[float, float]) -> list[tuple[float, float]]:
    clipped = [(max(start, part[0]), min(end, part[1])) for start, end in spans]
    return [(start, end) for start, end in clipped if end > start]


def _tuple(values: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(np.asarray(values, float).tolist())
