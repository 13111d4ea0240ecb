"""Streaming Conformer encoder: normalised mel frames in, one vector of size `dim` per 80-ms frame out.

State is a value: every call takes and returns an `EncoderState` of fixed shapes. Attention is chunk-causal: a query in
chunk c (C frames, number i) sees keys `[iC - L, (i+1)C)`. Keys are cached before rotation and rotated with window
positions 0..L+C-1, so no absolute position exists anywhere and hour ten equals minute one. Convolutions are causal.
What is not valid is replaced by zeros at the entry and never attended to.

Sources: A. Gulati et al., "Conformer", 2020; J. Su et al., "RoFormer" (rotary positions), 2021.
Shape suffixes: B batch, T frames, D dim, H heads, W window (L + C), N chunks.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.norms import EPS, add_and_norm, make_norm
from diarnorm.timebase import MELS_PER_FRAME, NUM_MELS

PLACEMENTS = ("pre", "post")


@dataclass(frozen=True)
class EncoderConfig:
    """Size and norm of the encoder. `norm` swaps every norm at once; `conv_norm` follows it unless set."""

    dim: int = 128
    num_blocks: int = 4
    num_heads: int = 4
    ff_factor: int = 4
    kernel_size: int = 15
    left_context: int = 48
    """L, in frames of 80 ms."""
    norm: str = "rms"
    conv_norm: str | None = None
    placement: str = "pre"
    eps: float = EPS
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement={self.placement!r} is not known: choose one of {', '.join(PLACEMENTS)}")
        if self.num_heads < 1 or self.dim % (2 * self.num_heads):
            raise ValueError(f"dim={self.dim} must be a multiple of 2 * num_heads = {2 * self.num_heads}")


class BlockState(NamedTuple):
    """Un-rotated keys and values of the last L frames, and the last K-1 inputs of the convolution."""

    keys: Float[Tensor, "batch context heads head_dim"]
    values: Float[Tensor, "batch context heads head_dim"]
    conv: Float[Tensor, "batch taps dim"]


class EncoderState(NamedTuple):
    """State of every block, and which of the L cached frames exist."""

    blocks: tuple[BlockState, ...]
    valid: Bool[Tensor, "batch context"]


class FeedForward(nn.Sequential):
    """Linear, SiLU, Linear."""

    def __init__(self, config: EncoderConfig) -> None:
        hidden = config.dim * config.ff_factor
        dropout = nn.Dropout(config.dropout)
        super().__init__(nn.Linear(config.dim, hidden), nn.SiLU(), dropout, nn.Linear(hidden, config.dim))


class Attention(nn.Module):
    """Multi-head attention over the windows of the chunks."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.head_dim = config.dim // config.num_heads
        self.left_context = config.left_context
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)

    def forward(self, x_BTD: Tensor, state: BlockState, chunk: int, bias_BNW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Attended frames, and keys and values to keep. `bias_BNW` hides keys that do not exist."""
        batch, frames, dim = x_BTD.shape
        chunks, window = frames // chunk, self.left_context + chunk
        q, k, v = self.qkv(x_BTD).view(batch, frames, 3, self.num_heads, self.head_dim).unbind(dim=2)
        keys, values = torch.cat([state.keys, k], dim=1), torch.cat([state.values, v], dim=1)
        cosine, sine = rotary_table(window, self.head_dim, x_BTD)
        q_NHCd = q.reshape(batch * chunks, chunk, self.num_heads, self.head_dim).transpose(1, 2)
        q_NHCd = rotate(q_NHCd, cosine[self.left_context :], sine[self.left_context :])
        k_NHWd = rotate(_windows(keys, window, chunk), cosine, sine)
        v_NHWd = _windows(values, window, chunk)
        bias = bias_BNW.reshape(batch * chunks, 1, 1, window).expand(-1, -1, chunk, -1)
        y = F.scaled_dot_product_attention(q_NHCd, k_NHWd, v_NHWd, attn_mask=bias)
        y_BTD = y.transpose(1, 2).reshape(batch, frames, dim)
        return self.out(y_BTD), last_frames(keys, self.left_context), last_frames(values, self.left_context)


class Convolution(nn.Module):
    """Pointwise, GLU, causal depthwise, norm, SiLU, pointwise."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        norm = config.conv_norm if config.conv_norm is not None else config.norm
        self.expand = nn.Linear(config.dim, 2 * config.dim)
        self.depthwise = nn.Conv1d(config.dim, config.dim, config.kernel_size, groups=config.dim)
        self.norm = make_norm(norm, config.dim, config.eps)
        self.project = nn.Linear(config.dim, config.dim)

    def forward(self, x_BTD: Tensor, state: BlockState, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Convolved frames, and inputs to keep."""
        gated = torch.where(valid[..., None], F.glu(self.expand(x_BTD), dim=-1), 0.0)
        padded = torch.cat([state.conv, gated], dim=1)
        y_BTD = self.depthwise(padded.transpose(1, 2)).transpose(1, 2)
        y_BTD = self.project(F.silu(self.norm(y_BTD, valid)))
        return y_BTD, last_frames(padded, state.conv.shape[1])


class Block(nn.Module):
    """Half feed-forward, attention, convolution, half feed-forward, each on the residual path."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.placement = config.placement
        self.ff_in, self.ff_out = FeedForward(config), FeedForward(config)
        self.attention = Attention(config)
        self.convolution = Convolution(config)
        self.norms = nn.ModuleList(make_norm(config.norm, config.dim, config.eps) for _ in range(4))
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, state: BlockState, valid: Tensor, chunk: int, bias_BNW: Tensor
    ) -> tuple[Tensor, BlockState]:
        """One block over whole chunks."""
        normed = self.norms[0](x, valid) if self.placement == "pre" else x
        normed, x = self._join(0, x, self.ff_in(normed), 0.5, valid)
        y, keys, values = self.attention(normed, state, chunk, bias_BNW)
        normed, x = self._join(1, x, y, 1.0, valid)
        y, conv = self.convolution(normed, state, valid)
        normed, x = self._join(2, x, y, 1.0, valid)
        _, x = self._join(3, x, self.ff_out(normed), 0.5, valid)
        return x, BlockState(keys, values, conv)

    def _join(self, index: int, x: Tensor, y: Tensor, alpha: float, valid: Tensor) -> tuple[Tensor, Tensor]:
        """What the next part reads, and the stream, after `x + alpha * y`; after the last part both are the stream."""
        y = self.dropout(y)
        if self.placement == "post":
            normed, _ = add_and_norm(self.norms[index], y, x, alpha, valid)
            return normed, normed
        if index + 1 < len(self.norms):
            return add_and_norm(self.norms[index + 1], y, x, alpha, valid)
        x = torch.add(x, y, alpha=alpha)
        return x, x


class Encoder(nn.Module):
    """Stacks 8 mel frames, projects, and runs the blocks."""

    def __init__(self, config: EncoderConfig | None = None) -> None:
        super().__init__()
        self.config = config if config is not None else EncoderConfig()
        self.entry = nn.Linear(NUM_MELS * MELS_PER_FRAME, self.config.dim)
        self.blocks = nn.ModuleList(Block(self.config) for _ in range(self.config.num_blocks))
        final = self.config.norm if self.config.placement == "pre" else "none"
        self.final_norm = make_norm(final, self.config.dim, self.config.eps)

    def init_state(self, batch_size: int) -> EncoderState:
        """Nothing heard yet."""
        c, like = self.config, self.entry.weight
        cache = (batch_size, c.left_context, c.num_heads, c.dim // c.num_heads)
        blocks = tuple(  # no tensor twice: torch.compile would compile again when they differ
            BlockState(
                like.new_zeros(cache), like.new_zeros(cache), like.new_zeros(batch_size, c.kernel_size - 1, c.dim)
            )
            for _ in self.blocks
        )
        valid = torch.zeros(batch_size, c.left_context, dtype=torch.bool, device=like.device)
        return EncoderState(blocks, valid)

    def forward(
        self,
        mel: Float[Tensor, "batch mel_frames 80"],
        state: EncoderState | None = None,
        valid: Bool[Tensor, "batch frames"] | None = None,
        *,
        chunk: int,
    ) -> tuple[Float[Tensor, "batch frames dim"], EncoderState]:
        """Encode whole chunks of `chunk` frames.

        Raises ValueError when the input is not a whole number of chunks.
        """
        batch, frames = mel.shape[0], mel.shape[1] // MELS_PER_FRAME
        if mel.shape[1] % MELS_PER_FRAME or frames % chunk:
            raise ValueError(
                f"the encoder takes whole chunks of {chunk} frames ({chunk * MELS_PER_FRAME} mel frames), "
                f"got {mel.shape[1]} mel frames: pad the end and mark it with valid=False"
            )
        state = self.init_state(batch) if state is None else state
        if frames == 0:
            return mel.new_zeros(batch, 0, self.config.dim), state
        if valid is None:
            valid = torch.ones(batch, frames, dtype=torch.bool, device=mel.device)
        x = mel.reshape(batch, frames, -1)
        x = self.entry(torch.where(valid[..., None], x, 0.0))
        known = torch.cat([state.valid, valid], dim=1)
        bias_BNW = _key_bias(known, self.config.left_context + chunk, chunk, x)
        blocks = []
        for block, block_state in zip(self.blocks, state.blocks, strict=True):
            x, block_state = block(x, block_state, valid, chunk, bias_BNW)
            blocks.append(block_state)
        x = self.final_norm(x, valid)
        return x, EncoderState(tuple(blocks), last_frames(known, self.config.left_context))


def rotary_table(length: int, head_dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine `[length, head_dim / 2]` of the rotary angles of positions 0..length-1."""
    half = torch.arange(head_dim // 2, device=like.device, dtype=torch.float32)
    angles = torch.arange(length, device=like.device, dtype=torch.float32)[:, None] * 10_000.0 ** (-2 * half / head_dim)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(
    x: Float[Tensor, "*rows positions head_dim"], cosine: Tensor, sine: Tensor
) -> Float[Tensor, "*rows positions head_dim"]:
    """Turn the two halves of each vector by its position's angles."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)


def last_frames(x: Shaped[Tensor, "batch frames *rest"], num_frames: int) -> Shaped[Tensor, "batch kept *rest"]:
    """The last `num_frames` along time, as a tensor of its own with canonical strides."""
    return x[:, x.shape[1] - num_frames :].clone(memory_format=torch.contiguous_format)


def _windows(x_BTHd: Tensor, window: int, chunk: int) -> Tensor:
    """`[B, T, H, d] -> [B * N, H, W, d]`: the keys or values that each chunk sees."""
    x_BNHdW = x_BTHd.unfold(1, window, chunk)
    return x_BNHdW.flatten(0, 1).transpose(-1, -2)


def _key_bias(known: Tensor, window: int, chunk: int, like: Tensor) -> Tensor:
    """0 for keys that exist, a large negative (finite: a row with no key must not become NaN) for the others."""
    hidden = ~known.unfold(1, window, chunk)
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill(hidden, -1e4)
