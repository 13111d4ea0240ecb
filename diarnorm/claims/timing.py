"""Claim 2: time of RMSNorm over LayerNorm's, in every form, and in a streaming step of the whole model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from diarnorm.bench.contestants import (
    BASELINE,
    OURS,
    Contestant,
    forward_call,
    make_contestants,
    make_inputs,
    training_call,
)
from diarnorm.bench.graph import capture, make_step
from diarnorm.bench.stopwatch import MIN_ROUNDS, Comparison, compare, find_device
from diarnorm.checks import check_choice, check_range
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, geometric, number
from diarnorm.model import ModelConfig
from diarnorm.timebase import FRAME_MS

FORMS = {
    "eager": ("ratio_eager", "eager", BASELINE),
    "F.rms_norm": ("ratio_torch", "F.rms_norm", BASELINE),
    "torch.compile": ("ratio_compiled", "torch.compile", BASELINE),
    "one kernel": ("ratio_fused", OURS, BASELINE),
    "ONNX Runtime": ("ratio_onnx", "ONNX rms_norm", "ONNX layer_norm"),
}
"""Forms of RMSNorm: the measure, the contestant, and the LayerNorm that it is compared with."""
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class TimeConfig:
    """Sizes and dtypes; the device is `cuda` where there is one, unless given."""

    dims: tuple[int, ...] = (80, 256, 1024)
    rows: tuple[int, ...] = (1, 100, 8000)
    dtypes: tuple[str, ...] = ("float32",)
    backward: bool = False
    """Forward and backward together."""
    compiled: bool = True
    """With torch.compile, which takes a while."""
    step_frames: int = 12
    """Frames of 80 ms in the streaming step."""
    rounds: int = 15
    device: str = ""

    def __post_init__(self) -> None:
        for dtype in self.dtypes:
            check_choice("dtypes", dtype, DTYPES)
        for name in ("dims", "rows"):
            for value in getattr(self, name):
                check_range(name, value, low=1)
        check_range("rounds", self.rounds, low=MIN_ROUNDS)
        check_range("step_frames", self.step_frames, low=1)


Found = tuple[str, str, int, int, Comparison]
"""Form, dtype, features, rows, and the comparison."""


def time_ratios(config: TimeConfig) -> Evidence:
    """Every form at every size, pair by pair; each form's figure is the geometric mean over sizes, with Student's
    interval over them."""
    device = find_device(config.device)
    found = list(_ratios(config, device))
    by_form = {form: [each[-1] for each in found if each[0] == form] for form in FORMS}
    measures = [
        geometric(FORMS[form][0], [one.ratio for one in comparisons])
        for form, comparisons in by_form.items()
        if comparisons
    ]
    with torch.inference_mode():
        step = _compare_steps(config, device)
    measures.append(_measure("ratio_step", step))
    return Evidence(
        "time",
        tuple(measures),
        (_table(found, step, config, device),),
        (_plot(found, config),),
        (
            f"One CPU thread's own time, or the GPU's; {config.rounds} pairs a size. A form's figure is the mean "
            "over sizes, its interval is over sizes.",
            "Calls of one row are paid for by the call itself, and in Python that is most of a small layer's time.",
        ),
    )


def _table(found: list[Found], step: Comparison, config: TimeConfig, device: torch.device) -> Table:
    """Every form at every size, and the streaming step."""
    rows = [
        (f"{form}, {dtype}, {count} x {dim}", f"{1e6 * one.other_s:.2f}", *_ratio(one))
        for form, dtype, dim, count, one in found
    ]
    rows.append((f"streaming step, {FRAME_MS * config.step_frames} ms", f"{1e6 * step.other_s:.0f}", *_ratio(step)))
    mode = "forward and backward" if config.backward else "forward"
    columns = ("form, dtype, rows x features", "us", "ratio", "95 % interval")
    return Table(f"RMSNorm over LayerNorm, {device.type}, {mode}", columns, tuple(rows))


def _measure(name: str, one: Comparison) -> Measure:
    return Measure(name, one.ratio, one.low, one.high)


def _ratio(one: Comparison) -> tuple[str, str]:
    return number(one.ratio), f"{number(one.low)} to {number(one.high)}"


def _ratios(config: TimeConfig, device: torch.device) -> Iterator[Found]:
    make_call = training_call if config.backward else forward_call
    for dtype in config.dtypes:
        kind = getattr(torch, dtype)
        there = make_contestants(device, dtype=kind, backward=config.backward, compiled=config.compiled)
        by_name: dict[str, Contestant] = {contestant.name: contestant for contestant in there}
        for dim in config.dims:
            for rows in config.rows:
                inputs = make_inputs(rows, dim, kind, device, gradients=config.backward)
                for form, (_, own, baseline) in FORMS.items():
                    if own in by_name and baseline in by_name:
                        calls = [make_call(by_name[name].bind, inputs) for name in (baseline, own)]
                        yield form, dtype, dim, rows, compare(calls[0], calls[1], device, config.rounds)


def _compare_steps(config: TimeConfig, device: torch.device) -> Comparison:
    """A step of the whole model with `norm=rms` against one with `norm=layer`; on a GPU, as one graph each."""
    model = ModelConfig()
    steps = [
        make_step(replace(model, encoder=replace(model.encoder, norm=norm)), device, config.step_frames)[0]
        for norm in ("layer", "rms")
    ]
    calls = [capture(step) for step in steps] if device.type == "cuda" else steps
    return compare(calls[0], calls[1], device, config.rounds)


def _plot(found: list[Found], config: TimeConfig) -> Plot:
    """Ratios over the numbers in a call, of the first dtype."""

    def line(form: str) -> Series:
        own = sorted(
            ((dim * rows, one) for f, dtype, dim, rows, one in found if (f, dtype) == (form, config.dtypes[0])),
            key=lambda pair: pair[0],
        )
        return Series.of(form, [size for size, _ in own], [_measure(form, one) for _, one in own])

    lines = tuple(line(form) for form in FORMS if any(each[0] == form for each in found))
    title = f"Time of RMSNorm over LayerNorm's, {config.dtypes[0]}"
    return Plot(title, "numbers in a call (rows x features)", "ratio", lines, log_x=True, log_y=True, lines=(1.0, 0.93))
