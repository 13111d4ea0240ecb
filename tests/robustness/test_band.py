"""Band limits and companding: spectrum, delay, codes, distortion."""

import numpy as np
import pytest
from scipy.signal import welch

from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.sound import Sound
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import rms_db, talk

NOISE = Sound((0.1 * np.random.default_rng(0).standard_normal(10 * SAMPLE_RATE)).astype(np.float32))


@pytest.mark.parametrize("limit_hz", [6000, 4000, 3456.7, 2000])
def test_what_is_above_is_gone_and_what_is_below_stays(limit_hz: float) -> None:
    damaged = corrupt(NOISE, parse([f"band.limit={limit_hz}"]), 0)
    assert len(damaged.samples) == len(NOISE.samples)
    hz, before = welch(NOISE.samples, SAMPLE_RATE, "blackmanharris", 1024)
    _, after = welch(damaged.samples, SAMPLE_RATE, "blackmanharris", 1024)
    gain_db = 10 * np.log10(after / before)
    assert np.abs(gain_db[hz < 0.88 * limit_hz]).max() < 0.1
    assert gain_db[hz > 1.05 * limit_hz].max() < -60
    band = np.fft.rfft(NOISE.samples)
    band[np.fft.rfftfreq(len(NOISE.samples), 1 / SAMPLE_RATE) > 0.88 * limit_hz] = 0
    expected = np.fft.irfft(band)  # an ideal filter without delay
    rest = (damaged.samples - expected)[SAMPLE_RATE:-SAMPLE_RATE]
    assert rms_db(rest) < rms_db(expected) - 8


def test_a_delay_would_be_noticed() -> None:
    damaged = corrupt(talk(), parse(["band.limit=4000"]), 0).samples
    lags = range(-5, 6)
    fits = [np.corrcoef(np.roll(damaged, -lag), talk().samples)[0, 1] for lag in lags]
    assert lags[int(np.argmax(fits))] == 0


@pytest.mark.parametrize("bits", [8, 6, 4])
def test_mu_law_has_so_many_codes_and_its_distortion(bits: int) -> None:
    damaged = corrupt(NOISE, parse([f"band.mu_law={bits}"]), 0).samples
    assert len(np.unique(damaged)) <= 2**bits - 1
    snr_db = rms_db(NOISE.samples) - rms_db(damaged - NOISE.samples)
    theory_db = 20 * np.log10(2**bits - 1) - 10.1  # Jayant and Noll, "Digital Coding of Waveforms", 1984
    assert snr_db == pytest.approx(theory_db, abs=1.5)
    quieter = Sound(NOISE.samples / np.float32(10))
    after = corrupt(quieter, parse([f"band.mu_law={bits}"]), 0).samples
    assert rms_db(quieter.samples) - rms_db(after - quieter.samples) > snr_db - 6  # nearly the same 20 dB below


def test_mu_law_clips_at_full_scale() -> None:
    loud = corrupt(NOISE, parse(["loudness.gain=40", "band.mu_law=8"]), 0).samples
    assert (loud.max(), loud.min()) == (pytest.approx(1, abs=1e-6), pytest.approx(-1, abs=1e-6))
