"""Claims and their rules: verdicts follow from the states of the criteria, and every experiment is where it is said."""

import importlib
import math
from dataclasses import is_dataclass

import pytest

from diarnorm.claims.evidence import Measure
from diarnorm.claims.registry import (
    CLAIMS,
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
    chosen,
    judge,
)
from diarnorm.resources import recipes_dir

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


def test_the_claims_are_fourteen_and_each_can_be_decided() -> None:
    assert [claim.number for claim in CLAIMS] == list(range(1, 15))
    names = [experiment.name for claim in CLAIMS for experiment in claim.experiments]
    assert len(set(names)) == len(names)
    for claim in CLAIMS:
        assert claim.criteria
        for criterion in claim.criteria:
            assert criterion.bounds, criterion.measure
            assert criterion.low <= criterion.high


@pytest.mark.parametrize("experiment", [e for claim in CLAIMS for e in claim.experiments], ids=lambda e: e.name)
def test_every_experiment_is_there_with_its_recipe(experiment) -> None:
    module = importlib.import_module(f"diarnorm.claims.{experiment.module}")
    assert callable(getattr(module, experiment.function))
    if experiment.config:
        assert is_dataclass(getattr(module, experiment.config))
        assert (recipes_dir() / "claims" / f"{experiment.recipe}.yaml").is_file()


def test_claims_are_chosen_by_number() -> None:
    assert [claim.number for claim in chosen((7, 4, 7))] == [4, 7]
    with pytest.raises(ValueError, match="there is no claim 15: give numbers from 1 to 14"):
        chosen((15,))
