"""Recordings with references as something to learn from: crops of them as batches like those of simulated
conversations, and the configuration of both.

A crop is a stretch of `crop_s` seconds of what is scored of one recording. A recording is as likely as it is long, and
within it every start that leaves room for the crop is as likely as any other. Batch `step` is a pure function of the
recordings, the seed and `step`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor
from torch.utils.data import Dataset

from diarnorm.evaluation.recordings import Recording
from diarnorm.fbank import fbank_offline
from diarnorm.simulation.conversation import db_to_ratio
from diarnorm.simulation.render import active_level
from diarnorm.simulation.speech import Speech
from diarnorm.timebase import frames_to_samples, samples_to_frames, samples_to_seconds, seconds_to_samples
from diarnorm.training.batches import CurriculumStage, own_rows, stage_of
from diarnorm.training.crops import CropLabels, CropSource, as_spans, as_turns

CORPUS, RECORDING = "corpus", "recording"
"""Where a label of a reference means one person: in all recordings, or within one."""
REFUSE, DROP = "refuse", "drop"
"""What becomes of recordings with more speakers than a batch has labels."""
CHOICE = 1
"""Part of the seed that chooses between recorded and simulated batches; see `is_recorded`."""
CROP = 2
"""Part of the seed of a crop."""


@dataclass(frozen=True)
class RecordingsConfig:
    """Recordings with references: where they lie, what their labels mean, how crops of them are varied.

    `train` and `dev` are each a folder, a file, a list of these, or {audio, rttm, uem, ..}: `evaluation.sources`.
    """

    train: Any = None
    """What crops are cut from."""
    dev: Any = None
    """The development set in place of simulated conversations: diarized freely, scored as `diarnorm score` does."""
    labels: str = CORPUS
    """`corpus`: one label, one person, in whatever recording; `recording`: labels mean something within theirs only."""
    crowded: str = REFUSE
    """Recordings with more speakers than the `max_speakers` of a stage: `refuse` them before training, or `drop` the
    labels of those who say least in a crop (they are still heard)."""
    gain_db: tuple[float, float] = (0.0, 0.0)
    """Range of the gain of a crop."""
    noise_probability: float = 0.0
    """Of a noise clip (`data.clips`) under a crop."""
    noise_snr_db: tuple[float, float] = (5.0, 30.0)
    dev_duration_s: float = 600.0
    """Of each recording of `dev`, as much is diarized, from its start."""
    tune: bool = False
    """Whether thresholds are tuned on `dev`; on simulated conversations of held-out speakers otherwise."""


class Corpus(NamedTuple):
    """Recordings to cut crops from, and the names of their speakers."""

    sources: tuple[CropSource, ...]
    speakers: tuple[str, ...]
    """By number; with `labels=recording` as NAME/LABEL."""

    @property
    def duration_s(self) -> float:
        """Scored time of all recordings."""
        return samples_to_seconds(sum(source.num_samples for source in self.sources))


def make_corpus(recordings: Iterable[Recording], labels: str = CORPUS) -> Corpus:
    """Recordings as they are cut: times in samples, speakers numbered. Those with nothing scored are left out.

    Turns outside of what is scored count for nothing.
    """
    recordings = list(recordings)
    names = sorted({_speaker(each, turn.speaker, labels) for each in recordings for turn in each.reference})
    number = {name: i for i, name in enumerate(names)}
    sources = []
    for each in recordings:
        assert each.audio is not None
        assert each.duration_s is not None
        num_samples = seconds_to_samples(each.duration_s)
        own = {turn.speaker: number[_speaker(each, turn.speaker, labels)] for turn in each.reference}
        turns = as_turns(each.reference, own, num_samples)
        sources.append(CropSource(each.name, each.audio, as_spans(each.region, num_samples), turns))
    return Corpus(tuple(source for source in sources if source.num_samples), tuple(names))


def _speaker(recording: Recording, label: str, labels: str) -> str:
    return label if labels == CORPUS else f"{recording.name}/{label}"


def check_crowds(key: str, corpus: Corpus, stages: Sequence[CurriculumStage], num_slots: int) -> None:
    """Refuse recordings with more speakers in their scored time than a stage has labels, or the model slots.

    Raises:
        ValueError: naming the recording, its speakers and the key to change.
    """
    limits = {f"data.stages[{i}].max_speakers": stage.max_speakers for i, stage in enumerate(stages)}
    limits["model.memory.num_slots"] = num_slots
    limit_key = min(limits, key=lambda name: limits[name])
    for source in corpus.sources:
        count = source.num_speakers
        if count > limits[limit_key]:
            raise ValueError(
                f"{source.audio}: its reference has {count} speakers, {limit_key}={limits[limit_key]}: give {count}, "
                f"leave the recording out of {key}, or say data.recordings.crowded={DROP} to learn without the labels "
                "of those who say least"
            )


def notes_on(corpus: Corpus, stages: Sequence[CurriculumStage]) -> list[str]:
    """What a user should know about crops of these recordings: labels that are dropped, silence that is added."""
    notes, num_all = [], len(corpus.sources)
    limit = min(stage.max_speakers for stage in stages)
    crowded = [(source.num_speakers, source.name) for source in corpus.sources if source.num_speakers > limit]
    if crowded:
        most, name = max(crowded)
        notes.append(
            f"{len(crowded)} of {num_all} recordings have more than {limit} speakers ({most} in {name}): in crops with "
            "more, those who say least have no label"
        )
    longest = max(crop_samples(stage) for stage in stages)
    short = [source.name for source in corpus.sources if source.num_samples < longest]
    if short:
        longest_s = samples_to_seconds(longest)
        notes.append(
            f"{len(short)} of {num_all} recordings are shorter than a crop of {longest_s:g} s ({short[0]}): their "
            "crops end in silence"
        )
    return notes


def crop_samples(stage: CurriculumStage) -> int:
    """Length of the crops of a stage in samples, whole frames."""
    return frames_to_samples(samples_to_frames(seconds_to_samples(stage.crop_s)))


def is_recorded(seed: int, step: int, share: float) -> bool:
    """Whether batch `step` is one of recordings, where a `share` of all batches is."""
    return bool(_generator(seed, step, 0, CHOICE).random() < share)


def _generator(*seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


class Noise(NamedTuple):
    """A noise clip under a crop: number, first sample of the clip (it is repeated), SNR."""

    clip: int
    first: int
    snr_db: float


class Crop(NamedTuple):
    """What is drawn for one row of a batch: number of the recording, first sample of its scored time, variations."""

    source: int
    first: int
    gain_db: float
    noise: Noise | None


class RecordedBatches(Dataset):
    """Crops of recordings by step, each batch made when asked for; items are like those of `SimulatedBatches`.

    Args:
        corpus: the recordings.
        seed: of the whole run; row `i` of batch `step` is seeded by `[seed, step, i, CROP]`.
        num_steps: how many batches there are.
        stages: length of crops, batch size and labels, by step.
        config: how crops are varied.
        first_class: speaker class of the corpus's first speaker.
        clips: noise clips, if any.
        share: number of this process and how many there are; each makes its rows of the same batch.

    `source` is -1 throughout. Speakers beyond the labels of a stage, those who say least, have none in that crop.

    Raises:
        ValueError: nothing to cut crops from; in items: a file that cannot be read.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        seed: int,
        num_steps: int,
        stages: Sequence[CurriculumStage],
        config: RecordingsConfig | None = None,
        first_class: int = 0,
        clips: Speech | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        if not corpus.sources:
            raise ValueError("data.recordings.train has no scored time to cut crops from: give recordings, or a UEM")
        self.corpus, self.clips = corpus, clips
        self.seed, self.num_steps, self.stages = seed, num_steps, tuple(stages)
        self.config = RecordingsConfig() if config is None else config
        self.first_class, self.share = first_class, share
        self._ends = np.cumsum([source.num_samples for source in corpus.sources])
        self._audible = np.flatnonzero(clips.level > 0) if clips is not None else np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return self.num_steps

    def crops(self, step: int) -> list[Crop]:
        """The crops of this process's rows of batch `step`."""
        stage = stage_of(self.stages, step)
        return [self._draw(step, row, crop_samples(stage)) for row in own_rows(stage, self.share)]

    def _draw(self, step: int, row: int, num_samples: int) -> Crop:
        rng, config = _generator(self.seed, step, row, CROP), self.config
        source = int(np.searchsorted(self._ends, rng.integers(self._ends[-1]), side="right"))
        room = self.corpus.sources[source].num_samples - num_samples
        first = int(rng.integers(max(room, 0) + 1))
        gain_db = float(rng.uniform(*config.gain_db))
        noise = None
        if self.clips is not None and len(self._audible) and rng.random() < config.noise_probability:
            clip = int(rng.choice(self._audible))
            noise = Noise(clip, int(rng.integers(self.clips.length[0, clip])), float(rng.uniform(*config.noise_snr_db)))
        return Crop(source, first, gain_db, noise)

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        if not 0 <= step < self.num_steps:
            raise IndexError(f"step {step} of {self.num_steps}")
        stage = stage_of(self.stages, step)
        num_samples, slots = crop_samples(stage), stage.max_speakers
        crops = self.crops(step)
        samples = torch.zeros(len(crops), num_samples)
        activity = torch.zeros(len(crops), samples_to_frames(num_samples), slots)
        speaker_class = torch.full((len(crops), slots), -1, dtype=torch.int64)
        for row, crop in enumerate(crops):
            source = self.corpus.sources[crop.source]
            labels = most_heard(source.labels(crop.first, num_samples), slots)
            activity[row, :, : len(labels.speakers)] = torch.from_numpy(labels.activity)
            speaker_class[row, : len(labels.speakers)] = torch.from_numpy(labels.speakers) + self.first_class
            samples[row] = torch.from_numpy(source.samples(crop.first, num_samples))
        self._vary(samples, activity, crops)
        return {
            "mel": fbank_offline(samples).to(torch.float16),
            "activity": activity,
            "speaker_class": speaker_class,
            "source": torch.full(activity.shape[:2], -1, dtype=torch.int64),
        }

    def _vary(
        self,
        samples: Float32[Tensor, "rows samples"],
        activity: Float32[Tensor, "rows frames slots"],
        crops: Sequence[Crop],
    ) -> None:
        """Add noise and gain, in place; what goes beyond full scale is clipped, as a microphone would."""
        for row, level, crop in zip(samples, active_level(samples, activity).tolist(), crops, strict=True):
            if crop.noise is not None and self.clips is not None:
                clip = self.clips.utterance(crop.noise.clip, 0).astype(np.float32) / 32768
                gain = level / db_to_ratio(crop.noise.snr_db) / float(self.clips.level[crop.noise.clip])
                row += gain * torch.from_numpy(np.resize(np.roll(clip, -crop.noise.first), len(row)))
            if crop.gain_db or crop.noise is not None:
                row.mul_(db_to_ratio(crop.gain_db)).clamp_(-1, 1)


def most_heard(labels: CropLabels, num_speakers: int) -> CropLabels:
    """The labels of those who say most, no more than `num_speakers`, still by first activity."""
    says_most = np.argsort(-labels.activity.sum(axis=0), kind="stable")[:num_speakers]
    kept = np.sort(says_most)
    return CropLabels(labels.speakers[kept], labels.activity[:, kept])
