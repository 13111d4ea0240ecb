"""The development set of a run: fixed simulated conversations, diarized freely, scored as users' recordings are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from diarnorm.evaluation.scoring import Recordings, Regions, score
from diarnorm.fbank import fbank_offline
from diarnorm.memory import MemoryOutput
from diarnorm.model import Model
from diarnorm.simulation.planner import SimulatorConfig, num_people
from diarnorm.simulation.speech import Speech
from diarnorm.timebase import MELS_PER_FRAME, frames_to_samples, frames_to_seconds
from diarnorm.training.batches import NUM_SPEAKERS, fixed_set
from diarnorm.turns import Turn, TurnConfig, finish, init_state, step

CHUNK = 12


@dataclass(frozen=True)
class DevelopmentSet:
    """Mel frames `[recordings, mel_frames, 80]` of equal length and their reference turns."""

    mel: Tensor
    reference: dict[str, list[Turn]]

    FIGURES = ("der", "miss", "false_alarm", "confusion", "merged", "count_error", "births_found", "phantoms")

    @classmethod
    def simulated(
        cls,
        speech: Speech,
        num: int,
        duration_s: float,
        clips: Speech | None = None,
        *,
        seed: int = 0,
        simulator: SimulatorConfig | None = None,
    ) -> "DevelopmentSet":
        """`num` conversations of held-out speakers, up to four in each where there are as many; the same for every run
        with the same `simulator`. Voices keep their own speed.

        Raises:
            ValueError: nobody speaks in any of them.
        """
        config = replace(SimulatorConfig() if simulator is None else simulator, speed_probability=0.0)
        counts = [min(count, num_people(speech, config.same_person)) for count in NUM_SPEAKERS]
        fixed = fixed_set(speech, num, seed, duration_s=duration_s, num_speakers=counts, config=config, clips=clips)
        mel = fbank_offline(fixed.samples)
        whole = mel.shape[1] // (MELS_PER_FRAME * CHUNK) * MELS_PER_FRAME * CHUNK
        end = frames_to_seconds(whole // MELS_PER_FRAME)
        reference = {
            f"dev{i:03d}": [Turn(t.start, min(t.end, end), t.speaker) for t in turns if t.start < end]
            for i, turns in enumerate(fixed.turns)
        }
        if not any(reference.values()):
            raise ValueError(f"nobody speaks in {num} conversation(s) of {duration_s} s: make more, or longer ones")
        return cls(mel[:, :whole].half(), reference)

    @torch.no_grad()
    def encode(self, model: Model) -> Tensor:
        """Encoder output `[recordings, frames, dim]`."""
        mel, _ = model.frontend(self.mel.float())
        h, _ = model.encoder(mel, chunk=CHUNK)
        return h

    def evaluate(self, model: Model, config: TurnConfig | None = None) -> dict[str, float]:
        """DER and its parts in % of speech, DER with all labels merged, count error, births found in %, and slots
        occupied beyond the number of speakers per recording; by default under the rules of turns that a `Diarizer` of
        an untuned model has."""
        output = self.remember(model, self.encode(model))
        return self.score(output, model.config.memory.turn_rules() if config is None else config)

    def score(self, output: MemoryOutput, config: TurnConfig) -> dict[str, float]:
        """The same from activity already computed."""
        activity, count = output.activity.numpy(), output.count.numpy()
        hypothesis = {uri: turns_of(activity[i], count[i], config) for i, uri in enumerate(self.reference)}
        return figures_of(self.reference, hypothesis, list(count))

    @torch.no_grad()
    def remember(self, model: Model, h: Tensor) -> MemoryOutput:
        """What the model's memory makes of `encode`."""
        return model.memory(h)[0]


def joined(sets: Sequence[DevelopmentSet]) -> DevelopmentSet:
    """One set of all conversations, which are equally long."""
    references = [turns for each in sets for turns in each.reference.values()]
    mel = torch.cat([each.mel for each in sets])
    return DevelopmentSet(mel, {f"dev{number:03d}": turns for number, turns in enumerate(references)})


def figures_of(
    reference: Recordings, hypothesis: Recordings, count: Sequence[np.ndarray], uem: Regions | None = None
) -> dict[str, float]:
    """`DevelopmentSet.FIGURES` of turns, and of the memory's `count [frames, slots]` of each recording."""
    result = score(reference, hypothesis, uem)
    pooled = result.pooled
    parts = (pooled.error_s, pooled.miss_s, pooled.false_alarm_s, pooled.confusion_s, result.merged.error_s)
    occupied = [np.concatenate([np.zeros_like(each[:1]), each]) > 0 for each in count]
    born = sum(int((each[1:] & ~each[:-1]).sum()) for each in occupied)
    speakers = sum(file.num_reference_speakers for file in result.files)
    rates = [100 * seconds / pooled.speech_s for seconds in parts]
    found = sum(min(file.num_reference_speakers, file.num_hypothesis_speakers) for file in result.files)
    others = [result.mean_count_error, 100 * found / speakers, float(born - speakers) / len(count)]
    return dict(zip(DevelopmentSet.FIGURES, [*rates, *others], strict=True))


def turns_of(activity: np.ndarray, count: np.ndarray, config: TurnConfig, num_samples: int | None = None) -> list[Turn]:
    """Turns of a whole recording of `num_samples`, whole frames unless given."""
    events, state = step(config, init_state(activity.shape[1]), activity, count)
    events += finish(config, state, frames_to_samples(len(activity)) if num_samples is None else num_samples)
    return [event for event in events if isinstance(event, Turn)]
