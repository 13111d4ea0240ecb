"""Front ends times norms: what each condition costs a kind of model, and norms behind one front end beside one another.

All models of a norm behind a front end are of one kind: give those that differ in their seed alone. Their seconds are
added up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy import stats

from diarnorm.evaluation.scores import Components
from diarnorm.robustness.conditions import CLEAN, Condition
from diarnorm.robustness.intervals import FEW, draws, figure, pull_of, ratios, spread_of, student
from diarnorm.robustness.records import Record
from diarnorm.robustness.rows import Change, Row, worst_verdict
from diarnorm.robustness.study import Study
from diarnorm.robustness.summary import change_of, errors_of, pooled, records_of

LEVEL = 0.05
"""Most share of differences that are none among those that stand."""
NO_SPREAD = 1e-9
"""Points below which a difference is rounding."""


@dataclass(frozen=True)
class Cell:
    """Models of one norm behind one front end, their seconds together, under one condition. `verdict`: on the DER;
    `outcome`: the worst of it and of what their rows say of silence and labels."""

    set_name: str
    condition: str
    frontend: str
    norm: str
    models: tuple[str, ...]
    clean_der: float | None
    change: Change
    verdict: str | None
    outcome: str | None


@dataclass(frozen=True)
class Contrast:
    """How much more a condition costs one norm than `other`, behind one front end, in points of DER.

    Attributes:
        difference: of the changes, with its 95 % interval by paired bootstrap over recordings, of few by Student's
            distribution, see `intervals`.
        p: two-sided, by Student's distribution; None for fewer than two recordings.
        stands: whether it is still there when all contrasts of the set are looked at together (Y. Benjamini and
            Y. Hochberg, 1995).
    """

    set_name: str
    condition: str
    frontend: str
    norm: str
    other: str
    difference: Change
    p: float | None
    stands: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether its own interval leaves out 0."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True)
class _Kind:
    """Scores of all models of a kind, before and after, recording by recording."""

    models: tuple[str, ...]
    clean: tuple[Sequence[Components], ...]
    changed: tuple[Sequence[Components], ...]


def cells_of(study: Study, rows: Iterable[Row]) -> list[Cell]:
    """Front ends times norms under every condition but the clean one, where the models have more than one of either."""
    verdicts = {(row.set_name, row.condition, row.model): row.others for row in rows}
    cells: list[Cell] = []
    for set_name, condition, kinds in _places(study):
        for (frontend, norm), kind in kinds.items():
            change = change_of(study, kind.changed, kind.clean)
            verdict = change.verdict(condition.margin)
            theirs = [word for model in kind.models for word in verdicts.get((set_name, condition.name, model), ())]
            der = pooled(score for scores in kind.clean for score in scores).der
            outcome = worst_verdict([verdict, *theirs])
            cells.append(Cell(set_name, condition.name, frontend, norm, kind.models, der, change, verdict, outcome))
    return cells


def contrasts_of(study: Study) -> list[Contrast]:
    """Every two norms behind each front end under every condition of a set."""
    found: list[Contrast] = []
    for set_name, condition, kinds in _places(study):
        for (frontend, norm), (its, other) in combinations(kinds, 2):
            if frontend == its:
                difference, p = _difference(study, kinds[frontend, norm], kinds[its, other])
                found.append(Contrast(set_name, condition.name, frontend, norm, other, difference, p))
    return [each for name in study.recordings for each in _standing([one for one in found if one.set_name == name])]


def _standing(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The contrasts of a set, with those marked that are there when all are looked at together."""
    tested = [each.p for each in contrasts if each.p is not None]
    adjusted = iter(stats.false_discovery_control(tested) if tested else ())
    return [
        each if each.p is None else replace(each, stands=bool(next(adjusted) <= LEVEL and each.is_apart))
        for each in contrasts
    ]


def _places(study: Study) -> Iterable[tuple[str, Condition, dict[tuple[str, str], _Kind]]]:
    """Sets and conditions but the clean one, with all kinds of models that have scores there."""
    kinds = {name: (facts["frontend"], facts["norm"]) for name, facts in study.models.items()}
    if len(set(kinds.values())) < 2:
        return
    for set_name in study.recordings:
        for condition in study.conditions:
            if condition.is_clean or condition.is_alone:
                continue
            found = {
                kind: _kind(study, [name for name, own in kinds.items() if own == kind], set_name, condition)
                for kind in dict.fromkeys(kinds.values())
            }
            if all(kind.changed[0] for kind in found.values()):
                yield set_name, condition, found


def _kind(study: Study, models: Sequence[str], set_name: str, condition: Condition) -> _Kind:
    groups = [records_of(study, model, set_name, condition) for model in models]

    def before(record: Record) -> Record:
        return study.records[record.model, set_name, record.recording, CLEAN]

    clean = tuple(errors_of(map(before, group)) for group in groups)
    return _Kind(tuple(models), clean, tuple(map(errors_of, groups)))


def _difference(study: Study, one: _Kind, other: _Kind) -> tuple[Change, float | None]:
    """Change of the one less that of the other, and how likely chance alone makes one as large."""
    terms = [(1, one.changed), (-1, one.clean), (-1, other.changed), (1, other.clean)]
    value, resampled, pull = 0.0, np.zeros(1), np.zeros(1)
    for sign, scores in terms:
        recordings = [pooled(some) for some in zip(*scores, strict=True)]
        der = pooled(recordings).der
        if der is None:
            return Change(None, None, None), None
        errors_s, speech_s = np.array([(each.error_s, each.speech_s) for each in recordings]).T
        drawn = draws(len(recordings), study.config.num_resamples, study.config.seed)
        value += 100 * sign * der
        resampled = resampled + 100 * sign * ratios(errors_s, speech_s, drawn)
        pull = pull + 100 * sign * pull_of(errors_s, speech_s)
    chance = _chance(value, pull)
    if 2 <= len(pull) < FEW:
        return Change(value, *student(value, pull)), chance
    found = figure(value, resampled, len(pull))
    return Change(found.value, found.low, found.high), chance


def _chance(value: float, pull: Float[np.ndarray, " recordings"]) -> float | None:
    """How likely a difference as large comes from nothing, by what each recording adds to it: Student's paired test,
    which of recordings with as much speech each it is exactly."""
    free = len(pull) - 1
    if free < 1:
        return None
    spread = spread_of(pull)
    if spread < NO_SPREAD:
        return float(abs(value) < NO_SPREAD)
    return float(2 * stats.t.sf(abs(value) / spread, free))
