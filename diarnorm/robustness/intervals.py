"""Intervals over recordings: they are drawn anew with replacement, the same ones for every figure of a study.

Source: B. Efron and R. Tibshirani, "An Introduction to the Bootstrap", 1993 (percentile intervals). Percentiles of few
recordings lie too near to one another: intervals of fewer than `FEW` come from Student's distribution, but for medians.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import stats

FEW = 30
"""From so many recordings on intervals are percentiles; of ten normal values they miss the mean one time in ten."""

Draws = Int[np.ndarray, "resamples recordings"]
Resampled = Float[np.ndarray, " resamples"]


@dataclass(frozen=True)
class Figure:
    """A figure over recordings with its 95 % interval; None where it is not defined, ends for fewer than two."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@lru_cache(maxsize=64)
def draws(num_recordings: int, num_resamples: int, seed: int) -> Draws:
    """Numbers of the recordings of each resample."""
    drawn = np.random.default_rng(seed).integers(num_recordings, size=(num_resamples, num_recordings))
    drawn.setflags(write=False)
    return drawn


def ratios(parts: ArrayLike, wholes: ArrayLike, drawn: Draws) -> Resampled:
    """Sum of the parts over that of the wholes, per resample; NaN where there is nothing."""
    part, whole = (np.asarray(each, float)[drawn].sum(axis=1) for each in (parts, wholes))
    return np.divide(part, whole, out=np.full(len(drawn), np.nan), where=whole > 0)


def ratio_of(parts: Sequence[float], wholes: Sequence[float], num_resamples: int, seed: int) -> Figure:
    """Sum of the parts over that of the wholes; one of each for a recording."""
    if sum(wholes) <= 0:
        return Figure()
    value = sum(parts) / sum(wholes)
    if 2 <= len(parts) < FEW:
        return Figure(value, *student(value, pull_of(parts, wholes)))
    return figure(value, ratios(parts, wholes, draws(len(parts), num_resamples, seed)), len(parts))


def share_of(parts: Sequence[float], wholes: Sequence[float], num_resamples: int, seed: int) -> Figure:
    """`ratio_of` parts of the wholes, within 0 to 1, over the recordings that have something of the whole."""
    pairs = [(part, whole) for part, whole in zip(parts, wholes, strict=True) if whole > 0]
    found = ratio_of([part for part, _ in pairs], [whole for _, whole in pairs], num_resamples, seed)
    if found.low is None or found.high is None:
        return found
    return Figure(found.value, max(0.0, found.low), min(1.0, found.high))


def pull_of(parts: ArrayLike, wholes: ArrayLike) -> Float[np.ndarray, " recordings"]:
    """What each recording adds to the ratio of the sums, to first order: 0 in all."""
    part, whole = np.asarray(parts, float), np.asarray(wholes, float)
    return (part - part.sum() / whole.sum() * whole) / whole.sum()


def spread_of(pull: Float[np.ndarray, " recordings"]) -> float:
    """Standard error of a figure to which two recordings or more add this."""
    return float(np.sqrt(len(pull) / (len(pull) - 1) * np.square(pull).sum()))


def student(value: float, pull: Float[np.ndarray, " recordings"]) -> tuple[float, float]:
    """95 % interval of a figure by Student's distribution, which of recordings with as much speech each is exact."""
    reach = float(stats.t.ppf(0.975, len(pull) - 1)) * spread_of(pull)
    return value - reach, value + reach


def mean_of(values: Sequence[float | None], num_resamples: int, seed: int) -> Figure:
    """Mean over the recordings that have a value."""
    known = [value for value in values if value is not None]
    return ratio_of(known, [1.0] * len(known), num_resamples, seed)


def total_of(values: Sequence[float], num_resamples: int, seed: int) -> Figure:
    """Sum over all recordings."""
    if not values:
        return Figure()
    each, total = np.asarray(values, float), float(sum(values))
    if 2 <= len(each) < FEW:
        return Figure(total, *student(total, each - each.mean()))
    return figure(total, each[draws(len(each), num_resamples, seed)].sum(axis=1), len(each))


def median_of(groups: Sequence[Sequence[float | None]], num_resamples: int, seed: int) -> Figure:
    """Median of the values of all recordings, of which each may have several; those that are None are longer than any.
    None where half of them or more are."""
    most = max(map(len, groups), default=0)
    if most == 0:
        return Figure()
    table = np.full((len(groups), most), np.nan)
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = [np.inf if value is None else value for value in group]
    drawn = table[draws(len(groups), num_resamples, seed)].reshape(num_resamples, -1)
    some = drawn[~np.isnan(drawn).all(axis=1)]
    return figure(float(_medians(table.reshape(1, -1))[0]), _medians(some), len(groups), method="nearest")


def _medians(rows: Float[np.ndarray, "rows values"]) -> Float[np.ndarray, " rows"]:
    """Median of each row's numbers, infinite ones among them."""
    ordered = np.sort(rows, axis=1)  # NaN comes last
    number = (~np.isnan(rows)).sum(axis=1)
    lower, upper = (np.take_along_axis(ordered, at[:, None], axis=1)[:, 0] for at in ((number - 1) // 2, number // 2))
    return (lower + upper) / 2


def figure(
    value: float, resampled: Resampled, num_recordings: int, method: Literal["linear", "nearest"] = "linear"
) -> Figure:
    """A value with the 2.5th and 97.5th percentiles of its resamples; what is infinite is None."""
    defined = resampled[~np.isnan(resampled)]
    if num_recordings < 2 or not len(defined):
        return Figure(_finite(value))
    low, high = np.percentile(defined, [2.5, 97.5], method=method)
    return Figure(_finite(value), _finite(low), _finite(high))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
