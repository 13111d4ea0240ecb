"""What the model is trained on: decoding with a given memory, newcomers, embeddings.

The memory's recursion is opened for training: given the weights with which frames enter the slots, all prototypes are
cumulative sums, so every frame is decoded in parallel. Where the weights come from is what matters:

- *delayed births*: each speaker enters the memory from the reference, after a random amount of exclusive speech (none
  for a third of them, else exponential); until then the newcomer token must fire. One birth becomes many frames of
  practice.
- *own decisions*: the same, but once a speaker is in, the model's own first-pass decisions feed the prototypes.
- *rollout*: the memory runs freely, as it does when streaming, except that nobody is dropped; each slot is then given
  to the speaker that founded it. Slots founded by no speaker, or by one who already had a slot, must stay silent.

A model without memory has one loss in place of these: its outputs against the speakers in the order that fits best.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.memory import SpeakerMemory, exclusive, prototypes
from diarnorm.model import Model
from diarnorm.outputs import FixedOutputs, in_best_order
from diarnorm.timebase import MELS_PER_FRAME

SLOT_LOSSES = {"prototypes": ("births", "own"), "none": ("outputs",)}
"""Losses of the slots by `model.memory.kind`."""
ALONE = 0.9
"""Exclusive activity of a speaker from which on a frame teaches what the voice is like."""


@dataclass(frozen=True)
class LossConfig:
    """Weights of the losses and the statistics of delayed births."""

    speech: float = 0.5
    """Nobody / one / several speak, from the encoder alone."""
    phantom: float = 0.3
    """Slots that belong to no speaker, or twice to one."""
    newcomer: float = 1.0
    """The newcomer's token, where any slot has 1."""
    speaker: float = 0.1
    """Classification of training speakers from the embedding."""
    teacher: float = 1.0
    """Cosine distance to the teacher's embedding, where there is one."""
    margin: float = 0.1
    scale: float = 20.0
    contrastive: float = 0.0
    """Frames of one voice must be more alike than those of others in the batch; 0 draws and computes nothing."""
    temperature: float = 0.1
    contrastive_frames: int = 512
    """Frames of one batch that are compared, drawn anew each time."""
    no_delay: float = 0.33
    """Share of speakers who enter the memory at once."""
    delay_frames: float = 15.0
    """Mean of the exponential delay of the others, in frames of exclusive speech."""
    seed_frames: float = 4.0
    """Frames taken from the reference before own decisions take over."""
    decoded: float = 0.5
    """Share of the frames whose slots are decoded for the gradient, drawn anew each time: neighbours teach the same."""


class Batch(NamedTuple):
    """Simulated conversations as the trainer sees them."""

    mel: Float[Tensor, "batch mel_frames 80"]
    activity: Float[Tensor, "batch frames speakers"]
    speaker_class: Int[Tensor, "batch speakers"]
    source: Int[Tensor, "batch frames"]


class SlotTargets(NamedTuple):
    """Memory weights per slot, what each slot should say, and how much that counts. The newcomer's token comes last."""

    weight: Float[Tensor, "batch frames slots"]
    target: Float[Tensor, "batch frames slots_and_newcomer"]
    importance: Float[Tensor, "batch frames slots_and_newcomer"]

    def at(self, frames: Int[Tensor, " some"]) -> "SlotTargets":
        """Those of some frames."""
        return SlotTargets(*(values[:, frames] for values in self))


class SpeakerHeads(nn.Module):
    """Classifier over training speakers and projection onto a teacher's embedding; neither is shipped."""

    def __init__(self, embedding_dim: int, num_classes: int, teacher_dim: int = 0) -> None:
        super().__init__()
        self.classes = nn.Parameter(torch.randn(num_classes, embedding_dim) * 0.1)
        self.teacher = nn.Linear(embedding_dim, teacher_dim, bias=False) if teacher_dim else None

    def forward(
        self,
        embedding: Float[Tensor, "rows embedding"],
        labels: Int[Tensor, " rows"],
        teacher: Float[Tensor, "rows teacher"] | None,
        config: LossConfig,
    ) -> dict[str, Tensor]:
        """Additive-margin softmax (F. Wang et al., 2018), mean cosine distance; a teacher row of zeros says nothing."""
        cosine = embedding @ F.normalize(self.classes, dim=-1).T
        margin = F.one_hot(labels, cosine.shape[1]) * config.margin
        losses = {"speaker": F.cross_entropy(config.scale * (cosine - margin), labels)}
        if self.teacher is not None and teacher is not None:
            known = teacher.abs().sum(dim=-1) > 0
            distance = 1.0 - F.cosine_similarity(self.teacher(embedding), teacher, dim=-1)
            losses["teacher"] = (distance * known).sum() / known.sum().clamp(min=1)
        return losses


def slot_loss(logits: Float[Tensor, "batch frames slots_and_newcomer"], targets: SlotTargets) -> Tensor:
    """Binary cross-entropy summed over slots, mean over frames."""
    loss = F.binary_cross_entropy_with_logits(logits, targets.target, reduction="none")
    return (loss * targets.importance).sum() / (logits.shape[0] * logits.shape[1])


def contrastive_loss(
    embedding: Float[Tensor, "rows embedding"], labels: Int[Tensor, " rows"], temperature: float
) -> Tensor:
    """Supervised contrastive loss (P. Khosla et al., 2020, L_out) of unit-norm embeddings: how probable the others of a
    row's label are among all others; mean over rows, 0 for one whose label is nobody else's."""
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    with torch.autocast(embedding.device.type, enabled=False):
        similarity = embedding @ embedding.T / temperature
    log_share = similarity.masked_fill(itself, torch.finfo(similarity.dtype).min).log_softmax(dim=-1)
    alike = (labels[:, None] == labels) & ~itself
    return -((log_share * alike).sum(dim=-1) / alike.sum(dim=-1).clamp(min=1)).mean()


def decode(
    memory: SpeakerMemory,
    h: Float[Tensor, "batch frames dim"],
    weight: Float[Tensor, "batch frames slots"],
    frames: Int[Tensor, " some"] | slice = slice(None),
) -> Float[Tensor, "batch some slots_and_newcomer"]:
    """Logits of all frames, or of those given, with the memory that `weight` builds; float32 under autocast, too."""
    e = memory.embedding(h).float()
    prototype, count = prototypes(e, weight)
    h, e, prototype, count = h[:, frames], e[:, frames], prototype[:, frames], count[:, frames]
    prototype, count = F.pad(prototype, (0, 0, 0, 1)), F.pad(count.clamp(max=memory.config.cap_frames), (0, 1))
    newcomer = torch.zeros_like(count, dtype=torch.bool)
    newcomer[..., -1] = True
    return memory.decoder(memory.decoder.from_frame(h), e, prototype, count, newcomer).float()


def delayed_births(
    activity: Float[Tensor, "batch frames speakers"],
    config: LossConfig,
    generator: torch.Generator,
    share: tuple[int, int] = (0, 1),
) -> SlotTargets:
    """Slots in the speakers' order, fed from the reference after a random delay.

    Of `share[1]` processes each draws the delays of the whole batch, and takes those of its rows.
    """
    rows, _, speakers = activity.shape
    whole, own = (share[1] * rows, 1, speakers), slice(share[0] * rows, (share[0] + 1) * rows)
    alone = exclusive(activity)
    alone = torch.where(alone >= 0.5, alone, 0.0)
    delay = torch.empty(whole).exponential_(1.0 / config.delay_frames, generator=generator)
    delay = torch.where(torch.rand(whole, generator=generator) < config.no_delay, 0.0, delay)
    weight = alone * (alone.cumsum(dim=1) > delay[own].to(alone.device))
    return with_newcomer(weight, activity, config)


def own_decisions(
    logits: Tensor, births: SlotTargets, activity: Tensor, floor: float, config: LossConfig
) -> SlotTargets:
    """The same births, then fed by the decisions in `logits`."""
    weight = exclusive(logits.detach().sigmoid())[..., :-1]
    weight = torch.where(weight >= floor, weight, 0.0)
    collected = births.weight.cumsum(dim=1)
    weight = torch.where(collected <= config.seed_frames, births.weight, weight * (collected > 0))
    return with_newcomer(weight, activity, config)


def with_newcomer(weight: Tensor, activity: Tensor, config: LossConfig) -> SlotTargets:
    """Each speaker in the slot of that number once occupied; for the newcomer's token, anyone active elsewhere."""
    occupied = (weight.cumsum(dim=1) - weight) > 0
    outside = (activity * ~occupied).amax(dim=-1, keepdim=True)
    importance = torch.cat([occupied.float(), torch.full_like(outside, config.newcomer)], dim=-1)
    return SlotTargets(weight, torch.cat([activity, outside], dim=-1), importance)


@torch.no_grad()
def rollout(
    memory: SpeakerMemory, h: Tensor, activity: Tensor, config: LossConfig, founding: float = 12.0
) -> SlotTargets:
    """Let the memory run freely and give each slot to the speaker heard in its first `founding` frames."""
    weight = _free_weights(memory, h)
    first = weight * (weight.cumsum(dim=1) <= founding)
    mass = torch.einsum("bts,btk->bsk", first, activity)
    share, speaker = (mass / first.sum(dim=1).clamp(min=1e-6)[..., None]).max(dim=-1)
    owner = F.one_hot(speaker, activity.shape[-1]).float() * (share > 0.5)[..., None]
    owner = owner * (owner.cumsum(dim=1) <= 1)  # a speaker's second slot is a phantom
    target = torch.einsum("btk,bsk->bts", activity, owner)
    occupied = (weight.cumsum(dim=1) - weight) > 0
    placed = torch.einsum("bts,bsk->btk", occupied.float(), owner) > 0
    outside = (activity * ~placed).amax(dim=-1, keepdim=True)
    counts = torch.where(owner.sum(dim=-1) > 0, 1.0, config.phantom)[:, None, :]
    importance = torch.cat([occupied * counts, torch.full_like(outside, config.newcomer)], dim=-1)
    return SlotTargets(weight, torch.cat([target, outside], dim=-1), importance)


def _free_weights(memory: SpeakerMemory, h: Tensor) -> Tensor:
    """Weights of a free run in which nobody is dropped, since cumulative sums cannot forget; unused slots left out."""
    training = memory.training
    try:
        rules = replace(memory.config, drop_frames=h.shape[1])
        with memory.under(rules), torch.autocast(h.device.type, enabled=False):
            weight = memory.eval()(h.float())[0].weight
    finally:
        memory.train(training)
    used = int((weight.amax(dim=(0, 1)) > 0).sum())
    return weight[..., : max(used, 1)]


def whole_frames(batch: Batch, chunk: int) -> int:
    """Frames of a batch in whole chunks, which is what is learned from."""
    return batch.activity.shape[1] // chunk * chunk


def speaks_alone(
    activity: Float[Tensor, "batch frames speakers"],
) -> tuple[Bool[Tensor, "batch frames"], Int[Tensor, "batch frames"]]:
    """Whether a frame is one speaker's alone, as embeddings are learned from, and whose it is first of all."""
    share, speaker = exclusive(activity).max(dim=-1)
    return share >= ALONE, speaker


def training_losses(
    model: Model,
    heads: SpeakerHeads,
    batch: Batch,
    config: LossConfig,
    *,
    chunk: int,
    free_running: bool,
    generator: torch.Generator,
    teacher: Float[Tensor, "sources teacher"] | None = None,
    share: tuple[int, int] = (0, 1),
) -> dict[str, Tensor]:
    """Named losses of one batch, weighted; their sum is the objective. `free_running` adds a rollout in place of the
    own-decisions pass. `share` is the number of this process and how many there are, each with its rows of a batch."""
    with torch.no_grad():
        mel, _ = model.frontend(batch.mel.float())
    frames = whole_frames(batch, chunk)
    activity = batch.activity[:, :frames]
    h, _ = model.encoder(mel[:, : frames * MELS_PER_FRAME], chunk=chunk)
    if isinstance(model.memory, FixedOutputs):
        logits = model.memory.logits(h)
        loss = F.binary_cross_entropy_with_logits(logits, in_best_order(logits, activity), reduction="none")
        losses = {"outputs": loss.sum(dim=-1).mean()}
    else:
        births = delayed_births(activity, config, generator, share)
        losses = _memory_losses(model.memory, h, activity, births, config, free_running, generator)
    num_active = (activity >= 0.5).sum(dim=-1).clamp(max=2)
    losses["speech"] = config.speech * F.cross_entropy(model.speech_head(h).float().flatten(0, 1), num_active.flatten())
    losses |= _embedding_losses(model, heads, h, batch, config, teacher, generator)
    return losses


def _memory_losses(
    memory: SpeakerMemory,
    h: Tensor,
    activity: Tensor,
    births: SlotTargets,
    config: LossConfig,
    free_running: bool,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    if free_running:
        second = rollout(memory, h, activity, config)
    else:
        with torch.no_grad():
            logits = decode(memory, h, births.weight)
        second = own_decisions(logits, births, activity, memory.config.floor, config)
    losses = {}
    for name, targets in (("births", births), ("own", second)):
        some = _some_frames(h, config.decoded, generator)
        losses[name] = slot_loss(decode(memory, h, targets.weight, some), targets.at(some))
    return losses


def _some_frames(h: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Numbers of that share of the frames, at least one, in order; the same for the whole batch."""
    frames = h.shape[1]
    drawn = torch.randperm(frames, generator=generator)[: max(1, round(share * frames))]
    return drawn.sort().values.to(h.device)


def _embedding_losses(
    model: Model,
    heads: SpeakerHeads,
    h: Tensor,
    batch: Batch,
    config: LossConfig,
    teacher: Tensor | None,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    rows, speaker = speaks_alone(batch.activity[:, : h.shape[1]])
    if not rows.any():
        return {}
    labels = batch.speaker_class.gather(1, speaker)[rows]
    targets = None
    if teacher is not None:
        source = batch.source[:, : h.shape[1]][rows]
        targets = teacher[source.clamp(min=0)].float() * (source >= 0)[:, None]
    embedding = model.memory.embedding(h[rows]).float()
    losses = heads(embedding, labels, targets, config)
    if config.contrastive > 0:
        some = torch.randperm(len(labels), generator=generator)[: config.contrastive_frames].to(labels.device)
        losses["contrastive"] = contrastive_loss(embedding[some], labels[some], config.temperature)
    return {name: getattr(config, name) * loss for name, loss in losses.items()}
