"""The device code, run by Triton's interpreter: accuracy over sizes and dtypes, and that nothing else is touched."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from diarnorm.kernels import autograd
from diarnorm.kernels.launch import LONGEST_TILE, backward_launch, forward_launch, num_multiprocessors
from tests.kernels.conftest import GuardedMemory
from tests.kernels.oracle import (
    DTYPES,
    EPS,
    Case,
    Outcome,
    assert_accurate,
    assert_within,
    exact,
    gradient_magnitude,
    make_case,
    run,
)

SIZES = (1, 2, 3, 7, 31, 32, 33, 80, 96, 129, 144, 255, 256, 257, 768, 769, 1152, 2880, 3584, 8192, 16385)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))


def rms_norm(case: Case) -> Outcome:
    """What the kernels give."""
    return run(autograd.rms_norm, case)


def add_rms_norm(case: Case, residual: Tensor, alpha: float, dr: Tensor) -> tuple[Outcome, Tensor, Tensor]:
    """What the kernels give for y (dx being the addend's gradient), then r and the residual's gradient."""
    x, weight = case.x.detach().requires_grad_(), case.weight.detach().requires_grad_()
    residual = residual.detach().requires_grad_()
    y, r = autograd.add_rms_norm(x, residual, weight, case.eps, alpha, case.mask)
    torch.autograd.backward([y, r], [case.dy.to(y.dtype), dr.to(r.dtype)])
    assert x.grad is not None
    assert weight.grad is not None
    assert residual.grad is not None
    return Outcome(y.detach(), x.grad, weight.grad), r.detach(), residual.grad


# ---- sizes and dtypes -------------------------------------------------------------------------------------


@each_dtype
@pytest.mark.parametrize("dim", SIZES)
def test_every_size_and_dtype(dim: int, dtype: torch.dtype, interpreter: None, guarded: None) -> None:
    if dim > LONGEST_TILE and dtype == torch.float16:
        pytest.skip("a second for what bfloat16 shows")
    case = make_case(3, dim, dtype=dtype)
    assert_accurate(rms_norm(case), case)


@pytest.mark.parametrize(("dim", "rows"), [(1, 4097), (7, 2000), (80, 130)])
def test_more_tiles_than_programs(dim: int, rows: int, interpreter: None, guarded: None) -> None:
    case = make_case(rows, dim)
    assert rows > backward_launch(dim).rows * backward_launch(dim).programs * num_multiprocessors(case.x.device)
    assert_accurate(rms_norm(case), case)


@pytest.mark.parametrize(
    ("dim", "dtype", "stream"),
    [
        (7, torch.float32, torch.float32),
        (80, torch.bfloat16, torch.float32),
        (256, torch.float32, torch.float32),
        (16385, torch.bfloat16, torch.float32),
    ],
)
def test_sum_and_norm(dim: int, dtype: torch.dtype, stream: torch.dtype, interpreter: None, guarded: None) -> None:
    case = make_case(5, dim, dtype=dtype)
    residual, dr = make_case(5, dim, dtype=stream, seed=1).x, make_case(5, dim, dtype=stream, seed=2).x
    got, r, dresidual = add_rms_norm(case, residual, 0.5, dr)
    assert_within(r, residual.double() + 0.5 * case.x.double(), residual.double().abs() + case.x.double().abs())
    normed = Case(r, case.weight, case.dy, None, EPS)
    true, magnitude = exact(normed), gradient_magnitude(normed)
    assert_within(got.y, true.y, true.y.abs())
    total = true.dx + dr.double()
    assert_within(dresidual, total, magnitude + dr.double().abs())
    assert_within(got.dx, 0.5 * total, 0.5 * (magnitude + dr.double().abs()))
    assert (got.dw.double() - true.dw).abs().max() <= 5e-6 * 5**0.5


def test_dtypes_are_independent(interpreter: None, guarded: None) -> None:
    """27 kinds of x, residual and weight; each output has the dtype it was asked for and one rounding."""
    for number, x_dtype in enumerate(DTYPES):
        for residual_dtype in DTYPES:
            for weight_dtype in DTYPES:
                case = make_case(2, 33, dtype=x_dtype, weight_dtype=weight_dtype)
                residual = make_case(2, 33, dtype=residual_dtype, seed=1).x
                out_dtype = DTYPES[(number + 1) % 3]
                y, r = autograd.add_rms_norm(case.x, residual, case.weight, EPS, 0.5, None, out_dtype)
                assert (y.dtype, r.dtype) == (out_dtype, residual_dtype)
                true = exact(Case(r, case.weight, case.dy)).y
                assert_within(y, true, true.abs())
                got, _, dresidual = add_rms_norm(case, residual, 0.5, residual)
                assert (got.dx.dtype, dresidual.dtype, got.dw.dtype) == (x_dtype, residual_dtype, weight_dtype)
                normed = Case(r, case.weight, case.dy)
                total = exact(normed).dx + residual.double()
                magnitude = gradient_magnitude(normed) + residual.double().abs()
                assert_within(dresidual, total, magnitude)
                assert_within(got.dx, 0.5 * total, 0.5 * magnitude)


def test_fp32_weight_survives_bf16_input(interpreter: None) -> None:
    """A weight that bf16 cannot hold is not rounded to it first."""
    case = make_case(4, 64, dtype=torch.bfloat16)
    case = case._replace(weight=torch.full((64,), 1.0 + 2.0**-9))
    y = autograd.rms_norm(case.x, case.weight, EPS, None, torch.float32)
    true = exact(case).y
    assert_within(y, true, true.abs())


# ---- values -----------------------------------------------------------------------------------------------


def test_values_that_overflow_or_vanish(interpreter: None, guarded: None) -> None:
    ones = torch.ones(80)
    big = torch.full((1, 80), 300.0, dtype=torch.float16)
    assert torch.equal(autograd.rms_norm(big, ones, EPS), torch.ones(1, 80, dtype=torch.float16))
    for eps, level in ((1e-5, 0.0316), (1e-6, 0.0995)):
        y = autograd.rms_norm(torch.full((1, 80), 1e-4), ones, eps)
        torch.testing.assert_close(y, torch.full((1, 80), level), rtol=0, atol=5e-5)
    spike = torch.full((2, 80), 1e-3)
    spike[0, 3] = 1e4
    case = Case(spike, ones, torch.ones(2, 80))
    assert_accurate(rms_norm(case), case)


def test_silence_gives_silence_and_its_gradient_is_the_documented_one(interpreter: None, guarded: None) -> None:
    case = make_case(3, 33)
    case = case._replace(x=torch.zeros(3, 33))
    got = rms_norm(case)
    assert torch.equal(got.y, torch.zeros(3, 33))
    torch.testing.assert_close(got.dx, case.dy * case.weight / EPS**0.5)
    assert torch.equal(got.dw, torch.zeros(33))


# ---- batches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 33), (3, 0, 33), (0, 5, 33)])
def test_empty(shape: tuple[int, ...], interpreter: None) -> None:
    case = make_case(*shape)
    got = rms_norm(case)
    assert got.y.shape == got.dx.shape == shape
    assert torch.equal(got.dw, torch.zeros(33))
    summed, r, _ = add_rms_norm(case, case.x, 0.5, case.x)
    assert summed.y.shape == r.shape == shape


@each_dtype
def test_a_row_alone_has_the_bits_it_has_in_a_batch(dtype: torch.dtype, interpreter: None) -> None:
    case = make_case(64, 80, dtype=dtype)
    whole = rms_norm(case)
    for size in (1, 2, 7):
        part = rms_norm(case._replace(x=case.x[:size], dy=case.dy[:size]))
        assert torch.equal(part.y, whole.y[:size])
        assert torch.equal(part.dx, whole.dx[:size])
    rows = forward_launch(80, 4).rows
    alone = rms_norm(case._replace(x=case.x[rows + 1 : rows + 2], dy=case.dy[rows + 1 : rows + 2]))
    assert torch.equal(alone.y[0], whole.y[rows + 1])


def test_masked_rows_are_absent(interpreter: None, guarded: None) -> None:
    """They hold NaN, give 0, get gradient 0, and the weight's gradient is that of the other rows."""
    mask = torch.tensor([[True, False, True, True], [False, False, True, False]])
    clean = make_case(2, 4, 33, mask=mask)
    kept = Case(clean.x[mask], clean.weight, clean.dy[mask])
    only = rms_norm(kept)
    poison = torch.where(mask[..., None], 0.0, torch.nan)
    got = rms_norm(clean._replace(x=clean.x + poison, dy=clean.dy + poison))
    for ours, theirs in ((got.y, only.y), (got.dx, only.dx)):
        assert torch.equal(ours[mask], theirs)
        assert torch.equal(ours[~mask], torch.zeros(4, 33))
    torch.testing.assert_close(got.dw, only.dw)
    assert_accurate(got, clean)


@pytest.mark.parametrize("dim", [33, 16385])
def test_masked_rows_of_the_sum_are_absent(dim: int, interpreter: None, guarded: None) -> None:
    mask = torch.tensor([True, False, True])
    clean, poison = make_case(3, dim, mask=mask), torch.where(mask[:, None], 0.0, torch.nan)
    residual, dr = make_case(3, dim, seed=1).x, make_case(3, dim, seed=2).x
    only, only_r, only_dresidual = add_rms_norm(
        Case(clean.x[mask], clean.weight, clean.dy[mask]), residual[mask], 0.5, dr[mask]
    )
    got, r, dresidual = add_rms_norm(
        clean._replace(x=clean.x + poison, dy=clean.dy + poison), residual + poison, 0.5, dr + poison
    )
    pairs = ((got.y, only.y), (got.dx, only.dx), (r, only_r), (dresidual, only_dresidual))
    for ours, theirs in pairs:
        assert torch.equal(ours[mask], theirs)
        assert torch.equal(ours[~mask], torch.zeros(1, dim))
    torch.testing.assert_close(got.dw, only.dw)


def test_a_mask_of_all_or_none(interpreter: None) -> None:
    case = make_case(5, 33)
    everything = rms_norm(case._replace(mask=torch.ones(5, dtype=torch.bool)))
    assert all(torch.equal(a, b) for a, b in zip(everything, rms_norm(case), strict=True))
    nothing = rms_norm(case._replace(mask=torch.zeros(5, dtype=torch.bool)))
    assert not any(bool(tensor.any()) for tensor in nothing)


def test_gradients_of_the_weight_are_the_same_every_time(interpreter: None) -> None:
    case = make_case(300, 33)
    assert torch.equal(rms_norm(case).dw, rms_norm(case).dw)


def test_a_long_sum_over_bf16_rows_is_kept_in_float32(interpreter: None) -> None:
    """bf16 stops counting at 256; 1030 equal rows must add up."""
    case = make_case(1030, 16, dtype=torch.bfloat16)
    case = case._replace(x=torch.ones_like(case.x), dy=torch.ones_like(case.dy))
    torch.testing.assert_close(rms_norm(case).dw, torch.full((16,), 1030 / (1 + EPS) ** 0.5), rtol=1e-6, atol=0)


# ---- mutants: each breaks one property, and the check for it notices ---------------------------------------


def check_odd_size() -> None:
    test_every_size_and_dtype(33, torch.float32, None, None)


def check_mask() -> None:
    test_masked_rows_are_absent(None, None)


def check_sum() -> None:
    test_sum_and_norm(7, torch.float32, torch.float32, None, None)


def check_silence() -> None:
    test_silence_gives_silence_and_its_gradient_is_the_documented_one(None, None)


def check_long_rows() -> None:
    test_every_size_and_dtype(16385, torch.float32, None, None)


def test_writing_past_the_row_is_noticed(mutant: Callable[[str, str], None], memory: GuardedMemory) -> None:
    mutant("exist & inside", "exist")
    rms_norm(make_case(3, 33))
    with pytest.raises(AssertionError, match="outside"):
        memory.check()


def check_many_rows() -> None:
    test_more_tiles_than_programs(7, 2000, None, None)


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("(1.0 / D)", "(1.0 / BLOCK)", check_odd_size),
        ("live = exist & (tl.load", "live = exist | (tl.load", check_mask),
        ("dz += load(dr_ptr", "dz += 0 * load(dr_ptr", check_sum),
        ("alpha * dz", "dz", check_sum),
        ("+ alpha * z", "+ z", check_sum),
        ("normed * slope", "slope", check_odd_size),
        (" + eps)", " + 2 * eps)", check_silence),
        ("square += x * x", "square = x * x", check_long_rows),
        ("total += dy * normed", "total = dy * normed", check_many_rows),
    ],
)
def test_broken_kernels_are_noticed(
    old: str, new: str, check: Callable[[], None], mutant: Callable[[str, str], None]
) -> None:
    mutant(old, new)
    with pytest.raises(AssertionError):
        check()
