"""Where errors come from: miss, false alarm and confusion, each divided into parts that add up to it.

Time is cut wherever the reference, the hypothesis, the scored region or the nearness to an edge changes, in whole
nanoseconds, so nothing is rounded to a grid. In a piece with R speakers in the reference and H labels in the
hypothesis, C of them right, R - H speakers are missed or H - R labels false alarms, and the smaller of both less C is
confused: this is the DER. A label is right while the speaker talks to whom the DER's mapping gives it. Each of the
three goes whole to the first cause of its kind that fits, in the order of the fields of `Causes`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Bool, Int

from diarnorm.evaluation.sums import Additive
from diarnorm.turns import Turn

EDGE_S = 0.25
"""How near to an edge is near."""
SECOND_NS = 1_000_000_000

Span = tuple[float, float]


@dataclass(frozen=True)
class Causes(Additive):
    """Seconds of speaker time by cause; fields of a kind stand in order of precedence and add up to it.

    A speaker is found when, for the first time in the recording (also where that is not scored), their label is right;
    one to whom the mapping gives no label is never found. An edge is where the reference changes between speech and
    silence, whoever speaks.
    """

    miss_overlap_s: float = 0.0
    """Two or more speak."""
    miss_never_found_s: float = 0.0
    """The one who speaks is never found."""
    miss_late_s: float = 0.0
    """The one who speaks is found later."""
    miss_edge_s: float = 0.0
    """Less than 0.25 s from an edge."""
    miss_rest_s: float = 0.0
    false_alarm_speech_s: float = 0.0
    """Somebody speaks: too many speakers."""
    false_alarm_edge_s: float = 0.0
    """Silence less than 0.25 s from an edge."""
    false_alarm_silence_s: float = 0.0
    confusion_overlap_s: float = 0.0
    """Two or more speak."""
    confusion_never_found_s: float = 0.0
    """The one who speaks is never found."""
    confusion_late_s: float = 0.0
    """The one who speaks is found later."""
    confusion_rest_s: float = 0.0
    """The one who speaks was found before, but has another's label, or one of nobody."""


PARTS = {
    kind: {each.name: each.name[len(kind) + 1 : -2].replace("_", " ") for each in fields(Causes) if kind in each.name}
    for kind in ("miss", "false_alarm", "confusion")
}
"""Fields of `Causes` by kind of error, with their names in words."""


def find_causes(
    reference: Sequence[Turn], hypothesis: Sequence[Turn], scored: Sequence[Span], speaker_of: Mapping[str, str]
) -> Causes:
    """Causes of the errors in the spans `scored`, (start, end) in seconds.

    `speaker_of` gives labels of the hypothesis to speakers of the reference, each to one at most. Turns outside the
    scored spans tell when a speaker was found, and where edges are.
    """
    spans = _nanoseconds(scored)
    edges = _edges(_spans_of(reference))
    near = edges[:, None] + np.array([-1, 1]) * round(EDGE_S * SECOND_NS)
    times = np.unique(np.concatenate([_spans_of(reference), _spans_of(hypothesis), spans, near]))
    lengths_ns = np.diff(times) * _inside(spans, times)

    speakers = sorted({turn.speaker for turn in reference})
    label_of = {speaker: label for label, speaker in speaker_of.items()}
    true = _activity(reference, speakers, times)
    own = _activity(hypothesis, [label_of.get(speaker) for speaker in speakers], times)
    labels = _activity(hypothesis, sorted({turn.speaker for turn in hypothesis}), times)
    right = true & own
    num_true, num_labels, num_right = (rows.sum(axis=0) for rows in (true, labels, right))

    mapped = np.array([speaker in label_of for speaker in speakers], dtype=bool)[:, None]
    overlap, never_found = num_true > 1, (true & ~mapped).sum(axis=0) > 0
    late = (true & ~np.logical_or.accumulate(right, axis=1)).sum(axis=0) > 0
    at_edge = _inside(near, times)
    miss_ns = lengths_ns * np.maximum(num_true - num_labels, 0)
    false_alarm_ns = lengths_ns * np.maximum(num_labels - num_true, 0)
    confusion_ns = lengths_ns * (np.minimum(num_true, num_labels) - num_right)
    return Causes(
        *_by_first(miss_ns, overlap, never_found, late, at_edge),
        *_by_first(false_alarm_ns, num_true > 0, at_edge),
        *_by_first(confusion_ns, overlap, never_found, late),
    )


def _by_first(amounts_ns: Int[np.ndarray, " pieces"], *causes: Bool[np.ndarray, " pieces"]) -> list[float]:
    """Seconds by the first cause that is true of a piece, the rest last."""
    left, seconds = amounts_ns, []
    for cause in causes:
        seconds.append(int(left[cause].sum()) / SECOND_NS)
        left = np.where(cause, 0, left)
    return [*seconds, int(left.sum()) / SECOND_NS]


def _nanoseconds(spans: Iterable[Span]) -> Int[np.ndarray, "spans 2"]:
    return np.rint(np.array(list(spans), dtype=float).reshape(-1, 2) * SECOND_NS).astype(np.int64)


def _spans_of(turns: Iterable[Turn]) -> Int[np.ndarray, "spans 2"]:
    return _nanoseconds((turn.start, turn.end) for turn in turns)


def _inside(spans: Int[np.ndarray, "spans 2"], times: Int[np.ndarray, " times"]) -> Bool[np.ndarray, " pieces"]:
    """Which of the pieces between `times` lie in a span; spans begin and end at some of these times."""
    steps = np.zeros(len(times), dtype=np.int64)
    np.add.at(steps, np.searchsorted(times, spans[:, 0]), 1)
    np.add.at(steps, np.searchsorted(times, spans[:, 1]), -1)
    return np.cumsum(steps)[:-1] > 0


def _activity(
    turns: Sequence[Turn], speakers: Sequence[str | None], times: Int[np.ndarray, " times"]
) -> Bool[np.ndarray, "speakers pieces"]:
    """Who speaks in which of the pieces between `times`; None never does."""
    rows = [_inside(_spans_of(turn for turn in turns if turn.speaker == speaker), times) for speaker in speakers]
    return np.array(rows, dtype=bool).reshape(len(speakers), max(len(times) - 1, 0))


def _edges(spans: Int[np.ndarray, "spans 2"]) -> Int[np.ndarray, " edges"]:
    """Times at which the union of the spans begins or ends."""
    times = np.unique(spans)
    return times[np.flatnonzero(np.diff(_inside(spans, times), prepend=False, append=False))]
