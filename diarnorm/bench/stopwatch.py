"""Comparing the time of two calls on one machine, pair by pair, so that what else the machine does hits both alike.

On a GPU its own clock counts; on one CPU thread that thread's CPU time, which other processes cannot lengthen by taking
the processor away; on several threads the clock on the wall.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

import torch

from diarnorm import stream

Call = Callable[[], object]

MIN_SAMPLE_S = 1e-3
"""Least duration of one sample; shorter calls are repeated within it."""
CONFIDENCE = 0.95
MIN_ROUNDS = 6
"""Fewer values lie all on one side of their median in more than 5 % of all cases: they have no such interval."""
COPY_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
"""Size of the buffer that is copied to measure bandwidth: beyond any cache."""


@dataclass(frozen=True)
class Comparison:
    """Times per call of the baseline and of the other, and their ratio with the interval of its median, as of
    `interval_of`."""

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


def find_device(name: str | None) -> torch.device:
    """The device called `name`, one that can be timed; without a name a GPU where there is one.

    Raises:
        ValueError: no such device on this machine, or none of NVIDIA's and no CPU.
    """
    device = stream.find_device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type not in COPY_BYTES:
        raise ValueError(f"device={name} cannot be timed: give {' or '.join(COPY_BYTES)}")
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device


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
    return Comparison(
        median(baseline_s for baseline_s, _ in pairs),
        median(other_s for _, other_s in pairs),
        median(ratios),
        *interval_of(ratios),
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


def interval_of(values: Iterable[float]) -> tuple[float, float]:
    """95 % interval of the median of values, from `-inf` to `inf` for fewer than `MIN_ROUNDS`.

    >>> interval_of([3.0, 1.0, 2.0, 5.0, 4.0, 6.0]), interval_of([1.0, 2.0])
    ((1.0, 6.0), (-inf, inf))
    """
    ordered = sorted(values)
    if len(ordered) < MIN_ROUNDS:
        return -math.inf, math.inf
    low, high = median_interval(len(ordered))
    return ordered[low], ordered[high]


def spoken_interval(low: float, high: float, digits: int = 3) -> str:
    """An interval for a table; `-` where it is not known.

    >>> spoken_interval(1.0, 2.0), spoken_interval(12.4, 48.2, digits=0), spoken_interval(-math.inf, math.inf)
    ('1.000..2.000', '12..48', '-')
    """
    return f"{low:.{digits}f}..{high:.{digits}f}" if math.isfinite(high - low) else "-"


def median_interval(count: int) -> tuple[int, int]:
    """Indices into `count` sorted values, at least `MIN_ROUNDS`, that enclose their median with 95 % confidence,
    whatever the distribution.

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
