"""Figures of rows as text: how each is written, and the columns of a report's tables."""

from collections.abc import Callable, Sequence

from diarnorm.evaluation.tables import NO_VALUE, percent
from diarnorm.robustness.conditions import CLEAN
from diarnorm.robustness.intervals import Figure
from diarnorm.robustness.rows import FAILS, HOLDS, UNDECIDED, Change, Row

Column = tuple[str, Callable[[Row], str]]
SIGNS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "?", None: ""}
"""What stands behind a figure in tables and pictures."""
FALLS = "↓"
LEGEND = (
    "✓ within its margin, ✗ beyond it, or speech heard in silence, or other labels after it, ? the recordings do not "
    f"tell, no sign: no margin; {FALLS} the error rate falls, by its whole interval"
)


def points(change: Change) -> str:
    """A change of the DER in points.

    >>> points(Change(1.26, -0.5, 3.0)), points(Change(None, None, None))
    ('+1.3', 'n/a')
    """
    return NO_VALUE if change.points is None else f"{change.points:+.1f}"


def interval(change: Change) -> str:
    """Its 95 % interval."""
    return NO_VALUE if change.low is None or change.high is None else f"{change.low:+.1f} to {change.high:+.1f}"


def signs(change: Change, verdict: str | None) -> str:
    """What stands behind a change."""
    return f"{SIGNS[verdict]}{FALLS if change.improves else ''}"


def around(figure: Figure, decimals: int = 2, scale: float = 1.0) -> str:
    """The ends of an interval.

    >>> around(Figure(0.5, 0.25, 0.75)), around(Figure(0.5))
    ('0.25 to 0.75', 'n/a')
    """
    if figure.value is None or (figure.low is None and figure.high is None):
        return NO_VALUE
    low, high = ("not" if end is None else f"{scale * end:.{decimals}f}" for end in (figure.low, figure.high))
    return f"{low} to {high}"


def number(value: float | None, decimals: int = 2) -> str:
    """A figure, or that there is none."""
    return NO_VALUE if value is None else f"{value:.{decimals}f}"


def listed(values: Sequence[float | None] | None, decimals: int = 2, scale: float = 1.0) -> str:
    """Figures of the blocks, or of the halves."""
    return ", ".join(number(None if each is None else scale * each, decimals) for each in values or ()) or NO_VALUE


def _recovery(row: Row) -> str:
    if row.recovered is None:
        return NO_VALUE
    median = "not" if row.recovery_s is None else f"{row.recovery_s:.1f}"
    return f"{median} ({100 * row.recovered:.0f} % of {row.num_events})"


WHO: list[Column] = [("condition", lambda row: row.condition), ("model", lambda row: row.model)]
RATES: list[Column] = [
    ("recordings", lambda row: str(row.num_recordings)),
    ("DER", lambda row: percent(row.errors.der)),
    ("clean", lambda row: percent(row.clean.der)),
    ("change", lambda row: points(row.change)),
    ("95 % interval", lambda row: interval(row.change)),
    ("margin", lambda row: NO_VALUE if row.margin is None else f"{row.margin:g}"),
    ("verdict", lambda row: row.verdict or NO_VALUE),
    ("miss", lambda row: percent(row.errors.rate(row.errors.miss_s))),
    ("false alarm", lambda row: percent(row.errors.rate(row.errors.false_alarm_s))),
    ("confusion", lambda row: percent(row.errors.rate(row.errors.confusion_s))),
    ("merged DER", lambda row: percent(row.merged.der)),
]
SPEECH: list[Column] = [
    ("false speech seconds", lambda row: number(row.false_speech_s)),
    ("clean", lambda row: number(row.clean_false_speech_s)),
    ("95 % interval of more", lambda row: around(row.spread.false_speech_s)),
    ("labels added", lambda row: f"{row.labels_added:+.2f}"),
    ("most", lambda row: f"{row.most_labels_added:+d}"),
    ("drift", lambda row: number(row.drift, 3)),
    ("95 %", lambda row: around(row.spread.drift, 3)),
    ("recovery s", _recovery),
    ("95 %", lambda row: around(row.spread.recovery_s, 1)),
    ("DC % FS", lambda row: number(row.dc_percent, 3)),
    ("level dBFS", lambda row: number(row.level_dbfs, 1)),
    ("speech level dB", lambda row: number(row.speech_level_db, 1)),
]
LABELS: list[Column] = [
    ("speech after it s", lambda row: number(row.labels_after_s)),
    ("with the same labels %", lambda row: percent(row.labels_kept.value)),
    ("95 %", lambda row: around(row.labels_kept, 1, 100)),
    ("verdict", lambda row: row.labels_verdict or NO_VALUE),
]
QUIET: list[Column] = [
    ("put in s", lambda row: number(row.inserted_s)),
    ("speech in it s", lambda row: number(row.inserted_speech_s)),
    ("verdict", lambda row: row.quiet_verdict or NO_VALUE),
]
HALVES: list[Column] = [
    ("first half, second half", lambda row: listed(row.halves, 1, 100)),
    ("clean", lambda row: listed(row.clean_halves, 1, 100)),
]
INSIDE: list[Column] = [
    ("residual RMS per block", lambda row: listed(row.rms)),
    ("clean", lambda row: listed(row.clean_rms)),
    ("times the clean run's, 95 %", lambda row: "; ".join(map(around, row.spread.rms)) or NO_VALUE),
    ("in the changed pieces", lambda row: listed(row.event_rms)),
]
ATTENTION: list[Column] = [
    ("attention on changed frames %", lambda row: listed(row.attention, 1, 100)),
    ("clean run", lambda row: listed(row.clean_attention, 1, 100)),
    ("if uniform", lambda row: percent(row.uniform_attention)),
]
ALONE: list[Column] = [
    ("verdict", lambda row: row.verdict or NO_VALUE),
    ("turns", lambda row: str(row.num_turns)),
    ("false speech seconds", lambda row: number(row.false_speech_s)),
    ("DC % FS", lambda row: number(row.dc_percent, 3)),
    ("level dBFS", lambda row: number(row.level_dbfs, 1)),
]


def details_of(rows: Sequence[Row]) -> list[tuple[str, list[Column], list[Row]]]:
    """The tables of a set beside those that compare models: titles, columns and rows, where there are any."""
    changed = [row for row in rows if row.condition != CLEAN]
    own, few = _own_columns(changed), [row for row in changed if row.changes]
    tables = [
        ("Diarization error rate, % of the reference's speech; change and margin in points", RATES, list(rows)),
        ("Speech, labels, embeddings, level", SPEECH, list(rows)),
        ("Labels after a change, beside the clean run's", LABELS, [row for row in changed if row.labels_after_s]),
        ("Speech in silence that was put in", QUIET, [row for row in changed if row.quiet_verdict]),
        ("Halves, each with labels matched by itself: DER, %", HALVES, [row for row in rows if row.halves]),
        ("Residual stream", INSIDE, [row for row in rows if row.rms]),
        ("Attention, per block", ATTENTION, [row for row in changed if row.attention]),
        ("Change of the DER of every recording, in points", own, few),
    ]
    return [table for table in tables if table[2]]


def _own_columns(rows: Sequence[Row]) -> list[Column]:
    """A column for each recording, where they are few."""
    names = dict.fromkeys(name for row in rows for name in row.recordings)

    def tell(name: str) -> Callable[[Row], str]:
        def change(row: Row) -> str:
            found = dict(zip(row.recordings, row.changes, strict=True)).get(name)
            return NO_VALUE if found is None else f"{found:+.1f}"

        return change

    return [(name, tell(name)) for name in names]
