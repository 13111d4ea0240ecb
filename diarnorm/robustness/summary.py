"""Records pooled over recordings: what each condition costs each model, and whether it keeps its margin.

A margin is kept (`holds`) when the whole 95 % interval of the change of the pooled DER lies within it, broken (`fails`)
when the whole interval lies beyond it, and else the recordings do not tell (`undecided`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from diarnorm.evaluation.scores import Components, bootstrap_difference
from diarnorm.robustness.conditions import CLEAN, Condition
from diarnorm.robustness.records import Record
from diarnorm.robustness.study import Study

HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
WORST = (FAILS, UNDECIDED, HOLDS)


@dataclass(frozen=True)
class Change:
    """Change of the pooled DER against the clean recordings, in points, with its 95 % interval.

    `low` and `high` are None for fewer than two recordings, everything is where there is no speech.
    """

    points: float | None
    low: float | None
    high: float | None

    def verdict(self, margin: float | None) -> str | None:
        """Whether it keeps the margin; None where there is no margin or nothing to judge."""
        if margin is None or self.points is None:
            return None
        if self.low is None or self.high is None:
            return UNDECIDED
        return HOLDS if self.high <= margin else FAILS if self.low > margin else UNDECIDED


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
        labels_added: mean number of labels more than in the clean run; `most_labels_added` in one recording.
        drift: mean over recordings.
        rms, clean_rms: of the residual stream after each block; `event_rms` in the changed pieces.
        attention: share of the attention on changed frames, `clean_attention` in the clean run on the same, and
            `uniform_attention`, what their number alone would make it.
        num_events: changes after which recovery can be seen; `recovered` is the share of those after which it was.
        recovery_s: median; None where half of them or more did not recover.
        dc_percent: mean magnitude of the offset, % of full scale.
        level_dbfs: median level of the raw input.
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

    @property
    def outcome(self) -> str | None:
        """The worse of both verdicts."""
        return worst_verdict([self.verdict, self.quiet_verdict])


@dataclass(frozen=True)
class Cell:
    """Models of one norm behind one front end, their seconds together, under one condition."""

    set_name: str
    condition: str
    frontend: str
    norm: str
    num_models: int
    clean_der: float | None
    change: Change
    verdict: str | None


def rows_of(study: Study) -> list[Row]:
    """A row for every set, condition and model, in this order; silence alone comes last, as a set of its own."""
    rows: list[Row] = []
    for set_name in dict.fromkeys(place[1] for place in study.records):
        for condition in study.conditions:
            for model in study.columns:
                records = _records(study, model, set_name, condition)
                if records:
                    clean = [study.records.get((model, set_name, each.recording, CLEAN)) for each in records]
                    rows.append(_row(study, condition, records, [each for each in clean if each is not None]))
    return rows


def _records(study: Study, model: str, set_name: str, condition: Condition) -> list[Record]:
    names = study.recordings.get(set_name)
    if (names is None) != condition.is_alone:
        return []
    places = [(model, set_name, name, condition.name) for name in (names if names is not None else (set_name,))]
    return [study.records[place] for place in places if place in study.records]


def _row(study: Study, condition: Condition, records: Sequence[Record], clean: Sequence[Record]) -> Row:
    alone = condition.is_alone
    change = Change(None, None, None) if alone else change_of(study, [_errors(records)], [_errors(clean)])
    verdict = change.verdict(condition.margin)
    num_turns = sum(each.num_turns for each in records)
    inserted_s, inserted_speech_s = (
        sum(getattr(each, name) for each in records) for name in ("inserted_s", "inserted_speech_s")
    )
    added = [ours.num_speakers - theirs.num_speakers for ours, theirs in zip(records, clean, strict=False)]
    recoveries = [value for each in records for value in each.recovery_s]
    return Row(
        records[0].set_name,
        records[0].model,
        condition.name,
        len(records),
        _pooled(each.errors for each in records),
        _pooled(each.errors for each in clean),
        _pooled(each.merged for each in records),
        change,
        condition.margin,
        (HOLDS if num_turns == 0 else FAILS) if alone else None if condition.is_clean else verdict,
        _halves(records) if condition.with_halves else (),
        _halves(clean) if condition.with_halves else (),
        sum(each.merged.false_alarm_s for each in records),
        sum(each.merged.false_alarm_s for each in clean),
        sum(each.event_s for each in records),
        sum(each.event_speech_s for each in records),
        inserted_s,
        inserted_speech_s,
        _quiet_verdict(inserted_s, inserted_speech_s) if condition.is_quiet else None,
        num_turns,
        float(np.mean(added)) if added else 0.0,
        max(added, default=0),
        _mean([each.drift for each in records]),
        _means([each.rms for each in records]),
        _means([each.rms for each in clean]),
        _means([each.event_rms for each in records]),
        _means([each.attention for each in records]),
        _means([each.clean_attention for each in records]),
        _mean([each.uniform_attention for each in records]),
        len(recoveries),
        sum(value is not None for value in recoveries) / len(recoveries) if recoveries else None,
        _median(recoveries),
        100 * float(np.mean([abs(each.dc) for each in records])),
        float(np.median([each.level_dbfs for each in records])),
    )


def _quiet_verdict(looked_at_s: float, speech_s: float) -> str:
    """Whether nobody was heard in silence; where nothing of it was looked at, nobody knows."""
    if looked_at_s == 0:
        return UNDECIDED
    return HOLDS if speech_s == 0 else FAILS


def change_of(study: Study, changed: Sequence[Sequence[Components]], clean: Sequence[Sequence[Components]]) -> Change:
    """Change from models' scores of the same recordings: those of several models on a recording are added up."""
    ours, theirs = ([_pooled(scores) for scores in zip(*each, strict=True)] for each in (changed, clean))
    after, before = _pooled(ours).der, _pooled(theirs).der
    if after is None or before is None:
        return Change(None, None, None)
    config = study.config
    interval = bootstrap_difference(ours, theirs, num_resamples=config.num_resamples, seed=config.seed)
    low, high = (None, None) if interval is None else (100 * bound for bound in interval)
    return Change(100 * (after - before), low, high)


def cells_of(study: Study) -> list[Cell]:
    """Front ends times norms under every condition but the clean one, where the models have more than one of either."""
    kinds = {name: (facts["frontend"], facts["norm"]) for name, facts in study.models.items()}
    if len(set(kinds.values())) < 2:
        return []
    cells: list[Cell] = []
    for set_name in study.recordings:
        for condition in study.conditions:
            for frontend, norm in dict.fromkeys(kinds.values()):
                models = [name for name, kind in kinds.items() if kind == (frontend, norm)]
                groups = [_records(study, model, set_name, condition) for model in models]
                if condition.is_clean or not groups[0]:
                    continue
                clean = [[study.records[(each.model, set_name, each.recording, CLEAN)] for each in g] for g in groups]
                change = change_of(study, [_errors(each) for each in groups], [_errors(each) for each in clean])
                der = _pooled(record.errors for group in clean for record in group).der
                verdict = change.verdict(condition.margin)
                cells.append(Cell(set_name, condition.name, frontend, norm, len(models), der, change, verdict))
    return cells


def pooled_ders(study: Study) -> dict[str, float]:
    """DER of every model on every clean set, where there is speech, by set and model."""
    rows = [row for row in rows_of(study) if row.condition == CLEAN]
    return {f"{row.set_name}.{row.model}": row.errors.der for row in rows if row.errors.der is not None}


def worst_verdict(verdicts: Iterable[str | None]) -> str | None:
    """The worst of several; None where there is none.

    >>> worst_verdict(["holds", None, "undecided"])
    'undecided'
    """
    found = set(verdicts)
    return next((word for word in WORST if word in found), None)


def _errors(records: Iterable[Record]) -> list[Components]:
    return [each.errors for each in records]


def _pooled(scores: Iterable[Components]) -> Components:
    return sum(scores, Components())


def _halves(records: Sequence[Record]) -> tuple[float | None, ...]:
    """Pooled DER of the first halves, and of the second."""
    return tuple(_pooled(halves).der for halves in zip(*(each.halves for each in records), strict=True))


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
