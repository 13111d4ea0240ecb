"""Noise: ratio to the speech, spectrum, independence of the speech."""

import numpy as np
import pytest
from scipy.signal import welch

from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.level import active_speech_level
from diarnorm.robustness.sound import Sound
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import rms_db, talk

NAMES = ["white", "pink", "babble", "hum_50", "hum_60"]


def added(name: str, snr_db: float, sound: Sound) -> np.ndarray:
    damaged = corrupt(sound, parse([f"noise.{name}={snr_db}"]), 0)
    assert damaged.events == ()
    return damaged.samples.astype(np.float64) - sound.samples


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("snr_db", [20, 10, 0, -5])
def test_the_ratio_is_that_of_active_speech(name: str, snr_db: float) -> None:
    level_db = active_speech_level(talk().samples)
    assert level_db is not None
    assert level_db - rms_db(added(name, snr_db, talk())) == pytest.approx(snr_db, abs=0.01)
    padded = Sound(np.pad(talk().samples, 10 * SAMPLE_RATE))  # pauses do not make noise quieter
    assert rms_db(added(name, snr_db, padded)) == pytest.approx(level_db - snr_db, abs=0.2)


def spectrum_db(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hz, power = welch(samples, SAMPLE_RATE, nperseg=2048)
    return hz, 10 * np.log10(power)


def test_colours() -> None:
    for name, slope_db in (("white", 0.0), ("pink", -3.01)):
        hz, power_db = spectrum_db(added(name, 0, talk()))
        band = (hz >= 60) & (hz <= 6000)
        octaves = np.log2(hz[band])
        slope, offset = np.polyfit(octaves, power_db[band], 1)
        assert slope == pytest.approx(slope_db, abs=0.15)
        assert np.abs(power_db[band] - offset - slope * octaves).max() < 4


def test_babble_has_the_spectrum_of_the_recording_and_nothing_of_its_timing() -> None:
    babble = added("babble", 0, talk())
    assert np.corrcoef(spectrum_db(babble)[1], spectrum_db(talk().samples)[1])[0, 1] > 0.97
    assert abs(np.corrcoef(babble, talk().samples)[0, 1]) < 0.2
    frames = [np.sqrt(np.square(x).reshape(-1, 320).mean(1)) for x in (babble, talk().samples)]
    assert abs(np.corrcoef(*frames)[0, 1]) < 0.35
    filled = [np.mean(each < 0.1 * each.max()) for each in frames]
    assert filled[0] < 0.2 < filled[1]  # its pauses are filled


def test_hum_is_at_the_mains_and_its_harmonics() -> None:
    for hz in (50, 60):
        power = np.square(np.abs(np.fft.rfft(added(f"hum_{hz}", 0, talk()))))
        lines = np.array([hz * k for k in range(1, 6)]) * 12
        assert power[lines].sum() / power.sum() > 0.9999
        assert (np.diff(power[lines]) < 0).all()


def test_silence_babbles_with_silence() -> None:
    silent = Sound(np.zeros(SAMPLE_RATE, np.float32))
    assert corrupt(silent, parse(["noise.babble=0"]), 0) is silent
    assert rms_db(added("white", 10, silent)) == pytest.approx(-36, abs=0.01)
