"""What a run learns from and is judged by: speech and recordings, batches by number, conversations of held-out
speakers or recordings."""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from torch.utils.data import Dataset

from diarnorm.evaluation.recordings import RecordingSet, read_set
from diarnorm.evaluation.sources import parse_source
from diarnorm.resources import cache_dir
from diarnorm.simulation.planner import SimulatorConfig, num_people
from diarnorm.simulation.speech import CLIPS, Speech, SpeechConfig, load_speech
from diarnorm.training.batches import Batch, CurriculumStage, SimulatedBatches
from diarnorm.training.config import RunConfig, most_speakers
from diarnorm.training.corpus import (
    CORPUS,
    REFUSE,
    Corpus,
    RecordedBatches,
    check_crowds,
    is_recorded,
    make_corpus,
    notes_on,
)
from diarnorm.training.develop import DevelopmentSet, joined
from diarnorm.training.devrecordings import RecordedSet
from diarnorm.training.distributed import first_of_machine, num_processes, rank
from diarnorm.training.loading import load
from diarnorm.training.store import StoredBatches
from diarnorm.training.teacher import load_teacher

DISPLAY_SEED, TUNE_SEED, COMPARE_SEED = 20_000, 30_000, 40_000
"""Of the conversations shown during the run, of those that thresholds are tuned on, and of those on which BatchNorm is
compared with itself."""
NUM_COMPARED = 32
"""Conversations of the last, in as many batches as they fill."""


class MixedBatches(Dataset):
    """Each batch is one of recordings or a simulated one, by `is_recorded`; where one kind is not there, the other."""

    def __init__(
        self,
        simulated: SimulatedBatches | StoredBatches | None,
        recorded: RecordedBatches | None,
        seed: int,
        recorded_share: float,
    ) -> None:
        self.simulated, self.recorded, self.seed, self.recorded_share = simulated, recorded, seed, recorded_share

    def __len__(self) -> int:
        return max(len(each) for each in (self.simulated, self.recorded) if each is not None)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        recorded = self.recorded is not None and is_recorded(self.seed, number, self.recorded_share)
        if self.simulated is not None and not recorded:
            return self.simulated[number]
        assert self.recorded is not None
        return self.recorded[number]


class RunData:
    """Speech, recordings and labels of one run.

    Raises:
        ValueError: speech, recordings, clips or a teacher that do not fit the configuration; more speakers in a
            conversation than there are, or in a recording than there are labels.
    """

    speech: Speech | None = None
    dev_speech: Speech | None = None

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.recordings, self.dev_recordings = (self._recordings(split) for split in ("train", "dev"))
        self.corpus = None if self.recordings is None else self._corpus(self.recordings)
        with first_of_machine():
            self._load()
        self.teacher = load_teacher(config.data.teacher, self.speech) if config.data.teacher and self.speech else None
        t = config.train
        self.batches = self._batches((rank(), num_processes()), "cpu" if t.workers else t.device)
        if rank() == 0:
            for note in self._notes():
                print(note, file=sys.stderr)

    def _recordings(self, split: str) -> RecordingSet | None:
        given, key = getattr(self.config.data.recordings, split), f"data.recordings.{split}"
        return None if given is None else read_set(split, parse_source(split, given, key), Path.cwd(), key=key)

    def _corpus(self, recordings: RecordingSet) -> Corpus:
        d = self.config.data
        corpus = make_corpus(recordings.recordings, d.recordings.labels)
        if d.recordings.crowded == REFUSE:
            check_crowds("data.recordings.train", corpus, d.stages, self.config.model.memory.num_slots)
        return corpus

    def _load(self) -> None:
        d = self.config.data
        cache = cache_dir() if d.cache_dir is None else Path(d.cache_dir)
        self.clips = load_speech(d.clips, config=CLIPS, cache_dir=cache) if d.clips else None
        if d.speech is None:
            return
        check_splits(Path(d.speech), d.train_split, d.dev_split)
        voices = SpeechConfig(warps=d.warps)
        self.speech = load_speech(d.speech, split=d.train_split, config=voices, cache_dir=cache)
        check_speakers(d.stages, num_people(self.speech, d.simulator.same_person), d.speech)
        self.dev_speech = load_speech(d.speech, split=d.dev_split, cache_dir=cache)
        if not num_people(self.dev_speech):
            raise ValueError(f"nobody speaks in the utterances of {d.speech}, data.dev_split={d.dev_split}: add some")

    def _notes(self) -> Iterator[str]:
        """What a user should know about the data."""
        if self.speech and self.dev_speech and set(self.dev_speech.speakers) & set(self.speech.speakers):
            yield "development and training share speakers: DER will say little about new voices"
        for each in (self.recordings, self.dev_recordings):
            yield from () if each is None else each.notes
        if self.recordings is not None and self.corpus is not None:
            cut = {source.name for source in self.corpus.sources}
            if gone := [each.name for each in self.recordings.recordings if each.name not in cut]:
                yield f"{len(gone)} recordings have nothing that is scored ({gone[0]}): nothing is learned from them"
            yield from notes_on(self.corpus, self.config.data.stages)
            if self.dev_recordings and self.config.data.recordings.labels == CORPUS:
                there = {turn.speaker for each in self.dev_recordings.recordings for turn in each.reference}
                if both := sorted(there & set(self.corpus.speakers)):
                    yield (
                        f"data.recordings.train and .dev share {len(both)} labels ({both[0]}): for other people, say "
                        "data.recordings.labels=recording; for the same, DER will say little about new voices"
                    )

    @property
    def speakers(self) -> list[str]:
        """Names of all training speakers: those of the speech, then those of the recordings."""
        return [*(self.speech.speakers if self.speech else ()), *(self.corpus.speakers if self.corpus else ())]

    @property
    def num_classes(self) -> int:
        """Voices that the classifier tells apart: those of the speech at every speed, then those of the recordings."""
        return (self.speech.num_classes if self.speech else 0) + (len(self.corpus.speakers) if self.corpus else 0)

    def _batches(self, share: tuple[int, int], device: str) -> MixedBatches:
        """Batch `step * accumulate + i` is the i-th of a step; simulated ones are made on `device`."""
        t, d = self.config.train, self.config.data
        stages = [replace(stage, from_step=stage.from_step * t.accumulate) for stage in d.stages]
        num_steps, simulated, recorded = t.num_steps * t.accumulate, None, None
        if self.speech is not None:
            simulated = SimulatedBatches(
                self.speech,
                seed=t.seed,
                num_steps=num_steps,
                stages=stages,
                simulator=d.simulator,
                clips=self.clips,
                device=device,
                share=share,
            )
            if d.store:
                simulated = StoredBatches(simulated, d.store)
        if self.corpus is not None:
            recorded = RecordedBatches(
                self.corpus,
                seed=t.seed,
                num_steps=num_steps,
                stages=stages,
                config=d.recordings,
                first_class=self.speech.num_classes if self.speech else 0,
                clips=self.clips,
                share=share,
            )
        return MixedBatches(simulated, recorded, t.seed, d.recorded_share)

    def first_mel(self) -> torch.Tensor:
        """Mel frames `[rows, mel_frames, 80]` of the first two batches (one, where there is one), all of their rows;
        on the CPU."""
        whole = self._batches((0, 1), "cpu")
        return torch.cat([whole[number]["mel"] for number in range(min(2, len(whole)))])

    def steps(self, first: int) -> Iterator[tuple[Batch, ...]]:
        """The batches of each step from `first` on.

        Raises:
            ValueError: a recording that cannot be read where a crop is.
        """
        t = self.config.train
        items = load(self.batches, range(first * t.accumulate, t.num_steps * t.accumulate), t.workers)
        while batches := tuple(self._batch(item) for item in islice(items, t.accumulate)):
            yield batches

    def conversations(
        self, num: int, duration_s: float, seed: int, simulator: SimulatorConfig | None = None
    ) -> DevelopmentSet:
        """Conversations of held-out speakers, simulated as those of the training are unless told otherwise."""
        assert self.dev_speech is not None
        simulator = self.config.data.simulator if simulator is None else simulator
        return DevelopmentSet.simulated(self.dev_speech, num, duration_s, self.clips, seed=seed, simulator=simulator)

    def development(self) -> DevelopmentSet | RecordedSet:
        """What the run is judged by: recordings where there are any, else simulated conversations."""
        t = self.config.train
        if self.dev_recordings is None:
            return self.conversations(t.dev_conversations, t.dev_duration_s, DISPLAY_SEED)
        duration_s = self.config.data.recordings.dev_duration_s
        return RecordedSet.read("data.recordings.dev", self.dev_recordings.recordings, duration_s)

    def tuning_set(self) -> DevelopmentSet | RecordedSet:
        """What thresholds are tuned on: other conversations of the held-out speakers, a share of them by the
        simulator's defaults, or, if asked for, recordings."""
        t = self.config.train
        if self.config.data.recordings.tune:
            return self.development()
        num_default = round(t.tune_conversations * t.tune_default_share)
        worlds = ((SimulatorConfig(), num_default), (self.config.data.simulator, t.tune_conversations - num_default))
        return joined([self.conversations(num, t.tune_duration_s, TUNE_SEED, world) for world, num in worlds if num])

    def held_out_batches(self) -> list[Batch]:
        """A few batches like those of the last stage, of held-out speakers or, without any, of the recordings of the
        development set; the same for every run."""
        d = self.config.data
        stage = replace(d.stages[-1], from_step=0)
        num_batches = math.ceil(NUM_COMPARED / stage.batch_size)
        if self.dev_speech is None:
            assert self.dev_recordings is not None
            corpus = make_corpus(self.dev_recordings.recordings)
            recorded = RecordedBatches(corpus, seed=COMPARE_SEED, num_steps=num_batches, stages=[stage])
            return [self._batch(recorded[number]) for number in range(len(recorded))]
        num_speakers = num_people(self.dev_speech, d.simulator.same_person)
        if len(stage.speaker_probabilities) > num_speakers:
            kept = stage.speaker_probabilities[: num_speakers - 1]
            stage = replace(stage, speaker_probabilities=(*kept, sum(stage.speaker_probabilities[len(kept) :])))
        batches = SimulatedBatches(
            self.dev_speech,
            seed=COMPARE_SEED,
            num_steps=num_batches,
            stages=[stage],
            simulator=d.simulator,
            clips=self.clips,
        )
        return [self._batch(batches[number]) for number in range(len(batches))]

    def _batch(self, item: dict[str, torch.Tensor]) -> Batch:
        return Batch(*(item[name].to(self.config.train.device) for name in Batch._fields))


def check_splits(source: Path, *splits: str | None) -> None:
    """Refuse a tree that has a folder for one split and none for another: the whole tree would stand for that one.

    Raises:
        ValueError: naming both.
    """
    named = [split for split in splits if split is not None] if source.is_dir() else []
    there = [split for split in named if (source / split).is_dir()]
    missing = [split for split in named if split not in there]
    if there and missing:
        raise ValueError(f"{source} has a folder {there[0]}, but none called {missing[0]}: add it")


def check_speakers(stages: Sequence[CurriculumStage], num_speakers: int, source: str) -> None:
    """Refuse conversations of more speakers than there are, those who may be one person counted once, before anything
    is trained.

    Raises:
        ValueError: naming the stage, what it asks for and what there is.
    """
    for number, stage in enumerate(stages):
        wanted = most_speakers(stage)
        if wanted > num_speakers:
            raise ValueError(
                f"data.stages[{number}].speaker_probabilities asks for {wanted} speakers in a conversation, "
                f"{source} has {num_speakers} with speech to train on: shorten it, or add speakers"
            )


def check_processes(stages: Sequence[CurriculumStage], processes: int) -> None:
    """Refuse batches that cannot be shared evenly.

    Raises:
        ValueError: naming the stage's batch size and the number of processes.
    """
    for number, stage in enumerate(stages):
        if stage.batch_size % processes:
            raise ValueError(
                f"data.stages[{number}].batch_size={stage.batch_size} cannot be shared by {processes} processes: "
                f"give a multiple of {processes}"
            )
