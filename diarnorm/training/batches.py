"""Simulated conversations as training batches and as a fixed set for development.

Batch `step` is a pure function of the configuration, the seed and `step`: a run that resumes sees the same
data, and all models under comparison see the same data.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor
from torch.utils.data import Dataset

from diarnorm.fbank import fbank_offline
from diarnorm.simulation.conversation import Plan
from diarnorm.simulation.planner import SimulatorConfig, plan_conversation
from diarnorm.simulation.render import render
from diarnorm.simulation.speech import Speech
from diarnorm.turns import Turn

NUM_SPEAKERS = (1, 2, 2, 3, 3, 4, 4, 4)
"""Speakers of the conversations of a development set, in turn."""


class Batch(NamedTuple):
    """Simulated conversations as the trainer sees them."""

    mel: Float[Tensor, "batch mel_frames 80"]
    activity: Float[Tensor, "batch frames speakers"]
    speaker_class: Int[Tensor, "batch speakers"]
    source: Int[Tensor, "batch frames"]


@dataclass(frozen=True)
class CurriculumStage:
    """What batches are like from step `from_step` on, until the next stage begins.

    `speaker_probabilities[i]` is the probability of `i + 1` speakers; labels have `max_speakers` slots.
    """

    from_step: int = 0
    crop_s: float = 30.0
    batch_size: int = 8
    max_speakers: int = 4
    speaker_probabilities: tuple[float, ...] = (0.1, 0.3, 0.3, 0.3)

    def __post_init__(self) -> None:
        if len(self.speaker_probabilities) > self.max_speakers:
            raise ValueError(
                f"speaker_probabilities has {len(self.speaker_probabilities)} entries, max_speakers is "
                f"{self.max_speakers}; give at most one probability per number of speakers"
            )


def stage_of(stages: Sequence[CurriculumStage], step: int) -> CurriculumStage:
    """The stage, of those given in order, that step `step` belongs to."""
    return [stage for stage in stages if stage.from_step <= step][-1]


def check_starts(key: str, stages: Sequence[CurriculumStage]) -> None:
    """Refuse stages of which none is the first, or that are not in order; `key` is what the message calls them.

    Raises:
        ValueError: naming the steps at which they start.
    """
    starts = [stage.from_step for stage in stages]
    if not starts or starts[0] != 0 or starts != sorted(set(starts)):
        raise ValueError(
            f"{key} start at from_step={starts}: the first must start at 0, each later than the one before"
        )


def own_rows(stage: CurriculumStage, share: tuple[int, int]) -> range:
    """Rows of a batch that are process `share[0]`'s of `share[1]`."""
    number, processes = share
    size = stage.batch_size // processes
    return range(number * size, (number + 1) * size)


class SimulatedBatches(Dataset):
    """Training batches by step, each made when asked for.

    Args:
        speech: the training speakers.
        seed: of the whole run; batch `step` is seeded by `[seed, step]`.
        stages: the curriculum, by `from_step`; the first must start at 0.
        num_steps: how many batches there are.
        simulator: what conversations are like; the defaults when None. The number of speakers is the stage's.
        clips: noise clips, if any.
        device: where batches are made.
        share: number of this process and how many there are; each makes its rows of the same batch.

    An item is a dict: `mel [B, 8T, 80]` float16 (log-mel), `activity [B, T, K]` float32 (share of the
    frame), `speaker_class [B, K]` int64 (-1: slot not used), `source [B, T]` int64 (utterance and speed of
    the only speaker active, else -1). Slots are in order of first activity.

    Raises:
        ValueError: stages that do not start at 0 or are not in order.
    """

    def __init__(
        self,
        speech: Speech,
        *,
        seed: int,
        num_steps: int,
        stages: Sequence[CurriculumStage] = (CurriculumStage(),),
        simulator: SimulatorConfig | None = None,
        clips: Speech | None = None,
        device: str | torch.device = "cpu",
        share: tuple[int, int] = (0, 1),
    ) -> None:
        check_starts("stages", stages)
        self.speech, self.clips, self.device, self.share = speech, clips, device, share
        self.seed, self.num_steps = seed, num_steps
        self.stages = tuple(stages)
        self.simulator = SimulatorConfig() if simulator is None else simulator

    def __len__(self) -> int:
        return self.num_steps

    def stage(self, step: int) -> CurriculumStage:
        """The stage that step `step` belongs to."""
        return stage_of(self.stages, step)

    def plans(self, step: int) -> list[Plan]:
        """The conversations of this process's rows of batch `step`."""
        stage = self.stage(step)
        config = replace(self.simulator, speaker_probabilities=stage.speaker_probabilities)
        return [
            plan_conversation(self.speech, config, [self.seed, step, i], duration_s=stage.crop_s, clips=self.clips)
            for i in own_rows(stage, self.share)
        ]

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        if not 0 <= step < self.num_steps:
            raise IndexError(f"step {step} of {self.num_steps}")
        slots = self.stage(step).max_speakers
        mixture = render(self.plans(step), self.speech, clips=self.clips, num_slots=slots, device=self.device)
        return {
            "mel": fbank_offline(mixture.samples).to(torch.float16),
            "activity": mixture.activity,
            "speaker_class": mixture.speaker_class,
            "source": mixture.source,
        }


class FixedSet(NamedTuple):
    """Conversations that never change: their plans, samples and reference turns."""

    plans: list[Plan]
    samples: Float32[Tensor, "conversations samples"]
    turns: list[list[Turn]]


def fixed_set(
    speech: Speech,
    num_conversations: int,
    seed: int,
    *,
    duration_s: float = 60.0,
    num_speakers: Sequence[int] = NUM_SPEAKERS,
    config: SimulatorConfig | None = None,
    clips: Speech | None = None,
) -> FixedSet:
    """A development set; conversation `i` has up to `num_speakers[i % len(num_speakers)]` speakers."""
    config = SimulatorConfig(speed_probability=0.0) if config is None else config
    plans = [
        plan_conversation(
            speech,
            config,
            [seed, i],
            duration_s=duration_s,
            num_speakers=num_speakers[i % len(num_speakers)],
            clips=clips,
        )
        for i in range(num_conversations)
    ]
    samples = render(plans, speech, clips=clips).samples
    return FixedSet(plans, samples, [plan.turns() for plan in plans])
