"""Pairs of times: the interval of a median against the binomial distribution, ratios of calls whose time is known."""

import math
import random
from collections.abc import Iterator

import pytest
import torch

from diarnorm.bench import stopwatch
from diarnorm.bench.stopwatch import (
    MIN_ROUNDS,
    compare,
    find_device,
    measure_machine,
    median_interval,
    sample,
    seconds_per_call,
)

CPU = torch.device("cpu")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock that calls advance themselves, one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    clock = [0.0]
    monkeypatch.setattr(stopwatch.time, "thread_time", lambda: clock[0])
    yield clock
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [6, 7, 9, 15, 21, 51])
def test_the_interval_holds_the_median_in_95_percent(count: int) -> None:
    """The narrowest such interval: P(median outside) = 2 P(Binomial(count, 1/2) <= low) <= 5 %."""

    def outside(low: int) -> float:
        return 2 * sum(math.comb(count, k) for k in range(low + 1)) / 2**count

    low, high = median_interval(count)
    assert low + high == count - 1
    assert outside(low) <= 0.05 < outside(low + 1)


def test_too_few_pairs_have_no_interval(now: list[float]) -> None:
    """The whole range of five values misses the median in 2 / 2^5 of all cases, that of six in 2 / 2^6."""
    assert 2 / 2 ** (MIN_ROUNDS - 1) > 0.05 > 2 / 2**MIN_ROUNDS

    def call() -> None:
        now[0] += 2e-3

    found = {rounds: compare(call, call, CPU, rounds=rounds) for rounds in (1, 5, 6)}
    unknown = (-math.inf, math.inf)
    assert [(each.low, each.high) == unknown for each in found.values()] == [True, True, False]
    assert all(each.ratio == pytest.approx(1.0) for each in found.values())


def test_the_interval_covers_in_simulation() -> None:
    low, high = median_interval(15)
    generator, inside = random.Random(0), 0
    for _ in range(2000):
        values = sorted(generator.expovariate(math.log(2)) for _ in range(15))  # median 1
        inside += values[low] <= 1.0 <= values[high]
    assert 0.94 <= inside / 2000 <= 0.98


def test_a_ratio_that_is_known(now: list[float]) -> None:
    """Everything gets slower and slower; pairs cancel it, two separate averages would not."""
    slowness = [1.0]

    def call(cost_s: float) -> None:
        now[0] += cost_s * slowness[0]
        slowness[0] *= 1.001

    found = compare(lambda: call(2e-3), lambda: call(3e-3), CPU, rounds=15)
    assert found.ratio == pytest.approx(1.5, rel=2e-3)
    assert found.low <= found.ratio <= found.high
    assert found.high - found.low < 0.01
    assert found.other_s > 3e-3


def test_only_what_has_a_clock_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_device("cpu") == CPU
    monkeypatch.setattr(stopwatch.stream, "find_device", torch.device)
    with pytest.raises(ValueError, match="device=mps cannot be timed: give cpu or cuda"):
        find_device("mps")


def test_short_calls_are_repeated_within_a_sample(now: list[float]) -> None:
    calls = [0]

    def call() -> None:
        calls[0] += 1
        now[0] += 1e-5

    assert seconds_per_call(call, CPU, rounds=3, min_sample_s=1e-3) == pytest.approx(1e-5)
    assert calls[0] >= 3 * 100
    assert sample(call, CPU, 7) == pytest.approx(1e-5)


def test_several_threads_are_timed_by_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 3.0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: next(times))
    assert sample(lambda: None, CPU, 4) == 0.5


def test_machine_counts_reading_and_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1e-3, 3e-6])
    monkeypatch.setattr(stopwatch, "seconds_per_call", lambda *arguments, **options: next(times))
    machine = measure_machine(CPU, copy_bytes=1 << 20)
    assert machine.copy_gb_per_s == pytest.approx(2 * 2**20 / 1e-3 / 1e9)
    assert machine.floor_us == pytest.approx(3.0)
