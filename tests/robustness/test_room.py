"""Rooms: reverberation time by Schroeder's method, direct sound where it was."""

import numpy as np
import pytest
from scipy.signal import butter, sosfiltfilt

from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.sound import Sound
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import rms_db, talk

AT = 4000


def response(rt60_s: float, seed: int = 0) -> np.ndarray:
    """What a single sample of 1 at `AT` becomes."""
    click = np.zeros(3 * SAMPLE_RATE, np.float32)
    click[AT] = 1.0
    return corrupt(Sound(click), parse([f"room.reverb={rt60_s}"]), seed).samples.astype(np.float64)


def measured_rt60_s(room: np.ndarray) -> float:
    """T20 of ISO 3382-1 below 1.4 kHz, of the tail from 30 ms on."""
    low = sosfiltfilt(butter(4, 1400, fs=SAMPLE_RATE, output="sos"), room)
    energy = np.cumsum(np.square(low[AT + 480 : AT + 11_000])[::-1])[::-1]
    decay_db = 10 * np.log10(energy / energy[0])
    part = (decay_db < -5) & (decay_db > -25)
    slope = np.polyfit(np.flatnonzero(part) / SAMPLE_RATE, decay_db[part], 1)[0]
    return -60 / slope


@pytest.mark.parametrize("rt60_s", [0.1, 0.2, 0.4, 0.7])
def test_the_reverberation_time_is_the_severity(rt60_s: float) -> None:
    measured = [measured_rt60_s(response(rt60_s, seed)) for seed in range(6)]
    assert np.mean(measured) == pytest.approx(rt60_s, rel=0.12)


def test_direct_sound_stays_where_it_was_and_is_half_of_the_energy() -> None:
    for seed in range(4):
        room = response(0.4, seed)
        assert np.abs(room).argmax() == AT
        assert np.square(room).sum() == pytest.approx(1, abs=0.15)
        assert room[AT] ** 2 == pytest.approx(0.5, abs=0.02)
        assert np.square(room[: AT - 100]).sum() < 1e-4


def test_speech_keeps_its_level_its_turns_and_its_length() -> None:
    damaged = corrupt(talk(), parse(["room.reverb=0.4"]), 0)
    assert damaged.turns == talk().turns
    assert len(damaged.samples) == len(talk().samples)
    assert rms_db(damaged.samples) == pytest.approx(rms_db(talk().samples), abs=1.5)
    frames = [np.square(x).reshape(-1, 160).mean(1) for x in (damaged.samples, talk().samples)]
    quiet = frames[1] < 1e-5
    assert frames[0][quiet].mean() > 20 * frames[1][quiet].mean()  # pauses are filled by reverberation
    lags = range(-20, 21)
    fits = [np.corrcoef(np.roll(damaged.samples, -lag), talk().samples)[0, 1] for lag in lags]
    assert lags[int(np.argmax(fits))] == 0
