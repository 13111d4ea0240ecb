"""The check of speed, run on the CPU with small sizes and clocks that are given."""

from typing import Any

import pytest
import torch

from diarnorm.bench import gpuspeed
from diarnorm.bench.findings import Finding, tell
from diarnorm.bench.gpuspeed import check_bandwidth, check_host, check_shapes, check_step
from diarnorm.bench.stopwatch import Machine
from diarnorm.model import ModelConfig
from tests.tiny import ENCODER, MEMORY

CPU = torch.device("cpu")
TINY = ModelConfig(encoder=ENCODER, memory=MEMORY)


def test_bandwidth_and_shapes_and_host_give_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that says 1 ms: 1 MB in and out in 1 ms, beside copying at the same speed."""
    monkeypatch.setattr(gpuspeed, "seconds_per_call", lambda *arguments, **options: 1e-3)
    machine = Machine("CPU", copy_gb_per_s=2 * 2**20 / 1e-3 / 1e9, floor_us=1.0)
    monkeypatch.setattr(gpuspeed, "measure_machine", lambda *arguments, **options: machine)
    findings = list(check_bandwidth(CPU, num_bytes=1 << 20))
    assert [finding.passed is None for finding in findings] == [True, True, False, True, False, False, False]
    assert all(float(finding.figure.split()[0]) > 40 for finding in findings[1:])
    shapes = list(check_shapes(CPU, shapes=((4, 32),), compiled=False))
    assert [finding.what for finding in shapes] == ["forward, 4 x 32", "forward+backward, 4 x 32"]
    assert shapes[1].passed
    assert "1000.0 us = 1.00 of" in shapes[1].figure
    host, graph = check_host(CPU, calls=2)
    assert host.passed is not None
    assert graph.figure == "500.00 us"


def test_step_of_the_whole_model_and_share_of_its_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0e-3, 1.1e-3, 0.9e-3])
    monkeypatch.setattr(gpuspeed, "seconds_per_call", lambda *arguments, **options: next(times))
    *steps, share = check_step(CPU, TINY, chunk=2)
    assert [finding.what.split(",")[1].strip() for finding in steps] == ["rms", "layer", "none"]
    assert all(finding.passed for finding in steps)
    assert share == Finding("share of the norms", "10.0 %", "at most 10 %", share.passed)


def test_a_step_that_gives_something_else_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a graph would that keeps the result of the warm-up: what it gives afterwards is not what the step gives."""
    right = gpuspeed.make_step

    def stale(*arguments: Any) -> Any:
        step, result = right(*arguments)
        return step, lambda: [tensor + 1 for tensor in result()]

    monkeypatch.setattr(gpuspeed, "seconds_per_call", lambda *arguments, **options: 1e-3)
    assert tell(check_step(CPU, TINY, chunk=2))
    monkeypatch.setattr(gpuspeed, "make_step", stale)
    assert not tell(check_step(CPU, TINY, chunk=2))
    assert capsys.readouterr().out.count("WRONG") == 3
