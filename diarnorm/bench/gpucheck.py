"""`diarnorm bench norm --gpu-check`: are the kernels right and fast on this NVIDIA GPU? Under four minutes, and with
nothing but torch, Triton and this package.

Correctness against float64; share of copy bandwidth; eight shapes against the best of the others and against the
traffic's limit; cost of a call on the host; a whole streaming step as one CUDA graph, and what the norms take of it.
Apart from the clock and the graph everything here runs on a CPU as well, which is how it is tested.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from diarnorm.bench.contestants import (
    BASELINE,
    OURS,
    forward_call,
    make_contestants,
    make_inputs,
    traffic_bytes,
    training_call,
)
from diarnorm.bench.stopwatch import measure_machine, seconds_per_call
from diarnorm.kernels import add_rms_norm, reference, rms_norm
from diarnorm.model import Model, ModelConfig
from diarnorm.norms import EPS
from diarnorm.timebase import FRAME_MS

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = (7, 80, 256, 769, 8192, 16385)
RELATIVE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Largest error, relative to the magnitude before anything cancels."""
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


class Finding(NamedTuple):
    """One measured figure; `passed` is None where there is no bar. Of a result, which is right or wrong, or a speed."""

    what: str
    figure: str
    bar: str = ""
    passed: bool | None = None
    is_result: bool = False


def gpu_check() -> int:
    """Print every finding; 0 when all results are right, 1 when one is wrong (bars of speed do not count).

    Raises ValueError without an NVIDIA GPU.
    """
    if not torch.cuda.is_available():
        raise ValueError("--gpu-check needs an NVIDIA GPU, and torch finds none here: run it on a machine with one")
    device, begin = torch.device("cuda", torch.cuda.current_device()), time.monotonic()
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, built for CUDA {torch.version.cuda}")
    checks = (check_results, check_large_tensor, check_bandwidth, check_shapes, check_host, check_step)
    right = tell(finding for check in checks for finding in check(device))
    print(f"{time.monotonic() - begin:.0f} s")
    return 0 if right else 1


def tell(findings: Iterable[Finding]) -> bool:
    """Print findings as they come; whether all results are right."""
    right = True
    for finding in findings:
        print(line(finding), flush=True)
        right &= not (finding.is_result and finding.passed is False)
    return right


def line(finding: Finding) -> str:
    """A finding as a line of text."""
    verdict = {None: "", True: "ok", False: "WRONG" if finding.is_result else "BELOW THE BAR"}[finding.passed]
    return f"{finding.what:44} {finding.figure:>28}  {finding.bar:24} {verdict}".rstrip()


# ---- results ------------------------------------------------------------------------------------------------


def check_results(device: torch.device, sizes: tuple[int, ...] = SIZES, rows: int = 37) -> Iterator[Finding]:
    """Errors against float64 over sizes, dtypes, layouts and masks; bits of a row alone; the same gradients twice."""
    for dtype in DTYPES:
        worst = max(_worst_error(dim, dtype, rows, device, masked) for dim in sizes for masked in (False, True))
        what = f"error / bound, {_name(dtype)}, D {sizes[0]}..{sizes[-1]}"
        yield Finding(what, f"{worst:.3f}", "at most 1", worst <= 1, is_result=True)
    same = all(_row_alone(dim, dtype, device) for dim, dtype in product(sizes, DTYPES))
    yield Finding("a row alone has its bits in a batch", str(same), "True", same, is_result=True)
    repeated = all(_twice_the_same(dim, device) for dim in sizes)
    yield Finding("gradients are the same every time", str(repeated), "True", repeated, is_result=True)


def _worst_error(dim: int, dtype: torch.dtype, rows: int, device: torch.device, masked: bool) -> float:
    """Largest error of y, r, dx, dresidual and dw in units of what is allowed."""
    wide = make_inputs(rows, dim + 3, dtype, device, seed=dim)
    x, dy = wide.x[:, 1 : dim + 1], wide.dy[:, :dim]
    weight, residual = wide.weight[:dim].float(), make_inputs(rows, dim, torch.float32, device, seed=1).x
    mask = torch.arange(rows, device=device) % 3 != 0 if masked else None
    y, r, gradients = _run(add_rms_norm, x, residual, weight, dy, mask)
    nothing = torch.zeros_like(r, dtype=torch.float64)
    true, _, exact = _run(reference.add_rms_norm, nothing, r.double(), weight.double(), dy.double(), mask)
    total, magnitude = exact[1], _magnitude(r, weight, dy, mask)
    bound = RELATIVE[dtype]
    pairs = [
        (y, true, true.abs(), bound),
        (gradients[0], 0.5 * total, 0.5 * magnitude, bound),
        (gradients[1], total, magnitude, RELATIVE[torch.float32]),
        (gradients[2], exact[2], torch.ones_like(exact[2]), 5e-6 * rows**0.5),
    ]
    return max(_in_units(got, want, allowed, share) for got, want, allowed, share in pairs)


def _run(
    function: Callable[..., tuple[Tensor, Tensor]],
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    dy: Tensor,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """y, r and the gradients of x, residual and weight, where r's own gradient is 1."""
    leaves = [tensor.detach().requires_grad_() for tensor in (x, residual, weight)]
    y, r = function(*leaves, EPS, 0.5, mask=mask)
    gradients = torch.autograd.grad([y, r], leaves, [dy, torch.ones_like(r)])
    return y.detach(), r.detach(), list(gradients)


def _magnitude(r: Tensor, weight: Tensor, dy: Tensor, mask: Tensor | None) -> Tensor:
    """Size of the residual's gradient before anything cancels."""
    r, pull = r.double(), (dy.double() * weight.double()).abs()
    rstd = torch.rsqrt(r.square().mean(dim=-1, keepdim=True) + EPS)
    normed = (r * rstd).abs()
    size = rstd * (pull + normed * (pull * normed).mean(dim=-1, keepdim=True)) + 1.0
    return size if mask is None else torch.where(mask[:, None], size, 0.0)


def _in_units(got: Tensor, want: Tensor, magnitude: Tensor, share: float) -> float:
    allowed = share * magnitude + torch.finfo(got.dtype).tiny
    return float(((got.double() - want).abs() / allowed).nan_to_num(nan=torch.inf).max())


def _row_alone(dim: int, dtype: torch.dtype, device: torch.device) -> bool:
    inputs = make_inputs(64, dim, dtype, device)
    whole = rms_norm(inputs.x, inputs.weight, EPS)
    return all(
        torch.equal(rms_norm(inputs.x[row : row + size], inputs.weight, EPS), whole[row : row + size])
        for row, size in ((0, 1), (63, 1), (5, 2), (17, 7))
    )


def _twice_the_same(dim: int, device: torch.device) -> bool:
    inputs = make_inputs(3001 if dim < 1024 else 301, dim, torch.float32, device, gradients=True)
    first, second = (torch.autograd.grad(rms_norm(*inputs[:2], EPS), inputs[:2], inputs.dy) for _ in range(2))
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def check_large_tensor(device: torch.device, rows: int = 2**23 + 16) -> Iterator[Finding]:
    """The last row of a tensor with more than 2^31 elements; needs 9 GB, left out where 13 are not free."""
    what = f"row {rows} of {rows} x 256"
    if device.type == "cuda" and torch.cuda.mem_get_info(device)[0] < 3 * 512 * rows:
        yield Finding(what, "left out: too little memory")
        return
    x = torch.zeros(rows, 256, dtype=torch.bfloat16, device=device)
    x[-1] = 1.0
    y = rms_norm(x, torch.ones(256, dtype=torch.bfloat16, device=device), EPS)
    right = bool((y[-1] == 1).all()) and not bool(y[: rows // 2].any()) and not bool(y[rows // 2 : -1].any())
    yield Finding(what, "right" if right else "wrong", "right", right, is_result=True)


# ---- speed --------------------------------------------------------------------------------------------------


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


def make_step(
    config: ModelConfig, device: torch.device, chunk: int
) -> tuple[Callable[[], list[Tensor]], Callable[[], list[Tensor]]]:
    """One chunk of sound through a model with random weights; and what the last step gave."""
    torch.manual_seed(0)
    model = Model(config).to(device).eval()
    samples = 0.1 * torch.randn(1, model.chunk_samples(chunk), device=device)
    with torch.inference_mode():
        _, state = model(samples, chunk=chunk)
    last: list[Tensor] = []

    def step() -> list[Tensor]:
        with torch.inference_mode():
            output, _ = model(samples, state, chunk=chunk)
        last[:] = output
        return last

    return step, lambda: last


def capture(step: Callable[[], object]) -> Callable[[], object]:
    """The launches of a step, recorded once and replayed as one."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
