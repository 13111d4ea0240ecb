"""What is said of one model under one condition on a set: a row of the report, its changes and verdicts.

A margin is about growth of the DER. It is kept (`holds`) when the whole 95 % interval of the change of the pooled DER
lies within it, broken (`fails`) when the whole interval lies beyond it, and else the recordings do not tell
(`undecided`). That the DER falls breaks no margin, and is marked.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from diarnorm.evaluation.scores import Components
from diarnorm.robustness.intervals import Figure

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
WORST = (FAILS, UNDECIDED, HOLDS)


@dataclass(frozen=True)
class Change:
    """Change of the pooled DER against the clean recordings, in points, with its 95 % interval; see `change_of`.

    `low` and `high` are None for fewer than two recordings, everything is where there is no speech.
    """

    points: float | None
    low: float | None
    high: float | None

    @property
    def improves(self) -> bool:
        """Whether the whole interval is below 0: the DER falls."""
        return self.high is not None and self.high < 0

    def verdict(self, margin: float | None) -> str | None:
        """Whether it grows by no more than the margin; None where there is no margin or nothing to judge."""
        if margin is None or self.points is None:
            return None
        if self.low is None or self.high is None:
            return UNDECIDED
        return HOLDS if self.high <= margin else FAILS if self.low > margin else UNDECIDED


@dataclass(frozen=True)
class Spread:
    """Figures of a row with their 95 % intervals over recordings.

    Attributes:
        drift, recovery_s: as in the row.
        false_speech_s: speech where nobody speaks, less that in the clean run.
        rms: of the residual stream after each block, over that in the clean run: the mean over recordings.
    """

    drift: Figure
    recovery_s: Figure
    false_speech_s: Figure
    rms: tuple[Figure, ...]


@dataclass(frozen=True)
class Row:
    """One model under one condition on a set. Lists have an item per block of the encoder; None: nothing to measure.

    Attributes:
        errors, clean: parts of the DER, of the changed and of the clean recordings.
        merged: those of the output with one label for everybody.
        verdict: on the DER; in silence alone, on there being no turns.
        halves, clean_halves: DER of both halves, each scored by itself.
        false_speech_s, clean_false_speech_s: speech of the model where nobody speaks.
        event_s, event_speech_s: length of the changed pieces without their edges, and speech of the model there.
        inserted_s, inserted_speech_s: the same of the pieces that were put in.
        quiet_verdict: whether there is no speech in silence that was put in; undecided where its edges are all of it.
        labels_after_s: speech after changes, in which labels are compared with the clean run's; 0 for what acts from
            the start on.
        labels_kept: share of it with the same labels; see `measures.labels_after`.
        labels_verdict: whether this is what was asked for at least, by its interval.
        labels_added: mean number of labels more than in the clean run; `most_labels_added` in one recording.
        drift: mean over recordings.
        rms, clean_rms: of the residual stream after each block; `event_rms` in the changed pieces.
        attention: share of the attention on changed frames, `clean_attention` in the clean run on the same, and
            `uniform_attention`, what their number alone would make it.
        num_events: changes after which recovery can be seen; `recovered` is the share of those after which it was.
        recovery_s: median; None where half of them or more did not recover.
        dc_percent: mean magnitude of the offset, % of full scale.
        level_dbfs: median level of the raw input; `speech_level_db` of its speech, where there is any.
        recordings: names, where they are few; `changes` of the DER of each, in points.
    """

    set_name: str
    model: str
    condition: str
    num_recordings: int
    errors: Components
    clean: Components
    merged: Components
    change: Change
    margin: float | None
    verdict: str | None
    halves: tuple[float | None, ...]
    clean_halves: tuple[float | None, ...]
    false_speech_s: float
    clean_false_speech_s: float
    event_s: float
    event_speech_s: float
    inserted_s: float
    inserted_speech_s: float
    quiet_verdict: str | None
    labels_after_s: float
    labels_kept: Figure
    labels_verdict: str | None
    num_turns: int
    labels_added: float
    most_labels_added: int
    drift: float | None
    rms: tuple[float, ...] | None
    clean_rms: tuple[float, ...] | None
    event_rms: tuple[float, ...] | None
    attention: tuple[float, ...] | None
    clean_attention: tuple[float, ...] | None
    uniform_attention: float | None
    num_events: int
    recovered: float | None
    recovery_s: float | None
    dc_percent: float
    level_dbfs: float
    speech_level_db: float | None
    spread: Spread
    recordings: tuple[str, ...]
    changes: tuple[float | None, ...]

    @property
    def others(self) -> tuple[str | None, str | None]:
        """Verdicts on silence of which something was looked at, and on labels."""
        return (self.quiet_verdict if self.inserted_s > 0 else None), self.labels_verdict

    @property
    def outcome(self) -> str | None:
        """The worst of all verdicts."""
        return worst_verdict([self.verdict, *self.others])


def worst_verdict(verdicts: Iterable[str | None]) -> str | None:
    """The worst of several; None where there is none.

    >>> worst_verdict(["holds", None, "undecided"])
    'undecided'
    """
    found = set(verdicts)
    return next((word for word in WORST if word in found), None)
