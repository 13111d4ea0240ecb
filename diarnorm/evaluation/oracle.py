"""A model whose memory is told by the reference whom it hears: what it would say if the memory never erred.

All else stays as it is: encoder, decoder, thresholds, rules of turns. The DER of such a model beside its own divides
the errors into those of hearing, which are left, and those of remembering: speakers found late or never, taken for
somebody else, or found twice. It is a bound, and no result.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from diarnorm.memory import MemoryState, SpeakerMemory, exclusive
from diarnorm.stream import Diarizer
from diarnorm.timebase import frames_to_seconds
from diarnorm.turns import Turn


class ToldMemory(SpeakerMemory):
    """A speaker memory that each frame enters with given weights; occupants are speakers at once, and stay."""

    def __init__(self, memory: SpeakerMemory, told: Float[Tensor, "frames slots"]) -> None:
        nn.Module.__init__(self)  # the layers are those of `memory`
        self.embed, self.decoder = memory.embed, memory.decoder
        self.config = replace(
            memory.config,
            num_slots=max(memory.config.num_slots, told.shape[1]),
            confirm_frames=1.0,
            drop_frames=sys.maxsize,
        )
        self.told = nn.functional.pad(told, (0, 0, 0, 1))
        """The last row, of nobody, stands for all frames after the others."""

    def weights(
        self, activity: Float[Tensor, "batch slots"], newcomer: Bool[Tensor, "batch slots"], state: MemoryState
    ) -> Float[Tensor, "batch slots"]:
        """The given ones, whatever the activity is. Speakers beyond the slots of a stream are nobody; the last column
        is the overflow's, which nothing enters."""
        told = self.told.to(activity.device)[state.frame.clamp(max=len(self.told) - 1)]
        slots = activity.shape[1] - 1
        return nn.functional.pad(told[:, :slots], (0, 1 + max(0, slots - told.shape[1])))


def told(diarizer: Diarizer, reference: Sequence[Turn]) -> Diarizer:
    """The same model for one recording, its memory fed where, by the reference, somebody speaks alone."""
    checkpoint = diarizer.checkpoint
    memory = ToldMemory(checkpoint.model.memory, alone(reference))
    copy = checkpoint.under(memory.config, checkpoint.turns)
    copy.model.memory = memory
    return Diarizer(copy, device=str(diarizer.device))


def alone(reference: Sequence[Turn]) -> Float[Tensor, "frames speakers"]:
    """1 where the middle of a frame is one speaker's alone, else 0. Speakers are in the order in which that first is
    so; who never speaks alone is not there.

    >>> alone([Turn(0.0, 0.24, "A"), Turn(0.16, 0.4, "B")]).tolist()
    [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    speakers = sorted({turn.speaker for turn in reference})
    step_s = frames_to_seconds(1)
    frames = int(max((turn.end for turn in reference), default=0.0) / step_s + 0.5)
    middles = (torch.arange(frames, dtype=torch.float64) + 0.5) * step_s
    active = torch.zeros(frames, len(speakers))
    for turn in reference:
        active[(middles >= turn.start) & (middles < turn.end), speakers.index(turn.speaker)] = 1.0
    weight = exclusive(active)
    heard = [slot for slot in range(len(speakers)) if weight[:, slot].any()]
    return weight[:, sorted(heard, key=lambda slot: int(weight[:, slot].argmax()))]
