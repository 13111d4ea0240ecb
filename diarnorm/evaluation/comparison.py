"""From the seconds of recordings to rows: every model on every set, pooled, by group, and against the others.

DER and its parts are pooled over seconds. Intervals are 95 %, by bootstrap over the recordings of a set; differences
between two models draw the same recordings for both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from diarnorm.evaluation.config import group_of
from diarnorm.evaluation.families import families, family_difference, family_row
from diarnorm.evaluation.results import Result, Shard
from diarnorm.evaluation.rows import (
    DIFFERENCE,
    FAMILY,
    FAMILY_DIFFERENCE,
    GROUP,
    GROUP_DIFFERENCE,
    POOLED,
    RECORDING,
    Row,
    errors_of,
    make_difference,
    make_row,
)

MERGED = "its merged output"
"""What stands in a row of differences for the same activity with one label."""


@dataclass(frozen=True)
class Comparison:
    """All rows of an evaluation, and what it was made from."""

    shard: Shard
    rows: tuple[Row, ...]

    def of_kind(self, kind: str, collar_s: float | None = None) -> list[Row]:
        """Rows of one kind, of one collar (each side) where it is given."""
        return [row for row in self.rows if row.kind == kind and collar_s in (None, row.collar_each_side_s)]

    def with_groups(self, collar_s: float) -> list[Row]:
        """Every model on every set, and after each its groups, with one collar (each side)."""
        groups = self.of_kind(GROUP, collar_s)
        return [
            row
            for pooled in self.of_kind(POOLED, collar_s)
            for row in (pooled, *(g for g in groups if (g.set_name, g.model) == (pooled.set_name, pooled.model)))
        ]

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


KINDS = (FAMILY, FAMILY_DIFFERENCE, POOLED, DIFFERENCE, GROUP, GROUP_DIFFERENCE, RECORDING)
"""Kinds of rows in their order."""


def _order_of_kind(row: Row) -> int:
    return KINDS.index(row.kind)


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
        yield make_row(POOLED, shard, results, at)
        for group in found if len(found) > 1 else ():
            yield make_row(GROUP, shard, [each for each in results if groups[each.recording] == group], at, group=group)
        for each in results:
            yield make_row(RECORDING, shard, [each], at, group=groups[each.recording], recording=each.recording)
    yield from _differences(shard, own, at)
    for group in found if len(found) > 1 else ():
        part = {model: [each for each in results if groups[each.recording] == group] for model, results in own.items()}
        yield from _differences(shard, part, at, group)
    yield from _rows_of_families(shard, own, at)


def _differences(shard: Shard, own: Mapping[str, Sequence[Result]], at: int, group: str | None = None) -> Iterator[Row]:
    """Every model less every other one and less its merged output; `own` are results on the same recordings."""
    set_name = next(iter(own.values()))[0].set_name
    for (model, a), (other, b) in combinations(own.items(), 2):
        yield make_difference(shard, model, errors_of(a, at), other, errors_of(b, at), set_name, at, group)
    for model, results in own.items():
        merged = [result.scores[at].merged for result in results]
        yield make_difference(shard, model, errors_of(results, at), MERGED, merged, set_name, at, group)


def _rows_of_families(shard: Shard, own: dict[str, list[Result]], at: int) -> Iterator[Row]:
    """Rows of models that were trained several times; `own` are the results of each model."""
    found = families(own, shard.heading.settings["family_by"])
    kin = {family: [own[member] for member in members] for family, members in found.items()}
    for family, members in kin.items():
        yield family_row(shard, family, members, at)
    for (family, a), (other, b) in combinations(kin.items(), 2):
        yield family_difference(shard, family, a, other, b, at)
