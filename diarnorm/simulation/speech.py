"""Speaker-labelled utterances, decoded once into one memory-mapped cache.

A folder-per-speaker tree or a tab-separated manifest becomes a `Speech`: all samples as one int16 array at
16 kHz (one copy per speed factor and per warp; a voice at another speed, or warped, counts as another speaker), and
per utterance its place in that array, its speaker, its level and its speech activity. Long utterances are cut at
pauses into pieces, which is what conversations are built from. The same loader serves clips of noise, where one file is
one clip.
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr
from jaxtyping import Bool, Float32, Int16, Int64

from diarnorm.audio.meter import MAX_ABS
from diarnorm.files import replacing
from diarnorm.manifest import Entry, read_entries, same_person
from diarnorm.simulation.activity import ActivityConfig, PieceConfig, cut_pieces, speech_activity
from diarnorm.simulation.warps import Warp, warp_voice
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE

CACHE_VERSION = 3
AHEAD = 8
"""Files per thread that are decoded before the first of them is written."""


@dataclass(frozen=True)
class SpeechConfig:
    """How utterances are decoded, where speech is found in them, and how they are cut.

    Speed factors are rationals `(p, q)`: the voice is played `p / q` times as fast, and higher by as much. Each warp
    is one more voice of every speaker, at the same tempo; see `diarnorm.simulation.warps`.
    """

    speed_factors: tuple[tuple[int, int], ...] = ((17, 20), (9, 10), (1, 1), (11, 10), (23, 20))
    warps: tuple[Warp, ...] = ()
    activity: ActivityConfig = field(default_factory=ActivityConfig)
    pieces: PieceConfig = field(default_factory=PieceConfig)
    flat: bool = False
    """Whether files beside the folders of a tree each count as a speaker of their own; they are refused otherwise."""


CLIPS = SpeechConfig(speed_factors=((1, 1),), flat=True)
"""The configuration for noise clips: one copy each, at the speed they were recorded, in folders or not."""


@dataclass(frozen=True)
class Speech:
    """All utterances of a set of speakers; see the module. Positions are samples at 16 kHz unless named hops.

    `offset` and `length` are [factors, utterances] into `samples`; `level` is the RMS of the speech of an
    utterance (full scale 1). Runs are stretches of speech in hops from the start of their utterance, at
    speed 1; pieces own the runs `piece_run[i, 0] : piece_run[i, 1]` and the hops `piece_hops[i]` of
    `piece_utterance[i]`, sorted by speaker: those of speaker `s` are `speaker_piece[s] : speaker_piece[s +
    1]`. A factor is a speed, or, after those, a warp. `same_person` are pairs of speakers who may be one person.
    """

    cache: Path
    speed_factors: tuple[tuple[int, int], ...]
    speakers: tuple[str, ...]
    sources: tuple[str, ...]
    paths: tuple[str, ...]
    offset: Int64[np.ndarray, "factors utterances"]
    length: Int64[np.ndarray, "factors utterances"]
    level: Float32[np.ndarray, " utterances"]
    speaker: Int64[np.ndarray, " utterances"]
    speaker_source: Int64[np.ndarray, " speakers"]
    speaker_gender: tuple[str, ...]
    activity: Bool[np.ndarray, " hops"]
    run_hops: Int64[np.ndarray, "runs 2"]
    piece_utterance: Int64[np.ndarray, " pieces"]
    piece_hops: Int64[np.ndarray, "pieces 2"]
    piece_run: Int64[np.ndarray, "pieces 2"]
    speaker_piece: Int64[np.ndarray, " speakers_plus_1"]
    warps: tuple[Warp, ...] = ()
    same_person: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def samples(self) -> Int16[np.ndarray, " samples"]:
        """Every utterance at every speed, one after the other (memory-mapped, read-only)."""
        return np.memmap(self.cache / "samples.i16", dtype=np.int16, mode="r")

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "samples"}

    @property
    def num_utterances(self) -> int:
        """Files."""
        return len(self.paths)

    @property
    def num_speakers(self) -> int:
        """Speakers at their own speed."""
        return len(self.speakers)

    @property
    def num_factors(self) -> int:
        """Voices in which every utterance is kept: speeds, then warps."""
        return len(self.speed_factors) + len(self.warps)

    def tempo(self, factor: int) -> tuple[int, int]:
        """How many times as fast as recorded, as a rational; warps keep the tempo."""
        return self.speed_factors[factor] if factor < len(self.speed_factors) else (1, 1)

    @property
    def natural_factor(self) -> int | None:
        """The factor that is the voice as recorded, if it is kept."""
        return next((i for i, (p, q) in enumerate(self.speed_factors) if p == q), None)

    @property
    def num_classes(self) -> int:
        """Voices told apart: class `speaker * num_factors + factor`."""
        return self.num_speakers * self.num_factors

    def voice_name(self, speaker: int, factor: int) -> str:
        """The speaker's name, with the speed or the warp where it is not the speaker's own voice."""
        suffix = self.voice_suffix(factor)
        return f"{self.speakers[speaker]}_{suffix}" if suffix else self.speakers[speaker]

    def voice_suffix(self, factor: int) -> str:
        """`x0.9` for a speed, `p1.15` or `t0.9` and the like for a warp, nothing for the voice as recorded."""
        if factor >= len(self.speed_factors):
            return self.warps[factor - len(self.speed_factors)].name
        p, q = self.speed_factors[factor]
        return "" if p == q else f"x{p / q:g}"

    def utterance(self, index: int, factor: int) -> Int16[np.ndarray, " samples"]:
        """Samples of utterance `index` at speed factor number `factor`."""
        start = self.offset[factor, index]
        return self.samples[start : start + self.length[factor, index]]


def load_speech(
    source: str | os.PathLike,
    *,
    split: str | None = None,
    config: SpeechConfig = SpeechConfig(),
    cache_dir: str | os.PathLike = ".cache/diarnorm",
) -> Speech:
    """Load a folder-per-speaker tree or a manifest (`.tsv`), decoding it at the first call only.

    Args:
        source: a folder, whose first-level subfolders are the speakers, or a tab-separated file with the
            columns path (relative to it), speaker and, where known, split, source, gender, same_as (other
            speakers who may be the same person, separated by commas); other columns are ignored.
        split: keep the rows of this split only; None keeps all.
        config: speeds, warps, activity, cutting.
        cache_dir: where decoded samples are kept, in a folder named by a hash of all that they depend on.

    Raises:
        ValueError: nothing to load, a column is missing, or a file cannot be decoded.
    """
    entries = read_entries(Path(source), split, flat=config.flat)
    cache = Path(cache_dir) / cache_key(entries, config)
    if not (cache / "index.npz").exists():
        _fill_cache(entries, config, cache)
    return _open_cache(entries, config, cache)


def cache_key(entries: list[Entry], config: SpeechConfig) -> str:
    """Name of the folder in which decoded samples are kept; warps are part of it only where there are any.

    It stays where a corpus is moved as a whole with the times of its files, and changes with any file that is written
    anew.

    Raises:
        ValueError: a file does not exist.
    """
    missing = [str(entry.path) for entry in entries if not entry.path.exists()]
    if missing:
        raise ValueError(f"{len(missing)} file(s) of the manifest do not exist, the first is {missing[0]}")
    root = os.path.commonpath([entry.path.parent.absolute() for entry in entries])
    rows = [_facts(entry, root) for entry in entries]
    voices = [asdict(warp) for warp in config.warps]
    what = [CACHE_VERSION, config.speed_factors, asdict(config.activity), rows, *([voices] if voices else [])]
    text = json.dumps(what)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _facts(entry: Entry, root: str) -> tuple[str | int, ...]:
    """What decoded samples and their labels depend on, of one entry."""
    facts = entry.path.stat()
    place = Path(os.path.relpath(entry.path, root)).as_posix()
    return (place, entry.speaker, entry.source, facts.st_size, facts.st_mtime_ns)


def decode(path: Path) -> Float32[np.ndarray, " samples"]:
    """A file as mono samples at 16 kHz. Damaged samples are 0, as they are when a file is diarized.

    Raises:
        ValueError: it cannot be decoded.
    """
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise ValueError(f"{path} cannot be decoded ({error}); convert it to WAV or FLAC, or remove it") from error
    mono = np.where(np.abs(samples) <= MAX_ABS, samples, np.float32(0)).mean(axis=1)
    return mono if rate == SAMPLE_RATE else soxr.resample(mono, rate, SAMPLE_RATE)


class Prepared(NamedTuple):
    """One file: copies at every speed and warp, where there is speech at speed 1, and the level of that."""

    copies: list[Int16[np.ndarray, " samples"]]
    activity: Bool[np.ndarray, " hops"]
    level: float


def prepare_all(entries: Sequence[Entry], config: SpeechConfig) -> Iterator[Prepared]:
    """Every file in order, decoded by all cores, a limited number ahead of the one that is taken.

    Raises:
        ValueError: one cannot be decoded.
    """
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(entries), AHEAD * workers):
            yield from pool.map(lambda entry: _prepare(entry, config), entries[start : start + AHEAD * workers])


def _prepare(entry: Entry, config: SpeechConfig) -> Prepared:
    samples = decode(entry.path)
    activity = speech_activity(samples, config.activity)
    hops = samples[: len(activity) * HOP_SAMPLES].reshape(-1, HOP_SAMPLES)[activity]
    level = float(np.sqrt(np.mean(np.square(hops)))) if hops.size else 0.0
    copies = [samples if p == q else soxr.resample(samples, p, q) for p, q in config.speed_factors]
    copies += [warp_voice(samples, warp) for warp in config.warps]
    return Prepared([np.clip(np.rint(x * 32768), -32768, 32767).astype(np.int16) for x in copies], activity, level)


def _fill_cache(entries: list[Entry], config: SpeechConfig, cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    num_copies = len(config.speed_factors) + len(config.warps)
    lengths = np.zeros((num_copies, len(entries)), dtype=np.int64)
    activities, levels = [], np.zeros(len(entries), dtype=np.float32)
    with replacing(cache / "samples.i16") as partial, partial.open("wb") as file:
        for index, (copies, activity, level) in enumerate(prepare_all(entries, config)):
            for factor, copy in enumerate(copies):
                copy.tofile(file)
                lengths[factor, index] = len(copy)
            activities.append(activity)
            levels[index] = level
    hops = np.array([len(activity) for activity in activities])
    with replacing(cache / "index.npz") as partial, partial.open("wb") as file:
        np.savez(file, length=lengths, level=levels, hops=hops, activity=np.concatenate(activities))


def _open_cache(entries: list[Entry], config: SpeechConfig, cache: Path) -> Speech:
    with np.load(cache / "index.npz") as index:
        length, level, hops, activity = (index[key] for key in ("length", "level", "hops", "activity"))
    offset = (np.cumsum(length.T.reshape(-1)) - length.T.reshape(-1)).reshape(length.T.shape).T.copy()
    names, sources = sorted({e.speaker for e in entries}), sorted({e.source for e in entries})
    number = {name: i for i, name in enumerate(names)}
    speaker = np.array([number[entry.speaker] for entry in entries], dtype=np.int64)
    first = {entry.speaker: entry for entry in reversed(entries)}
    runs, utterance, piece_hops, piece_run = cut_pieces(activity, hops, config.pieces)
    order = np.argsort(speaker[utterance], kind="stable")
    counts = np.bincount(speaker[utterance], minlength=len(names))
    return Speech(
        cache=cache,
        speed_factors=config.speed_factors,
        speakers=tuple(names),
        sources=tuple(sources),
        paths=tuple(str(entry.path) for entry in entries),
        offset=offset,
        length=length,
        level=level,
        speaker=speaker,
        speaker_source=np.array([sources.index(first[name].source) for name in names], dtype=np.int64),
        speaker_gender=tuple(first[name].gender for name in names),
        activity=activity,
        run_hops=runs,
        piece_utterance=utterance[order],
        piece_hops=piece_hops[order],
        piece_run=piece_run[order],
        speaker_piece=np.concatenate([[0], np.cumsum(counts)]),
        warps=config.warps,
        same_person=same_person(entries),
    )
