"""Claim 13: how near a norm comes to the speed of copying, from kilobytes to a gigabyte per call."""

from dataclasses import dataclass

import torch

from diarnorm.bench.contestants import OURS, forward_call, make_contestants, make_inputs, traffic_bytes
from diarnorm.bench.graph import capture
from diarnorm.bench.stopwatch import MIN_ROUNDS, Machine, compare, find_device, measure_machine
from diarnorm.checks import check_range
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, geometric, number
from diarnorm.training.heap import keep_freed_memory

LARGE_BYTES = 8 << 20
STREAM_ROWS = 16
"""Frames that a stream brings at a time, about."""
OPERATORS = "eager"
"""The contestant that is RMSNorm of six operators."""
CAPTURED_CALLS = 50


@dataclass(frozen=True)
class BandwidthConfig:
    """Calls of `dim` float32 features and so many rows that x and y together take each of `sizes_kb`."""

    dim: int = 256
    sizes_kb: tuple[int, ...] = (2, 32, 128, 1024, 8192, 16384, 32768, 65536)
    rounds: int = 9
    device: str = ""

    def __post_init__(self) -> None:
        check_range("dim", self.dim, low=1)
        check_range("rounds", self.rounds, low=MIN_ROUNDS)
        for size in self.sizes_kb:
            check_range("sizes_kb", size, low=1)
        if max(self.sizes_kb, default=0) << 10 < LARGE_BYTES:
            raise ValueError(
                f"sizes_kb={list(self.sizes_kb)} has no large call: give one of {LARGE_BYTES >> 10} or more"
            )


@dataclass(frozen=True)
class Point:
    """Calls of one size: shares of copy bandwidth in %, of one kernel and of six operators, and their ratio."""

    rows: int
    kilobytes: float
    fused: float
    fused_interval: tuple[float, float]
    """By the ratio of its time to that of six operators, as is `fused`."""
    parts: float
    speedup: float
    captured: float | None
    """Share of one kernel within a CUDA graph."""


def bandwidth(config: BandwidthConfig) -> Evidence:
    """Shares of the copy bandwidth measured in the same process, and where the launch stops mattering."""
    device = find_device(config.device)
    keep_freed_memory()  # else large results come new from the system each time, page by page
    machine = measure_machine(device)
    points = [_point(config, size_kb << 10, device, machine) for size_kb in sorted(config.sizes_kb)]
    stream = _point(config, 2 * 4 * STREAM_ROWS * config.dim, device, machine)
    large = [point for point in points if 1000 * point.kilobytes >= LARGE_BYTES]
    crossover_kb = machine.floor_us * machine.copy_gb_per_s
    return Evidence(
        "bandwidth",
        (
            geometric("large_share", [point.fused for point in large]),
            geometric("large_speedup", [point.speedup for point in large]),
            Measure("small_share", stream.fused, *stream.fused_interval),
        ),
        (_table(points, f"float32, {config.dim} features, {device.type}"),),
        (_plot(points),),
        (
            f"Copying a large buffer runs at {machine.copy_gb_per_s:.1f} GB/s, the smallest call of torch takes "
            f"{machine.floor_us:.2f} us: in that time copying moves {number(crossover_kb)} kB. Calls below it are paid "
            "for the launch.",
            "Tensors that fit into a cache go beyond 100 %.",
        ),
    )


def _table(points: list[Point], what: str) -> Table:
    rows = tuple(
        (
            f"{number(p.kilobytes)} kB ({p.rows} rows)",
            f"{p.fused:.0f} %",
            f"{p.parts:.0f} %",
            f"{p.speedup:.2f}",
            "-" if p.captured is None else f"{p.captured:.0f} %",
        )
        for p in points
    )
    columns = ("x and y together", "one kernel", "six operators", "times faster", "in a CUDA graph")
    return Table(f"Share of copy bandwidth, {what}", columns, rows)


def _plot(points: list[Point]) -> Plot:
    sizes = tuple(point.kilobytes for point in points)
    lines = [
        Series("one kernel", sizes, tuple(p.fused for p in points)),
        Series("six operators", sizes, tuple(p.parts for p in points)),
    ]
    captured = [(p.kilobytes, p.captured) for p in points if p.captured is not None]
    if captured:
        lines.append(Series("one kernel in a graph", *(tuple(v) for v in zip(*captured, strict=True))))
    x, y = "x and y together, kB", "% of copy bandwidth"
    return Plot("How near to copying", x, y, tuple(lines), log_x=True, lines=(100.0,))


def _point(config: BandwidthConfig, num_bytes: int, device: torch.device, machine: Machine) -> Point:
    rows = max(1, num_bytes // (2 * 4 * config.dim))
    inputs = make_inputs(rows, config.dim, torch.float32, device)
    by_name = {each.name: each for each in make_contestants(device, compiled=False)}
    fused, parts = (forward_call(by_name[name].bind, inputs) for name in (OURS, OPERATORS))
    with torch.inference_mode():
        found = compare(parts, fused, device, config.rounds)
    traffic = traffic_bytes(rows, config.dim, torch.float32, backward=False)

    def share(seconds: float) -> float:
        return 100 * traffic / seconds / 1e9 / machine.copy_gb_per_s

    captured = None
    if device.type == "cuda":
        replay = capture(lambda: [fused() for _ in range(CAPTURED_CALLS)])
        captured = share(compare(parts, replay, device, config.rounds).other_s / CAPTURED_CALLS)
    value, low, high = (share(found.baseline_s * ratio) for ratio in (found.ratio, found.high, found.low))
    return Point(
        rows,
        traffic / 1e3,
        value,
        (low, high),
        share(found.baseline_s),
        1 / found.ratio,
        captured,
    )
