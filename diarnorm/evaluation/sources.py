"""Where a set of recordings lies: its value in a configuration, checked before anything is read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

URI = "{uri}"
"""What stands for the name of a recording in a pattern."""


@dataclass(frozen=True)
class SetSource:
    """Where a set lies: paths as typed, relative ones mean the folder in which the command was typed."""

    audio: tuple[str, ...]
    """Recordings, folders of them, or text files with a path per line; with `names`, one pattern."""
    rttm: str | None = None
    """A file, folder or pattern of references; beside the recordings unless given."""
    uem: str | None = None
    """A UEM file or pattern; those beside the recordings unless given."""
    region_s: tuple[float, float] | None = None
    """What is scored of each recording, start and end, instead of a UEM."""
    names: str | None = None
    """A text file with the name of one recording per line: `{uri}` in the paths stands for each of them."""


def parse_source(name: str, given: Any, key: str | None = None) -> SetSource:
    """A set's value in the configuration: a path, a list of paths, or these under `audio` beside other keys.

    `key` is what errors call it, `sets.NAME` unless given.

    Raises:
        ValueError: an unknown key, no path, a region that is none, a pattern without names or names without one.
    """
    place = f"sets.{name}" if key is None else key
    values = dict(given) if isinstance(given, Mapping) else {"audio": given}
    known = [field.name for field in fields(SetSource)]
    for word in values:
        if word not in known:
            near = get_close_matches(str(word), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"{place}.{word} is no key of a set; {hint}")
    audio = values.get("audio")
    listed = list(audio) if isinstance(audio, list | tuple) else [audio]
    paths = tuple(path for path in listed if isinstance(path, str) and path)
    if not paths or len(paths) < len(listed):
        raise ValueError(f"{place} names no recordings: give a folder, or a list of files, as {place}=FOLDER")
    for word in ("rttm", "uem", "names"):
        if not isinstance(values.get(word), str | None):
            raise ValueError(f"{place}.{word}={values[word]} is no path: give one")
    region_s = values.get("region_s")
    if region_s is not None:
        region_s = _checked_region(f"{place}.region_s", region_s)
        if values.get("uem") is not None:
            raise ValueError(f"{place} has a uem and a region_s: give one of them")
    source = SetSource(paths, values.get("rttm"), values.get("uem"), region_s, values.get("names"))
    _check_patterns(place, source)
    return source


def _check_patterns(place: str, source: SetSource) -> None:
    """Refuse a pattern that nothing can be put into, and names that go nowhere."""
    patterns = [path for path in (*source.audio, source.rttm, source.uem) if path is not None and URI in path]
    if patterns and source.names is None:
        raise ValueError(f"{place} has a pattern, {patterns[0]}: give a file of names as {place}.names=FILE")
    if source.names is not None and not (len(source.audio) == 1 and URI in source.audio[0]):
        raise ValueError(f"{place}.names needs a pattern: give one path with {URI} in it as {place}.audio")


def _checked_region(key: str, given: Any) -> tuple[float, float]:
    numbers = [number for number in given if isinstance(number, int | float)] if isinstance(given, list | tuple) else []
    if len(numbers) != 2 or len(given) != 2 or not 0 <= numbers[0] < numbers[1]:
        raise ValueError(f"{key}={given} is no region: give [START,END] in seconds, 0 <= START < END")
    return float(numbers[0]), float(numbers[1])
