"""The check for GPUs, run on the CPU with small sizes: its verdicts, and that wrong kernels do not pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException

from diarnorm.bench import gpucheck
from diarnorm.bench.gpucheck import (
    Finding,
    check_bandwidth,
    check_host,
    check_large_tensor,
    check_results,
    check_shapes,
    check_step,
    gpu_check,
    line,
    make_step,
)
from diarnorm.bench.stopwatch import Machine
from diarnorm.kernels import reference
from diarnorm.model import ModelConfig
from tests.tiny import ENCODER, MEMORY

CPU = torch.device("cpu")
TINY = ModelConfig(encoder=ENCODER, memory=MEMORY)


def test_results_are_right() -> None:
    findings = list(check_results(CPU, sizes=(7, 33, 80), rows=7))
    assert len(findings) == 5
    assert all(finding.passed for finding in findings), findings


def wrong_sum(x: Tensor, residual: Tensor, weight: Tensor, eps: float, alpha: float, mask: Any) -> Any:
    return reference.add_rms_norm(x, residual, weight, eps, 1.0, mask)


def wrong_eps(x: Tensor, residual: Tensor, weight: Tensor, eps: float, alpha: float, mask: Any) -> Any:
    return reference.add_rms_norm(x, residual, weight, 10 * eps, alpha, mask)


def wrong_mask(x: Tensor, residual: Tensor, weight: Tensor, eps: float, alpha: float, mask: Any) -> Any:
    return reference.add_rms_norm(x, residual, weight, eps, alpha, None)


def wrong_gradient(x: Tensor, residual: Tensor, weight: Tensor, eps: float, alpha: float, mask: Any) -> Any:
    y, r = reference.add_rms_norm(x, residual, weight, eps, alpha, mask)
    return y, r.detach() + 0 * r


@pytest.mark.parametrize("broken", [wrong_sum, wrong_eps, wrong_mask, wrong_gradient])
def test_wrong_kernels_are_noticed(broken: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpucheck, "add_rms_norm", broken)
    assert any(finding.passed is False for finding in check_results(CPU, sizes=(33,), rows=7))


def test_batch_dependence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixing(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return reference.rms_norm(x, weight, eps) * (1 + 1e-6 * x.shape[0])

    monkeypatch.setattr(gpucheck, "rms_norm", mixing)
    found = {finding.what: finding.passed for finding in check_results(CPU, sizes=(33,), rows=7)}
    assert found["a row alone has its bits in a batch"] is False


def test_a_lost_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = check_large_tensor(CPU, rows=20)
    assert finding.passed
    monkeypatch.setattr(gpucheck, "rms_norm", lambda x, weight, eps: torch.zeros_like(x))
    (finding,) = check_large_tensor(CPU, rows=20)
    assert finding.passed is False


def test_bandwidth_and_shapes_and_host_give_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that says 1 ms: 1 MB in and out in 1 ms, beside copying at the same speed."""
    monkeypatch.setattr(gpucheck, "seconds_per_call", lambda *arguments, **options: 1e-3)
    machine = Machine("CPU", copy_gb_per_s=2 * 2**20 / 1e-3 / 1e9, floor_us=1.0)
    monkeypatch.setattr(gpucheck, "measure_machine", lambda *arguments, **options: machine)
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
    monkeypatch.setattr(gpucheck, "seconds_per_call", lambda *arguments, **options: next(times))
    *steps, share = check_step(CPU, TINY, chunk=2)
    assert [finding.what.split(",")[1].strip() for finding in steps] == ["rms", "layer", "none"]
    assert all(finding.passed for finding in steps)
    assert share == Finding("share of the norms", "10.0 %", "at most 10 %", share.passed)


def test_a_step_never_waits_for_its_values() -> None:
    """What a CUDA graph cannot record, a number read back or a shape that depends on one, has no fake either."""
    step, _ = make_step(TINY, CPU, chunk=2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert [tuple(tensor.shape[:2]) for tensor in step()] == [(1, 2)] * 4


def test_a_wait_is_noticed() -> None:
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        bool(torch.ones(3).sum() > 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_it_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="needs an NVIDIA GPU, and torch finds none here") as caught:
        gpu_check()
    assert "\n" not in str(caught.value)


def test_lines_say_what_failed() -> None:
    assert line(Finding("x", "1 us", "at most 2", True)).endswith("ok")
    assert line(Finding("x", "3 us", "at most 2", False)).endswith("BELOW THE BAR")
    assert line(Finding("x", "3 us")).endswith("3 us")
    assert line(Finding("x", "0.1", "right", False, is_result=True)).endswith("WRONG")


def test_a_step_that_gives_something_else_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a graph would that keeps the result of the warm-up: what it gives afterwards is not what the step gives."""
    right = gpucheck.make_step

    def stale(*arguments: Any) -> Any:
        step, result = right(*arguments)
        return step, lambda: [tensor + 1 for tensor in result()]

    monkeypatch.setattr(gpucheck, "seconds_per_call", lambda *arguments, **options: 1e-3)
    assert gpucheck.tell(check_step(CPU, TINY, chunk=2))
    monkeypatch.setattr(gpucheck, "make_step", stale)
    assert not gpucheck.tell(check_step(CPU, TINY, chunk=2))
    assert capsys.readouterr().out.count("WRONG") == 3


def test_slow_is_not_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpucheck.tell([Finding("x", "3 us", "at most 2", False), Finding("y", "1", "1", True, is_result=True)])
    assert not gpucheck.tell(check_large_tensor_lost())
    assert capsys.readouterr().out.count("BELOW THE BAR") == 1


def check_large_tensor_lost() -> list[Finding]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpucheck, "rms_norm", lambda x, weight, eps: torch.zeros_like(x))
        return list(check_large_tensor(CPU, rows=20))


@pytest.mark.gpu
def test_the_check_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check() == 0, capsys.readouterr().out
