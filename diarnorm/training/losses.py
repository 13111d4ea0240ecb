"""What the model is trained on: decoding with a given memory, newcomers, embeddings, how many speak.

A model without memory has one loss in place of those of the slots: its outputs against the speakers in the order that
fits best.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from diarnorm.memory import SpeakerMemory, prototypes
from diarnorm.model import Model
from diarnorm.outputs import FixedOutputs, in_best_order
from diarnorm.timebase import MELS_PER_FRAME
from diarnorm.training.batches import Batch
from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.targets import SlotTargets, delayed_births, own_decisions, rollout
from diarnorm.training.voices import SpeakerHeads, voice_losses

SLOT_LOSSES = {"prototypes": ("births", "own"), "none": ("outputs",)}
"""Losses of the slots by `model.memory.kind`."""


def slot_loss(logits: Float[Tensor, "batch frames slots_and_newcomer"], targets: SlotTargets) -> Tensor:
    """Binary cross-entropy summed over slots, mean over frames."""
    loss = F.binary_cross_entropy_with_logits(logits, targets.target, reduction="none")
    return (loss * targets.importance).sum() / (logits.shape[0] * logits.shape[1])


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
    losses |= voice_losses(model, heads, h, batch, config, teacher, generator)
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


def whole_frames(batch: Batch, chunk: int) -> int:
    """Frames of a batch in whole chunks, which is what is learned from."""
    return batch.activity.shape[1] // chunk * chunk
