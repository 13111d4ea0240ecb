"""Claim 11, the function: LayerNorm replaced by RMSNorm under given weights, plainly and exactly, in float64."""

import torch

from diarnorm.claims.evidence import Evidence, Plot, Series, Table, average, number, spoken
from diarnorm.conformer import EncoderConfig
from diarnorm.convert import convert, read_off, swap_norm
from diarnorm.model import Model, ModelConfig
from diarnorm.residual import relative_error

DEPTHS = (1, 2, 4, 8)
DEPTH = 4
SPREAD = 0.2
"""Of scales around 1 and of offsets around 0, as training leaves them."""


def swap(num_draws: int = 4) -> Evidence:
    """Error of all that is read off the encoder, over depths and draws of the weights."""
    errors = {depth: [_errors(depth, seed) for seed in range(num_draws)] for depth in DEPTHS}
    naive = {depth: average("naive_error", [100 * plain for plain, _ in found]) for depth, found in errors.items()}
    exact = {depth: average("exact_error", [100 * exact for _, exact in found]) for depth, found in errors.items()}
    rows = tuple(
        (
            str(depth),
            f"{spoken(naive[depth])} %",
            f"{number(exact[depth].value)} %",
        )
        for depth in DEPTHS
    )
    lines = (
        Series.of("plain swap", DEPTHS, list(naive.values())),
        Series.of("exact conversion", DEPTHS, list(exact.values())),
    )
    return Evidence(
        "swap",
        (naive[DEPTH], exact[DEPTH]),
        (
            Table(
                "LayerNorm replaced by RMSNorm: error of the output", ("blocks", "plain swap", "exact conversion"), rows
            ),
        ),
        (Plot("LayerNorm replaced by RMSNorm", "blocks", "error of the output, %", lines, log_x=True, log_y=True),),
        (
            f"Encoders of 64 features with random weights, scales and offsets {SPREAD:g} around 1 and 0, in float64; "
            f"the verdict is about {DEPTH} blocks. Trained models differ.",
            "The exact conversion centres what is written to the residual stream and folds LayerNorm's offsets into "
            "the layers that read it (`diarnorm convert --to rms`). It needs pre-norm.",
        ),
    )


def _errors(depth: int, seed: int) -> tuple[float, float]:
    """Relative errors of the plain swap and of the exact conversion."""
    model = layer_norm_model(depth, seed)
    before = read_off(model)
    return relative_error(before, read_off(swap_norm(model, "rms"))), relative_error(
        before, read_off(convert(model, "rms").model)
    )


@torch.no_grad()
def layer_norm_model(depth: int, seed: int) -> Model:
    """A model with LayerNorm whose norms are not those of the first step."""
    torch.manual_seed(seed)
    config = ModelConfig(encoder=EncoderConfig(dim=64, num_blocks=depth, norm="layer", dropout=0.0))
    model = Model(config).double().eval()
    for module in model.encoder.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.weight.add_(SPREAD * torch.randn_like(module.weight))
            module.bias.add_(SPREAD * torch.randn_like(module.bias))
    return model
