"""Gradient of one step: of several batches, in several processes, in mixed precision, as if it were of one batch.

Each loss is a mean over frames or rows. A batch counts by its share of those of the whole step, so sums of gradients
over batches and processes are the gradient of one large batch. What is drawn for a batch is the same in however many
processes. (Three are not: BatchNorm, whose statistics are those of a batch, over all processes, knows which batch a
frame is in; the contrastive loss compares the frames of one batch in one process; dropout differs between processes.)
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from diarnorm.model import Model
from diarnorm.training.batches import Batch
from diarnorm.training.config import RunConfig
from diarnorm.training.distributed import num_processes, rank, sum_gradients, sum_over_processes
from diarnorm.training.losses import SLOT_LOSSES, training_losses, whole_frames
from diarnorm.training.voices import SpeakerHeads, speaks_alone

STEP, BATCH, DROPOUT = 0, 1, 2
"""What random numbers are for; part of their seeds."""


class Draw(NamedTuple):
    """What is drawn once for all batches of a step: chunk size in frames, and whether the memory runs freely."""

    chunk: int
    rolled: bool


def draw(config: RunConfig, step: int) -> Draw:
    """The draw of a step, the same in every process."""
    t = config.train
    generator = torch.Generator().manual_seed(mix(t.seed, step, STEP))
    chunk = t.chunks[int(torch.randint(len(t.chunks), (1,), generator=generator))]
    late = step >= t.rollout_from * t.num_steps
    return Draw(chunk, late and bool(torch.rand(1, generator=generator) < t.rollout_share))


def add_gradients(
    model: Model,
    heads: SpeakerHeads,
    batches: Sequence[Batch],
    config: RunConfig,
    *,
    step: int,
    teacher: Float[Tensor, "sources teacher"] | None = None,
) -> dict[str, float]:
    """Leave the step's gradient in the parameters; its losses by name, over all batches and processes.

    Parameters have no gradient before. Every process sees its rows of the same batches.
    """
    drawn = draw(config, step)
    shares = loss_shares(batches, config, drawn.chunk, teacher)
    sums: dict[str, Tensor] = {}
    for number, (batch, share) in enumerate(zip(batches, shares, strict=True)):
        losses = batch_losses(model, heads, batch, config, drawn, step=step, number=number, teacher=teacher)
        if share is not None:
            losses = {name: loss * share[name] for name, loss in losses.items()}
        torch.stack(list(losses.values())).sum().backward()
        for name, loss in losses.items():
            sums[name] = sums[name] + loss.detach() if name in sums else loss.detach()
    values = _over_processes(sums, shares[0])
    sum_gradients([*model.parameters(), *heads.parameters()])
    if drawn.rolled and "own" in values:
        values["rolled"] = values.pop("own")
    return values


def batch_losses(
    model: Model,
    heads: SpeakerHeads,
    batch: Batch,
    config: RunConfig,
    drawn: Draw,
    *,
    step: int,
    number: int,
    teacher: Tensor | None,
) -> dict[str, Tensor]:
    """Losses of batch `number` of a step, with random numbers of its own, in the run's precision."""
    seed = config.train.seed
    generator = torch.Generator().manual_seed(mix(seed, step, BATCH, number, 0))  # one for all processes
    torch.manual_seed(mix(seed, step, DROPOUT, number, rank()))
    narrow = config.train.precision == "bf16"
    with torch.autocast(batch.mel.device.type, torch.bfloat16, enabled=narrow):
        return training_losses(
            model,
            heads,
            batch,
            config.loss,
            chunk=drawn.chunk,
            free_running=drawn.rolled,
            generator=generator,
            teacher=teacher,
            share=(rank(), num_processes()),
        )


def loss_shares(
    batches: Sequence[Batch], config: RunConfig, chunk: int, teacher: Tensor | None
) -> list[Mapping[str, Tensor] | None]:
    """How much of the step's frames or rows each loss of each batch is a mean over; None stands for all of them."""
    if len(batches) == 1 and num_processes() == 1:
        return [None]
    counts = [loss_counts(batch, config, chunk, teacher) for batch in batches]
    totals = sum_over_processes(torch.stack([torch.stack(list(count.values())) for count in counts]).sum(dim=0))
    return [
        {name: number / total.clamp(min=1) for (name, number), total in zip(count.items(), totals, strict=True)}
        for count in counts
    ]


def loss_counts(batch: Batch, config: RunConfig, chunk: int, teacher: Tensor | None) -> dict[str, Tensor]:
    """Over how many frames or rows `training_losses` averages each loss of a batch; known from the labels alone."""
    frames = whole_frames(batch, chunk)
    activity, source = batch.activity[:, :frames], batch.source[:, :frames]
    rows, _ = speaks_alone(activity)
    all_frames = activity.new_tensor(float(activity.shape[0] * frames))
    counts: dict[str, Tensor] = dict.fromkeys((*SLOT_LOSSES[config.model.memory.kind], "speech"), all_frames)
    counts["speaker"] = rows.sum().to(activity)
    if teacher is not None:
        known = rows & (source >= 0) & (teacher[source.clamp(min=0)].abs().sum(dim=-1) > 0)
        counts["teacher"] = known.sum().to(activity)
    if config.loss.contrastive > 0:
        counts["contrastive"] = counts["speaker"].clamp(max=config.loss.contrastive_frames)
    return counts


def _over_processes(sums: Mapping[str, Tensor], share: Mapping[str, Tensor] | None) -> dict[str, float]:
    """Losses summed over processes; in one that lacks one of them it is 0."""
    names = list(sums if share is None else share)
    nothing = next(iter(sums.values())).new_zeros(())
    totals = sum_over_processes(torch.stack([sums.get(name, nothing).float() for name in names]))
    return dict(zip(names, totals.tolist(), strict=True))


def mix(*parts: int) -> int:
    """A seed from several numbers."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])
