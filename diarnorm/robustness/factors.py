"""What came of each corruption over all of its severities."""

from collections.abc import Iterable
from dataclasses import dataclass

from diarnorm.robustness.rows import FAILS, Row, worst_verdict
from diarnorm.robustness.study import Study


@dataclass(frozen=True)
class Factor:
    """A model under all severities of one corruption: the worst verdict, and of the rows that have it the one in which
    the DER grew most."""

    set_name: str
    model: str
    factor: str
    verdict: str | None
    worst: Row

    @property
    def at(self) -> str:
        """Severity of that row; of several corruptions those of all."""
        return ", ".join(word.partition("=")[2] for word in self.worst.condition.split())


def factors_of(study: Study, rows: Iterable[Row]) -> list[Factor]:
    """Every corruption of every set for every model, over those of its severities that have a margin, or that fail in
    something else, such as speech in silence; over all, where there are none."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    factors = {each.name: each.factor for each in study.conditions if not (each.is_clean or each.is_alone)}
    for row in rows:
        if row.set_name in study.recordings and row.condition in factors:
            groups.setdefault((row.set_name, factors[row.condition], row.model), []).append(row)
    found: list[Factor] = []
    for (set_name, factor, model), group in groups.items():
        judged = [row for row in group if row.margin is not None or row.outcome == FAILS] or group
        verdict = worst_verdict(row.outcome for row in judged)
        guilty = [row for row in judged if row.outcome == verdict]
        worst = max(guilty, key=lambda row: float("-inf") if row.change.points is None else row.change.points)
        found.append(Factor(set_name, model, factor, verdict, worst))
    return found
