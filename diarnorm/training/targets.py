"""What each slot of the memory should say, and what the memory is made of meanwhile.

The memory's recursion is opened for training: given the weights with which frames enter the slots, all prototypes are
cumulative sums, so every frame is decoded in parallel. Where the weights come from is what matters:

- *delayed births*: each speaker enters the memory from the reference, after a random amount of exclusive speech (none
  for a third of them, else exponential); until then the newcomer token must fire. One birth becomes many frames of
  practice.
- *own decisions*: the same, but once a speaker is in, the model's own first-pass decisions feed the prototypes.
- *rollout*: the memory runs freely, as it does when streaming, except that nobody is dropped; each slot is then given
  to the speaker that founded it. Slots founded by no speaker, or by one who already had a slot, must stay silent.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from diarnorm.memory import SpeakerMemory, exclusive
from diarnorm.training.lossconfig import LossConfig


class SlotTargets(NamedTuple):
    """Memory weights per slot, what each slot should say, and how much that counts. The newcomer's token comes last."""

    weight: Float[Tensor, "batch frames slots"]
    target: Float[Tensor, "batch frames slots_and_newcomer"]
    importance: Float[Tensor, "batch frames slots_and_newcomer"]

    def at(self, frames: Int[Tensor, " some"]) -> "SlotTargets":
        """Those of some frames."""
        return SlotTargets(*(values[:, frames] for values in self))


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
