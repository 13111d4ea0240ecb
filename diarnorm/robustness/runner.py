"""Models times recordings times conditions: what a job does, and all jobs in as many processes as asked for.

A job is some recordings of a set under one condition, for models and peers: samples are read, changed and turned into
mel frames once. Its clean counterpart is kept while a process stays with the same recordings. Records go to
a file as they come, so that a run goes on where it stopped.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float32

from diarnorm.audio.meter import SignalReport
from diarnorm.audio.mono import Mono16k
from diarnorm.audio.reader import read_mono
from diarnorm.evaluation.hypotheses import Candidate, load_diarizer
from diarnorm.evaluation.pool import outcomes
from diarnorm.evaluation.progress import EvaluationProgress
from diarnorm.evaluation.recordings import Recording
from diarnorm.robustness import peers
from diarnorm.robustness.conditions import Condition
from diarnorm.robustness.corruption import Sound, corrupt
from diarnorm.robustness.level import active_speech_level
from diarnorm.robustness.passes import Sheet, Trace, make_sheet, run
from diarnorm.robustness.peers import Peer, PeerError
from diarnorm.robustness.records import Record, Store
from diarnorm.robustness.scored import Rules, measure_inside, measure_turns
from diarnorm.stream import Diarizer
from diarnorm.timebase import SAMPLE_RATE, chunk_frames, samples_to_seconds, seconds_to_samples
from diarnorm.turns import Turn

SILENCE = "silence"
"""Name of the set, of its only recording, and of what is done to it when nothing is done to it."""


@dataclass(frozen=True)
class Item:
    """One recording; digital silence of some seconds where there is none."""

    recording: Recording | None
    silence_s: float = 0.0

    @property
    def name(self) -> str:
        """Of the recording."""
        return SILENCE if self.recording is None else self.recording.name

    def duration_s(self) -> float:
        """Length before anything is changed."""
        return self.silence_s if self.recording is None else self.recording.duration_s or 0.0


@dataclass(frozen=True)
class Job:
    """Items that go through models and peers together, under one condition; `keys` hold, by the name of either, that of
    every item's record."""

    set_name: str
    condition: Condition
    items: tuple[Item, ...]
    models: tuple[Candidate, ...]
    peers: tuple[Peer, ...]
    keys: Mapping[str, tuple[str, ...]]
    rules: Rules
    seed: int

    def audio_s(self) -> float:
        """Audio that is heard, by all together."""
        return len(self.keys) * sum(item.duration_s() for item in self.items)


def run_jobs(jobs: Sequence[Job], store: Store, workers: int) -> None:
    """Do what is not in the store yet, and keep it there. Recordings that failed together are tried once more, each by
    itself; but not with a peer that never did its work.

    Raises:
        ValueError: some recordings could not be done; the others are kept.
    """
    left = [job for job in (_without_known(job, store) for job in jobs) if job.keys]
    failed = _run_once(left, store, workers)
    spoke = {name for job in jobs for name, keys in job.keys.items() if any(key in store for key in keys)}

    def is_hopeless(job: Job, why: ValueError) -> bool:
        return len(job.items) == 1 or (isinstance(why, PeerError) and spoke.isdisjoint(job.keys))

    again = [job for job, why in failed if not is_hopeless(job, why)]
    failed = [(job, why) for job, why in failed if is_hopeless(job, why)]
    failed += _run_once(_split(again, store), store, workers) if again else []
    if failed:
        num_failed, num_tried = (sum(len(job.items) for job in some) for some in ([job for job, _ in failed], left))
        counted = f"{num_failed} of {num_tried} recordings under a condition failed, the others are kept"
        raise ValueError(f"{failed[0][1]}; {counted}") from failed[0][1]


def _run_once(jobs: Sequence[Job], store: Store, workers: int) -> list[tuple[Job, ValueError]]:
    """Do jobs and keep their records; those that failed, and why."""
    failed: list[tuple[Job, ValueError]] = []
    with EvaluationProgress([job.audio_s() for job in jobs]) as progress:
        for at, outcome in outcomes(do_job, jobs, range(len(jobs)), workers):
            if isinstance(outcome, ValueError):
                failed.append((jobs[at], outcome))
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                for record in outcome:
                    store.add(record)
            progress.done(at)
    return failed


def _without_known(job: Job, store: Store) -> Job:
    """The job for the models and peers of which something is missing."""
    keys = {name: own for name, own in job.keys.items() if any(key not in store for key in own)}
    models, peers = (tuple(each for each in some if each.name in keys) for some in (job.models, job.peers))
    return replace(job, models=models, peers=peers, keys=keys)


def _split(jobs: Sequence[Job], store: Store) -> list[Job]:
    """A job for each item that is not in the store: one recording after the other, each under all of its conditions."""
    alone = [
        replace(job, items=(item,), keys={name: (own[at],) for name, own in job.keys.items()})
        for job in jobs
        for at, item in enumerate(job.items)
    ]
    alone.sort(key=lambda job: (job.set_name, job.items[0].name))
    return [job for job in (_without_known(each, store) for each in alone) if job.keys]


def do_job(job: Job) -> list[Record]:
    """The records of a job.

    Raises:
        ValueError: a recording that cannot be read, or changed, or a peer that does not do its work.
    """
    heard = [
        changed(item, samples, job.condition, job.seed)
        for item, samples in zip(job.items, samples_of(job.items), strict=True)
    ]
    found = {peer.name: _ask_peer(peer, job, heard) for peer in job.peers}
    if job.models:
        sheet = _sheet_of(heard, job.condition)
        found |= {model.name: _ask_model(model, job, heard, sheet) for model in job.models}
    return [
        _record(key, name, job, item, each, values)
        for name, measured in found.items()
        for key, item, each, values in zip(job.keys[name], job.items, heard, measured, strict=True)
    ]


def _record(key: str, name: str, job: Job, item: Item, heard: "Heard", measured: Mapping[str, Any]) -> Record:
    """What was measured of a model or peer on an item."""
    return Record(
        key=key,
        model=name,
        set_name=job.set_name,
        recording=item.name,
        condition=job.condition.name,
        duration_s=samples_to_seconds(len(heard.samples)),
        level_dbfs=heard.report.level_dbfs,
        speech_level_db=heard.speech_level_db,
        dc=heard.report.dc,
        **measured,
    )


def _ask_model(candidate: Candidate, job: Job, heard: Sequence["Heard"], sheet: Sheet) -> list[dict[str, Any]]:
    """All measurements of a model, for every item."""
    clean = None if job.items[0].recording is None else _clean_side(job.items)
    before = None if clean is None else clean.traces(candidate)
    if before is not None and job.condition.is_clean:
        traces = before
    else:
        traces = listen(candidate, sheet, attention=any(each.sound.events for each in heard))
    return [
        _of_turns(job, item, each, trace.turns)
        | measure_inside(each.sound, trace, None if before is None else before[at], job.rules)
        for at, (item, each, trace) in enumerate(zip(job.items, heard, traces, strict=True))
    ]


def _ask_peer(peer: Peer, job: Job, heard: Sequence["Heard"]) -> list[dict[str, Any]]:
    """The measurements of a peer, for every item."""
    names, samples = [item.name for item in job.items], [each.sound.samples for each in heard]
    turns = peers.listen(peer, job.condition.name, names, samples)
    return [_of_turns(job, *each) for each in zip(job.items, heard, turns, strict=True)]


def _of_turns(job: Job, item: Item, heard: "Heard", turns: Sequence[Turn]) -> dict[str, Any]:
    region = None if item.recording is None else item.recording.region
    return measure_turns(heard.sound, turns, region, job.condition, job.rules)


def listen(candidate: Candidate, sheet: Sheet, *, attention: bool) -> list[Trace]:
    """What a model makes of each recording, under its settings."""
    settings = candidate.settings
    chunk = None if settings.chunk_ms is None else chunk_frames(settings.chunk_ms)
    diarizer = _load(candidate)
    return run(diarizer, sheet, chunk=chunk, num_slots=settings.max_speakers, attention=attention)


@lru_cache(maxsize=16)
def _load(candidate: Candidate) -> Diarizer:
    return load_diarizer(candidate.path, candidate.settings)


@dataclass(frozen=True)
class Heard:
    """A recording as a model hears it: after the change, with damaged samples replaced as a stream replaces them."""

    sound: Sound
    samples: Float32[np.ndarray, " samples"]
    report: SignalReport
    speech_level_db: float | None


def changed(item: Item, samples: Float32[np.ndarray, " samples"], condition: Condition, seed: int) -> Heard:
    """An item's audio, which has these samples, under a condition; the draws depend on the recording, and are the
    same for every severity."""
    reference = () if item.recording is None else item.recording.reference
    sound = corrupt(Sound(samples, reference, ()), condition.spec, zlib.crc32(f"{seed} {item.name}".encode()))
    mono = Mono16k(SAMPLE_RATE)
    taken = np.concatenate([mono.push(sound.samples), mono.finish()])
    return Heard(sound, taken, mono.report, active_speech_level(taken))


@lru_cache(maxsize=1)
def samples_of(items: tuple[Item, ...]) -> tuple[Float32[np.ndarray, " samples"], ...]:
    """Samples of the items as they are, which nobody may change: decoded once for all conditions."""
    found = tuple(map(_read, items))
    for samples in found:
        samples.setflags(write=False)
    return found


def _read(item: Item) -> Float32[np.ndarray, " samples"]:
    if item.recording is None:
        return np.zeros(seconds_to_samples(item.silence_s), np.float32)
    assert item.recording.audio is not None
    return read_mono(item.recording.audio)[0]


def _sheet_of(heard: Sequence[Heard], condition: Condition) -> Sheet:
    """Mel frames, changed where the condition changes features."""
    sheet = make_sheet([each.samples for each in heard])
    return replace(sheet, mel=condition.spec.apply_mel(sheet.mel))


class CleanSide:
    """Recordings as they are, and what models make of them."""

    def __init__(self, items: tuple[Item, ...]) -> None:
        self.sheet = make_sheet(samples_of(items))
        self._traces: dict[Candidate, list[Trace]] = {}

    def traces(self, candidate: Candidate) -> list[Trace]:
        """What a model makes of each recording."""
        if candidate not in self._traces:
            self._traces[candidate] = listen(candidate, self.sheet, attention=True)
        return self._traces[candidate]


@lru_cache(maxsize=1)
def _clean_side(items: tuple[Item, ...]) -> CleanSide:
    """A process stays with the same recordings for many jobs."""
    return CleanSide(items)
