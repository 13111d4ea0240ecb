"""Speaker memory: frames in, activity of every slot out; O(1) state however long the recording.

A slot keeps a sum of unit-norm frame embeddings, a count of the frames in it, and the time it was last heard. A frame
adds to a slot by its exclusive weight `w_s = a_s * prod_{j != s}(1 - a_j)`. The sum is a capped mean: beyond
`cap_frames` it forgets as fast as it learns, so it neither freezes nor drifts away. Slots share all weights and
attend to one another; permuting occupied slots permutes the output, and a model trained with few speakers runs with
many.

The cap alone decides how prototypes follow voices. With `n' = min(cap, n + w)` and `m' = (m + w e) n' / (n + w)`
the share of a new frame in a prototype is `w / (n + w)`. At `cap_frames=inf` that is a running sum, which never forgets
and freezes. Once a count has reached its cap, the share stays `1 / (cap + 1)` per frame: an exponential moving average
of that rate; `cap_frames=49` is one of 0.02. Until then it is the plain mean, since an average of a constant rate from
the first frame on would be that frame for long: `(1 - rate)^n` of it is left after n others.

One learned newcomer token sits in the first free slot. When it fires, the slot is occupied from the next frame on. An
occupant is confirmed once its count reaches `confirm_frames`; one that has not been heard for `drop_frames` before that
is dropped, and its slot is free again. When no slot is free, the newcomer is reported as `overflow`, never forced on
another speaker.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.checks import check_range
from diarnorm.turns import TurnConfig

HIDDEN_LOGIT = -30.0
KINDS = ("prototypes", "none")
TOLD_FRAMES = 200.0
"""Most that the decoder is told of a count: no more than it met in training, whatever the cap is later."""


@dataclass(frozen=True)
class MemoryConfig:
    """Size of the decoder and rules of the memory. `kind`: `prototypes`, or `none` for `diarnorm.outputs`. Rules out of
    range raise ValueError."""

    kind: str = "prototypes"
    embedding_dim: int = 64
    dim: int = 96
    num_layers: int = 2
    num_heads: int = 4
    ff_factor: int = 2
    dropout: float = 0.1
    num_slots: int = 8
    cap_frames: float = 200.0
    """Frames of exclusive speech (16 s) after which a prototype forgets as fast as it learns; `inf`: it never does."""
    floor: float = 0.6
    """Exclusive weights below it do not enter a prototype; 0 to 1."""
    birth: float = 0.25
    """Exclusive weight of the newcomer token that occupies a slot; 0 to 1."""
    confirm_frames: float = 5.0
    """Collected frames after which an occupant is a speaker; above 0."""
    drop_frames: int = 25
    """Frames without contribution after which an unconfirmed occupant is dropped."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"model.memory.kind={self.kind} is not known: choose one of {', '.join(KINDS)}")
        check_range("memory.floor", self.floor, low=0, high=1)
        check_range("memory.birth", self.birth, low=0, high=1)
        check_range("memory.confirm_frames", self.confirm_frames, above=0)
        check_range("memory.drop_frames", self.drop_frames, low=0)
        if not self.cap_frames >= max(1.0, self.confirm_frames):
            raise ValueError(
                f"cap_frames={self.cap_frames:g} is too low: give 1 or more, and no less than "
                f"confirm_frames={self.confirm_frames:g}, which no count would reach"
            )

    def turn_rules(self, turns: TurnConfig | None = None) -> TurnConfig:
        """`turns`, or the defaults, as they hold beside this memory: an occupant is a speaker to both after the same
        frames."""
        return replace(TurnConfig() if turns is None else turns, confirm_frames=self.confirm_frames)


class MemoryState(NamedTuple):
    """State per slot, and the number of frames heard. The last slot is never occupied: it holds the overflow."""

    total: Float[Tensor, "batch slots embedding"]
    count: Float[Tensor, "batch slots"]  # pyright: ignore[reportIncompatibleMethodOverride]
    seen: Int[Tensor, "batch slots"]
    frame: Int[Tensor, " batch"]


class MemoryOutput(NamedTuple):
    """Per frame and slot: activity, count after the frame (0: free), weight with which the frame entered the slot.
    Per frame: activity of a newcomer for whom no slot was free."""

    activity: Float[Tensor, "batch frames slots"]
    count: Float[Tensor, "batch frames slots"]  # pyright: ignore[reportIncompatibleMethodOverride]
    weight: Float[Tensor, "batch frames slots"]
    overflow: Float[Tensor, "batch frames"]


class SlotLayer(nn.Module):
    """Pre-LayerNorm attention across the slots of one frame, and a feed-forward."""

    def __init__(self, config: MemoryConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.norm_attention, self.norm_ff = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.out = nn.Linear(config.dim, config.dim)
        hidden = config.dim * config.ff_factor
        self.ff = nn.Sequential(nn.Linear(config.dim, hidden), nn.SiLU(), nn.Linear(hidden, config.dim))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, z_NSD: Tensor, bias_NS: Tensor) -> Tensor:
        """Tokens of N frames with S slots; `bias_NS` hides tokens that are not there."""
        rows, slots, dim = z_NSD.shape
        qkv = self.qkv(self.norm_attention(z_NSD)).view(rows, slots, 3, self.num_heads, dim // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (dim // self.num_heads) ** -0.5 + bias_NS[:, None, None, :]
        y_NSD = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(rows, slots, dim)
        z_NSD = z_NSD + self.dropout(self.out(y_NSD))
        return z_NSD + self.dropout(self.ff(self.norm_ff(z_NSD)))


class Decoder(nn.Module):
    """Gives a logit per slot; see `SlotDecoder.forward`. Has no memory of its own."""

    from_frame: nn.Module
    """What needs the frame alone, done for all frames at once."""
    head: nn.Linear
    """What gives the logits."""


class SlotDecoder(Decoder):
    """One logit per slot from the frame, its embedding, and the prototypes."""

    def __init__(self, dim: int, config: MemoryConfig) -> None:
        super().__init__()
        self.from_frame = nn.Linear(dim, config.dim)
        self.from_prototype = nn.Linear(config.embedding_dim, config.dim, bias=False)
        self.from_product = nn.Linear(config.embedding_dim, config.dim, bias=False)
        self.from_facts = nn.Linear(3, config.dim, bias=False)
        self.newcomer = nn.Parameter(torch.randn(config.dim) * 0.1)
        self.layers = nn.ModuleList(SlotLayer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.dim)
        self.head = nn.Linear(config.dim, 1)

    def forward(
        self,
        frame: Float[Tensor, "*rows width"],
        embedding: Float[Tensor, "*rows embedding"],
        prototype: Float[Tensor, "*rows slots embedding"],
        count: Float[Tensor, "*rows slots"],
        newcomer: Bool[Tensor, "*rows slots"],
    ) -> Float[Tensor, "*rows slots"]:
        """Logit of every slot. `frame` has gone through `from_frame`; slots that are neither occupied nor the
        newcomer's get a large negative logit."""
        *rows, slots, _ = prototype.shape
        known = count > 0
        present = (known | newcomer).reshape(-1, slots)
        product = embedding[..., None, :] * prototype
        told = torch.log1p(count.clamp(max=TOLD_FRAMES))
        facts = torch.stack([told, known.to(count.dtype), 4 * product.sum(dim=-1)], dim=-1)
        z = frame[..., None, :] + self.from_prototype(prototype) + self.from_product(8 * product)
        z = z + self.from_facts(facts) + newcomer[..., None] * self.newcomer
        bias = torch.zeros_like(present, dtype=z.dtype).masked_fill(~present, -1e4)
        z = z.reshape(-1, slots, z.shape[-1])
        for layer in self.layers:
            z = layer(z, bias)
        logits = self.head(self.norm(z)).squeeze(-1)
        return torch.where(present, logits, HIDDEN_LOGIT).view(*rows, slots)


class SpeakerMemory(nn.Module):
    """Scans the frames with the decoder and updates the slots."""

    def __init__(self, dim: int, config: MemoryConfig | None = None) -> None:
        super().__init__()
        self.config = config if config is not None else MemoryConfig()
        self.embed = nn.Linear(dim, self.config.embedding_dim)
        self.decoder: Decoder = SlotDecoder(dim, self.config)

    def init_state(self, batch_size: int, num_slots: int | None = None) -> MemoryState:
        """Every slot free. `num_slots` speakers at most; by default as configured."""
        slots = (self.config.num_slots if num_slots is None else num_slots) + 1
        like = self.embed.weight
        return MemoryState(
            total=like.new_zeros(batch_size, slots, self.config.embedding_dim),
            count=like.new_zeros(batch_size, slots),
            seen=torch.zeros(batch_size, slots, dtype=torch.int64, device=like.device),
            frame=torch.zeros(batch_size, dtype=torch.int64, device=like.device),
        )

    @contextmanager
    def under(self, rules: MemoryConfig) -> Iterator[None]:
        """Other rules with the same weights, for as long as the context lasts."""
        own, self.config = self.config, rules
        try:
            yield
        finally:
            self.config = own

    def embedding(self, h: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows embedding"]:
        """Unit-norm speaker embedding of each frame."""
        return F.normalize(self.embed(h), dim=-1)

    def forward(
        self,
        h: Float[Tensor, "batch frames dim"],
        state: MemoryState | None = None,
        valid: Bool[Tensor, "batch frames"] | None = None,
    ) -> tuple[MemoryOutput, MemoryState]:
        """Activity of every slot in every frame. Frames that are not `valid` change nothing and are silent."""
        batch, frames, _ = h.shape
        state = self.init_state(batch) if state is None else state
        if valid is None:
            valid = torch.ones(batch, frames, dtype=torch.bool, device=h.device)
        embeddings, contexts = self.embedding(h), self.decoder.from_frame(h)
        steps = []
        for e, context, here in zip(embeddings.unbind(1), contexts.unbind(1), valid.unbind(1), strict=True):
            activity, weight, state = self._step(e, context, here, state)
            steps.append(torch.stack([activity, state.count, weight]))
        slots = state.count.shape[1]
        stacked = torch.stack(steps, dim=2) if steps else h.new_zeros(3, batch, 0, slots)
        placed, overflow = stacked.split([slots - 1, 1], dim=-1)
        activity, count, weight = placed.unbind(0)
        return MemoryOutput(activity, count, weight, overflow[0, ..., 0]), state

    def newcomers(self, count: Float[Tensor, "*rows slots"]) -> Bool[Tensor, "*rows slots"]:
        """The slots in which somebody new may appear."""
        return first_free(count)

    def _step(self, e: Tensor, context: Tensor, here: Tensor, state: MemoryState) -> tuple[Tensor, Tensor, MemoryState]:
        newcomer = self.newcomers(state.count)
        prototype = F.normalize(state.total, dim=-1)
        activity = self.decoder(context, e, prototype, state.count, newcomer).sigmoid() * here[:, None]
        weight = self.weights(activity, newcomer, state)
        return activity, weight, self._update(state, e, weight, here)

    def weights(
        self, activity: Float[Tensor, "batch slots"], newcomer: Bool[Tensor, "batch slots"], state: MemoryState
    ) -> Float[Tensor, "batch slots"]:
        """Weight with which a frame enters each slot: the exclusive activity, where that is enough."""
        threshold = torch.where(newcomer, self.config.birth, self.config.floor)
        weight = exclusive(activity)
        weight = torch.where(weight >= threshold, weight, 0.0)
        weight[:, -1] = 0.0
        return weight

    def _update(self, state: MemoryState, e: Tensor, weight: Tensor, here: Tensor) -> MemoryState:
        raw = state.count + weight
        count = raw.clamp(max=self.config.cap_frames)
        total = (state.total + weight[..., None] * e[:, None, :]) * (count / raw.clamp(min=1e-6))[..., None]
        frame = state.frame + here
        seen = torch.where(weight > 0, frame[:, None], state.seen)
        stale = (count < self.config.confirm_frames) & (frame[:, None] - seen > self.config.drop_frames)
        return MemoryState(total.masked_fill(stale[..., None], 0.0), count.masked_fill(stale, 0.0), seen, frame)


def first_free(count: Float[Tensor, "*rows slots"]) -> Bool[Tensor, "*rows slots"]:
    """The first slot with nothing in it."""
    free = count <= 0
    return free & (free.cumsum(dim=-1) == 1)


def exclusive(activity: Float[Tensor, "*rows slots"]) -> Float[Tensor, "*rows slots"]:
    """`a_s * prod_{j != s}(1 - a_j)`: how sure it is that slot s, and no other, speaks."""
    silent = 1.0 - activity
    before = torch.cat([torch.ones_like(silent[..., :1]), silent[..., :-1].cumprod(dim=-1)], dim=-1)
    after = torch.cat([silent[..., 1:].flip(-1).cumprod(dim=-1).flip(-1), torch.ones_like(silent[..., :1])], dim=-1)
    return activity * before * after


def prototypes(
    embedding: Float[Tensor, "batch frames embedding"], weight: Float[Tensor, "batch frames slots"]
) -> tuple[Float[Tensor, "batch frames slots embedding"], Float[Tensor, "batch frames slots"]]:
    """Prototype and count that each frame meets when the memory is fed given weights: all frames at once, for training.

    Exclusive cumulative sums; equal to the scan as long as no count reaches its cap.
    """
    count = weight.cumsum(dim=1) - weight
    product = weight[..., None] * embedding[:, :, None, :]
    return F.normalize(product.cumsum(dim=1) - product, dim=-1), count
