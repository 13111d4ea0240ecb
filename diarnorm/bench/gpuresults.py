"""Are the kernels right on this device? Errors against float64, bits of a row alone, gradients that repeat."""

from collections.abc import Callable, Iterator
from itertools import product

import torch
from torch import Tensor

from diarnorm.bench.contestants import make_inputs
from diarnorm.bench.findings import Finding
from diarnorm.kernels import add_rms_norm, reference, rms_norm
from diarnorm.norms import EPS

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SIZES = (7, 80, 256, 769, 8192, 16385)
RELATIVE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Largest error, relative to the magnitude before anything cancels."""


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


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
