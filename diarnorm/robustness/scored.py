"""One model or peer on one changed recording: turns scored; of a model, what is seen inside, beside the clean run."""

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
from diarnorm.turns import Turn


@dataclass(frozen=True)
class Rules:
    """How things are scored and measured; see `RobustnessConfig`."""

    collar_s: float
    skip_overlap: bool
    edge_s: float
    recovery_distance: float
    recovery_hold_s: float


def measure_turns(
    sound: Sound, turns: Sequence[Turn], region: Region | None, condition: Condition, rules: Rules
) -> dict[str, Any]:
    """The measurements of a `Record` that turns alone give, by name.

    `region` is what is scored of the recording as it was; None: all. Halves are those of the recording as it was.
    """
    time, end_s = TimeMap.of(sound.inserted), samples_to_seconds(len(sound.samples))
    spans = [(0.0, end_s)] if region is None else time.region(region)
    whole = _score(sound, turns, spans, rules)
    inserted_s = sum(end - start for start, end in sound.inserted)
    middle_s = time.region([(0.0, (end_s - inserted_s) / 2)])[0][1]
    halves = [(0.0, middle_s), (middle_s, end_s)] if condition.with_halves else []
    return {
        "errors": whole.errors,
        "merged": whole.merged,
        "halves": tuple(_score(sound, turns, _within(spans, half), rules).errors for half in halves),
        "num_turns": len(turns),
        "turns": written(turns),
        "num_speakers": whole.num_hypothesis_speakers,
        "event_s": measures.length_of(sound.events, edge_s=rules.edge_s),
        "event_speech_s": measures.speech_in(turns, sound.events, edge_s=rules.edge_s),
        "inserted_s": measures.length_of(sound.inserted, edge_s=rules.edge_s),
        "inserted_speech_s": measures.speech_in(turns, sound.inserted, edge_s=rules.edge_s),
    }


def written(turns: Sequence[Turn]) -> str:
    """Turns in seconds with their labels, in order of onset, to the millisecond.

    >>> written([Turn(2.0, 3.28, "b"), Turn(0.5, 1.0, "a")])
    '0.500 1.000 a; 2.000 3.280 b'
    """
    return "; ".join(f"{turn.start:.3f} {turn.end:.3f} {turn.speaker}" for turn in sorted(turns))


def measure_inside(sound: Sound, trace: Trace, before: Trace | None, rules: Rules) -> dict[str, Any]:
    """The other measurements of a `Record`; `before` is what the model made of the recording as it was."""
    events = list(sound.events)
    return {
        "rms": tuple(measures.levels(trace.powers) or ()),
        "event_rms": _tuple(measures.levels(trace.powers, frames_in(events, len(trace.activity)))),
        **_compared(sound, trace, before, rules),
    }


def _compared(sound: Sound, trace: Trace, before: Trace | None, rules: Rules) -> dict[str, Any]:
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
        "after_s": 0.0,
        "same_labels_s": 0.0,
    }
    if before is None:
        return found
    frames = TimeMap.of(sound.inserted).clean_frames(num_frames, len(before.activity))
    speech = frames_in([(turn.start, turn.end) for turn in sound.turns], num_frames)
    distance = measures.distances(before.activity, trace.activity, frames)
    after_s, same_labels_s = measures.labels_after(before.turns, trace.turns, frames, events)
    return {
        **found,
        "drift": measures.drift(before.embedding, trace.embedding, frames, speech),
        "clean_attention": _tuple(measures.clean_shares(before, frames, events)),
        "recovery_s": tuple(
            measures.recovery(distance, events, tolerance=rules.recovery_distance, hold_s=rules.recovery_hold_s)
        ),
        "after_s": after_s,
        "same_labels_s": same_labels_s,
    }


def _score(sound: Sound, turns: Sequence[Turn], spans: Spans, rules: Rules) -> FileScore:
    return score_recording("", sound.turns, turns, spans, rules.collar_s, rules.skip_overlap)


def _within(spans: Spans, part: tuple[float, float]) -> list[tuple[float, float]]:
    clipped = [(max(start, part[0]), min(end, part[1])) for start, end in spans]
    return [(start, end) for start, end in clipped if end > start]


def _tuple(values: Sequence[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(np.asarray(values, float).tolist())
