"""What is put in, where, and that the rest is the recording."""

import numpy as np
import pytest

from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.silence import quiet_place
from diarnorm.robustness.sound import Sound
from diarnorm.timebase import SAMPLE_RATE
from tests.robustness.talk import flat, rms_db, talk


def taken_apart(damaged: Sound) -> tuple[np.ndarray, np.ndarray]:
    """The recording without what was put in, and all that was put in."""
    inside = np.zeros(len(damaged.samples), dtype=bool)
    for start, end in damaged.inserted:
        inside[round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)] = True
    return damaged.samples[~inside], damaged.samples[inside]


@pytest.mark.parametrize("name", ["start", "middle", "end", "gaps", "lsb", "hum_50", "hum_60"])
@pytest.mark.parametrize("length_s", [0.1, 10, 30])
def test_the_recording_is_all_there(name: str, length_s: float) -> None:
    damaged = corrupt(talk(), parse([f"silence.{name}={length_s}"]), 0)
    recording, filling = taken_apart(damaged)
    np.testing.assert_array_equal(recording, talk().samples)
    assert len(filling) == round(length_s * SAMPLE_RATE)  # one gap in 12 s
    assert sum(turn.duration for turn in damaged.turns) == pytest.approx(sum(turn.duration for turn in talk().turns))
    if name in ("start", "middle", "end", "gaps"):
        assert not filling.any()


def test_places() -> None:
    ends = {name: corrupt(talk(), parse([f"silence.{name}=10"]), 0).inserted for name in ("start", "middle", "end")}
    assert ends["start"] == ((0.0, 10.0),)
    assert ends["end"] == ((12.0, 22.0),)
    ((start, end),) = ends["middle"]
    assert end - start == pytest.approx(10)
    assert 5 <= start <= 7
    around = talk().samples[round(start * SAMPLE_RATE) :][:160]
    assert rms_db(around) < -55  # between words, where there is faint noise only
    long = Sound(np.tile(talk().samples, 5))
    gaps = corrupt(long, parse(["silence.gaps=2"]), 0).inserted
    assert len(gaps) == 6
    clean_starts = np.array([start - 2 * number for number, (start, _) in enumerate(gaps)])
    np.testing.assert_allclose(clean_starts, 60 / 7 * np.arange(1, 7), atol=1.01)


def test_the_nearest_of_the_quietest_is_taken() -> None:
    assert quiet_place(flat(4.0, 0.0).samples, 30_000) == pytest.approx(30_000, abs=80)
    samples = flat(4.0).samples.copy()
    samples[20_000:20_400] = 0.0
    assert 20_000 <= quiet_place(samples, 30_000) <= 20_240
    assert abs(quiet_place(samples, 40_000) - 40_000) <= 80  # beyond reach
    assert quiet_place(samples[:100], 50) == 50


def test_the_last_bit_is_noise_of_one_step() -> None:
    _, filling = taken_apart(corrupt(talk(), parse(["silence.lsb=10"]), 0))
    values, counts = np.unique(filling * 32_768, return_counts=True)
    assert values.tolist() == [-1, 0, 1]
    np.testing.assert_allclose(counts / counts.sum(), 1 / 3, atol=0.01)
    assert abs(np.corrcoef(filling[1:], filling[:-1])[0, 1]) < 0.01


@pytest.mark.parametrize("hz", [50, 60])
def test_hum_has_five_harmonics(hz: int) -> None:
    _, filling = taken_apart(corrupt(talk(), parse([f"silence.hum_{hz}=10"]), 0))
    spectrum = np.abs(np.fft.rfft(filling)) / (len(filling) / 2)
    found = np.flatnonzero(spectrum > 1e-4)
    assert (found / 10).tolist() == [hz * k for k in range(1, 6)]
    np.testing.assert_allclose(spectrum[found], 0.02 * 0.6 ** np.arange(5), rtol=1e-3)
