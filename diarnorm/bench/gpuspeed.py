"""Are the kernels fast on this device? Share of copy bandwidth, eight shapes against the best of the others and against
the limit of traffic, cost of a call on the host, a whole streaming step as one CUDA graph and what its norms take.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch

from diarnorm.bench.contestants import (
    BASELINE,
    OURS,
    forward_call,
    make_contestants,
    make_inputs,
    traffic_bytes,
    training_call,
)
from diarnorm.bench.findings import Finding
from diarnorm.bench.graph import capture, make_step
from diarnorm.bench.stopwatch import measure_machine, seconds_per_call
from diarnorm.kernels import rms_norm
from diarnorm.model import ModelConfig
from diarnorm.norms import EPS
from diarnorm.timebase import FRAME_MS

SHAPES = (
    (10, 256),
    (1_000, 256),
    (8_192, 256),
    (65_536, 256),
    (65_536, 80),
    (16_384, 1024),
    (8_192, 4096),
    (4_096, 8192),
)
"""Rows and features: a streaming chunk, a training batch of speech, and what language models ask for."""
BANDWIDTH_BARS = ((80, None), (256, 0.75), (512, None), (1024, 0.85), (4096, 0.85), (8192, 0.85))
"""Feature counts and the least share of copy bandwidth at 64 MB and more."""
BANDWIDTH_BYTES = 1 << 28
SLACK = 1.05
"""Forward and backward may take this much of the best other's time."""
HOST_US, NORM_SHARE = 10.0, 0.10


def check_bandwidth(device: torch.device, num_bytes: int = BANDWIDTH_BYTES) -> Iterator[Finding]:
    """Forward pass in bfloat16: traffic over time, as a share of copying."""
    machine = measure_machine(device, copy_bytes=4 * num_bytes)
    yield Finding("copy bandwidth", f"{machine.copy_gb_per_s:.0f} GB/s")
    for dim, bar in BANDWIDTH_BARS:
        rows = max(1, num_bytes // (2 * 2 * dim))
        inputs = make_inputs(rows, dim, torch.bfloat16, device)
        time_s = seconds_per_call(lambda inputs=inputs: rms_norm(inputs.x, inputs.weight, EPS), device)
        share = traffic_bytes(rows, dim, torch.bfloat16, backward=False) / time_s / 1e9 / machine.copy_gb_per_s
        needed = "" if bar is None else f"at least {100 * bar:.0f} %"
        yield Finding(
            f"forward, {rows} x {dim}", f"{100 * share:.1f} % of copying", needed, None if bar is None else share >= bar
        )


def check_shapes(
    device: torch.device, shapes: tuple[tuple[int, int], ...] = SHAPES, compiled: bool = True
) -> Iterator[Finding]:
    """Forward, and forward with backward, in bfloat16: against the best of the others, LayerNorm, and the limit."""
    machine = measure_machine(device)
    contestants = make_contestants(device, dtype=torch.bfloat16, compiled=compiled)
    for (rows, dim), make_call in product(shapes, (forward_call, training_call)):
        training = make_call is training_call
        inputs = make_inputs(rows, dim, torch.bfloat16, device, gradients=training)
        times = {c.name: seconds_per_call(make_call(c.bind, inputs), device, rounds=7) for c in contestants}
        own = times.pop(OURS)
        best = min((name for name in times if name != BASELINE), key=times.__getitem__)
        limit_s = traffic_bytes(rows, dim, torch.bfloat16, backward=training) / machine.copy_gb_per_s / 1e9
        figure = f"{1e6 * own:.1f} us = {own / times[best]:.2f} of {best}"
        bar = f"LN {1e6 * times[BASELINE]:.1f}, limit {1e6 * limit_s:.1f} us"
        name = "forward+backward" if training else "forward"
        yield Finding(f"{name}, {rows} x {dim}", figure, bar, own <= SLACK * times[best] if training else None)


def check_host(device: torch.device, calls: int = 200) -> Iterator[Finding]:
    """Time to launch without gradients, while the device is far behind; and what a small norm takes within a graph."""
    inputs = make_inputs(10, 256, torch.bfloat16, device)

    def norms() -> None:
        for _ in range(calls):
            rms_norm(inputs.x, inputs.weight, EPS)

    times = []
    with torch.no_grad():
        norms()
        for _ in range(9):
            _finish(device)
            begin = time.perf_counter()
            norms()
            times.append((time.perf_counter() - begin) / calls)
        _finish(device)
        replay = capture(norms) if device.type == "cuda" else norms
        graph_us = 1e6 * seconds_per_call(replay, device, rounds=7) / calls
    host_us = 1e6 * min(times)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    fast = host_us <= HOST_US
    yield Finding(f"host time per call (load {load:.1f})", f"{host_us:.1f} us", f"at most {HOST_US:.0f} us", fast)
    yield Finding("10 x 256 within a graph", f"{graph_us:.2f} us")


def check_step(device: torch.device, config: ModelConfig | None = None, chunk: int = 6) -> Iterator[Finding]:
    """A streaming step of the whole model at batch 1, as one CUDA graph; and the share of its norms: what the same
    step takes less with `norm=none`."""
    config = ModelConfig() if config is None else config
    times = {}
    for norm in ("rms", "layer", "none"):
        step, result = make_step(replace(config, encoder=replace(config.encoder, norm=norm)), device, chunk)
        expected = [tensor.clone() for tensor in step()]
        if device.type == "cuda":
            step = capture(step)
            step()
        same = all(torch.allclose(a, b, atol=1e-4) for a, b in zip(result(), expected, strict=True))
        times[norm] = seconds_per_call(step, device, rounds=9)
        what, figure = f"step of {FRAME_MS * chunk} ms, {norm}, batch 1", f"{1e6 * times[norm]:.0f} us"
        yield Finding(what, figure, "results as without graph", same, is_result=True)
    share = 1 - times["none"] / times["rms"]
    yield Finding(
        "share of the norms", f"{100 * share:.1f} %", f"at most {100 * NORM_SHARE:.0f} %", share <= NORM_SHARE
    )


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
