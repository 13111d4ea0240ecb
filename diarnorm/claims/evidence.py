"""What an experiment leaves behind: figures with their 95 % intervals, tables, and the numbers of its pictures."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
LARGEST_LOG = 700.0
"""Logarithm of about the largest number there is."""


@dataclass(frozen=True)
class Measure:
    """A figure with its 95 % interval: `value == low == high` where nothing is drawn at random, and from `-inf` to
    `inf` where something is but the interval is not known."""

    name: str
    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Measure":
        """The same in another unit, `factor` times as large a number (above 0)."""
        return Measure(self.name, factor * self.value, factor * self.low, factor * self.high)


@dataclass(frozen=True)
class Table:
    """Rows of words under a title; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Series:
    """A line of a plot, with intervals where `low` and `high` are given."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @classmethod
    def of(cls, name: str, x: Iterable[float], measures: Sequence[Measure]) -> "Series":
        """Figures with their intervals over `x`; a bound that is not known is not drawn.

        >>> Series.of("a", [1], [unbounded("x", 2.0)])
        Series(name='a', x=(1.0,), y=(2.0,), low=(2.0,), high=(2.0,))
        """
        low, high = ([each.low for each in measures], [each.high for each in measures])
        y = tuple(each.value for each in measures)
        bounds = (tuple(b if math.isfinite(b) else v for b, v in zip(own, y, strict=True)) for own in (low, high))
        return cls(name, tuple(map(float, x)), y, *bounds)


@dataclass(frozen=True)
class Plot:
    """The numbers of a picture."""

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    lines: tuple[float, ...] = ()
    """Heights of horizontal reference lines."""
    top: float | None = None
    """Where given, the picture goes from 0 to this, and what lies above is drawn there, without interval."""


@dataclass(frozen=True)
class Evidence:
    """What one experiment found."""

    experiment: str
    measures: tuple[Measure, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should know, in whole sentences."""


def exactly(name: str, value: float) -> Measure:
    """A figure without chance in it."""
    return Measure(name, float(value), float(value), float(value))


def unbounded(name: str, value: float) -> Measure:
    """A figure with chance in it whose interval is not known: no bound is kept or broken by it."""
    return Measure(name, float(value), -math.inf, math.inf)


def average(name: str, values: Sequence[float]) -> Measure:
    """Mean of independent draws, with Student's interval; of a single one, or one that is infinite, it is not known.

    >>> round(average("x", [1.0, 2.0, 3.0]).high, 3)
    4.484
    >>> average("x", [2.0])
    Measure(name='x', value=2.0, low=-inf, high=inf)

    Raises:
        ValueError: no values.
    """
    from diarnorm.evaluation.families import spread  # loads torch, which `diarnorm claims --help` does without

    if len(values) == 0:
        raise ValueError(f"no values to average for {name}: give one or more")
    if not all(map(math.isfinite, values)):
        return unbounded(name, sum(values) / len(values))
    mean, low, high = spread(values)
    return unbounded(name, mean) if low is None or high is None else Measure(name, mean, low, high)


def geometric(name: str, ratios: Sequence[float]) -> Measure:
    """Geometric mean of ratios above 0, with Student's interval of their logarithms.

    >>> round(geometric("x", [0.5, 2.0]).value, 6)
    1.0
    """
    logs = average(name, [math.log(ratio) for ratio in ratios])
    if not math.isfinite(logs.low):
        return unbounded(name, math.exp(logs.value))
    return Measure(name, *(math.exp(min(value, LARGEST_LOG)) for value in (logs.value, logs.low, logs.high)))


def share(name: str, hits: int, trials: int) -> Measure:
    """`hits / trials` with Wilson's interval.

    >>> share("x", 0, 10).value, round(share("x", 0, 10).high, 2)
    (0.0, 0.28)

    Raises:
        ValueError: no trials.
    """
    from scipy.stats import binomtest

    if trials < 1:
        raise ValueError(f"no trials for {name}: give one or more")
    found = binomtest(hits, trials).proportion_ci(CONFIDENCE, method="wilson")
    return Measure(name, hits / trials, float(found.low), float(found.high))


def share_difference(name: str, hits: int, other_hits: int, trials: int) -> Measure:
    """`hits` less `other_hits`, each of `trials`, with the interval that Wilson's two make (R. Newcombe, 1998: method
    10 for independent groups; for pairs that are alike it is wider than need be).

    >>> round(share_difference("x", 10, 0, 10).low, 2), round(share_difference("x", 0, 0, 10).high, 2)
    (0.61, 0.28)

    Raises:
        ValueError: no trials.
    """
    one, other = share(name, hits, trials), share(name, other_hits, trials)
    value = one.value - other.value
    below = math.hypot(one.value - one.low, other.high - other.value)
    above = math.hypot(one.high - one.value, other.value - other.low)
    return Measure(name, value, value - below, value + above)


def spoken(measure: Measure) -> str:
    """A figure with its interval, if it has one that is known.

    >>> spoken(Measure("x", 3.0, 2.5, 3.5)), spoken(Measure("x", 1.0, 1.0, 1.0)), spoken(unbounded("x", 1.0))
    ('3 (2.5 to 3.5)', '1', '1')
    """
    known = measure.low < measure.high and (math.isfinite(measure.low) or math.isfinite(measure.high))
    interval = f" ({number(measure.low)} to {number(measure.high)})" if known else ""
    return f"{number(measure.value)}{interval}"


def number(value: float) -> str:
    """A figure for people: three significant digits, trailing zeros left out; from 100 to a million whole numbers.

    >>> number(0.123456), number(1234.5), number(0.0), number(4.6e-5), number(3e-9), number(float("inf"))
    ('0.123', '1234', '0', '4.6e-05', '3e-09', 'inf')
    """
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"
