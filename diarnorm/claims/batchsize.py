"""Claim 3: a row alone, in a batch, beside padding and in chunks.

BatchNorm in training mode stands beside as the contrast.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from diarnorm.claims.evidence import Evidence, Plot, Series, Table, exactly, number
from diarnorm.conformer import Encoder, EncoderConfig
from diarnorm.norms import NORMS, make_norm
from diarnorm.residual import relative_error
from diarnorm.timebase import MELS_PER_FRAME, NUM_MELS

BATCHES = (1, 2, 7, 64)
DIMS = (80, 144, 256)
FRAMES, CHUNK = 24, 6
PADDING = {"0": 0.0, "1000": 1e3, "NaN": float("nan")}
CONFIG = EncoderConfig(dim=64, num_blocks=2, num_heads=4, left_context=12, dropout=0.0)


def batch_size(seed: int = 0) -> Evidence:
    """Single norms bit for bit, forward and backward; then the whole encoder with each norm."""
    changed = {norm: _changed_by_batch(norm, seed) for norm in NORMS}
    with torch.no_grad():
        encoders = {norm: _encoder_changes(norm, seed) for norm in NORMS}
    worst = {key: max(encoders[norm][key] for norm in ("rms", "layer")) for key in ("batch", "padding", "chunks")}
    rows = tuple(
        (norm, str(changed[norm]), *(number(encoders[norm][key]) for key in ("batch", "padding", "chunks")))
        for norm in NORMS
    )
    columns = ("norm (eval)", "layer: numbers changed", "encoder: in a batch", "beside padding", "in chunks")
    return Evidence(
        "batch_size",
        (
            exactly("rms_changed", changed["rms"]),
            exactly("layer_changed", changed["layer"]),
            *(exactly(f"encoder_{key}", value) for key, value in worst.items()),
        ),
        (Table("What batch, padding and chunks change; relative for the encoder", columns, rows),),
        (
            Plot(
                "The same row among others",
                "rows in the batch",
                "relative change of the row's output",
                tuple(
                    Series(
                        label, tuple(map(float, BATCHES)), tuple(_alone_against(name, batch, seed) for batch in BATCHES)
                    )
                    for label, name in (("BatchNorm, train mode", "batch"), ("RMSNorm", "rms"), ("LayerNorm", "layer"))
                ),
                log_x=True,
            ),
        ),
        (
            f"Batches of {', '.join(map(str, BATCHES))} rows; layers of {', '.join(map(str, DIMS))} features, output "
            "and gradient of the input compared bit for bit.",
            "The encoder has two blocks; its own tolerance covers matrix products, whose order of sums changes with "
            "their size.",
        ),
    )


def _changed_by_batch(name: str, seed: int) -> int:
    """How many numbers of the output and of the input's gradient are not those of each row alone."""
    count = 0
    for dim in DIMS:
        norm = _shaken(make_norm(name, dim), seed).eval()
        x, dy = (_noise(max(BATCHES), FRAMES, dim, seed=seed + i) for i in range(2))
        rows = [_both_directions(norm, *row) for row in zip(x.split(1), dy.split(1), strict=True)]
        alone = [torch.cat(each) for each in zip(*rows, strict=True)]
        for batch in BATCHES:
            among = _both_directions(norm, x[:batch], dy[:batch])
            count += sum(int((a[:batch] != b).sum()) for a, b in zip(alone, among, strict=True))
    return count


def _both_directions(norm: nn.Module, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    y = norm(leaf)
    (dx,) = torch.autograd.grad(y, leaf, dy)
    return y.detach(), dx


def _encoder_changes(norm: str, seed: int) -> dict[str, float]:
    """Largest relative changes of the output: of any row in a batch, of the first beside padding and in chunks."""
    torch.manual_seed(seed)
    encoder = _shaken(Encoder(replace(CONFIG, norm=norm)), seed).eval()
    mel = _noise(max(BATCHES), FRAMES * MELS_PER_FRAME, NUM_MELS, seed=seed)
    rows = torch.cat([encoder(row, chunk=CHUNK)[0] for row in mel.split(1)])
    alone = rows[:1]
    pairs = (pair for batch in BATCHES for pair in zip(rows, encoder(mel[:batch], chunk=CHUNK)[0], strict=False))
    return {
        "batch": max(_largest(own, [other]) for own, other in pairs),
        "padding": _largest(alone, (_padded(encoder, mel[:1], fill)[:, :FRAMES] for fill in PADDING.values())),
        "chunks": _largest(alone, [_in_chunks(encoder, mel[:1])]),
    }


def _padded(encoder: nn.Module, mel: Tensor, fill: float) -> Tensor:
    """The output with as many frames again of `fill` behind, which are not valid."""
    padded = torch.cat([mel, torch.full_like(mel, fill)], dim=1)
    valid = torch.arange(2 * FRAMES)[None] < FRAMES
    return encoder(padded, valid=valid, chunk=CHUNK)[0]


def _in_chunks(encoder: nn.Module, mel: Tensor) -> Tensor:
    outputs, state = [], None
    for piece in mel.split(CHUNK * MELS_PER_FRAME, dim=1):
        y, state = encoder(piece, state, chunk=CHUNK)
        outputs.append(y)
    return torch.cat(outputs, dim=1)


@torch.no_grad()
def _alone_against(norm: str, batch: int, seed: int) -> float:
    """How much a row's output changes, in training mode, when `batch` rows are normalised together."""
    x = _noise(batch, FRAMES, DIMS[0], seed=seed)
    alone, among = (make_norm(norm, DIMS[0]).train()(rows)[:1] for rows in (x[:1], x))
    return relative_error(alone, among)


def _largest(before: Tensor, after: Iterable[Tensor]) -> float:
    """Largest relative change; one that is NaN counts as infinite."""
    changes = [relative_error(before, other) for other in after]
    return max(math.inf if math.isnan(change) else change for change in changes)


def _noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _shaken(module: nn.Module, seed: int) -> nn.Module:
    """Scales, offsets and running averages moved away from 1 and 0, so that leaving one out would be seen."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in module.state_dict().items():
        if tensor.ndim == 1 and tensor.is_floating_point():
            tensor.add_(
                torch.rand(tensor.shape, generator=generator) - (0 if "running_var" in name else 0.5), alpha=0.5
            )
    return module
