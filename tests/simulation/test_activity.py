"""Speech activity against voices whose pauses are known; pieces against the runs they must hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diarnorm.simulation.activity import ActivityConfig, PieceConfig, cut_pieces, runs_of, speech_activity
from diarnorm.simulation.synthetic import voice


@pytest.mark.parametrize("noise", [1e-5, 1e-3, 3e-3])
@pytest.mark.parametrize("gain", [1.0, 0.02])
def test_activity_finds_the_words(noise: float, gain: float) -> None:
    samples, truth = voice(120, 20, seed=1, noise=noise)
    found = speech_activity(gain * samples)
    assert np.mean(found == truth) > 0.97
    shifted = np.roll(truth, 10)
    assert np.mean(found == shifted) < 0.9  # the check notices 100 ms


def test_no_speech_in_silence_and_all_speech_without_pauses() -> None:
    assert not speech_activity(np.zeros(16_000, np.float32)).any()
    assert speech_activity(np.zeros(159, np.float32)).shape == (0,)
    steady = np.sin(np.arange(16_000) * 0.3).astype(np.float32)
    assert speech_activity(steady).mean() > 0.97


def test_dc_is_not_speech() -> None:
    samples, truth = voice(120, 10, seed=2)
    assert np.mean(speech_activity(samples + 0.3) == truth) > 0.95


def test_short_bursts_and_gaps_go() -> None:
    config = ActivityConfig(min_burst_hops=4, close_gap_hops=4)
    level = np.repeat([0, 1, 0, 1, 0, 1, 0], [50, 30, 3, 30, 50, 1, 50])
    samples = (np.repeat(level, 160) * np.random.default_rng(0).standard_normal(214 * 160)).astype(np.float32)
    runs = runs_of(speech_activity(samples, config))
    assert len(runs) == 1
    assert abs(runs[0] - [50, 113]).max() <= 1


@pytest.mark.parametrize("num_samples", [0, 1, 159, 160, 319, 320, 400, 480])
def test_the_shortest_utterances_have_a_decision_per_hop(num_samples: int) -> None:
    for samples in (np.zeros(num_samples), np.random.default_rng(0).standard_normal(num_samples)):
        assert speech_activity(samples.astype(np.float32)).shape == (num_samples // 160,)


@given(st.lists(st.booleans(), max_size=60))
def test_runs_hold_exactly_the_active_hops(active: list[bool]) -> None:
    runs = runs_of(np.array(active, dtype=bool))
    rebuilt = np.zeros(len(active), dtype=bool)
    for start, end in runs:
        assert start < end
        assert not rebuilt[max(start - 1, 0) : end].any()  # neither overlapping nor touching
        rebuilt[start:end] = True
    assert rebuilt.tolist() == active


@given(st.integers(0, 10**6))
def test_pieces_hold_every_run_once_and_are_short(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 400, size=20)
    activity = np.concatenate([np.full(n, i % 2 == 1) for i, n in enumerate(lengths)])
    hops = np.array([len(activity), 0])
    config = PieceConfig(max_piece_s=3.0)
    runs, utterance, pieces, piece_run = cut_pieces(activity, hops, config)
    assert (utterance == 0).all()
    assert (np.diff(pieces, axis=1) > 0).all()
    assert (pieces[1:, 0] >= pieces[:-1, 1] - 8).all()  # margins may share a short pause
    assert np.diff(pieces, axis=1).max() <= 2 * 300 + 8
    held = np.zeros(len(activity), dtype=int)
    for (start, end), (first, last) in zip(pieces, piece_run, strict=True):
        for a, b in np.clip(runs[first:last], start, end):
            held[a:b] += 1
    np.testing.assert_array_equal(held, activity)
