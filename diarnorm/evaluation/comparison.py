"""From the seconds of recordings to rows: every model on every set, pooled, by group, and against the others.

DER and its parts are pooled over seconds. Intervals are 95 %, by bootstrap over the recordings of a set; differences
between two models draw the same recordings for both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from diarnorm.evaluation.config import group_of
from diarnorm.evaluation.labels import LabelScore
from diarnorm.evaluation.results import Result, Shard
from diarnorm.evaluation.scores import Components, FileScore, ScoreResult, bootstrap_difference, bootstrap_interval

POOLED, GROUP, RECORDING, DIFFERENCE = "pooled", "group", "recording", "difference"
"""Kinds of rows."""
MERGED = "its merged output"
"""What stands in a row of differences for the same activity with one label."""


@dataclass(frozen=True)
class Row:
    """One line of figures; rates are shares, where 1 is 100 %, and None where not defined.

    In a row of differences `der` and its interval are `model` less `minus`, all else is left out.
    """

    kind: str
    set_name: str
    model: str
    collar_each_side_s: float
    num_recordings: int
    minus: str | None = None
    group: str | None = None
    recording: str | None = None
    der: float | None = None
    der_low: float | None = None
    der_high: float | None = None
    miss: float | None = None
    false_alarm: float | None = None
    confusion: float | None = None
    merged_der: float | None = None
    mean_der: float | None = None
    """Mean of the recordings' own DERs, each weighing the same; `der` is pooled over seconds."""
    grid_floor_der: float | None = None
    """DER of the reference itself on the grid of 80-ms frames."""
    jer: float | None = None
    count_error: float | None = None
    num_reference_speakers: int | None = None
    num_hypothesis_speakers: int | None = None
    rtf: float | None = None
    label_switches_per_hour: float | None = None
    num_recognised: int | None = None
    num_returned: int | None = None
    num_long: int = 0
    """Recordings long enough for the figures on labels."""
    scored_s: float | None = None
    speech_s: float | None = None
    miss_s: float | None = None
    false_alarm_s: float | None = None
    confusion_s: float | None = None
    merged_error_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True)
class Comparison:
    """All rows of an evaluation, and what it was made from."""

    shard: Shard
    rows: tuple[Row, ...]

    def of_kind(self, kind: str, collar_s: float | None = None) -> list[Row]:
        """Rows of one kind, of one collar (each side) where it is given."""
        return [row for row in self.rows if row.kind == kind and collar_s in (None, row.collar_each_side_s)]

    @property
    def collars_s(self) -> list[float]:
        """Collars on each side, the headline's first."""
        return self.shard.heading.settings["collars_s"]

    @property
    def missing(self) -> list[str]:
        """Results without a hypothesis, as sentences."""
        return [f"{r.set_name}: {r.recording} by {r.model}" for r in self.shard.results if r.missing]


def compare(shard: Shard) -> Comparison:
    """Every row of an evaluation whose shards are merged."""
    rows: list[Row] = []
    for at in range(len(shard.heading.settings["collars_s"])):
        for set_name in shard.heading.sets:
            rows += _rows_of_set(shard, set_name, at)
    return Comparison(shard, tuple(sorted(rows, key=_order_of_kind)))


def _by_number(group: str) -> tuple[int, str]:
    """Numbers in their order, then words in theirs."""
    return (int(group), "") if group.isdecimal() else (1 << 62, group)


def _order_of_kind(row: Row) -> int:
    return (POOLED, DIFFERENCE, GROUP, RECORDING).index(row.kind)


def _rows_of_set(shard: Shard, set_name: str, at: int) -> Iterator[Row]:
    """Rows of one set with the collar number `at`."""
    settings = shard.heading.settings
    own = {
        model: [result for result in shard.results if (result.set_name, result.model) == (set_name, model)]
        for model in shard.heading.models
    }
    groups = {
        result.recording: group_of(result.recording, result.scores[0].num_reference_speakers, settings["group_by"])
        for results in own.values()
        for result in results
    }
    found = sorted({group for group in groups.values() if group is not None}, key=_by_number)
    for results in own.values():
        yield _row(POOLED, shard, results, at)
        for group in found if len(found) > 1 else ():
            yield _row(GROUP, shard, [each for each in results if groups[each.recording] == group], at, group=group)
        for each in results:
            yield _row(RECORDING, shard, [each], at, group=groups[each.recording], recording=each.recording)
    for (model, a), (other, b) in combinations(own.items(), 2):
        yield _difference(shard, model, _errors(a, at), other, _errors(b, at), set_name, at)
    for model, results in own.items():
        merged = [result.scores[at].merged for result in results]
        yield _difference(shard, model, _errors(results, at), MERGED, merged, set_name, at)


def _row(
    kind: str,
    shard: Shard,
    results: Sequence[Result],
    at: int,
    group: str | None = None,
    recording: str | None = None,
) -> Row:
    """Figures of one model on some recordings of one set."""
    settings = shard.heading.settings
    collar_s = settings["collars_s"][at]
    files = tuple(result.scores[at] for result in results)
    scored = ScoreResult(files, collar_s, settings["skip_overlap"], "", (), ())
    pooled, low_high = scored.pooled, bootstrap_interval(scored.errors, **_resampling(shard))
    labels = [result.labels for result in results if result.labels is not None]
    steady = sum(labels, LabelScore())
    return Row(
        kind,
        results[0].set_name,
        results[0].model,
        collar_s,
        len(files),
        group=group,
        recording=recording,
        der=pooled.der,
        der_low=None if low_high is None else low_high[0],
        der_high=None if low_high is None else low_high[1],
        miss=pooled.rate(pooled.miss_s),
        false_alarm=pooled.rate(pooled.false_alarm_s),
        confusion=pooled.rate(pooled.confusion_s),
        merged_der=scored.merged.der,
        mean_der=scored.mean_der,
        grid_floor_der=scored.grid.der,
        jer=scored.jer,
        count_error=scored.mean_count_error,
        num_reference_speakers=_one(files).num_reference_speakers if kind == RECORDING else None,
        num_hypothesis_speakers=_one(files).num_hypothesis_speakers if kind == RECORDING else None,
        rtf=_rtf(results),
        label_switches_per_hour=steady.switches_per_hour,
        num_recognised=steady.num_recognised if labels else None,
        num_returned=steady.num_returned if labels else None,
        num_long=len(labels),
        scored_s=sum(file.scored_s for file in files),
        speech_s=pooled.speech_s,
        miss_s=pooled.miss_s,
        false_alarm_s=pooled.false_alarm_s,
        confusion_s=pooled.confusion_s,
        merged_error_s=scored.merged.error_s,
        duration_s=_total_s(results),
    )


def _difference(
    shard: Shard,
    model: str,
    a: Sequence[Components],
    minus: str,
    b: Sequence[Components],
    set_name: str,
    at: int,
) -> Row:
    """DER of one less that of another, on the same recordings."""
    ders = sum(a, Components()).der, sum(b, Components()).der
    low_high = bootstrap_difference(a, b, **_resampling(shard))
    return Row(
        DIFFERENCE,
        set_name,
        model,
        shard.heading.settings["collars_s"][at],
        len(a),
        minus=minus,
        der=None if ders[0] is None or ders[1] is None else ders[0] - ders[1],
        der_low=None if low_high is None else low_high[0],
        der_high=None if low_high is None else low_high[1],
    )


def _resampling(shard: Shard) -> dict[str, int]:
    return {name: shard.heading.settings[name] for name in ("num_resamples", "seed")}


def _errors(results: Sequence[Result], at: int) -> list[Components]:
    return [result.scores[at].errors for result in results]


def _one(files: Sequence[FileScore]) -> FileScore:
    (file,) = files
    return file


def _total_s(results: Sequence[Result]) -> float | None:
    """Length of all recordings; None where one is not known."""
    durations_s = [result.duration_s for result in results if result.duration_s is not None]
    return sum(durations_s) if len(durations_s) == len(results) else None


def _rtf(results: Sequence[Result]) -> float | None:
    """Working time per time of audio; None where the model did not run."""
    busy_s = [result.busy_s for result in results if result.busy_s is not None]
    total_s = _total_s(results)
    return sum(busy_s) / total_s if len(busy_s) == len(results) and total_s else None
