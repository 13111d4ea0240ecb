"""Comparing the time of two calls on one machine, pair by pair, so that what else the machine does hits both alike.

On a GPU its own clock counts; on one CPU thread that thread's CPU time, which other processes cannot lengthen by taking
the processor away; on several threads the clock on the wall.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

Call = Callable[[], object]

MIN_SAMPLE_S = 1e-3
"""Least duration of one sample; shorter calls are repeated within it."""
CONFIDENCE = 0.95
COPY_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
"""Size of the buffer that is copied to measure bandwidth: beyond any cache."""


@dataclass(frozen=True)
class Comparison:
    """Times per call of the baseline and of the other, and their ratio with the interval of its median."""

    baseline_s: float
    other_s: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Machine:
    """What the figures are measured on."""

    device: str
    copy_gb_per_s: float
    floor_us: float
    """Time of the smallest call of torch: copying one number."""


def compare(
    baseline: Call, other: Call, device: torch.device, rounds: int = 15, min_sample_s: float = MIN_SAMPLE_S
) -> Comparison:
    """Time both in turns, `rounds` pairs, the first of a pair alternating."""
    calls = (baseline, other)
    repeats = [_repeats(call, device, min_sample_s) for call in calls]
    pairs = []
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        times = [0.0, 0.0]
        for index in order:
            times[index] = sample(calls[index], device, repeats[index])
        pairs.append(times)
    ratios = sorted(other_s / baseline_s for baseline_s, other_s in pairs)
    low, high = median_interval(rounds)
    return Comparison(
        median(baseline_s for baseline_s, _ in pairs),
        median(other_s for _, other_s in pairs),
        median(ratios),
        ratios[low],
        ratios[high],
    )


def seconds_per_call(call: Call, device: torch.device, rounds: int = 15, min_sample_s: float = MIN_SAMPLE_S) -> float:
    """Median time of a call."""
    repeats = _repeats(call, device, min_sample_s)
    return median(sample(call, device, repeats) for _ in range(rounds))


def sample(call: Call, device: torch.device, repeats: int) -> float:
    """Seconds per call over `repeats` calls in a row."""
    if device.type != "cuda":
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        begin = clock()
        for _ in range(repeats):
            call()
        return (clock() - begin) / repeats
    begin_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin_event.record()
    for _ in range(repeats):
        call()
    end_event.record()
    end_event.synchronize()
    return begin_event.elapsed_time(end_event) / 1000 / repeats


def measure_machine(device: torch.device, copy_bytes: int | None = None) -> Machine:
    """Copy bandwidth over a large buffer (reading and writing count), and the time of copying one number."""
    size = (COPY_BYTES[device.type] if copy_bytes is None else copy_bytes) // 4
    source, target = torch.rand(size, device=device), torch.rand(size, device=device)
    copy_s = seconds_per_call(lambda: target.copy_(source), device, rounds=7)
    floor_s = seconds_per_call(lambda: target[:1].copy_(source[:1]), device, rounds=7)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    return Machine(name, 2 * 4 * size / copy_s / 1e9, floor_s * 1e6)


def median_interval(count: int) -> tuple[int, int]:
    """Indices into `count` sorted values that enclose their median with 95 % confidence, whatever the distribution.

    >>> median_interval(15)
    (3, 11)
    """
    low, tail = 0, 2 * 0.5**count
    while low < (count - 1) // 2 and tail + 2 * math.comb(count, low + 1) * 0.5**count <= 1 - CONFIDENCE:
        low += 1
        tail += 2 * math.comb(count, low) * 0.5**count
    return low, count - 1 - low


def _repeats(call: Call, device: torch.device, min_sample_s: float) -> int:
    """Calls per sample; the first calls, which compile and allocate, are not timed."""
    sample(call, device, 2)
    repeats = 1
    while sample(call, device, repeats) * repeats < min_sample_s and repeats < 1 << 16:
        repeats *= 2
    return repeats
