"""What BatchNorm's running statistics cost: the loss with a batch's own statistics, and with the running ones."""

from collections.abc import Sequence
from copy import deepcopy

import torch

from diarnorm.model import Model
from diarnorm.norms import BatchNorm
from diarnorm.training.batches import Batch
from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.losses import SLOT_LOSSES, training_losses
from diarnorm.training.voices import SpeakerHeads


def has_batch_norm(model: Model) -> bool:
    """Whether train and evaluation mode of the model differ in more than dropout."""
    return any(isinstance(module, BatchNorm) for module in model.modules())


def copy_in_mode(model: Model, *, train_mode: bool) -> Model:
    """A copy whose BatchNorms are in train mode or not, the rest in evaluation mode."""
    model = deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.train(train_mode)
    return model


@torch.no_grad()
def loss_in_both_modes(model: Model, batches: Sequence[Batch], config: LossConfig, chunk: int) -> dict[str, float]:
    """Mean loss of the slots and of speech on the same batches with BatchNorm in train mode and in evaluation mode.

    The model stays as it is; everything but BatchNorm is in evaluation mode.
    """
    classes = 1 + max(int(batch.speaker_class.max()) for batch in batches)
    heads = SpeakerHeads(model.memory.config.embedding_dim, max(classes, 1)).to(batches[0].mel.device)
    return {
        "train_mode": _loss(model, heads, batches, config, chunk, train_mode=True),
        "eval_mode": _loss(model, heads, batches, config, chunk, train_mode=False),
    }


def _loss(
    model: Model, heads: SpeakerHeads, batches: Sequence[Batch], config: LossConfig, chunk: int, *, train_mode: bool
) -> float:
    model = copy_in_mode(model, train_mode=train_mode)
    total = 0.0
    for number, batch in enumerate(batches):
        generator = torch.Generator().manual_seed(number)
        losses = training_losses(model, heads, batch, config, chunk=chunk, free_running=False, generator=generator)
        names = (*SLOT_LOSSES[model.config.memory.kind], "speech")  # those that mean something on other voices
        total += sum(losses[name].item() for name in names)
    return round(total / len(batches), 4)


def gap_sentence(gap: dict[str, float]) -> str:
    """What a person reads of it."""
    return (
        f"BatchNorm, loss on the same held-out conversations: {gap['train_mode']:.4f} by the batch's statistics "
        f"(train mode), {gap['eval_mode']:.4f} by the running ones (eval mode)"
    )
