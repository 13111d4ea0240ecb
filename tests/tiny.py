"""Models so small that a test takes milliseconds, scripts for the memory, and ways to cut an input."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from diarnorm.checkpoint import Checkpoint
from diarnorm.conformer import Encoder, EncoderConfig
from diarnorm.fbank import fbank_offline
from diarnorm.frontend import FrontEndConfig
from diarnorm.memory import HIDDEN_LOGIT, MemoryConfig, SpeakerMemory
from diarnorm.model import Model, ModelConfig
from diarnorm.turns import TurnConfig
from tests.wavbytes import speechlike

torch.set_num_threads(1)  # tensors this small are slower on several, many times so beside other work

ENCODER = EncoderConfig(dim=32, num_blocks=2, num_heads=2, ff_factor=2, kernel_size=5, left_context=6, dropout=0.0)
MEMORY = MemoryConfig(
    embedding_dim=8,
    dim=16,
    num_layers=1,
    num_heads=2,
    ff_factor=2,
    dropout=0.0,
    num_slots=4,
    cap_frames=200.0,
    floor=0.5,
    birth=0.5,
    confirm_frames=5.0,
    drop_frames=9,
)
QUICK_TURNS = TurnConfig(onset=0.5, offset=0.4, min_on_frames=1, min_off_frames=2, pad_frames=0, hold_frames=20)
"""Rules under which short bursts become turns."""
REACH_FRAMES = ENCODER.num_blocks * (ENCODER.left_context + ENCODER.kernel_size - 1)
"""Frames before its chunk that an output of the tiny encoder can depend on, at most."""


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal numbers, the same whenever asked for."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def shake(module: nn.Module, seed: int = 1) -> nn.Module:
    """Move norm scales, biases and running averages away from 1 and 0, so that leaving one out is seen."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in sorted(module.state_dict().items()):
        if tensor.is_floating_point() and tensor.ndim == 1 and not name.startswith("frontend"):
            noise = torch.rand(tensor.shape, generator=generator)
            tensor.add_(noise - 0.5 * (0.0 if "running_var" in name else 1.0), alpha=0.6)
        if name.endswith("num_batches_tracked"):
            tensor.fill_(5)
    return module


def make_encoder(norm: str = "rms", placement: str = "pre", **changes: int | float | str) -> Encoder:
    """A tiny encoder in evaluation mode."""
    torch.manual_seed(3)
    config = replace(ENCODER, norm=norm, placement=placement, **changes)
    encoder = Encoder(config)
    shake(encoder)
    return encoder.eval()


def make_memory(dim: int = 32, bias: float = 0.0, gain: float = 4.0, **changes: int | float) -> SpeakerMemory:
    """A tiny memory in evaluation mode whose activities spread over (0, 1): speakers come, go and overlap."""
    torch.manual_seed(4)
    memory = SpeakerMemory(dim, replace(MEMORY, **changes))
    with torch.no_grad():
        memory.decoder.head.weight.mul_(gain)
        memory.decoder.head.bias.fill_(bias)
    return memory.eval()


class SimilarityDecoder(nn.Module):
    """Stands in for a trained decoder: who is like a prototype is that speaker, who is like none is new."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.from_frame = nn.Linear(dim, 1)

    def forward(self, frame: Tensor, embedding: Tensor, prototype: Tensor, count: Tensor, newcomer: Tensor) -> Tensor:
        """Logits from cosines; `frame` raises and lowers all of them."""
        known = count > 0
        cosine = torch.where(known, (embedding[..., None, :] * prototype).sum(dim=-1), -1.0)
        logits = torch.where(known, cosine - 0.5, 0.2 - cosine.amax(dim=-1, keepdim=True))
        return torch.where(known | newcomer, 12 * logits + frame, HIDDEN_LOGIT)


@cache
def _voices() -> np.ndarray:
    second = np.sin(np.arange(16 * 16_000) / 16_000 * 1.1) > 0
    samples = speechlike(len(second)) + 0.7 * speechlike(len(second), seed=3)[::-1] * second
    return (np.round(samples * 32768) / 32768).astype(np.float32)


def two_voices(num_samples: int = 16 * 16_000) -> np.ndarray:
    """Float32 samples of two speech-like voices, the second only now and then, on the int16 grid; up to 16 s."""
    return _voices()[:num_samples].copy()


@cache
def _calibration_mel() -> Tensor:
    return fbank_offline(torch.from_numpy(two_voices())[None])


@torch.no_grad()
def make_model(norm: str = "rms", frontend: str = "ema", *, talkative: bool = False) -> Model:
    """A tiny model in evaluation mode, calibrated on `two_voices`.

    `talkative`: with a decoder that tells frames apart, so that several speakers come and go in any input.
    """
    torch.manual_seed(2)
    config = ModelConfig(FrontEndConfig(frontend), replace(ENCODER, norm=norm), MEMORY)
    model = Model(config)
    shake(model.encoder)
    mel = _calibration_mel()
    model.frontend.calibrate(mel)
    if talkative:
        decoder = SimilarityDecoder(ENCODER.dim)
        model.memory.decoder = decoder  # pyright: ignore[reportAttributeAccessIssue]
        mean = model.eval().encoder(model.frontend(mel)[0], chunk=4)[0][0].mean(dim=0)
        model.memory.embed.bias.copy_(-model.memory.embed.weight @ mean)
        decoder.from_frame.weight.mul_(3.0)
        decoder.from_frame.bias.copy_(-decoder.from_frame.weight @ mean)
    return model.eval()


def make_checkpoint(norm: str = "rms", frontend: str = "ema", *, talkative: bool = False, chunk: int = 4) -> Checkpoint:
    """A tiny model with `QUICK_TURNS`."""
    return Checkpoint(make_model(norm, frontend, talkative=talkative), QUICK_TURNS, chunk, (chunk,), {"seed": 3})


class ScriptedDecoder(nn.Module):
    """Stands in for the decoder: the logits come with the input, in the order of the slots."""

    def __init__(self, num_logits: int) -> None:
        super().__init__()
        self.num_logits = num_logits
        self.from_frame = nn.Identity()

    def forward(self, frame: Tensor, embedding: Tensor, prototype: Tensor, count: Tensor, newcomer: Tensor) -> Tensor:
        """The first `num_logits` values of `frame`, where a slot is occupied or the newcomer's."""
        return torch.where((count > 0) | newcomer, frame[..., : count.shape[-1]], HIDDEN_LOGIT)


def scripted_memory(num_slots: int, embedding_dim: int = 2, **changes: int | float) -> SpeakerMemory:
    """A memory that obeys its input `[.., num_slots + 1 logits, embedding]`, see `script`."""
    dim = num_slots + 1 + embedding_dim
    config = replace(MEMORY, num_slots=num_slots, embedding_dim=embedding_dim, **changes)
    memory = SpeakerMemory(dim, config)
    memory.decoder = ScriptedDecoder(num_slots + 1)  # pyright: ignore[reportAttributeAccessIssue]
    with torch.no_grad():
        memory.embed.weight.copy_(torch.eye(dim)[num_slots + 1 :])
        memory.embed.bias.zero_()
    return memory.eval()


def script(activity: Tensor, embedding: Tensor) -> Tensor:
    """Input of a scripted memory from the activities `[.., slots + 1]` it shall give and the embeddings."""
    return torch.cat([torch.logit(activity, eps=1e-7), embedding], dim=-1)


def whole_chunks(num_chunks: int) -> st.SearchStrategy[list[int]]:
    """Numbers of chunks per call that add up to `num_chunks`; calls with none are among them."""
    cuts = st.lists(st.integers(0, num_chunks), max_size=num_chunks)
    return cuts.map(lambda c: [b - a for a, b in pairwise([0, *sorted(c), num_chunks])])


def in_steps(call: Callable, state: object, x: Tensor, sizes: list[int]) -> tuple[list, object]:
    """Outputs of `call(x, state) -> (y, state)` over pieces of `x` along time, and the last state."""
    outputs = []
    for piece in x.split(sizes, dim=1):
        y, state = call(piece, state)
        outputs.append(y)
    return outputs, state


def tensors_of(state: object) -> list[Tensor]:
    """All tensors in nested tuples."""
    if isinstance(state, Tensor):
        return [state]
    return [t for part in state for t in tensors_of(part)] if isinstance(state, tuple) else []
