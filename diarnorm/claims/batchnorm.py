"""Claim 7, the layer: BatchNorm by the batch's statistics against the same by running ones."""

import torch
from torch import Tensor, nn

from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, average, number, spoken
from diarnorm.norms import BatchNorm
from diarnorm.residual import relative_error

SIZES = (2, 4, 8, 32, 128, 512)
"""Frames in a batch, B times T."""
DIM = 64
CORRELATION = 0.95
"""Between neighbouring frames of a recording: 80-ms frames change slowly."""
PADDED = 0.5


@torch.no_grad()
def batchnorm_gap(num_draws: int = 20) -> Evidence:
    """Relative difference between train and eval mode, over B times T, for independent and for following frames, and
    with padding."""
    independent = {size: _gap(f"gap_{size}", size, 0.0, num_draws) for size in SIZES}
    following = {size: _gap(f"gap_{size}_correlated", size, CORRELATION, num_draws) for size in SIZES}
    padded = {
        name: average(name, [100 * _padding_gap(norm, 128, seed) for seed in range(num_draws)])
        for name, norm in (("gap_padding", nn.BatchNorm1d), ("gap_masked", BatchNorm))
    }
    return Evidence(
        "batchnorm_gap",
        (*independent.values(), *following.values(), *padded.values()),
        (_table_of_sizes(independent, following), _table_of_padding(padded)),
        (_plot({"independent frames": independent, "frames of one recording": following}),),
        (f"Normal features, running statistics right (mean 0, variance 1), mean of {num_draws} draws.",),
    )


def _table_of_sizes(independent: dict[int, Measure], following: dict[int, Measure]) -> Table:
    return Table(
        "Train mode against eval mode, relative difference (95 % interval)",
        ("B x T", "independent frames", f"frames of one recording (correlation {CORRELATION:g})"),
        tuple((str(size), *(f"{spoken(m)} %" for m in (independent[size], following[size]))) for size in SIZES),
    )


def _table_of_padding(padded: dict[str, Measure]) -> Table:
    names = {"gap_padding": "torch.nn.BatchNorm1d, zeros count", "gap_masked": "diarnorm's, padding left out"}
    return Table(
        "The same at 128 frames of which half are padding",
        ("BatchNorm", "difference on valid frames"),
        tuple((names[name], f"{number(measure.value)} %") for name, measure in padded.items()),
    )


def _plot(found: dict[str, dict[int, Measure]]) -> Plot:
    lines = tuple(Series.of(label, SIZES, [by_size[size] for size in SIZES]) for label, by_size in found.items())
    title, x = "BatchNorm: train mode against eval mode", "frames in the batch, B x T"
    return Plot(title, x, "relative difference, %", lines, log_x=True)


def _gap(name: str, size: int, correlation: float, num_draws: int) -> Measure:
    gaps = [100 * _difference(BatchNorm(DIM), _frames(size, correlation, seed)) for seed in range(num_draws)]
    return average(name, gaps)


def _frames(size: int, correlation: float, seed: int) -> Tensor:
    """`[size, DIM]` of mean 0 and variance 1, each frame correlated with the one before."""
    fresh = torch.randn(size, DIM, generator=torch.Generator().manual_seed(seed))
    frames = [fresh[0]]
    for new in fresh[1:]:
        frames.append(correlation * frames[-1] + (1 - correlation**2) ** 0.5 * new)
    return torch.stack(frames)


def _difference(norm: nn.Module, x: Tensor) -> float:
    eval_mode = norm.eval()(x)
    return relative_error(eval_mode, norm.train()(x))


def _padding_gap(kind: type[nn.BatchNorm1d], size: int, seed: int) -> float:
    """Train against eval on the valid frames of `size`, when the rest are zeros. Torch's layer has no mask."""
    norm = kind(DIM)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    x = _frames(size, 0.0, seed) * 2 + 1
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0)
    valid = torch.arange(size) < round(size * (1 - PADDED))
    x = torch.where(valid[:, None], x, 0.0)
    arguments = (x, valid) if isinstance(norm, BatchNorm) else (x,)
    eval_mode = norm.eval()(*arguments)[valid]
    return relative_error(eval_mode, norm.train()(*arguments)[valid])
