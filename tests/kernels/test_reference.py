"""The definition itself: its gradients in float64, its masks, its one rounding, its independence of autocast."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from diarnorm.kernels import reference
from tests.kernels.oracle import DTYPES, EPS, Case, make_case, run

MASK = torch.tensor([True, False, True])


def test_is_rmsnorm() -> None:
    """The formula, number by number, without torch's operators."""
    x, weight = [3.0, -4.0, 12.0], [1.0, 2.0, 0.5]
    rms = (169 / 3 + 1e-5) ** 0.5
    y = reference.rms_norm(torch.tensor(x).double(), torch.tensor(weight).double(), 1e-5)
    assert y.tolist() == pytest.approx([3 / rms, -8 / rms, 6 / rms], rel=1e-14)


@pytest.mark.parametrize("mask", [None, MASK])
def test_gradients(mask: torch.Tensor | None) -> None:
    case = make_case(3, 5)
    x, weight = case.x.double().requires_grad_(), case.weight.double().requires_grad_()
    residual = make_case(3, 5, seed=1).x.double().requires_grad_()
    assert gradcheck(lambda x, weight: reference.rms_norm(x, weight, EPS, mask), (x, weight))
    assert gradgradcheck(lambda x, weight: reference.rms_norm(x, weight, EPS, mask), (x, weight))
    assert gradcheck(
        lambda x, residual, weight: reference.add_rms_norm(x, residual, weight, EPS, 0.5, mask), (x, residual, weight)
    )


@pytest.mark.parametrize("mask", [None, MASK])
def test_gradients_by_hand_are_those_of_autograd(mask: torch.Tensor | None) -> None:
    case = make_case(3, 7, mask=mask)
    wide = Case(case.x.double(), case.weight.double(), case.dy.double(), mask)
    expected, dr = run(reference.rms_norm, wide), make_case(3, 7, seed=2).x.double()
    dx, dw = reference.gradients(wide.dy, wide.x, wide.weight, EPS, mask)
    torch.testing.assert_close(dx, expected.dx)
    torch.testing.assert_close(dw, expected.dw)
    both, _ = reference.gradients(wide.dy, wide.x, wide.weight, EPS, mask, dr)
    kept = dr if mask is None else dr * mask[:, None]
    torch.testing.assert_close(both, expected.dx + kept)


def test_masked_rows_are_absent_whatever_they_hold() -> None:
    poison = torch.where(MASK[:, None], 0.0, torch.nan)
    case = make_case(3, 7)
    x, residual, weight = (t.requires_grad_() for t in (case.x + poison, case.x + poison, case.weight.clone()))
    y, r = reference.add_rms_norm(x, residual, weight, EPS, 0.5, MASK)
    torch.autograd.backward([y, r], [case.dy, case.dy])
    for tensor in (y, r, x.grad, residual.grad):
        assert tensor is not None
        assert torch.equal(tensor[1], torch.zeros(7))
        assert bool(tensor[MASK].all())
    assert weight.grad is not None
    assert bool(weight.grad.isfinite().all())


@pytest.mark.parametrize("x_dtype", DTYPES)
@pytest.mark.parametrize("weight_dtype", DTYPES)
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_one_rounding_and_the_dtype_of_x(
    x_dtype: torch.dtype, weight_dtype: torch.dtype, autocast: torch.dtype | None
) -> None:
    case = make_case(2, 3, 33, dtype=x_dtype, weight_dtype=weight_dtype)
    exact = reference.rms_norm(case.x.double(), case.weight.double(), EPS)
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        y = reference.rms_norm(case.x, case.weight, EPS)
        y_wide, r = reference.add_rms_norm(case.x, case.x.float(), case.weight, EPS, 0.5, None, torch.float32)
    assert (y.dtype, y_wide.dtype, r.dtype) == (x_dtype, torch.float32, torch.float32)
    half_a_unit = 0.5 * torch.finfo(x_dtype).eps
    assert ((y.double() - exact).abs() <= (half_a_unit + 3e-7) * exact.abs() + torch.finfo(x_dtype).tiny).all()


def test_the_sum_is_the_unfused_one_and_y_its_norm() -> None:
    """Bit for bit: fusing changes no result."""
    for dtype in DTYPES:
        case, residual = make_case(4, 33, dtype=dtype), make_case(4, 33, dtype=dtype, seed=1).x
        y, r = reference.add_rms_norm(case.x, residual, case.weight, EPS, 0.5)
        assert torch.equal(r, torch.add(residual, case.x, alpha=0.5))
        assert torch.equal(y, reference.rms_norm(r, case.weight, EPS))


def test_agrees_with_stock_torch() -> None:
    case = make_case(4, 33)
    expected = F.rms_norm(case.x, (33,), case.weight, EPS)
    torch.testing.assert_close(reference.rms_norm(case.x, case.weight, EPS), expected)
