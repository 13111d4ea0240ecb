"""Claim 1, in float64: RMSNorm is LayerNorm without the mean.

With x of mean 0 and mean square 1, RMSNorm gives (x + c) / sqrt(1 + c^2) for x + c: what is not offset shrinks.
"""

import math

import torch
from torch import Tensor

from diarnorm.claims.evidence import Evidence, Plot, Series, Table, exactly, number
from diarnorm.norms import EPS, make_norm

DIMS = (80, 144, 256)
ROWS = 256
TINY_EPS = 1e-30
OFFSETS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
FACTORS = (1e-6, 1e-3, 1.0, 1e3, 1e6)


@torch.no_grad()
def definition(seed: int = 0) -> Evidence:
    """Both norms on centred rows, under factors and under offsets."""
    centred = [_centred_rows(dim, seed) for dim in DIMS]
    curves = {norm: [max(_shrinking(norm, x, c)[1] for x in centred) for c in OFFSETS] for norm in ("rms", "layer")}
    law = [1 / math.sqrt(1 + c * c) for c in OFFSETS]
    deviation = max(abs(_shrinking("rms", x, c)[0] - law[i]) for x in centred for i, c in enumerate(OFFSETS))
    measures = (
        exactly("centred_difference", max(_change(_norm("rms", x), _norm("layer", x)) for x in centred)),
        exactly("law_deviation", deviation),
        exactly(
            "rms_scale_change", max(_change(_norm("rms", x), _norm("rms", k * x)) for x in centred for k in FACTORS)
        ),
        exactly(
            "layer_offset_change",
            max(_change(_norm("layer", x), _norm("layer", x + c)) for x in centred for c in OFFSETS),
        ),
        exactly("uncentred_difference", min(_change(_norm("layer", x + 1), _norm("rms", x + 1)) for x in centred)),
    )
    small = [_change(_norm("rms", x), _norm("rms", 1e-2 * x, EPS)) for x in centred]
    left = {"law": law, "RMSNorm": curves["rms"], "LayerNorm": curves["layer"]}
    return Evidence(
        "definition",
        measures,
        (_table(left),),
        (_plot(left),),
        (
            f"{ROWS} random rows each of {', '.join(map(str, DIMS))} features, eps {TINY_EPS:g}.",
            f"At the usual eps of {EPS:g} a row 40 dB down (RMS 0.01) changes by {100 * max(small):.1f} %.",
        ),
    )


def _table(left: dict[str, list[float]]) -> Table:
    rows = tuple((f"{c:g}", *(number(values[i]) for values in left.values())) for i, c in enumerate(OFFSETS))
    return Table("What is left of a row under an offset c", ("c", *left), rows)


def _plot(left: dict[str, list[float]]) -> Plot:
    names = {"law": "law 1/sqrt(1+c^2)"}
    return Plot(
        "What is left of a row under an offset",
        "offset c, in units of the row's RMS",
        "size of what is not offset",
        tuple(Series(names.get(name, name), OFFSETS, tuple(values)) for name, values in left.items()),
    )


def _centred_rows(dim: int, seed: int) -> Tensor:
    """Rows of mean 0 and mean square 1."""
    x = torch.randn(ROWS, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = x - x.mean(dim=-1, keepdim=True)
    return x / x.square().mean(dim=-1, keepdim=True).sqrt()


def _norm(name: str, x: Tensor, eps: float = TINY_EPS) -> Tensor:
    return make_norm(name, x.shape[-1], eps).double()(x)


def _change(before: Tensor, after: Tensor) -> float:
    """Largest difference, outputs being of size 1."""
    return float((after - before).abs().max())


def _shrinking(name: str, x: Tensor, offset: float) -> tuple[float, float]:
    """How much of `x` is in the norm of `x + offset`: of the row farthest from the law, and in the mean."""
    left = (_norm(name, x + offset) * x).mean(dim=-1)
    law = 1 / math.sqrt(1 + offset * offset)
    return float(left[(left - law).abs().argmax()]), float(left.mean())
