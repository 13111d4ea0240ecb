"""Intervals against the same by hand, and against theory."""

import numpy as np
import pytest
from scipy import stats

from diarnorm.evaluation.scores import Components, bootstrap_interval
from diarnorm.robustness.intervals import FEW, Figure, mean_of, median_of, ratio_of, share_of, total_of

HOW = (2000, 0)


def test_a_ratio_has_the_interval_of_a_pooled_error_rate() -> None:
    rng = np.random.default_rng(1)
    files = [Components(float(miss), 0.0, 0.0, float(speech)) for miss, speech in rng.uniform(1.0, 5.0, (FEW, 2))]
    found = ratio_of([each.miss_s for each in files], [each.speech_s for each in files], *HOW)
    assert (found.low, found.high) == bootstrap_interval(files, num_resamples=2000, seed=0)
    assert found.value == sum(files, Components()).der


def test_a_mean_has_the_interval_of_the_normal_distribution() -> None:
    values = np.random.default_rng(2).normal(5.0, 2.0, 400)
    found = mean_of([*values, None], *HOW)
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.03)
    assert found.high == pytest.approx(values.mean() + half, abs=0.03)
    total = total_of(values.tolist(), *HOW)
    assert total.low == pytest.approx(400 * (found.low or 0.0), abs=5.0)


def test_intervals_of_few_recordings_are_students() -> None:
    values = [0.1, 0.4, 0.2, 0.9]
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    mean, total = mean_of([*values, None], *HOW), total_of(values, *HOW)
    assert (mean.low, mean.high) == pytest.approx((expected.low, expected.high))
    assert (total.value, total.low, total.high) == pytest.approx((1.6, 4 * expected.low, 4 * expected.high))


def test_recordings_without_any_of_the_whole_make_a_share_no_surer() -> None:
    found = share_of([9.0, 5.0, 0.0, 0.0, 0.0], [10.0, 10.0, 0.0, 0.0, 0.0], *HOW)
    assert found == share_of([9.0, 5.0], [10.0, 10.0], *HOW)
    assert (found.value, found.low, found.high) == (pytest.approx(0.7), 0.0, 1.0)  # of two nothing is known
    assert share_of([9.0], [10.0], *HOW) == Figure(0.9)


def test_medians_count_what_never_came_as_longest() -> None:
    assert median_of([(0.4, 1.0), (0.4, 1.0), (None,), (None,), (), ()], *HOW).value == pytest.approx(1.0)
    half = median_of([(0.1,), (None,), (None,)], *HOW)
    assert (half.value, half.low, half.high) == (None, pytest.approx(0.1), None)
    steady = median_of([(0.5, 0.5), (0.5,)], *HOW)
    assert steady == Figure(0.5, 0.5, 0.5)


def test_nothing_and_one_recording_have_no_interval() -> None:
    assert median_of([(), ()], *HOW) == mean_of([None], *HOW) == total_of([], *HOW) == Figure()
    assert ratio_of([1.0], [0.0], *HOW) == Figure()
    assert mean_of([3.0], *HOW) == total_of([3.0], *HOW) == median_of([(3.0,)], *HOW) == Figure(3.0)
