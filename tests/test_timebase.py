"""Samples, frames and seconds against fractions; a clock that adds up float steps is shown to drift."""

import math
from fractions import Fraction
from itertools import accumulate, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diarnorm import timebase
from diarnorm.timebase import (
    chunk_frames,
    frames_covering,
    frames_to_samples,
    frames_to_seconds,
    samples_to_frames,
    samples_to_seconds,
    seconds_to_frames,
    seconds_to_samples,
)

DAY_FRAMES = 24 * 3600 * 25 // 2
RATES = st.sampled_from([8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000])


def test_the_grid() -> None:
    assert timebase.WINDOW_SAMPLES == 0.025 * timebase.SAMPLE_RATE
    assert timebase.HOP_SAMPLES == 0.010 * timebase.SAMPLE_RATE
    assert timebase.FRAME_SAMPLES == 0.080 * timebase.SAMPLE_RATE == timebase.MELS_PER_FRAME * 160


def test_ten_hours_are_ten_hours() -> None:
    assert frames_to_seconds(450_000) == 36_000.0
    assert seconds_to_frames(36_000.0) == 450_000
    assert samples_to_seconds(44_100 * 36_000, 44_100) == 36_000.0


def test_a_clock_of_added_steps_would_drift() -> None:
    *_, clock = accumulate(repeat(0.08, 450_000))
    assert clock != frames_to_seconds(450_000)


@given(st.integers(0, DAY_FRAMES))
def test_frames_and_seconds_match_fractions(num_frames: int) -> None:
    assert frames_to_seconds(num_frames) == float(Fraction(num_frames * 1280, 16_000))
    assert seconds_to_frames(frames_to_seconds(num_frames)) == num_frames
    assert samples_to_frames(frames_to_samples(num_frames)) == num_frames


@given(st.integers(0, 24 * 3600 * 48_000), RATES)
def test_samples_survive_the_way_through_seconds(num_samples: int, rate: int) -> None:
    assert seconds_to_samples(samples_to_seconds(num_samples, rate), rate) == num_samples


@given(st.integers(0, 10**10))
def test_whole_and_covering_frames(num_samples: int) -> None:
    assert samples_to_frames(num_samples) == math.floor(Fraction(num_samples, 1280))
    assert frames_covering(num_samples) == math.ceil(Fraction(num_samples, 1280))


@pytest.mark.parametrize(("chunk_ms", "frames"), [(80, 1), (480, 6), (960, 12), (2000, 25)])
def test_chunks_in_milliseconds(chunk_ms: int, frames: int) -> None:
    assert chunk_frames(chunk_ms) == frames


@pytest.mark.parametrize(
    ("chunk_ms", "advice"),
    [(0, "give 80 or 160"), (-80, "give 80 or 160"), (79, "give 80 or 160"), (1000, "give 960 or 1040")],
)
def test_other_chunks_are_refused_with_the_nearest(chunk_ms: int, advice: str) -> None:
    with pytest.raises(ValueError, match=f"chunk_ms={chunk_ms} is not a multiple of 80 ms: {advice}"):
        chunk_frames(chunk_ms)


@pytest.mark.parametrize(
    ("num_samples", "whole", "covering"), [(0, 0, 0), (1, 0, 1), (1279, 0, 1), (1280, 1, 1), (1281, 1, 2)]
)
def test_frames_around_an_edge(num_samples: int, whole: int, covering: int) -> None:
    assert samples_to_frames(num_samples) == whole
    assert frames_covering(num_samples) == covering
