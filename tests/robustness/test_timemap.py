"""Time of a changed recording in the clean one, by hand and against samples that carry their own number."""

import numpy as np
import pytest

from diarnorm.robustness.sound import Sound, insert
from diarnorm.robustness.timemap import TimeMap, frames_in
from diarnorm.timebase import FRAME_SAMPLES


def test_nothing_put_in_changes_nothing() -> None:
    assert TimeMap.of(()).clean_frames(5, 4).tolist() == [0, 1, 2, 3, -1]


@pytest.mark.parametrize("places", [[(0, 2560)], [(5000, 16_000)], [(3000, 1300), (20_000, 8000), (48_000, 999)]])
def test_frames_hold_the_samples_they_are_said_to_hold(places: list[tuple[int, int]]) -> None:
    numbers = np.arange(40 * FRAME_SAMPLES, dtype=np.float32)
    sound = Sound(numbers)
    for at, length in places:
        sound = insert(sound, [at], np.full(length, -1.0))
    changes = TimeMap.of(sound.inserted)
    num_frames = len(sound.samples) // FRAME_SAMPLES
    middles = sound.samples[FRAME_SAMPLES // 2 :: FRAME_SAMPLES][:num_frames]
    expected = np.where(middles < 0, -1, middles // FRAME_SAMPLES)
    assert changes.clean_frames(num_frames, 40).tolist() == expected.astype(int).tolist()
    assert (expected < 0).any()


def test_regions_keep_what_was_put_in_between_their_ends() -> None:
    changes = TimeMap(((0, 16_000), (48_000, 64_000)))  # a second in front, and one after two clean seconds
    assert changes.region([(0.0, 5.0)]) == [(0.0, 7.0)]
    assert changes.region([(0.5, 1.0), (2.5, 3.0)]) == [(1.5, 2.0), (4.5, 5.0)]


def test_frames_in_spans() -> None:
    assert np.flatnonzero(frames_in([(0.08, 0.16), (0.25, 0.33), (9.0, 10.0)], 8)).tolist() == [1, 3, 4]
