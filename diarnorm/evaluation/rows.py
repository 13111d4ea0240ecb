"""One line of figures: a model on some recordings, or the difference of two."""

from collections.abc import Sequence
from dataclasses import dataclass

from diarnorm.evaluation.causes import Causes
from diarnorm.evaluation.labels import LabelScore
from diarnorm.evaluation.results import Result, Shard
from diarnorm.evaluation.scores import Components, FileScore, ScoreResult, bootstrap_difference, bootstrap_interval

POOLED, GROUP, RECORDING = "pooled", "group", "recording"
DIFFERENCE, GROUP_DIFFERENCE = "difference", "group_difference"
FAMILY, FAMILY_DIFFERENCE = "family", "family_difference"
"""Kinds of rows."""


@dataclass(frozen=True)
class Row:
    """One line of figures; rates are shares, where 1 is 100 %, and None where not defined.

    In a row of differences `der` and its interval are `model` less `minus`, all else is left out. The figures of a
    family are means over its members; its interval is that over recordings, `members_low` to `members_high` that over
    members.
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
    members_low: float | None = None
    members_high: float | None = None
    num_members: int = 1
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
    causes: Causes | None = None
    """Where the errors come from."""

    def cause(self, name: str) -> float | None:
        """A field of `causes` as a share of the reference's speech."""
        if self.causes is None or self.speech_s is None:
            return None
        return Components(speech_s=self.speech_s).rate(getattr(self.causes, name))


def make_row(
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
    pooled, low_high = scored.pooled, bootstrap_interval(scored.errors, **resampling(shard))
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
        causes=scored.causes,
    )


def make_difference(
    shard: Shard,
    model: str,
    a: Sequence[Components],
    minus: str,
    b: Sequence[Components],
    set_name: str,
    at: int,
    group: str | None = None,
) -> Row:
    """DER of one less that of another, on the same recordings: those of a set, or of a group of it."""
    ders = sum(a, Components()).der, sum(b, Components()).der
    low_high = bootstrap_difference(a, b, **resampling(shard))
    return Row(
        DIFFERENCE if group is None else GROUP_DIFFERENCE,
        set_name,
        model,
        shard.heading.settings["collars_s"][at],
        len(a),
        minus=minus,
        group=group,
        der=None if ders[0] is None or ders[1] is None else ders[0] - ders[1],
        der_low=None if low_high is None else low_high[0],
        der_high=None if low_high is None else low_high[1],
    )


def resampling(shard: Shard) -> dict[str, int]:
    return {name: shard.heading.settings[name] for name in ("num_resamples", "seed")}


def errors_of(results: Sequence[Result], at: int) -> list[Components]:
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
