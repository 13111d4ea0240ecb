"""The rule of claims: verdicts follow from the states of the criteria, and these from whole intervals."""

import math

import pytest

from diarnorm.claims.evidence import Measure
from diarnorm.claims.rules import (
    CONDITIONAL,
    CONFIRMED,
    FAILS,
    HOLDS,
    MISSING,
    NOT_MEASURED,
    OPEN,
    REFUTED,
    Claim,
    Criterion,
    judge,
)

TWO = Claim(0, "x", "y", (), (Criterion("a", "a is small", high=1.0), Criterion("b", "b is large", low=2.0)))


def measure(name: str, low: float, high: float) -> Measure:
    return Measure(name, (low + high) / 2, low, high)


@pytest.mark.parametrize(
    ("low", "high", "state"), [(0.2, 1.0, HOLDS), (0.9, 1.1, OPEN), (1.1, 1.2, FAILS), (math.inf, math.inf, FAILS)]
)
def test_a_criterion_looks_at_the_whole_interval(low: float, high: float, state: str) -> None:
    assert TWO.criteria[0].state(Measure("a", high, low, high)) == state
    assert TWO.criteria[0].state(None) == MISSING


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ((0, 1), (2, 3), CONFIRMED),
        ((2, 3), (0, 1), REFUTED),
        ((0, 1), (0, 1), CONDITIONAL),
        ((0, 2), (2, 3), CONDITIONAL),
        ((0, 1), None, CONDITIONAL),
        ((2, 3), None, CONDITIONAL),
        (None, None, NOT_MEASURED),
    ],
)
def test_verdicts(a: tuple[float, float] | None, b: tuple[float, float] | None, verdict: str) -> None:
    measures = {name: measure(name, *pair) for name, pair in (("a", a), ("b", b)) if pair is not None}
    assert judge(TWO, measures).verdict == verdict
