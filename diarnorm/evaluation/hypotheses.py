"""What models say about recordings: RTTM files that are made once, and kept while model, recording and settings stay.

Beside each file stands a record, `NAME.json`, of what it was made from. A model is a file or a shipped name; a folder
of RTTM files stands for one, too, so that other systems can be compared.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diarnorm.audio.reader import open_audio
from diarnorm.evaluation.config import OF_THE_MEMORY, Changes, Variant, given_values
from diarnorm.evaluation.scoring import read_recordings
from diarnorm.files import file_sha256, replacing, shared_folder
from diarnorm.modelfile import as_json, read_header
from diarnorm.resources import code_sha256, find_model, model_names
from diarnorm.rttm import read_rttm, write_rttm
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.turns import Turn, TurnConfig

if TYPE_CHECKING:
    from diarnorm.stream import Diarizer

CODE, ORACLE_CODE = ("evaluation/hypotheses.py",), ("evaluation/oracle.py",)
"""Sources that hypotheses depend on, beside those that turns do; the second, those of a memory that is told."""
WARM_UP_SAMPLES = 2 * SAMPLE_RATE
"""Silence that a fresh model hears first, so that its first recording is not timed with torch's own start."""


@dataclass(frozen=True)
class Settings:
    """What is asked of a model; None, or no value, leaves it its own."""

    chunk_ms: int | None = None
    max_speakers: int | None = None
    turns: tuple[tuple[str, Any], ...] = ()
    memory: tuple[tuple[str, Any], ...] = ()
    device: str = "cpu"
    oracle_memory: bool = False

    def changed_by(self, changes: Changes) -> "Settings":
        """These, but for what is given there."""
        return Settings(
            self.chunk_ms if changes.chunk_ms is None else changes.chunk_ms,
            self.max_speakers if changes.max_speakers is None else changes.max_speakers,
            tuple({**dict(self.turns), **given_values(changes.turns)}.items()),
            tuple({**dict(self.memory), **given_values(changes.memory)}.items()),
            self.device,
            self.oracle_memory,
        )

    def plain(self) -> dict[str, Any]:
        """As plain JSON values."""
        return as_json({**asdict(self), "turns": dict(self.turns), "memory": dict(self.memory)})


@dataclass(frozen=True)
class Candidate:
    """A model under evaluation."""

    name: str
    path: Path
    """A model file, or a folder of RTTM files."""
    sha256: str | None
    """Of the model file; None for a folder."""
    settings: Settings = field(default_factory=Settings)

    @property
    def is_network(self) -> bool:
        """Whether it is a model that runs."""
        return self.sha256 is not None


@dataclass(frozen=True)
class Hypothesis:
    """Turns of one recording by one model."""

    turns: tuple[Turn, ...]
    busy_s: float | None
    """Time the model worked; None for turns that were given."""
    notes: tuple[str, ...]


def find_candidates(given: Any, folder: Path, settings: Settings) -> tuple[Candidate, ...]:
    """The models of a configuration: one, a list, or by name, each a path or a `Variant`. Relative paths start in
    `folder`; `settings` are those of all, where a variant has none of its own.

    Raises:
        ValueError: none, one that is not there or no model, settings that do not fit its own, two of a name.
    """
    named = dict(given) if isinstance(given, Mapping) else None
    items = list(named.values()) if named else list(given) if isinstance(given, list | tuple) else [given]
    if not items or not all(isinstance(item, str | Mapping) and item for item in items):
        raise ValueError(f"models={given} names no model: give models=[NAME,PATH,...], or models={{NAME: PATH}}")
    variants = [Variant(path=item) if isinstance(item, str) else _variant(item) for item in items]
    paths = [_find(variant.path, folder) for variant in variants]
    names = [str(name) for name in named] if named else _names(paths)
    shared = shared_folder(names)
    if shared is not None:
        raise ValueError(f"two models are called {shared}: give them names, models={{NAME: PATH, NAME: PATH}}")
    return tuple(
        _candidate(name, path, variant, settings) for name, path, variant in zip(names, paths, variants, strict=True)
    )


def _variant(values: Mapping[Any, Any]) -> Variant:
    """A variant from plain values, which are checked.

    Raises:
        ValueError: no path, a key that there is not, or a value of another type.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from diarnorm.checkpoint import from_plain

    try:
        found: Any = OmegaConf.to_object(OmegaConf.structured(from_plain(Variant, values)))  # checks the types
    except (ValueError, OmegaConfBaseException) as error:
        raise ValueError(f"models={values}: {str(error).splitlines()[0]}") from error
    if not found.path:
        raise ValueError(f"models={values} has no path: give {{path: NAME|FILE, ...}}")
    return found


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


def _candidate(name: str, path: Path, variant: Variant, settings: Settings) -> Candidate:
    if path.is_dir():
        if variant != Variant(path=variant.path):
            raise ValueError(f"{name} is a folder of turns that are made: leave out all but its path, {path}")
        return Candidate(name, path, None, settings)
    from diarnorm.checkpoint import from_plain
    from diarnorm.memory import MemoryConfig

    settings = replace(settings.changed_by(variant), oracle_memory=variant.oracle_memory)
    facts = read_header(path).facts
    rules = {"turns": TurnConfig(**facts["turns"]), "memory": from_plain(MemoryConfig, facts["model"]["memory"])}
    for part, own in rules.items():
        try:
            replace(own, **dict(getattr(settings, part)))
        except ValueError as error:
            raise ValueError(f"{part} of {name} with these changes: {error}") from error
    if settings.oracle_memory and rules["memory"].kind == "none":
        raise ValueError(f"{name} has no memory: leave out oracle_memory")
    return Candidate(name, path, file_sha256(path), settings)


def given_turns(candidate: Candidate, set_name: str, notes: list[str]) -> dict[str, list[Turn]]:
    """Turns by recording of a folder of RTTM files; those of a set may lie in a folder of its name.

    Raises:
        ValueError: no such files, or one that cannot be read.
    """
    own = candidate.path / set_name
    return read_recordings(own if own.is_dir() else candidate.path, notes)


def diarize(candidate: Candidate, audio: Path, rttm: Path, reference: Sequence[Turn] = ()) -> Hypothesis:
    """What a model says about a recording: read from `rttm` where that was made from the same, else made and kept.

    Either way the turns are those of the file, in whole milliseconds. Only an oracle's memory is told the `reference`.

    Raises:
        ValueError: the recording cannot be read, or the device is not there.
    """
    key, settings = _key(candidate, audio, reference), candidate.settings
    kept = _kept(rttm, key)
    if kept is None:
        diarizer = _load(candidate.path, candidate.sha256, settings)
        if settings.oracle_memory:
            from diarnorm.evaluation.oracle import told

            diarizer = told(diarizer, reference)
        turns, busy_s, notes = _run(diarizer, audio, settings)
        rttm.parent.mkdir(parents=True, exist_ok=True)
        with replacing(rttm) as partial, partial.open("w", encoding="utf-8") as file:
            write_rttm(sorted(turns), rttm.stem, file)
        kept = {"key": key, "busy_s": busy_s, "notes": notes, "rttm_sha256": file_sha256(rttm)}
        with replacing(rttm.with_suffix(".json")) as partial:
            partial.write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", "utf-8")
    written = [turn for turns in read_rttm(rttm).values() for turn in turns]
    return Hypothesis(tuple(written), kept["busy_s"], tuple(kept["notes"]))


def _key(candidate: Candidate, audio: Path, reference: Sequence[Turn]) -> dict[str, Any]:
    """All that turns depend on, as plain JSON values."""
    oracle = candidate.settings.oracle_memory
    status = audio.stat() if audio.exists() else None
    return {
        "model_sha256": candidate.sha256,
        "audio_sha256": _audio_sha256(audio, status and (status.st_ino, status.st_size, status.st_mtime_ns)),
        "told": [[turn.start, turn.end, turn.speaker] for turn in reference] if oracle else None,
        **candidate.settings.plain(),
        "code_sha256": code_sha256(*CODE, *(ORACLE_CODE if oracle else ())),
    }


@lru_cache(maxsize=32)
def _audio_sha256(path: Path, _: tuple[int, int, int] | None) -> str:
    """Hash of a recording, which one model after the other hears: once while the file stays as it is.

    Errors: ValueError for a file that is not there.
    """
    return file_sha256(path)


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
    """A model with changed settings, ready to be timed."""
    import numpy as np

    diarizer = load_diarizer(path, settings)
    diarizer.stream(chunk_ms=settings.chunk_ms).push(np.zeros(WARM_UP_SAMPLES, np.float32))
    return diarizer


def load_diarizer(path: Path, settings: Settings) -> "Diarizer":
    """A model with changed settings.

    Raises:
        ValueError: no such model, or the device is not there.
    """
    from diarnorm.checkpoint import load_checkpoint
    from diarnorm.stream import Diarizer

    checkpoint = load_checkpoint(path)
    changes = dict(settings.memory)
    memory = replace(checkpoint.model.config.memory, **changes)
    told = {name: changes[name] for name in OF_THE_MEMORY if name in changes}
    turns = replace(checkpoint.turns, **dict(settings.turns), **told)
    return Diarizer(checkpoint.under(memory, turns), device=settings.device)


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
