"""The check of results, run on the CPU with small sizes: wrong kernels do not pass."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from diarnorm.bench import gpuresults
from diarnorm.bench.gpuresults import check_large_tensor, check_results
from diarnorm.kernels import reference

CPU = torch.device("cpu")


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
    monkeypatch.setattr(gpuresults, "add_rms_norm", broken)
    assert any(finding.passed is False for finding in check_results(CPU, sizes=(33,), rows=7))


def test_batch_dependence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixing(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return reference.rms_norm(x, weight, eps) * (1 + 1e-6 * x.shape[0])

    monkeypatch.setattr(gpuresults, "rms_norm", mixing)
    found = {finding.what: finding.passed for finding in check_results(CPU, sizes=(33,), rows=7)}
    assert found["a row alone has its bits in a batch"] is False


def test_a_lost_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = check_large_tensor(CPU, rows=20)
    assert finding.passed
    monkeypatch.setattr(gpuresults, "rms_norm", lambda x, weight, eps: torch.zeros_like(x))
    (finding,) = check_large_tensor(CPU, rows=20)
    assert finding.passed is False
