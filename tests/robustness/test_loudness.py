"""Gains, read off a constant signal; and what 16 bits do to them."""

from itertools import pairwise

import numpy as np
import pytest

from diarnorm.robustness import loudness
from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.sound import Sound
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.turns import Turn
from tests.robustness.talk import flat, gain_db, rms_db, talk


def curve(word: str, duration_s: float = 60.0, seed: int = 0) -> np.ndarray:
    """Gain in dB of each sample."""
    clean = flat(duration_s)
    return gain_db(corrupt(clean, parse([word]), seed), clean)


@pytest.mark.parametrize("gain", [-40, -10, 0.72, 20])
def test_a_gain_is_a_gain(gain: float) -> None:
    damaged = corrupt(talk(), parse([f"loudness.gain={gain}"]), 0)
    assert rms_db(damaged.samples) - rms_db(talk().samples) == pytest.approx(gain, abs=1e-4)
    np.testing.assert_allclose(damaged.samples, talk().samples * 10 ** (gain / 20), rtol=1e-6)


def test_gains_in_16_bits_round_and_clip() -> None:
    quiet = corrupt(talk(), parse(["loudness.gain_int16=-40"]), 0).samples
    assert {float(x) for x in np.unique(quiet * 32_768)} <= set(range(-200, 201))
    assert np.mean(quiet == 0) > 0.25  # the noise floor is gone
    assert np.mean(talk().samples == 0) < 0.01
    loud = corrupt(talk(), parse(["loudness.gain_int16=40"]), 0).samples
    assert (loud.max(), loud.min()) == (32_767 / 32_768, -1.0)
    assert np.mean((loud == loud.max()) | (loud == loud.min())) > 0.1
    assert corrupt(talk(), parse(["loudness.gain=40"]), 0).samples.max() > 5
    inside = np.abs(loud) < 0.99
    np.testing.assert_allclose(loud[inside], 100 * talk().samples[inside], atol=0.51 / 32_768)


def check_steps(word: str, sound: Sound) -> None:
    """The gain is the same from one event to the next, and another after each."""
    damaged = corrupt(sound, parse([word]), 1)
    edges = [round(at * SAMPLE_RATE) for at in (0, *np.ravel(damaged.events), sound.duration_s)]
    pieces = [gain_db(damaged, sound)[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
    assert all(np.ptp(piece) < 1e-3 for piece in pieces)
    assert len(pieces) > 3
    assert all(abs(a[-1] - b[0]) > 1 for a, b in pairwise(pieces))


def test_a_swing_steps_every_two_seconds() -> None:
    steps = curve("loudness.swing=12")
    plateaus = steps.reshape(-1, 2 * SAMPLE_RATE)[:, 100:-100]
    np.testing.assert_allclose(np.abs(plateaus), 12, atol=1e-3)
    np.testing.assert_array_equal(np.sign(plateaus[1:, 0]), -np.sign(plateaus[:-1, 0]))
    assert np.abs(np.diff(steps)).max() == pytest.approx(24 / 160, abs=0.01)  # 10 ms for a step, no click
    slopes = corrupt(flat(9.0), parse(["loudness.swing=12"]), 0).events
    np.testing.assert_allclose(slopes, [(at - 0.005, at + 0.005) for at in (2, 4, 6, 8)])
    check_steps("loudness.swing=12", flat(9.0))
    signs = {float(np.sign(curve("loudness.swing=12", 2.5, seed)[0])) for seed in range(8)}
    assert signs == {-1.0, 1.0}


def test_steps_at_turns() -> None:
    starts = [1.0, 2.5, 2.53, 6.0]  # the third would follow too closely
    sound = flat(8.0, turns=tuple(Turn(start, 7.0, f"s{i}") for i, start in enumerate(starts)))
    steps = gain_db(corrupt(sound, parse(["loudness.turns=20"]), 1), sound)
    changes = np.flatnonzero(np.diff(steps > 0)) / SAMPLE_RATE
    np.testing.assert_allclose(changes, [1.0, 2.5, 6.0], atol=2e-3)
    check_steps("loudness.turns=20", sound)
    np.testing.assert_allclose(np.abs(steps[:: SAMPLE_RATE // 2][[0, 1, 3, 4, 7, 14]]), 20, atol=1e-3)


def test_a_turn_at_the_first_sample_is_no_jump() -> None:
    sound = flat(6.0, turns=(Turn(0.0, 2.0, "a"), Turn(3.0, 5.0, "b")))
    damaged = corrupt(sound, parse(["loudness.turns=20"]), 1)
    np.testing.assert_allclose(damaged.events, [(2.995, 3.005)])
    levels = gain_db(damaged, sound)[[0, SAMPLE_RATE, 4 * SAMPLE_RATE]]
    np.testing.assert_allclose(levels, levels[0] * np.array([1, 1, -1]), atol=1e-3)


def test_a_tremolo_is_one_line_at_one_hertz() -> None:
    spectrum = np.abs(np.fft.rfft(curve("loudness.tremolo=12"))) / (30 * SAMPLE_RATE)
    assert spectrum.argmax() == 60  # cycles in 60 s
    assert spectrum[60] == pytest.approx(12, abs=0.01)
    assert np.delete(spectrum, 60).max() < 0.01


def test_fades_stay_in_range_and_take_their_time() -> None:
    faded = np.concatenate([curve("loudness.fades=24", seed=seed) for seed in range(4)])
    assert -24 <= faded.min() < -18
    assert 3 < faded.max() <= 6.001
    each_10_ms = np.diff(curve("loudness.fades=24")[::160]) / 0.01
    assert 5 < np.abs(each_10_ms).max() <= 30 / 0.2
    assert 0.1 < np.mean(np.abs(each_10_ms) < 0.01) < 0.9  # it stands still at times
    assert curve("loudness.fades=24")[0] == pytest.approx(0, abs=1e-4)
    np.testing.assert_allclose(curve("loudness.fades=12"), curve("loudness.fades=24") / 2, atol=1e-3)


def check_speaker(sound: Sound, damaged: Sound) -> None:
    """One of the speakers 20 dB down where alone, the rest untouched."""
    gains = gain_db(damaged, sound)
    levels = {name: gains[round(at * SAMPLE_RATE)] for name, at in (("a", 1.0), ("both", 2.5), ("b", 4.0), ("no", 6))}
    assert levels["both"] == levels["no"] == 0
    assert sorted([levels["a"], levels["b"]]) == pytest.approx([-20, 0], abs=1e-3)
    assert damaged.events == (((0.5, 2.0),) if levels["a"] < -1 else ((3.0, 5.0),))


def test_one_speaker_goes_down_where_nobody_else_speaks() -> None:
    sound = flat(7.0, turns=(Turn(0.5, 3.0, "a"), Turn(2.0, 5.0, "b")))
    damaged = [corrupt(sound, parse(["loudness.speaker=20"]), seed) for seed in range(6)]
    for each in damaged:
        check_speaker(sound, each)
    assert len({each.events for each in damaged}) == 2  # not always the same one


def test_taking_all_of_a_turn_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = loudness.spoken
    monkeypatch.setattr(loudness, "spoken", lambda n, turns: right(n, [t for t in turns if t.speaker == "a"]))
    sound = flat(7.0, turns=(Turn(0.5, 3.0, "a"), Turn(2.0, 5.0, "b")))
    with pytest.raises(AssertionError):
        check_speaker(sound, corrupt(sound, parse(["loudness.speaker=20"]), 0))
