"""A development set of recordings: diarized freely from their start, scored where their UEM says."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from diarnorm.evaluation.recordings import Recording, Region
from diarnorm.fbank import fbank_offline
from diarnorm.memory import MemoryOutput
from diarnorm.model import Model
from diarnorm.timebase import (
    FRAME_SAMPLES,
    HOP_SAMPLES,
    MELS_PER_FRAME,
    frames_covering,
    samples_to_seconds,
    seconds_to_samples,
)
from diarnorm.training.crops import read_part
from diarnorm.training.develop import CHUNK, DevelopmentSet, figures_of, turns_of
from diarnorm.turns import Turn, TurnConfig


@dataclass(frozen=True)
class RecordedSet:
    """Recordings of any length, each as mel frames `[1, mel_frames, 80]` of whole chunks and its number of samples.

    What is said and scored after that many samples is left out. Turns are those of a stream with chunks of 0.96 s.
    """

    mel: tuple[Tensor, ...]
    num_samples: tuple[int, ...]
    reference: dict[str, list[Turn]]
    uem: dict[str, Region]

    FIGURES = DevelopmentSet.FIGURES

    @classmethod
    def read(cls, key: str, recordings: Iterable[Recording], duration_s: float) -> "RecordedSet":
        """The first `duration_s` seconds of each recording in which something is scored; `key` is what errors name.

        Raises:
            ValueError: a file that cannot be read; nobody speaks where it is scored.
        """
        mel, num_samples, reference, uem = [], [], {}, {}
        for each in recordings:
            assert each.audio is not None
            assert each.duration_s is not None
            length = seconds_to_samples(min(each.duration_s, duration_s))
            end = samples_to_seconds(length)
            region = ((0.0, end),) if each.region is None else each.region
            scored = tuple((start, min(stop, end)) for start, stop in region if start < end)
            if not scored or length < FRAME_SAMPLES:
                continue
            reference[each.name] = [Turn(t.start, min(t.end, end), t.speaker) for t in each.reference if t.start < end]
            samples = torch.from_numpy(read_part(each.audio, 0, length))
            whole = -(-length // (CHUNK * FRAME_SAMPLES)) * CHUNK * FRAME_SAMPLES
            mel.append(fbank_offline(F.pad(samples, (0, whole - length))[None]))
            num_samples.append(length)
            uem[each.name] = scored
        spoken = any(
            turn.start < stop and turn.end > start
            for uri, turns in reference.items()
            for turn in turns
            for start, stop in uem[uri]
        )
        if not spoken:
            raise ValueError(
                f"{key}: nobody speaks where its first {duration_s:g} s are scored: give other recordings, or more of "
                "them by data.recordings.dev_duration_s"
            )
        return cls(tuple(mel), tuple(num_samples), reference, uem)

    @torch.no_grad()
    def encode(self, model: Model) -> tuple[Tensor, ...]:
        """Encoder output `[1, frames, dim]` of each recording."""
        return tuple(_encode(model, mel, length) for mel, length in zip(self.mel, self.num_samples, strict=True))

    @torch.no_grad()
    def remember(self, model: Model, h: Iterable[Tensor]) -> list[MemoryOutput]:
        """What the model's memory makes of `encode`."""
        return [
            model.memory(each, None, _heard(each.shape[1], length))[0]
            for each, length in zip(h, self.num_samples, strict=True)
        ]

    def evaluate(self, model: Model, config: TurnConfig | None = None) -> dict[str, float]:
        """`DevelopmentSet.FIGURES` of the freely running model; rules of turns as in `DevelopmentSet.evaluate`."""
        output = self.remember(model, self.encode(model))
        return self.score(output, model.config.memory.turn_rules() if config is None else config)

    def score(self, outputs: Iterable[MemoryOutput], config: TurnConfig) -> dict[str, float]:
        """The same from activity already computed."""
        hypothesis, counts = {}, []
        for uri, output, length in zip(self.reference, outputs, self.num_samples, strict=True):
            inside = slice(frames_covering(length // HOP_SAMPLES * HOP_SAMPLES))
            activity, count = output.activity[0, inside].numpy(), output.count[0, inside].numpy()
            hypothesis[uri] = turns_of(activity, count, config, length)
            counts.append(count)
        return figures_of(self.reference, hypothesis, counts, self.uem)


def _encode(model: Model, mel: Tensor, num_samples: int) -> Tensor:
    heard = (torch.arange(mel.shape[1]) < num_samples // HOP_SAMPLES)[None]
    normalised, _ = model.frontend(mel, None, heard)
    return model.encoder(normalised, None, _heard(mel.shape[1] // MELS_PER_FRAME, num_samples), chunk=CHUNK)[0]


def _heard(num_frames: int, num_samples: int) -> Tensor:
    """Which frames `[1, frames]` have a mel frame of the recording."""
    return (torch.arange(num_frames) * MELS_PER_FRAME < num_samples // HOP_SAMPLES)[None]
