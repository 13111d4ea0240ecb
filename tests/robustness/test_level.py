"""Active speech level against the standard to the letter, and against signals whose level is known."""

from functools import cache

import numpy as np
import pytest

from diarnorm.robustness import level
from diarnorm.robustness.level import active_speech_level, speech_rms
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import rms_db, talk

THRESHOLDS = 2.0 ** np.arange(-15, 0)


@cache
def talk_p56() -> float:
    """The level of the talk by ITU-T P.56 method B, sample by sample, thresholds from 2^-15 to 2^-1 of full scale."""
    g, hangover, margin_db = np.exp(-1 / (SAMPLE_RATE * 0.03)), round(0.2 * SAMPLE_RATE), 15.9
    p = q = 0.0
    num_active = np.zeros(len(THRESHOLDS))
    since = np.full(len(THRESHOLDS), hangover)
    samples = talk().samples
    for x in samples.astype(np.float64):
        p = g * p + (1 - g) * abs(x)
        q = g * q + (1 - g) * p
        above = q >= THRESHOLDS
        num_active += above | (since < hangover)
        since = np.where(above, 0, since + 1)
    with np.errstate(divide="ignore"):
        active_db = 10 * np.log10(np.square(samples.astype(np.float64)).sum() / num_active)
    distance_db = active_db - 20 * np.log10(THRESHOLDS) - margin_db
    first = int(np.flatnonzero(distance_db <= 0)[0])
    share = distance_db[first - 1] / (distance_db[first - 1] - distance_db[first])
    return float(active_db[first - 1] + share * (active_db[first] - active_db[first - 1]))


def test_it_is_the_standards() -> None:
    assert active_speech_level(talk().samples) == pytest.approx(talk_p56(), abs=0.2)


def test_without_hangover_it_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level, "HANGOVER_S", 0.0)
    assert active_speech_level(talk().samples) != pytest.approx(talk_p56(), abs=0.2)


def test_a_tone_has_the_level_of_its_rms() -> None:
    tone = 0.1 * np.sin(2 * np.pi * 1000 / SAMPLE_RATE * np.arange(5 * SAMPLE_RATE)).astype(np.float32)
    assert active_speech_level(tone) == pytest.approx(20 * np.log10(0.1 / np.sqrt(2)), abs=0.05)


def test_long_silence_does_not_count() -> None:
    around = np.zeros(20 * SAMPLE_RATE, np.float32)
    longer = np.concatenate([around, talk().samples, around])
    assert active_speech_level(longer) == pytest.approx(active_speech_level(talk().samples), abs=0.1)
    assert rms_db(longer) < rms_db(talk().samples) - 6


@pytest.mark.parametrize("gain", [1e-3, 0.01, 0.5, 7.0])
def test_a_gain_moves_it_by_as_much(gain: float) -> None:
    moved, level_db = active_speech_level(np.float32(gain) * talk().samples), active_speech_level(talk().samples)
    assert moved is not None
    assert moved - 20 * np.log10(gain) == pytest.approx(level_db, abs=1e-4)


def test_offsets_drifts_and_broken_samples_are_no_speech() -> None:
    level_db = active_speech_level(talk().samples)
    time = np.arange(len(talk().samples)) / SAMPLE_RATE
    drifting = (talk().samples + 0.3 * np.sin(2 * np.pi * 0.1 * time) - 0.2).astype(np.float32)
    assert active_speech_level(drifting) == pytest.approx(level_db, abs=0.3)
    broken = talk().samples.copy()
    broken[1000:1010] = np.nan
    broken[5000] = np.inf
    assert active_speech_level(broken) == pytest.approx(level_db, abs=0.05)


@pytest.mark.parametrize("samples", [np.zeros(0), np.zeros(SAMPLE_RATE), np.full(10, np.nan)], ids=len)
def test_silence_has_none(samples: np.ndarray) -> None:
    assert active_speech_level(samples.astype(np.float32)) is None
    assert speech_rms(samples.astype(np.float32)) == pytest.approx(10 ** (-26 / 20))
