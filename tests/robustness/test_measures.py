"""Measures on arrays small enough to do by hand."""

import numpy as np
import pytest

from diarnorm.robustness.measures import (
    attention_share,
    distances,
    drift,
    labels_after,
    levels,
    recovery,
    speech_in,
    uniform_share,
)
from diarnorm.turns import Turn

ALL = np.ones(3, bool)


def test_drift_is_the_mean_of_one_minus_cosine_over_speech() -> None:
    clean = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    changed = np.array([[0.0, 1.0], [0.0, 1.0], [0.6, 0.8]])
    frames = np.array([0, -1, 2])
    assert drift(clean, changed, frames, ALL) == pytest.approx((1.0 + 0.4) / 2)
    assert drift(clean, changed, frames, np.array([False, True, True])) == pytest.approx(0.4)
    assert drift(clean, changed, frames, ~ALL) == pytest.approx(0.7)  # nobody speaks: all frames
    assert drift(clean, changed, np.array([-1, -1, -1]), ALL) is None


def test_drift_follows_the_frames() -> None:
    clean = np.eye(4)
    changed = np.concatenate([clean[:2], np.ones((3, 4)) / 2, clean[2:]])
    frames = np.array([0, 1, -1, -1, -1, 2, 3])
    assert drift(clean, changed, frames, np.ones(7, bool)) == pytest.approx(0.0)
    assert drift(clean, changed, np.arange(7).clip(max=3), np.ones(7, bool)) != pytest.approx(0.0)


def test_distances_do_not_care_for_the_order_of_slots() -> None:
    clean = np.array([[0.9, 0.1], [0.8, 0.0], [0.0, 0.7]])
    changed = clean[:, ::-1].copy()
    changed[1, 1] = 0.5
    assert distances(clean, changed, np.arange(3)) == pytest.approx([0.0, 0.3, 0.0])
    assert np.isnan(distances(clean, changed, np.array([0, -1, 2]))[1])


def test_recovery_is_from_the_end_of_the_event_to_where_it_stays() -> None:
    distance = np.zeros(50)
    distance[10:18] = 0.9  # the event is frames 10 to 13
    distance[20] = 0.9  # two frames are not a hold of four
    assert recovery(distance, [(0.8, 1.12)], tolerance=0.2, hold_s=0.32) == [pytest.approx(7 * 0.08)]
    assert recovery(distance, [(0.8, 1.12)], tolerance=0.2, hold_s=0.16) == [pytest.approx(4 * 0.08)]
    assert recovery(distance, [(0.8, 1.12)], tolerance=0.95, hold_s=0.32) == [0.0]


def test_recovery_ends_at_the_next_event() -> None:
    distance = np.full(40, 0.5)
    distance[25:] = 0.0
    events = [(0.8, 1.12), (1.6, 1.92)]  # frames 10 to 13 and 20 to 23
    assert recovery(distance, events, tolerance=0.2, hold_s=0.32) == [None, pytest.approx(0.08)]
    assert recovery(distance, [(0.0, 3.2)], tolerance=0.2, hold_s=0.32) == []  # nothing after it
    assert recovery(distance, [], tolerance=0.2, hold_s=0.32) == []
    assert recovery(np.full(40, np.nan), events[:1], tolerance=0.2, hold_s=0.32) == [None]


def test_labels_after_a_change_are_compared_with_those_of_the_same_moments() -> None:
    """Ten frames, four put in before the fifth; who speaks in which frames of the clean run, and of the changed."""
    frames = np.array([0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7, 8, 9])
    at, event = (lambda a, b, who: Turn(0.08 * a, 0.08 * b, who)), [(0.32, 0.64)]
    clean = [at(0, 4, "x"), at(4, 7, "x"), at(6, 9, "y")]
    same = [at(0, 4, "x"), at(8, 11, "x"), at(10, 13, "y")]
    assert labels_after(clean, same, frames, event) == pytest.approx((4 * 0.08, 4 * 0.08))  # not where both speak
    other = [at(0, 4, "x"), at(8, 11, "z"), at(10, 13, "y")]  # the first two
    assert labels_after(clean, other, frames, event) == pytest.approx((4 * 0.08, 2 * 0.08))
    missed = [at(0, 4, "z"), at(10, 13, "y")]  # before it is not asked
    assert labels_after(clean, missed, frames, event) == pytest.approx((2 * 0.08, 2 * 0.08))
    assert labels_after(clean, same, frames, []) == (0.0, 0.0)
    assert labels_after(clean, same, frames, [(0.0, 2.0)]) == (0.0, 0.0)
    twice = labels_after(clean, other, frames, [*event, (0.72, 0.8)])  # frame 9, where the second x is z
    assert twice == pytest.approx((3 * 0.08, 2 * 0.08))


def test_moved_edges_and_overlaps_are_no_other_labels() -> None:
    """After frame 1: y goes on for two frames more, into x, and starts an overlap; who it is stays the same."""
    frames, at = np.arange(12), (lambda a, b, who: Turn(0.08 * a, 0.08 * b, who))
    clean = [at(2, 6, "y"), at(6, 12, "x")]
    moved = [at(2, 8, "y"), at(6, 12, "x"), at(11, 12, "y")]
    after_s, same_s = labels_after(clean, moved, frames, [(0.0, 0.08)])
    assert after_s == pytest.approx(7 * 0.08)  # 2 to 5, and 8 to 10
    assert same_s == after_s


def test_attention_share_by_hand() -> None:
    # Chunks of 2 frames, left context 2, so windows of 4: chunk 0 sees frames -2..1, chunk 1 0..3, chunk 2 2..5.
    weights = np.array([[[0.0, 0.0, 0.3, 0.7], [0.1, 0.2, 0.3, 0.4], [0.4, 0.4, 0.1, 0.1]]])
    marked = np.array([False, True, False, False, False, False])
    assert attention_share(weights, marked, 2) == [pytest.approx((0.7 + 0.2) / 2)]  # chunk 2 does not see it
    assert attention_share(weights, ~marked, 2) == [pytest.approx((0.3 + 0.8 + 1.0) / 3)]
    assert attention_share(weights, np.ones(6, bool), 2) is None
    assert attention_share(weights, np.zeros(6, bool), 2) is None
    assert uniform_share(6, 4, marked, 2) == pytest.approx((1 / 2 + 1 / 4) / 2)


def test_levels_are_root_mean_squares() -> None:
    powers = np.array([[1.0, 9.0, 16.0, 4.0]])
    assert levels(powers) == [pytest.approx(np.sqrt(7.5))]
    assert levels(powers, np.array([False, True, True, False])) == [pytest.approx(np.sqrt(12.5))]
    assert levels(powers, np.zeros(4, bool)) is None


def test_speech_in_spans_counts_people_once_and_leaves_edges_out() -> None:
    turns = [Turn(0.0, 3.0, "a"), Turn(2.0, 5.0, "b"), Turn(8.0, 9.0, "a")]
    assert speech_in(turns, [(1.0, 10.0)]) == pytest.approx(5.0)
    assert speech_in(turns, [(1.0, 10.0)], edge_s=0.5) == pytest.approx(4.5)
    assert speech_in(turns, [(5.0, 8.0)]) == 0.0
    assert speech_in(turns, [(2.0, 2.8)], edge_s=0.5) == 0.0
