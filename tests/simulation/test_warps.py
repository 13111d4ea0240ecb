"""Warped voices: pitch by their harmonics, formants by linear prediction, words where they were."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.signal

from diarnorm.simulation.synthetic import voice
from diarnorm.simulation.warps import Warp, move_formants, stretch, warp_voice
from tests.simulation.test_synthetic import pitch_of

FORMANTS_HZ = (600.0, 1400.0, 2600.0, 3600.0)


def vowel(pitch_hz: float, num_samples: int = 32_000) -> np.ndarray:
    """A train of pulses through four resonators."""
    samples: Any = np.zeros(num_samples)
    samples[:: round(16_000 / pitch_hz)] = 1
    for hz in FORMANTS_HZ:
        radius = np.exp(-np.pi * 80 / 16_000)
        samples = scipy.signal.lfilter([1], [1, -2 * radius * np.cos(2 * np.pi * hz / 16_000), radius**2], samples)
    return (0.1 * samples / np.abs(samples).max()).astype(np.float32)


def formants_of(samples: np.ndarray) -> np.ndarray:
    """Peaks of the all-pole spectrum of order 14, in Hz."""
    part = scipy.signal.lfilter([1, -0.95], [1], samples)[4000:12_000] * np.hanning(8000)
    r = np.correlate(part, part, "full")[len(part) - 1 : len(part) + 15]
    poles = np.concatenate([[1], -scipy.linalg.solve_toeplitz(r[:14], r[1:15])])
    gain = np.fft.rfft(poles, 8192)
    hz = np.arange(len(gain)) * 16_000 / 8192
    return hz[scipy.signal.find_peaks(-20 * np.log10(np.abs(gain)), prominence=3)[0]]


@pytest.mark.parametrize("warp", [Warp(pitch=1.2), Warp(pitch=0.85), Warp(tract=1.12), Warp(pitch=1.15, tract=0.92)])
def test_pitch_moves_by_its_factor_and_words_stay(warp: Warp) -> None:
    samples, speech = voice(120.0, 6.0, seed=1)
    warped = warp_voice(samples, warp)
    assert warped.shape == samples.shape
    assert warped.dtype == np.float32
    assert pitch_of(warped) / 120 == pytest.approx(warp.pitch, rel=0.01)
    power = np.square(warped.astype(float)).reshape(-1, 160).mean(axis=1)

    def contrast(shift: int) -> float:
        there = np.roll(speech, shift)
        return 10 * np.log10(power[there].mean() / power[~there].mean())

    assert contrast(0) > 18
    assert all(contrast(shift) < contrast(0) - 3 for shift in (-3, 3))
    level = np.sqrt(np.square(warped).mean() / np.square(samples).mean())
    assert level == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("tract", [0.9, 1.12])
def test_formants_move_against_the_length_of_the_tract(tract: float) -> None:
    plain = vowel(110.0)
    before, after = formants_of(plain), formants_of(warp_voice(plain, Warp(tract=tract)))
    assert len(before) == len(after) == 4
    np.testing.assert_allclose(after, before / tract, rtol=0.075)
    assert np.abs(after - before / tract)[1:].sum() < 0.3 * np.abs(after - before)[1:].sum()


@pytest.mark.parametrize("pitch", [0.85, 1.2])
def test_formants_stay_when_pitch_moves(pitch: float) -> None:
    plain = vowel(110.0)
    before, after = formants_of(plain), formants_of(warp_voice(plain, Warp(pitch=pitch)))
    np.testing.assert_allclose(after, before, rtol=0.05)
    # Without the second step they move along.
    only_stretched = warp_voice(plain, Warp(pitch=pitch, tract=1 / pitch))
    assert np.abs(formants_of(only_stretched)[1] / before[1] - pitch) < 0.06


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.25])
def test_stretching_keeps_the_pitch_and_the_times(ratio: float) -> None:
    samples, speech = voice(150.0, 4.0, seed=3)
    longer = stretch(samples, ratio)
    assert len(longer) == round(len(samples) * ratio)
    assert pitch_of(longer) == pytest.approx(150, abs=1.5)
    power = np.square(longer.astype(float))
    where = np.repeat(speech, 160)[np.minimum((np.arange(len(longer)) / ratio).astype(int), len(samples) - 1)]
    assert power[where].mean() > 50 * power[~where].mean()


def test_scale_one_is_the_voice_itself() -> None:
    samples, _ = voice(100.0, 1.0, seed=0)
    np.testing.assert_allclose(move_formants(samples, 1.0), samples, atol=1e-5)


@pytest.mark.parametrize("num_samples", [0, 1, 100, 600])
def test_short_ones_are_warped_too(num_samples: int) -> None:
    samples = np.full(num_samples, 0.1, dtype=np.float32)
    warped = warp_voice(samples, Warp(pitch=1.1, tract=0.9))
    assert warped.shape == (num_samples,)
    assert np.isfinite(warped).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"pitch": 0.1}, "warp pitch=0.1 is out of range"),
        ({"tract": 3}, "warp tract=3 is out of range"),
        ({}, "itself"),
    ],
)
def test_senseless_warps_are_refused(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Warp(**values)
