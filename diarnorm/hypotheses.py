"""What models say about recordings: RTTM files that are made once, and kept while model, recording and settings stay.

Beside each file stands a record, `NAME.json`, of what it was made from. A model is a file or a shipped name; a folder
of RTTM files stands for one, too, so that other systems can be compared.
"""

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diarnorm.audio import open_audio
from diarnorm.evaluate import read_recordings
from diarnorm.modelfile import read_header
from diarnorm.resources import find_model, model_names
from diarnorm.rttm import read_rttm, write_rttm
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.turns import Turn, TurnConfig

if TYPE_CHECKING:
    from diarnorm.stream import Diarizer

WARM_UP_SAMPLES = 2 * SAMPLE_RATE
"""Silence that a fresh model hears first, so that its first recording is not timed with torch's own start."""


@dataclass(frozen=True)
class Candidate:
    """A model under evaluation."""

    name: str
    path: Path
    """A model file, or a folder of RTTM files."""
    sha256: str | None
    """Of the model file; None for a folder."""

    @property
    def is_network(self) -> bool:
        """Whether it is a model that runs."""
        return self.sha256 is not None


@dataclass(frozen=True)
class Settings:
    """What is asked of all models alike; None leaves each its own."""

    chunk_ms: int | None
    max_speakers: int | None
    turns: tuple[tuple[str, Any], ...]
    device: str


@dataclass(frozen=True)
class Hypothesis:
    """Turns of one recording by one model."""

    turns: tuple[Turn, ...]
    busy_s: float | None
    """Time the model worked; None for turns that were given."""
    notes: tuple[str, ...]


def find_candidates(given: Any, folder: Path, settings: Settings) -> tuple[Candidate, ...]:
    """The models of a configuration: one, a list, or by name. Relative paths start in `folder`.

    Raises:
        ValueError: none, one that is not there or no model, settings of turns that do not fit its own, two of a name.
    """
    named = dict(given) if isinstance(given, Mapping) else None
    words = list(named.values()) if named else [given] if isinstance(given, str) else list(given or ())
    if not words or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"models={given} names no model: give models=[NAME,PATH,...], or models={{NAME: PATH}}")
    paths = [_find(word, folder) for word in words]
    names = [str(name) for name in named] if named else _names(paths)
    repeated = [name for name, count in Counter(map(legal_folder, names)).items() if count > 1]
    if repeated:
        raise ValueError(f"two models are called {repeated[0]}: give them names, models={{NAME: PATH, NAME: PATH}}")
    return tuple(_candidate(name, path, settings) for name, path in zip(names, paths, strict=True))


def _find(word: str, folder: Path) -> Path:
    """Where a model lies: shipped models come first, then what is in `folder`."""
    path = folder / Path(word).expanduser()
    return find_model(word) if word in model_names() or not (path.exists() or word != Path(word).name) else path


def _names(paths: Sequence[Path]) -> list[str]:
    """The names of the files; with their folders' where two are alike."""
    paths = [Path(os.path.abspath(path)) for path in paths]  # noqa: PTH100 - takes out `..`, follows no links
    stems = [path.name if path.is_dir() else path.stem for path in paths]
    return [
        f"{path.parent.name}_{stem}" if stems.count(stem) > 1 else stem for path, stem in zip(paths, stems, strict=True)
    ]


def _candidate(name: str, path: Path, settings: Settings) -> Candidate:
    if path.is_dir():
        return Candidate(name, path, None)
    own = TurnConfig(**read_header(path).facts["turns"])
    try:
        replace(own, **dict(settings.turns))
    except ValueError as error:
        raise ValueError(f"turns of {name} with these changes: {error}") from error
    return Candidate(name, path, file_sha256(path))


def given_turns(candidate: Candidate, set_name: str, notes: list[str]) -> dict[str, list[Turn]]:
    """Turns by recording of a folder of RTTM files; those of a set may lie in a folder of its name.

    Raises:
        ValueError: no such files, or one that cannot be read.
    """
    own = candidate.path / set_name
    return read_recordings(own if own.is_dir() else candidate.path, notes)


def diarize(candidate: Candidate, audio: Path, rttm: Path, settings: Settings) -> Hypothesis:
    """What a model says about a recording: read from `rttm` where that was made from the same, else made and kept.

    Either way the turns are those of the file, in whole milliseconds.

    Raises:
        ValueError: the recording cannot be read, or the device is not there.
    """
    key = _key(candidate, audio, settings)
    kept = _kept(rttm, key)
    if kept is None:
        turns, busy_s, notes = _run(_load(candidate.path, candidate.sha256, settings), audio, settings)
        rttm.parent.mkdir(parents=True, exist_ok=True)
        with replacing(rttm) as partial, partial.open("w", encoding="utf-8") as file:
            write_rttm(sorted(turns), rttm.stem, file)
        kept = {"key": key, "busy_s": busy_s, "notes": notes, "rttm_sha256": file_sha256(rttm)}
        with replacing(rttm.with_suffix(".json")) as partial:
            partial.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", "utf-8")
    written = [turn for turns in read_rttm(rttm).values() for turn in turns]
    return Hypothesis(tuple(written), kept["busy_s"], tuple(kept["notes"]))


def _key(candidate: Candidate, audio: Path, settings: Settings) -> dict[str, Any]:
    """All that turns depend on, as plain JSON values."""
    import diarnorm

    return {
        "model_sha256": candidate.sha256,
        "audio_sha256": file_sha256(audio),
        **asdict(settings),
        "turns": dict(settings.turns),
        "diarnorm": diarnorm.__version__,
    }


def _kept(rttm: Path, key: dict[str, Any]) -> dict[str, Any] | None:
    """The record of an RTTM file, if it was made from what `key` says and is as it was written."""
    try:
        record = json.loads(rttm.with_suffix(".json").read_text("utf-8"))
        fits = record["key"] == key and record["rttm_sha256"] == file_sha256(rttm)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record if fits else None


@lru_cache(maxsize=8)
def _load(path: Path, sha256: str, settings: Settings) -> "Diarizer":
    """A model with changed settings of turns, ready to be timed."""
    import numpy as np

    from diarnorm.checkpoint import load_checkpoint
    from diarnorm.stream import Diarizer

    checkpoint = load_checkpoint(path)
    turns = replace(checkpoint.turns, **dict(settings.turns))
    diarizer = Diarizer(replace(checkpoint, turns=turns), device=settings.device)
    diarizer.stream(chunk_ms=settings.chunk_ms).push(np.zeros(WARM_UP_SAMPLES, np.float32))
    return diarizer


def _run(diarizer: "Diarizer", audio: Path, settings: Settings) -> tuple[list[Turn], float, list[str]]:
    """Turns, time spent on them without decoding, and what is odd about the recording."""
    turns: list[Turn] = []
    busy_s = 0.0
    with open_audio(audio) as reader:
        stream = diarizer.stream(reader.sample_rate, chunk_ms=settings.chunk_ms, max_speakers=settings.max_speakers)
        for block in reader:
            started = time.perf_counter()
            turns += stream.push(block)
            busy_s += time.perf_counter() - started
        started = time.perf_counter()
        turns += stream.finish()
        busy_s += time.perf_counter() - started
        return turns, busy_s, [*reader.warnings, *stream.warnings]


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes.

    Errors: ValueError for a file that is not there.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise ValueError(f"{path}: no such file") from error


def legal_folder(name: str) -> str:
    """A name as a folder can have it: what is no letter, digit, dot, dash or underscore becomes `_`.

    >>> legal_folder("../x y")
    '_x_y'
    """
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what was written takes the place of `path` at the end, all at once."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
