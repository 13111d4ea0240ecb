"""Records pooled over recordings: what each condition costs each model, and whether it keeps its margin."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from diarnorm.evaluation.scores import Components, bootstrap_difference
from diarnorm.robustness.conditions import CLEAN, Condition
from diarnorm.robustness.config import RobustnessConfig
from diarnorm.robustness.intervals import FEW, Figure, mean_of, median_of, pull_of, share_of, student, total_of
from diarnorm.robustness.records import Record
from diarnorm.robustness.rows import FAILS, HOLDS, UNDECIDED, Change, Row, Spread
from diarnorm.robustness.study import Study

ONE_BY_ONE = 10
"""Up to so many recordings are told one by one."""
NO_SPEECH_S = 1e-3
"""What is less is rounding."""


def rows_of(study: Study) -> list[Row]:
    """A row for every set, condition and model, in this order; silence alone comes last, as a set of its own."""
    rows: list[Row] = []
    for set_name in dict.fromkeys(place[1] for place in study.records):
        for condition in study.conditions:
            for model in study.columns:
                records = records_of(study, model, set_name, condition)
                if records:
                    clean = [study.records.get((model, set_name, each.recording, CLEAN)) for each in records]
                    rows.append(_row(study, condition, records, [each for each in clean if each is not None]))
    return rows


def records_of(study: Study, model: str, set_name: str, condition: Condition) -> list[Record]:
    """Those of a model on a set under a condition, in the order of the recordings; silence is a set of its own."""
    names = study.recordings.get(set_name)
    if (names is None) != condition.is_alone:
        return []
    places = [(model, set_name, name, condition.name) for name in (names if names is not None else (set_name,))]
    return [study.records[place] for place in places if place in study.records]


def _row(study: Study, condition: Condition, records: Sequence[Record], clean: Sequence[Record]) -> Row:
    alone = condition.is_alone
    change = Change(None, None, None) if alone else change_of(study, [errors_of(records)], [errors_of(clean)])
    num_turns = sum(each.num_turns for each in records)
    verdict = (HOLDS if num_turns == 0 else FAILS) if alone else change.verdict(condition.margin)
    return Row(
        set_name=records[0].set_name,
        model=records[0].model,
        condition=condition.name,
        num_recordings=len(records),
        errors=pooled(each.errors for each in records),
        clean=pooled(each.errors for each in clean),
        merged=pooled(each.merged for each in records),
        change=change,
        margin=condition.margin,
        verdict=None if condition.is_clean else verdict,
        halves=_halves(records) if condition.with_halves else (),
        clean_halves=_halves(clean) if condition.with_halves else (),
        num_turns=num_turns,
        dc_percent=100 * float(np.mean([abs(each.dc) for each in records])),
        level_dbfs=float(np.median([each.level_dbfs for each in records])),
        speech_level_db=_median([each.speech_level_db for each in records if each.speech_level_db is not None]),
        spread=_spread(study, records, clean),
        **_speech(study, condition, records, clean),
        **_inside(records, clean),
        **_one_by_one(records, clean),
    )


def _speech(study: Study, condition: Condition, records: Sequence[Record], clean: Sequence[Record]) -> dict[str, Any]:
    """What a row says of speech where nobody speaks, and of labels."""
    names = ("event_s", "event_speech_s", "inserted_s", "inserted_speech_s")
    sums = {name: sum(getattr(each, name) for each in records) for name in names}
    added = [ours.num_speakers - theirs.num_speakers for ours, theirs in zip(records, clean, strict=False)]
    comparable = records if condition.comes_later else []
    after = [each.after_s for each in comparable]
    kept = share_of([each.same_labels_s for each in comparable], after, *_resampling(study.config))
    return {
        "false_speech_s": sum(each.merged.false_alarm_s for each in records),
        "clean_false_speech_s": sum(each.merged.false_alarm_s for each in clean),
        **sums,
        "quiet_verdict": _quiet_verdict(sums["inserted_s"], sums["inserted_speech_s"]) if condition.is_quiet else None,
        "labels_after_s": sum(after),
        "labels_kept": kept,
        "labels_verdict": _labels_verdict(kept, study.config.same_labels_share) if condition.keeps_labels else None,
        "labels_added": float(np.mean(added)) if added else 0.0,
        "most_labels_added": max(added, default=0),
    }


def _inside(records: Sequence[Record], clean: Sequence[Record]) -> dict[str, Any]:
    """What a row says of a model's inside."""
    recoveries = [value for each in records for value in each.recovery_s]
    return {
        "drift": _mean([each.drift for each in records]),
        "rms": _means([each.rms for each in records]),
        "clean_rms": _means([each.rms for each in clean]),
        "event_rms": _means([each.event_rms for each in records]),
        "attention": _means([each.attention for each in records]),
        "clean_attention": _means([each.clean_attention for each in records]),
        "uniform_attention": _mean([each.uniform_attention for each in records]),
        "num_events": len(recoveries),
        "recovered": sum(value is not None for value in recoveries) / len(recoveries) if recoveries else None,
        "recovery_s": _median(recoveries),
    }


def _one_by_one(records: Sequence[Record], clean: Sequence[Record]) -> dict[str, Any]:
    """Changes of single recordings, where they are few."""
    if len(records) > ONE_BY_ONE or len(clean) != len(records):
        return {"recordings": (), "changes": ()}
    pairs = [(ours.errors.der, theirs.errors.der) for ours, theirs in zip(records, clean, strict=True)]
    changes = tuple(None if a is None or b is None else 100 * (a - b) for a, b in pairs)
    return {"recordings": tuple(each.recording for each in records), "changes": changes}


def _spread(study: Study, records: Sequence[Record], clean: Sequence[Record]) -> Spread:
    how = _resampling(study.config)
    pairs = list(zip(records, clean, strict=True)) if len(clean) == len(records) else []
    over = [
        tuple(a / b if b > 0 else 1.0 for a, b in zip(ours.rms, theirs.rms, strict=True))
        for ours, theirs in pairs
        if ours.rms and theirs.rms  # nothing in a recording of less than a mel frame
    ]
    return Spread(
        mean_of([each.drift for each in records], *how),
        median_of([each.recovery_s for each in records], *how),
        total_of([ours.merged.false_alarm_s - theirs.merged.false_alarm_s for ours, theirs in pairs], *how),
        tuple(mean_of(block, *how) for block in zip(*over, strict=True)),
    )


def _resampling(config: RobustnessConfig) -> tuple[int, int]:
    return config.num_resamples, config.seed


def _labels_verdict(kept: Figure, least: float) -> str | None:
    """Whether labels stay; None where nobody speaks after a change."""
    if kept.value is None:
        return None
    if kept.low is None or kept.high is None:
        return UNDECIDED
    return HOLDS if kept.low >= least else FAILS if kept.high < least else UNDECIDED


def _quiet_verdict(looked_at_s: float, speech_s: float) -> str:
    """Whether nobody was heard in silence; where nothing of it was looked at, nobody knows."""
    if looked_at_s == 0:
        return UNDECIDED
    return HOLDS if speech_s < NO_SPEECH_S else FAILS


def change_of(study: Study, changed: Sequence[Sequence[Components]], clean: Sequence[Sequence[Components]]) -> Change:
    """Change from models' scores of the same recordings: those of several models on a recording are added up.

    Of few recordings with Student's interval, see `intervals`.
    """
    ours, theirs = ([pooled(scores) for scores in zip(*each, strict=True)] for each in (changed, clean))
    after, before = pooled(ours).der, pooled(theirs).der
    if after is None or before is None:
        return Change(None, None, None)
    points = 100 * (after - before)
    if 2 <= len(ours) < FEW:
        parts = (np.array([(each.error_s, each.speech_s) for each in some]).T for some in (ours, theirs))
        its, others = (pull_of(*each) for each in parts)
        return Change(points, *student(points, 100 * (its - others)))
    config = study.config
    interval = bootstrap_difference(ours, theirs, num_resamples=config.num_resamples, seed=config.seed)
    low, high = (None, None) if interval is None else (100 * bound for bound in interval)
    return Change(points, low, high)


def pooled_ders(study: Study) -> dict[str, float]:
    """DER of every model on every clean set, where there is speech, by set and model."""
    (clean,) = [each for each in study.conditions if each.is_clean]
    ders = {
        f"{name}.{model}": pooled(errors_of(records_of(study, model, name, clean))).der
        for name in study.recordings
        for model in study.columns
    }
    return {place: der for place, der in ders.items() if der is not None}


def errors_of(records: Iterable[Record]) -> list[Components]:
    """Parts of the DER of each record."""
    return [each.errors for each in records]


def pooled(scores: Iterable[Components]) -> Components:
    """Their sum."""
    return sum(scores, Components())


def _halves(records: Sequence[Record]) -> tuple[float | None, ...]:
    """Pooled DER of the first halves, and of the second."""
    return tuple(pooled(halves).der for halves in zip(*(each.halves for each in records), strict=True))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _means(values: Iterable[tuple[float, ...] | None]) -> tuple[float, ...] | None:
    known = [value for value in values if value]
    return tuple(np.mean(known, axis=0).tolist()) if known else None


def _median(values: Sequence[float | None]) -> float | None:
    """With those that are None as longer than any."""
    if not values:
        return None
    middle = float(np.median([float("inf") if value is None else value for value in values]))
    return middle if np.isfinite(middle) else None
