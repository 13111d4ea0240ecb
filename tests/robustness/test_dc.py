"""Offsets, as differences."""

import numpy as np
import pytest

from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import flat, talk


@pytest.mark.parametrize("offset", [-0.1, -1e-3, 0.01, 0.3])
def test_an_offset_is_added(offset: float) -> None:
    damaged = corrupt(talk(), parse([f"dc.offset={offset}"]), 0)
    np.testing.assert_allclose(damaged.samples - talk().samples, offset, atol=1e-7)


def test_a_step_sets_in_and_stays() -> None:
    places = []
    for seed in range(20):
        damaged = corrupt(talk(), parse(["dc.step=0.1"]), seed)
        added = damaged.samples - talk().samples
        (start, end), at = damaged.events[0], int(np.argmax(added > 0.05))
        assert (start, end) == pytest.approx((at / SAMPLE_RATE, at / SAMPLE_RATE + 0.01))
        assert not added[:at].any()
        np.testing.assert_allclose(added[at:], 0.1, atol=1e-7)
        places.append(start)
    assert 4 <= min(places) < 5 < 7 < max(places) <= 8


def test_a_drift_is_a_slow_sine() -> None:
    added = corrupt(flat(60.0, 0.0), parse(["dc.drift=-0.1"]), 0).samples
    spectrum = np.abs(np.fft.rfft(added)) / (len(added) / 2)
    assert spectrum.argmax() == 6  # cycles in 60 s
    assert spectrum[6] == pytest.approx(0.1, rel=1e-4)
    assert np.delete(spectrum, 6).max() < 1e-6
