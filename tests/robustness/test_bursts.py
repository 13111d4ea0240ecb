"""Bursts: level against the speech, number, spectrum, shape in time."""

import numpy as np
import pytest
from scipy.signal import welch

from diarnorm.robustness import bursts
from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.level import active_speech_level
from diarnorm.robustness.sound import Sound
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import rms_db, talk

LENGTH_S = {"plosive": 0.08, "click": 0.002, "slam": 0.4}


def added(name: str, severity: float, sound: Sound, seed: int = 0) -> list[np.ndarray]:
    """What was added, burst by burst."""
    damaged = corrupt(sound, parse([f"burst.{name}={severity}"]), seed)
    rest = damaged.samples - sound.samples
    out = []
    for start, end in damaged.events:
        place = slice(round(start * SAMPLE_RATE), round(end * SAMPLE_RATE))
        out.append(rest[place].astype(np.float64))
        rest[place] = 0
    assert not rest.any()
    return out


def check_levels(name: str, severity: float) -> None:
    """Bursts in 12 s of talk and 24 s of silence, against the level of the talk."""
    long = Sound(np.pad(talk().samples, (0, 24 * SAMPLE_RATE)))
    level_db = active_speech_level(long.samples)
    found = added(name, severity, long)
    assert len(found) == 7  # one in each 5 s of 36
    for burst in found:
        assert len(burst) == round(LENGTH_S[name] * SAMPLE_RATE)
        assert rms_db(burst) - severity == pytest.approx(level_db, abs=0.02)
    quieter = Sound(long.samples * np.float32(0.01))
    assert rms_db(added(name, severity, quieter)[0]) == pytest.approx(rms_db(found[0]) - 40, abs=0.02)


@pytest.mark.parametrize("name", LENGTH_S)
@pytest.mark.parametrize("severity", [-10, 0, 15, 30])
def test_levels_refer_to_the_active_speech_level(name: str, severity: float) -> None:
    check_levels(name, severity)


def test_a_level_with_the_pauses_in_it_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "speech_rms", lambda samples: float(np.sqrt(np.square(samples).mean())))
    with pytest.raises(AssertionError):
        check_levels("slam", 0)


def share(burst: np.ndarray, low_hz: float, high_hz: float) -> float:
    """Share of the energy in a band."""
    power = np.square(np.abs(np.fft.rfft(burst, 1 << 14)))
    hz = np.linspace(0, SAMPLE_RATE / 2, len(power))
    return float(power[(hz >= low_hz) & (hz < high_hz)].sum() / power.sum())


def test_each_kind_sounds_like_itself() -> None:
    silent = Sound(np.zeros(60 * SAMPLE_RATE, np.float32))
    plosives, clicks, slams = (added(name, 0, silent) for name in LENGTH_S)
    assert min(share(burst, 20, 250) for burst in plosives) > 0.9
    assert np.mean([share(burst, 2000, 8000) for burst in clicks]) > 0.5
    assert min(share(burst, 0, 2000) for burst in slams) > 0.8
    assert np.mean([share(burst, 200, 2000) for burst in slams]) > 0.2
    for burst in slams:
        assert rms_db(burst[:1600]) - rms_db(burst[-1600:]) > 25
    for burst in (*plosives, *slams):  # no step at its ends
        assert max(abs(burst[0]), abs(burst[-1])) < 0.02 * np.abs(burst).max()
    assert len({burst.tobytes() for burst in slams}) == len(slams) == 12


def test_a_silent_recording_gets_bursts_of_a_usual_level() -> None:
    silent = Sound(np.zeros(10 * SAMPLE_RATE, np.float32))
    assert rms_db(added("click", 10, silent)[0]) == pytest.approx(-16, abs=0.01)


def test_welch_agrees_on_what_is_low() -> None:
    """The measurement above, by another one."""
    burst = added("plosive", 0, Sound(np.zeros(10 * SAMPLE_RATE, np.float32)))[0]
    hz, power = welch(burst, SAMPLE_RATE, nperseg=len(burst))
    assert power[hz < 250].sum() / power.sum() > 0.9
