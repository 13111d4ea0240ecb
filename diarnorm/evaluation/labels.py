"""How steady the labels of long recordings are: switches from turn to turn, and who is recognised after a pause.

DER hardly sees either: a speaker who comes back under a new label late in a recording costs a few seconds only.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from diarnorm.evaluation.sums import Additive
from diarnorm.turns import Turn, merge_turns


@dataclass(frozen=True)
class LabelScore(Additive):
    """How steady the labels of a long recording are; the values add up over recordings."""

    duration_s: float = 0.0
    num_switches: int = 0
    """Times that a speaker's label was another one than in their turn before."""
    num_returned: int = 0
    """Speakers heard both before and after a long pause, added up over the pauses."""
    num_recognised: int = 0
    """Those of them who had the same label before and after, and it was theirs alone."""

    @property
    def switches_per_hour(self) -> float | None:
        """Label switches per hour of recording; None without a duration."""
        return 3600 * self.num_switches / self.duration_s if self.duration_s > 0 else None


def label_score(
    reference: Sequence[Turn],
    hypothesis: Sequence[Turn],
    duration_s: float,
    pause_s: float,
    whole: Sequence[Turn] | None = None,
) -> LabelScore:
    """Label switches, and who is recognised after pauses of `pause_s` seconds or more; `whole` as in `reidentified`."""
    recognised, returned = reidentified(reference, hypothesis, pause_s, whole)
    return LabelScore(duration_s, label_switches(reference, hypothesis), returned, recognised)


def label_switches(reference: Sequence[Turn], hypothesis: Sequence[Turn]) -> int:
    """How often a speaker's dominant label differs from the one in the turn of theirs before.

    The dominant label of a turn is the hypothesis' label that covers most of what its speaker says alone; turns that
    no label covers, or in which others speak all the time, are passed over. One label for everybody never switches,
    so the DER belongs beside it.
    """
    seconds: dict[str, dict[Turn, dict[str, float]]] = defaultdict(dict)
    for turn, labels in _labels_heard(reference, hypothesis):
        own = seconds[turn.speaker].setdefault(turn, defaultdict(float))
        for label, covered_s in labels.items():
            own[label] += covered_s
    dominant = [[_dominant(turns[turn]) for turn in sorted(turns)] for turns in seconds.values()]
    heard = [[label for label in labels if label is not None] for labels in dominant]
    return sum(before != after for labels in heard for before, after in pairwise(labels))


def reidentified(
    reference: Sequence[Turn], hypothesis: Sequence[Turn], pause_s: float, whole: Sequence[Turn] | None = None
) -> tuple[int, int]:
    """How many speakers keep their label over a long pause, and of how many, added up over the pauses.

    A pause is a stretch of `pause_s` seconds or more in which the reference is silent. Those who speak (alone) both
    between the pause before and it, and between it and the next, count; they keep their label if the dominant one is
    the same on both sides. A label that several of them have after the pause identifies nobody.

    Where `reference` is only what is scored of a recording, `whole` is all of its reference: what is not scored is no
    pause, unless nobody speaks there.
    """
    spans = merge_turns(reference if whole is None else whole)
    ends = [end for (_, end), (start, _) in pairwise(spans) if start - end >= pause_s]
    parts: list[dict[str, dict[str, float]]] = [{} for _ in range(len(ends) + 1)]
    for turn, labels in _labels_heard(reference, hypothesis):
        own = parts[sum(end <= turn.start for end in ends)].setdefault(turn.speaker, defaultdict(float))
        for label, covered_s in labels.items():
            own[label] += covered_s
    num_same = num_back = 0
    for before, after in pairwise(parts):
        back = {speaker: _dominant(after[speaker]) for speaker in after if speaker in before}
        given = list(back.values())
        num_back += len(back)
        num_same += sum(
            label is not None and given.count(label) == 1 and label == _dominant(before[speaker])
            for speaker, label in back.items()
        )
    return num_same, num_back


def _dominant(seconds: dict[str, float]) -> str | None:
    """The label with most seconds, the first by name among equals; None without any."""
    return min(seconds, key=lambda label: (-round(seconds[label], 6), label), default=None)


def _labels_heard(reference: Sequence[Turn], hypothesis: Sequence[Turn]) -> Iterator[tuple[Turn, dict[str, float]]]:
    """Stretches in which one speaker of the reference speaks alone: the turn they belong to, and seconds by label."""
    by_label: dict[str, list[tuple[float, float]]] = {
        label: merge_turns(turn for turn in hypothesis if turn.speaker == label)
        for label in sorted({turn.speaker for turn in hypothesis})
    }
    names = [label for label, spans in by_label.items() for _ in spans]
    starts, ends = np.array([span for spans in by_label.values() for span in spans]).reshape(-1, 2).T
    for turn, start, end in _alone(reference):
        covered = np.minimum(ends, end) - np.maximum(starts, start)
        labels: dict[str, float] = defaultdict(float)
        for at in np.flatnonzero(covered > 0):
            labels[names[at]] += float(covered[at])
        yield turn, labels


def _alone(reference: Sequence[Turn]) -> Iterator[tuple[Turn, float, float]]:
    """Stretches (start, end) of each turn in which nobody else speaks, in order of time; own turns that touch join."""
    speakers = sorted({turn.speaker for turn in reference})
    turns = [
        Turn(start, end, speaker)
        for speaker in speakers
        for start, end in merge_turns(turn for turn in reference if turn.speaker == speaker)
    ]
    edges = sorted([(turn.start, True, turn) for turn in turns] + [(turn.end, False, turn) for turn in turns])
    active: set[Turn] = set()
    for (time, begins, turn), (after, _, _) in pairwise(edges):
        (active.add if begins else active.remove)(turn)
        if len(active) == 1 and after > time:
            yield next(iter(active)), time, after
