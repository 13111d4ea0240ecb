"""Models that are one model trained several times, as with several seeds: their mean, and how far they lie apart.

The mean of a family has two intervals, both 95 %: over its members (Student's t, which with three seeds is wide, as it
should be), and over recordings (bootstrap, the same recordings for every member).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import sqrt
from statistics import mean, stdev
from typing import NamedTuple

from diarnorm.evaluation.config import NO_GROUPS
from diarnorm.evaluation.results import Result, Shard
from diarnorm.evaluation.rows import (
    FAMILY,
    FAMILY_DIFFERENCE,
    POOLED,
    Row,
    errors_of,
    make_difference,
    make_row,
    resampling,
)
from diarnorm.evaluation.scores import Components, bootstrap_interval

MEANS = ("miss", "false_alarm", "confusion", "merged_der", "mean_der", "jer", "count_error", "rtf")
NONE_OF_IT = ("label_switches_per_hour", "num_recognised", "num_returned", "scored_s", "speech_s", "miss_s")
NONE_OF_IT += ("false_alarm_s", "confusion_s", "merged_error_s", "duration_s", "causes")
"""Figures of a family's row that are means over its members, and those that it has not."""


class Spread(NamedTuple):
    """Mean of the members' figures, and its interval where there are two or more."""

    mean: float
    low: float | None
    high: float | None


def families(models: Iterable[str], family_by: str) -> dict[str, list[str]]:
    """Members of each family of two or more, by what the one group of `family_by` finds in their names.

    >>> families(["rms-0", "rms-1", "layer-0", "layer-1", "none"], r"^(.+)-\\d$")
    {'rms': ['rms-0', 'rms-1'], 'layer': ['layer-0', 'layer-1']}
    """
    found: dict[str, list[str]] = {}
    for model in models if family_by != NO_GROUPS else ():
        match = re.search(family_by, model)
        if match and match[1]:
            found.setdefault(match[1], []).append(model)
    return {name: members for name, members in found.items() if len(members) > 1}


def spread(values: Sequence[float]) -> Spread:
    """Mean and Student's 95 % interval of figures of several members.

    >>> [round(value, 3) for value in spread([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    centre = mean(values)
    if len(values) < 2:
        return Spread(centre, None, None)
    from scipy.stats import t

    reach = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return Spread(centre, centre - reach, centre + reach)


def summed(members: Sequence[Sequence[Components]]) -> list[Components]:
    """Seconds of each recording, summed over members: their pooled DER is the mean of the members' own.

    Errors: ValueError where members scored different numbers of recordings.
    """
    return [sum(parts, Components()) for parts in zip(*members, strict=True)]


def family_row(shard: Shard, family: str, members: Sequence[Sequence[Result]], at: int) -> Row:
    """Means over the members of a family on one set."""
    rows = [make_row(POOLED, shard, results, at) for results in members]
    sums = summed([errors_of(results, at) for results in members])
    low_high = bootstrap_interval(sums, **resampling(shard))
    ders = _ders(members, at)
    over_members = None if ders is None else spread(ders)
    return replace(
        rows[0],
        kind=FAMILY,
        model=family,
        num_members=len(members),
        der=None if over_members is None else over_members.mean,
        der_low=None if low_high is None else low_high[0],
        der_high=None if low_high is None else low_high[1],
        members_low=None if over_members is None else over_members.low,
        members_high=None if over_members is None else over_members.high,
        **{name: _mean([getattr(row, name) for row in rows]) for name in MEANS},
        num_long=0,
        **dict.fromkeys(NONE_OF_IT),
    )


def family_difference(
    shard: Shard, family: str, a: Sequence[Sequence[Result]], minus: str, b: Sequence[Sequence[Result]], at: int
) -> Row:
    """Mean DER of one family less that of another; families of one size are taken member by member, in their order."""
    sums = [summed([errors_of(results, at) for results in members]) for members in (a, b)]
    row = make_difference(shard, family, sums[0], minus, sums[1], a[0][0].set_name, at)
    first, second = _ders(a, at), _ders(b, at)
    over = None
    if first is not None and second is not None and len(first) == len(second):
        over = spread([x - y for x, y in zip(first, second, strict=True)])
    low, high = (None, None) if over is None else (over.low, over.high)
    return replace(row, kind=FAMILY_DIFFERENCE, num_members=len(a), members_low=low, members_high=high)


def _ders(members: Sequence[Sequence[Result]], at: int) -> list[float] | None:
    """Pooled DER of each member; None where there is no speech."""
    ders = [sum(errors_of(results, at), Components()).der for results in members]
    return None if None in ders else [der for der in ders if der is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is not defined."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined and len(defined) == len(values) else None
