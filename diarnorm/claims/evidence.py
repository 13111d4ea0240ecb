"""What an experiment leaves behind: figures with their 95 % intervals, tables, and the numbers of its pictures."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measure:
    """A figure with its 95 % interval; `value == low == high` where nothing is drawn at random."""

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


def average(name: str, values: Sequence[float], *, seed: int = 0) -> Measure:
    """Mean of independent draws, its interval by bootstrap over them. A single draw has no interval.

    >>> average("x", [1.0, 1.0, 1.0])
    Measure(name='x', value=1.0, low=1.0, high=1.0)

    Raises:
        ValueError: no values.
    """
    from scipy.stats import bootstrap

    numbers: Float[np.ndarray, " draws"] = np.asarray(values, dtype=float)
    if numbers.size == 0:
        raise ValueError(f"no values to average for {name}: give one or more")
    mean = float(numbers.mean())
    if numbers.size < 2 or not np.isfinite(numbers).all() or np.ptp(numbers) == 0:
        return exactly(name, mean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bootstrap(
            (numbers,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=np.random.default_rng(seed)
        ).confidence_interval
    return Measure(name, mean, float(found.low), float(found.high))


def geometric(name: str, ratios: Sequence[float], *, seed: int = 0) -> Measure:
    """Geometric mean of ratios above 0, its interval by bootstrap over them.

    >>> round(geometric("x", [0.5, 2.0]).value, 6)
    1.0
    """
    logs = average(name, [float(np.log(ratio)) for ratio in ratios], seed=seed)
    return Measure(name, *(float(np.exp(value)) for value in (logs.value, logs.low, logs.high)))


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


def measure_of(measures: Sequence[Measure], name: str) -> Measure | None:
    """The measure called `name`, if there is one."""
    return next((measure for measure in measures if measure.name == name), None)


def spoken(measure: Measure) -> str:
    """A figure with its interval, if it has one.

    >>> spoken(Measure("x", 3.0, 2.5, 3.5)), spoken(Measure("x", 1.0, 1.0, 1.0))
    ('3 (2.5 to 3.5)', '1')
    """
    interval = "" if measure.low == measure.high else f" ({number(measure.low)} to {number(measure.high)})"
    return f"{number(measure.value)}{interval}"


def number(value: float) -> str:
    """A figure for people: three significant digits, trailing zeros left out; from 100 to a million whole numbers.

    >>> number(0.123456), number(1234.5), number(0.0), number(4.6e-5), number(3e-9), number(float("inf"))
    ('0.123', '1234', '0', '4.6e-05', '3e-09', 'inf')
    """
    return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"
