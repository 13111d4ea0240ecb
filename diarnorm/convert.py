"""Models with another norm under trained weights: exact where that can be, else refused with the measured error."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from diarnorm.checkpoint import Checkpoint
from diarnorm.conformer import EncoderConfig
from diarnorm.memory import MemoryConfig
from diarnorm.model import Model, ModelConfig
from diarnorm.norms import NORMS
from diarnorm.residual import ResidualStream, fold_batch_norms, layer_to_rms, relative_error
from diarnorm.timebase import MELS_PER_FRAME, NUM_MELS

EXACT = 1e-4
"""Largest relative error that rounding explains; exact conversions stay far below."""
PROBE_CHUNK, PROBE_FRAMES = 12, 96


@dataclass(frozen=True)
class Conversion:
    """A converted model, and by how much it differs on noise: relative error of all that is read off the encoder."""

    model: Model
    error: float


def convert(model: Model, to: str, *, force: bool = False) -> Conversion:
    """`model` with the norm `to`. `layer` becomes `rms` exactly (its `conv_norm`, inside the convolution, stays).

    Raises:
        ValueError: an unknown norm, the model's own, or one whose swap changes results; `force` swaps all the same.
    """
    config = model.config.encoder
    if to not in NORMS or to == config.norm:
        others = ", ".join(name for name in NORMS if name != config.norm)
        raise ValueError(f"this model has norm={config.norm}, it cannot become {to}: choose one of {others}")
    if (config.norm, to, config.placement) == ("layer", "rms", "pre"):
        network = layer_to_rms(model, residual_stream(model.config))
        return _exact(model, _fit(network, norm=to, conv_norm=_conv_norm(config)))
    swapped = swap_norm(model, to)
    error = relative_error(read_off(model), read_off(swapped))
    if not (force or error < EXACT):
        raise ValueError(
            f"norm={config.norm} with placement={config.placement} cannot become norm={to} exactly: the swap changes "
            f"what is read off the encoder by {error:.1%}; train a model with norm={to}, or force it"
        )
    return Conversion(swapped, error)


def fold_batch(model: Model) -> Conversion:
    """`model` without its BatchNorms, exactly.

    Those inside the convolutions go into the depthwise convolution, those that read the residual stream into the layers
    after them. With `placement=post` the latter write to the stream, and stay.

    Raises:
        ValueError: there is none to fold.
    """
    config = model.config.encoder
    stream = residual_stream(model.config)
    in_convolutions = _conv_norm(config) == "batch"
    on_stream = config.norm == "batch" and config.placement == "pre"
    if not (in_convolutions or on_stream):
        found = f"norm={config.norm}, conv_norm={_conv_norm(config)}"
        raise ValueError(f"{found}: there is no BatchNorm that can be folded; take a model with one of them batch")
    blocks = [f"encoder.blocks.{i}.convolution" for i in range(config.num_blocks)]
    folded = fold_batch_norms(
        model,
        writers={f"{block}.norm": f"{block}.depthwise" for block in blocks} if in_convolutions else {},
        readers=stream.norms if on_stream else {},
    )
    norm = "none" if on_stream else config.norm
    return _exact(model, _fit(folded, norm=norm, conv_norm="none" if in_convolutions else _conv_norm(config)))


def with_model(checkpoint: Checkpoint, conversion: Conversion) -> Checkpoint:
    """The converted model with all else that is known; the training record says how it came about."""
    was, now = checkpoint.model.config.encoder, conversion.model.config.encoder
    step = {
        "from": {"norm": was.norm, "conv_norm": _conv_norm(was)},
        "to": {"norm": now.norm, "conv_norm": _conv_norm(now)},
        "error": conversion.error,
    }
    record = {**checkpoint.training, "converted": [*checkpoint.training.get("converted", []), step]}
    return replace(checkpoint, model=conversion.model, training=record)


def readers(memory: MemoryConfig) -> tuple[str, str, str]:
    """Who reads the encoder's output: the layer of the embeddings, the first one of the decoder, the speech head."""
    return "memory.embed", f"memory.decoder.{'head' if memory.kind == 'none' else 'from_frame'}", "speech_head"


def residual_stream(config: ModelConfig) -> ResidualStream:
    """The residual stream of a model with pre-norm blocks."""
    norms: dict[str, tuple[str, ...]] = {"encoder.final_norm": readers(config.memory)}
    writers = ["encoder.entry"]
    for i in range(config.encoder.num_blocks):
        block = f"encoder.blocks.{i}"
        for j, reader in enumerate(("ff_in.0", "attention.qkv", "convolution.expand", "ff_out.0")):
            norms[f"{block}.norms.{j}"] = (f"{block}.{reader}",)
        writers += [f"{block}.{name}" for name in ("ff_in.3", "attention.out", "convolution.project", "ff_out.3")]
    return ResidualStream(norms, writers)


@torch.no_grad()
def read_off(model: Model) -> Tensor:
    """All that memory and speech head read off the encoder's output, `[frames, numbers]`, for noise of fixed seed."""
    generator = torch.Generator().manual_seed(0)
    weight = model.encoder.entry.weight
    mel = torch.randn(1, PROBE_FRAMES * MELS_PER_FRAME, NUM_MELS, generator=generator).to(weight)
    training = model.training
    h, _ = model.eval().encoder(mel, chunk=PROBE_CHUNK)
    model.train(training)
    return torch.cat([model.get_submodule(name)(h[0]) for name in readers(model.config.memory)], dim=-1)


def _exact(before: Model, after: Model) -> Conversion:
    error = relative_error(read_off(before), read_off(after))
    if not error < EXACT:
        raise RuntimeError(f"the conversion should be exact, but changes what is read off the encoder by {error:.1e}")
    return Conversion(after, error)


def _fit(network: torch.nn.Module, *, norm: str, conv_norm: str) -> Model:
    """A model made for these norms, with the weights of `network`, which must be just the ones it has."""
    assert isinstance(network, Model)
    config = network.config
    fresh = Model(replace(config, encoder=replace(config.encoder, norm=norm, conv_norm=conv_norm)))
    fresh.to(network.encoder.entry.weight).load_state_dict(network.state_dict())
    return fresh.train(network.training)


def swap_norm(model: Model, to: str) -> Model:
    """`to` in place of every norm, with the weights that both have."""
    config = model.config
    fresh = Model(replace(config, encoder=replace(config.encoder, norm=to))).to(model.encoder.entry.weight)
    fresh.load_state_dict({**fresh.state_dict(), **dict(_shared(model, fresh))})
    return fresh.train(model.training)


def _shared(model: Model, other: Model) -> Iterator[tuple[str, Tensor]]:
    names = other.state_dict()
    return ((name, value) for name, value in model.state_dict().items() if name in names)


def _conv_norm(config: EncoderConfig) -> str:
    return config.norm if config.conv_norm is None else config.conv_norm
