"""Lost and spoilt samples: how many, how long, how often; the rest untouched."""

import numpy as np
import pytest

from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.simulation.activity import runs_of
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import flat


def test_dropouts_are_20_to_60_ms_of_zeros() -> None:
    clean = flat(120.0)
    damaged = corrupt(clean, parse(["damage.dropouts=30"]), 0)
    runs = runs_of(damaged.samples == 0) / SAMPLE_RATE
    assert len(runs) == 60
    lengths = runs[:, 1] - runs[:, 0]
    assert 0.0199 <= lengths.min() < 0.025
    assert 0.055 < lengths.max() <= 0.06
    np.testing.assert_allclose(np.array(damaged.events), runs)
    assert (damaged.samples[damaged.samples != 0] == 0.125).all()
    assert np.all(np.floor(runs[:, 0] / 2) == np.arange(60))  # one in each two seconds


@pytest.mark.parametrize("name", ["nan", "inf"])
def test_spoilt_samples_are_no_numbers(name: str) -> None:
    damaged = corrupt(flat(120.0), parse([f"damage.{name}=60"]), 0)
    spoilt = ~np.isfinite(damaged.samples)
    runs = runs_of(spoilt)
    lengths = runs[:, 1] - runs[:, 0]
    assert len(runs) == 120
    assert (lengths.min(), lengths.max() <= 160, lengths.max() > 120) == (1, True, True)
    assert np.median(lengths) < 25  # as many short as long ones, in octaves
    assert (damaged.samples[~spoilt] == 0.125).all()
    if name == "inf":
        assert set(damaged.samples[spoilt]) == {np.inf, -np.inf}
    else:
        assert np.isnan(damaged.samples[spoilt]).all()


def test_there_is_at_least_one() -> None:
    assert len(corrupt(flat(1.0), parse(["damage.dropouts=0.01"]), 0).events) == 1
