"""The claims: each can be decided, and every experiment is where it is said."""

import importlib
from dataclasses import is_dataclass

import pytest

from diarnorm.claims.registry import CLAIMS, chosen
from diarnorm.resources import recipes_dir


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
