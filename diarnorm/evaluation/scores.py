"""What scoring yields: error components per recording, pooled, as a table and as plain values.

DER = (miss + false alarm + confusion) / speech, all in seconds of speaker time: two people who talk at once
for one second are two seconds. Beside it stands the DER of the *merged* output (all labels of the hypothesis
joined to one), which a diarizer must beat, and the *grid floor*: the DER of the reference itself put on the
grid of 80-ms frames. The Jaccard error rate (JER) always counts overlaps and knows no collar. How steady
the labels of long recordings are stands in `labels`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from diarnorm.evaluation.causes import Causes
from diarnorm.evaluation.sums import Additive

TABLE_HEAD = ["recording", "scored s", "speech s", "miss s", "false alarm s", "confusion s"]
TABLE_HEAD += ["DER %", "merged DER %", "JER %", "speakers (reference)"]


@dataclass(frozen=True)
class Components(Additive):
    """What DER is made of, in seconds of speaker time; they add up over recordings."""

    miss_s: float = 0.0
    false_alarm_s: float = 0.0
    confusion_s: float = 0.0
    speech_s: float = 0.0

    @property
    def error_s(self) -> float:
        """Miss, false alarm and confusion together."""
        return self.miss_s + self.false_alarm_s + self.confusion_s

    @property
    def der(self) -> float | None:
        """Errors per speech: 0 without either, None (not defined) where there are errors but no speech."""
        return self.rate(self.error_s)

    def rate(self, error_s: float) -> float | None:
        """`error_s` per speech, by the same rule."""
        if self.speech_s > 0:
            return error_s / self.speech_s
        return 0.0 if error_s == 0 else None


@dataclass(frozen=True)
class FileScore:
    """Scores of one recording."""

    uri: str
    errors: Components
    merged: Components
    """Errors of the hypothesis with all its labels joined to one."""
    grid: Components
    """Errors of the reference put on the frame grid."""
    jaccard_errors: float
    """Sum of the Jaccard errors (0 to 1) of the reference's speakers."""
    num_reference_speakers: int
    num_hypothesis_speakers: int
    scored_s: float
    """Time that was scored: the region less collars and, if they are skipped, overlaps."""
    causes: Causes
    """Where the errors come from."""

    @property
    def jer(self) -> float | None:
        """Jaccard error rate; None (not defined) where speakers were found but there are none."""
        if self.num_reference_speakers:
            return self.jaccard_errors / self.num_reference_speakers
        return None if self.num_hypothesis_speakers else 0.0

    @property
    def count_error(self) -> int:
        """How many speakers too many or too few."""
        return abs(self.num_hypothesis_speakers - self.num_reference_speakers)


@dataclass(frozen=True)
class ScoreResult:
    """Scores of a set of recordings (never empty), and how they were made."""

    files: tuple[FileScore, ...]
    collar_s: float
    """Seconds not scored on each side of a boundary (NIST)."""
    skip_overlap: bool
    region: str
    """What was scored, in words."""
    missing: tuple[str, ...]
    """Recordings without a hypothesis; all their speech counts as missed."""
    warnings: tuple[str, ...]

    @property
    def errors(self) -> list[Components]:
        """Error components of each recording."""
        return [file.errors for file in self.files]

    @property
    def pooled(self) -> Components:
        """Sums over recordings; its `der` weighs each recording by its speech."""
        return sum(self.errors, Components())

    @property
    def merged(self) -> Components:
        """Sums over recordings, with all labels of the hypothesis joined to one."""
        return sum((file.merged for file in self.files), Components())

    @property
    def grid(self) -> Components:
        """Sums over recordings of the errors that the frame grid alone makes."""
        return sum((file.grid for file in self.files), Components())

    @property
    def causes(self) -> Causes:
        """Sums over recordings of where their errors come from."""
        return sum((file.causes for file in self.files), Causes())

    @property
    def mean_der(self) -> float | None:
        """Mean of the recordings' own DERs, where defined; each recording weighs the same."""
        return _mean(file.errors.der for file in self.files)

    @property
    def jer(self) -> float | None:
        """Mean over the speakers of all references."""
        num_speakers = sum(file.num_reference_speakers for file in self.files)
        return sum(file.jaccard_errors for file in self.files) / num_speakers if num_speakers else None

    @property
    def mean_count_error(self) -> float:
        """Mean over recordings of the absolute error of the number of speakers."""
        return sum(file.count_error for file in self.files) / len(self.files)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values: seconds, and rates where 1 is 100 % (None where not defined)."""
        interval = bootstrap_interval(self.errors)
        return {
            "collar_each_side_s": self.collar_s,
            "skip_overlap": self.skip_overlap,
            "region": self.region,
            "num_files": len(self.files),
            "pooled": {**asdict(self.pooled), "der": self.pooled.der, "jer": self.jer},
            "causes": asdict(self.causes),
            "der_interval_95": None if interval is None else list(interval),
            "mean_der": self.mean_der,
            "merged_der": self.merged.der,
            "grid_floor_der": self.grid.der,
            "mean_count_error": self.mean_count_error,
            "files": [{**asdict(file), "der": file.errors.der, "jer": file.jer} for file in self.files],
            "missing": list(self.missing),
            "warnings": list(self.warnings),
        }


def bootstrap_interval(
    files: Sequence[Components], *, num_resamples: int = 1000, seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of the pooled DER when recordings are drawn anew; None for fewer than two of them."""
    return _interval(_resampled_ders(files, num_resamples, seed))


def bootstrap_difference(
    a: Sequence[Components], b: Sequence[Components], *, num_resamples: int = 1000, seed: int = 0
) -> tuple[float, float] | None:
    """95 % interval of the pooled DER of `a` minus that of `b`, which scored the same recordings in the same order.

    Both are drawn together, so that what makes a recording hard for both does not widen the interval.

    Errors: ValueError for different numbers of recordings.
    """
    if len(a) != len(b):
        raise ValueError(f"paired scores need the same recordings: got {len(a)} and {len(b)}")
    ders = (_resampled_ders(files, num_resamples, seed) for files in (a, b))
    return _interval(next(ders) - next(ders))


def _resampled_ders(files: Sequence[Components], num_resamples: int, seed: int) -> Float[np.ndarray, " resamples"]:
    """Pooled DER of each resample: NaN where it holds no speech, none at all for fewer than two recordings."""
    if len(files) < 2:
        return np.zeros(0)
    errors_s = np.array([file.error_s for file in files])
    speech_s = np.array([file.speech_s for file in files])
    drawn: Int[np.ndarray, "resamples files"]
    drawn = np.random.default_rng(seed).integers(len(files), size=(num_resamples, len(files)))
    totals_s = speech_s[drawn].sum(axis=1)
    return np.divide(errors_s[drawn].sum(axis=1), totals_s, out=np.full(num_resamples, np.nan), where=totals_s > 0)


def _interval(values: Float[np.ndarray, " resamples"]) -> tuple[float, float] | None:
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    low, high = np.percentile(defined, [2.5, 97.5])
    return float(low), float(high)


def format_table(result: ScoreResult) -> str:
    """The scores as text: a Markdown table between lines of prose; rates in percent, `n/a` if undefined."""
    pooled, num_files = result.pooled, len(result.files)
    rows = [_row(f.uri, f.scored_s, f.errors, f.merged, f.jer, _speakers(f)) for f in result.files]
    scored_s = sum(file.scored_s for file in result.files)
    off = f"off by {result.mean_count_error:.2f} on average"
    rows.append(_row(f"pooled ({num_files})", scored_s, pooled, result.merged, result.jer, off))
    rates = [(file.errors.der, file.merged.der, file.jer) for file in result.files]
    means = [_percent(_mean(column)) for column in zip(*rates, strict=True)]
    rows.append([f"mean of recordings ({num_files})", *[""] * 5, *means, ""])
    lines = [*_conventions(result, scored_s), "", *markdown_table(TABLE_HEAD, rows), "", *_verdicts(result)]
    return "\n".join(lines)


def _conventions(result: ScoreResult, scored_s: float) -> list[str]:
    """What was scored, and how."""
    width = f" (NIST; {2 * result.collar_s:g} s in all)" if result.collar_s else ""
    overlap = "left out" if result.skip_overlap else "scored"
    return [
        f"region: {result.region}",
        f"collar: {result.collar_s:g} s each side{width}; overlap: {overlap}; scored time: {scored_s:.2f} s",
    ]


def _verdicts(result: ScoreResult) -> list[str]:
    """The pooled figure with its parts, how sure it is, and what to know when it looks odd."""
    pooled, interval = result.pooled, bootstrap_interval(result.errors)
    parts = {"miss": pooled.miss_s, "false alarm": pooled.false_alarm_s, "confusion": pooled.confusion_s}
    shares = [f"{name} {value:.2f} s ({_percent(pooled.rate(value))} %)" for name, value in parts.items()]
    lines = [
        f"pooled DER {_percent(pooled.der)} % = {' + '.join(shares)} of {pooled.speech_s:.2f} s of speech",
        f"mean DER of recordings {_percent(result.mean_der)} %",
        f"grid floor {_percent(result.grid.der)} % (the reference itself on the grid of 80-ms frames)",
    ]
    if interval is not None:
        low, high = (_percent(bound) for bound in interval)
        lines.insert(1, f"95 % interval of the pooled DER {low} to {high} % (bootstrap over recordings)")
    if any(file.errors.der is None or file.errors.der > 1 for file in result.files):
        lines.append("a DER above 100 % (n/a without speech): more false alarm than the reference has speech")
    return lines


def _row(
    name: str, scored_s: float, errors: Components, merged: Components, jer: float | None, speakers: str
) -> list[str]:
    seconds = (scored_s, errors.speech_s, errors.miss_s, errors.false_alarm_s, errors.confusion_s)
    rates = (errors.der, merged.der, jer)
    return [name, *[f"{value:.2f}" for value in seconds], *[_percent(rate) for rate in rates], speakers]


def _speakers(file: FileScore) -> str:
    return f"{file.num_hypothesis_speakers} ({file.num_reference_speakers})"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], num_left: int = 1) -> list[str]:
    """Lines of a table, padded so that it reads as plain text too; all but the first columns to the right."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = ["<"] * num_left + [">"] * (len(widths) - num_left)
    lines = [
        " | ".join(f"{cell:{sign}{width}}" for cell, sign, width in zip(row, signs, widths, strict=True))
        for row in cells
    ]
    rule = ["-" * width if sign == "<" else "-" * (width - 1) + ":" for sign, width in zip(signs, widths, strict=True)]
    return [f"| {line} |" for line in (lines[0], " | ".join(rule), *lines[1:])]


def _percent(rate: float | None) -> str:
    return "n/a" if rate is None else f"{100 * rate:.2f}"


def _mean(values: Iterable[float | None]) -> float | None:
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None
