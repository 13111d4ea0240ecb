"""Sets of recordings with references: what an evaluation runs on.

A set is a folder, or a list of files and folders, of recordings with an RTTM file of the same name beside each, and UEM
files where only parts are scored. References and UEM may lie elsewhere, too; where a corpus has a file of names, paths
may be patterns in which `{uri}` stands for each name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diarnorm.audio.reader import open_audio
from diarnorm.evaluation.scoring import NO_UEM, extents_in_words, goes_on, joined, read_recordings, region_cut, up_to
from diarnorm.evaluation.sources import URI, SetSource
from diarnorm.manifest import AUDIO_SUFFIXES
from diarnorm.rttm import legal_name, read_rttm, read_uem
from diarnorm.timebase import samples_to_seconds
from diarnorm.turns import Turn

Region = tuple[tuple[float, float], ...]
LIST_SUFFIXES = frozenset({".txt", ".lst", ".list"})
"""Endings of text files with the path of one recording per line, relative to the file."""


@dataclass(frozen=True)
class Recording:
    """One recording; times in seconds."""

    name: str
    audio: Path | None
    """None where only the reference is there, to score hypotheses that exist."""
    duration_s: float | None
    reference: tuple[Turn, ...]
    region: Region | None
    """What is scored, (start, end); None: all of it."""


@dataclass(frozen=True)
class RecordingSet:
    """Recordings under one name, in the order of their names."""

    name: str
    recordings: tuple[Recording, ...]
    region: str
    """What is scored, in words."""
    notes: tuple[str, ...]
    """What a user should know: recordings that are left out, turns after the end, a region that nothing gave."""


def read_set(
    name: str, source: SetSource, folder: Path, *, needs_audio: bool = True, key: str | None = None
) -> RecordingSet:
    """Find the recordings of a set and read their references; `folder` is where relative paths start.

    `key` is what errors call the set, `sets.NAME` unless given. Recordings without a reference, and those that a UEM
    leaves out, are skipped with a note.

    Raises:
        ValueError: a path that is not there, a reference without its recording (with `needs_audio`), two recordings of
            one name, two files about one recording, a file that cannot be read or is about others, nothing to score.
    """
    key = f"sets.{name}" if key is None else key
    notes: list[str] = []
    audio, folders = _find_audio(key, source, folder)
    references = _references(key, source, folder, audio, folders, notes)
    regions = _regions(key, source, folder, audio, folders, references)
    silent = [uri for uri in sorted(regions or ()) if uri in audio and uri not in references]
    notes += [f"{uri}: in the UEM but without a reference, taken as silent" for uri in silent]
    references |= {uri: [] for uri in silent}
    recordings = []
    for uri in sorted(references):
        if uri not in audio and needs_audio:
            endings = ", ".join(sorted(AUDIO_SUFFIXES))
            raise ValueError(f"{key}: the reference {uri} has no recording of that name ({endings})")
        if regions is not None and uri not in regions:
            notes.append(f"{uri}: not in the UEM, not scored")
            continue
        region = None if regions is None else regions[uri]
        recordings.append(_read_recording(uri, audio.get(uri), references[uri], region, notes))
    notes += [f"{uri}: no reference, not scored" for uri in sorted(audio) if uri not in references]
    if not recordings:
        raise ValueError(f"{key}: nothing to score, no recording has a reference (NAME.rttm beside NAME.wav)")
    words = _region_in_words(source, regions, recordings, notes)
    return RecordingSet(name, tuple(recordings), words, tuple(notes))


def _find_audio(key: str, source: SetSource, folder: Path) -> tuple[dict[str, Path], list[Path]]:
    """Recordings by name, and the folders among what was given."""
    if source.names is not None:
        return _by_pattern(key, source.audio[0], source.names, folder), []
    paths = [_existing(key, folder, given) for given in source.audio]
    folders = [path for path in paths if path.is_dir()]
    files = [path for path in paths if not path.is_dir() and path.suffix.lower() not in LIST_SUFFIXES]
    for path in paths:
        if not path.is_dir() and path.suffix.lower() in LIST_SUFFIXES:
            files += [_existing(str(path), path.parent, line) for line in _lines(path)]
    for path in folders:
        files += sorted(file for file in path.iterdir() if file.suffix.lower() in AUDIO_SUFFIXES)
    audio: dict[str, Path] = {}
    for file in files:
        other = audio.setdefault(legal_name(file.stem), file)
        if other != file:
            raise ValueError(f"{key}: {other} and {file} have the same name; rename one, or make two sets")
    return audio, folders


def _by_pattern(key: str, pattern: str, names: str, folder: Path) -> dict[str, Path]:
    """A file for each name that a text file lists."""
    uris = _lines(_existing(f"{key}.names", folder, names))
    return {legal_name(uri): _existing(key, folder, pattern.replace(URI, uri)) for uri in uris}


def _lines(path: Path) -> list[str]:
    """Lines of a text file that are not empty, each once.

    Raises:
        ValueError: it is a folder, or no text.
    """
    try:
        text = path.read_text("utf-8-sig")
    except IsADirectoryError as error:
        raise ValueError(f"{path} is a folder: give a text file with one name or path per line") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: give a file with one name or path per line") from error
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def _existing(key: str, folder: Path, given: str) -> Path:
    path = folder / Path(given).expanduser()
    if not path.exists():
        raise ValueError(f"{key}: {path} does not exist; give a folder or file of recordings with RTTM beside them")
    return path


def _beside(audio: Mapping[str, Path], folders: Iterable[Path], suffix: str) -> list[Path]:
    """Files with an ending in the folders, and beside recordings that were given one by one."""
    found = {path for folder in folders for path in folder.glob(f"*{suffix}")}
    return sorted(found | {path.with_suffix(suffix) for path in audio.values() if path.with_suffix(suffix).exists()})


def _references(
    key: str,
    source: SetSource,
    folder: Path,
    audio: Mapping[str, Path],
    folders: Sequence[Path],
    notes: list[str],
) -> dict[str, list[Turn]]:
    """Turns by recording. A file beside recordings, or one of a pattern, that is about one recording is about that of
    its own name, whatever stands in it; elsewhere recordings have the names that stand in the files."""
    if source.rttm is not None and source.names is not None and URI in source.rttm:
        files = _by_pattern(f"{key}.rttm", source.rttm, source.names, folder)
        return {uri: _about(uri, path, read_rttm(path, notes)) for uri, path in files.items()}
    if source.rttm is not None:
        found = read_recordings(_existing(f"{key}.rttm", folder, source.rttm), notes)
        return found if source.names is None else {uri: turns for uri, turns in found.items() if uri in audio}
    return joined(
        (path, _by_name(path, read_rttm(path, notes), audio) or {legal_name(path.stem): []})
        for path in _beside(audio, folders, ".rttm")
    )


def _regions(
    key: str,
    source: SetSource,
    folder: Path,
    audio: Mapping[str, Path],
    folders: Sequence[Path],
    references: Mapping[str, Any],
) -> dict[str, Region] | None:
    """Scored regions by recording; None without a UEM."""
    if source.region_s is not None:
        return dict.fromkeys(references, (source.region_s,))
    if source.uem is not None and source.names is not None and URI in source.uem:
        files = _by_pattern(f"{key}.uem", source.uem, source.names, folder)
        return {uri: tuple(_about(uri, path, read_uem(path))) for uri, path in files.items()}
    paths = _beside(audio, folders, ".uem")
    if source.uem is not None:
        paths = [_existing(f"{key}.uem", folder, source.uem)]
    regions: dict[str, Region] = {}
    for path in paths:
        for uri, spans in _by_name(path, read_uem(path), {*audio, *references}).items():
            regions[uri] = (*regions.get(uri, ()), *spans)
    return regions if paths else None


def _about(uri: str, path: Path, content: Mapping[str, Any]) -> Any:
    """What a file whose place tells the recording says of it, whatever it calls it; nothing if the file is empty.

    Raises:
        ValueError: it is about several others.
    """
    if len(content) > 1 and uri not in content:
        raise ValueError(f"{path} is not about {uri} but about {', '.join(sorted(content))}: give the file of {uri}")
    return next(iter(content.values())) if len(content) == 1 else content.get(uri, [])


def _by_name(path: Path, content: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """What a file says, by recording."""
    own = legal_name(path.stem)
    return {own: next(iter(content.values()))} if len(content) == 1 and own in names else content


def _read_recording(
    uri: str, audio: Path | None, reference: Sequence[Turn], region: Region | None, notes: list[str]
) -> Recording:
    duration_s = None if audio is None else measure_s(audio)
    if duration_s is not None and goes_on(((turn.start, turn.end) for turn in reference), duration_s):
        notes.append(f"{uri}: the reference has turns after the end ({duration_s:.3f} s)")
    if duration_s is not None and region is not None and goes_on(region, duration_s):
        notes.append(region_cut(uri, duration_s))
        region = up_to(region, duration_s)
    return Recording(uri, audio, duration_s, tuple(reference), region)


def measure_s(path: Path) -> float:
    """Length of a recording in seconds: by its header, or, where that does not tell, by decoding it."""
    with open_audio(path) as reader:
        sure = reader.num_samples is not None and "MPEG" not in reader.encoding
        num_samples = reader.num_samples if sure else sum(len(block) for block in reader)
        return samples_to_seconds(num_samples or 0, reader.sample_rate)


def _region_in_words(
    source: SetSource, regions: Mapping[str, Region] | None, recordings: Sequence[Recording], notes: list[str]
) -> str:
    if source.region_s is not None:
        return f"{source.region_s[0]:g} to {source.region_s[1]:g} s"
    if regions is not None:
        return "UEM"
    if all(recording.duration_s is not None for recording in recordings):
        return "each recording from its start to its end"
    words = extents_in_words(some_known=any(recording.duration_s is not None for recording in recordings))
    notes.append(f"{NO_UEM}: {words}")
    return words
