"""Where turns go as they become final: standard output, and a file per recording; and how recordings are called."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from diarnorm.audio.bytestream import STDIN
from diarnorm.events import json_line, start_event, turn_event
from diarnorm.files import naming, replacing
from diarnorm.rttm import format_turn, legal_name
from diarnorm.turns import Event, Turn

OWN_LABEL = re.compile(r"SPEAKER \S+ 1 \S+ \S+ <NA> <NA> speaker_\d+ <NA> <NA>")
"""What the first line of a file looks like that this program wrote."""


class Sink(Protocol):
    """Something that takes the events of one recording."""

    def take(self, events: Sequence[Event]) -> None:
        """Write the events, so that they survive the program."""
        ...


def deliver(sinks: Iterable[Sink], events: Sequence[Event]) -> None:
    """Give the events to every sink, also when one of them fails; the first failure is raised afterwards."""
    failure: OSError | None = None
    for sink in sinks:
        try:
            sink.take(events)
        except OSError as error:
            failure = error if failure is None else failure
    if failure is not None:
        raise failure


class RttmLines:
    """RTTM on standard output, a line as soon as its turn is final."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def take(self, events: Sequence[Event]) -> None:
        """Print the turns."""
        for turn in events:
            if isinstance(turn, Turn):
                print(format_turn(turn, self.uri), flush=True)


class JsonLines:
    """JSON lines on standard output."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def take(self, events: Sequence[Event]) -> None:
        """Print starts and turns."""
        for event in events:
            is_turn = isinstance(event, Turn)
            self.print_event(turn_event(event, self.uri) if is_turn else start_event(event, self.uri))

    def print_event(self, event: dict[str, Any]) -> None:
        """Print one event."""
        print(json_line(event), flush=True)


class RttmFile:
    """An RTTM file that always holds all final turns: in the order of their ends while it grows, and rewritten in
    the order of their onsets when the context ends. A recording that fails before its first turn leaves no file, since
    an empty one means that nobody spoke.

    Errors: ValueError when the file exists and was not written by this program; OSError with the path.
    """

    def __init__(self, path: Path, uri: str) -> None:
        check_overwrite(path)
        self.path, self.uri = path, uri
        self._turns: list[Turn] = []
        self._file = path.open("wb", buffering=0)

    def take(self, events: Sequence[Event]) -> None:
        """Append the turns; a line that does not fit on the disk is taken back, so that only whole lines stay."""
        for turn in events:
            if isinstance(turn, Turn):
                with naming(str(self.path)):
                    self._append(f"{format_turn(turn, self.uri)}\n".encode())
                self._turns.append(turn)

    def _append(self, line: bytes) -> None:
        size = self._file.tell()
        try:
            while rest := line[self._file.tell() - size :]:
                self._file.write(rest)
        except OSError:
            self._file.truncate(size)
            raise

    def __enter__(self) -> "RttmFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is not None and not self._turns:
            self.path.unlink()
        elif self._turns != sorted(self._turns):
            self._replace()

    def _replace(self) -> None:
        """Put the sorted turns in the place of the file, all at once."""
        lines = "".join(f"{format_turn(turn, self.uri)}\n" for turn in sorted(self._turns))
        with naming(str(self.path)), replacing(self.path) as partial:
            partial.write_text(lines, "utf-8")


def first_line(path: Path) -> str:
    """The first line of a text file, as far as it can be read."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(1000).strip()


def is_own_line(line: str) -> bool:
    """Whether a line of RTTM looks like one of this program."""
    return OWN_LABEL.fullmatch(line) is not None


def check_overwrite(path: Path) -> None:
    """Refuse to write over turns that are not this program's, a reference say.

    Raises:
        ValueError: the file exists and starts with a line that this program does not write.
    """
    try:
        first = first_line(path)
    except (FileNotFoundError, IsADirectoryError):
        return
    if first and not is_own_line(first):
        raise ValueError(f"{path} exists and was not written by diarnorm: choose another --output or move it")


def open_folder(path: str) -> Path:
    """The folder for output, made where it is missing.

    Raises:
        ValueError: it cannot be made.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ValueError(f"--output {path} is a file: give a folder") from error
    except OSError as error:
        raise ValueError(f"--output {path} cannot be made: {error.strerror}") from error
    return folder


def recording_names(sources: Sequence[str]) -> list[str]:
    """A name for each source, all different as RTTM writes them: the file's stem; where two are alike, the file's
    name, then folder and stem, then the whole path.

    >>> recording_names(["d1/utt.wav", "d2/utt.wav", "talk.wav", "-"])
    ['d1_utt', 'd2_utt', 'talk', 'stdin']

    Raises:
        ValueError: a source is given twice.
    """
    choices = [_possible_names(source) for source in sources]
    level = [0] * len(sources)
    while True:
        names = [names[at] for names, at in zip(choices, level, strict=True)]
        legal = [legal_name(name) for name in names]
        counts = Counter(legal)
        alike = [i for i, name in enumerate(legal) if counts[name] > 1]
        if not alike:
            return names
        longer = [i for i in alike if level[i] + 1 < len(choices[i])]
        if not longer:
            raise ValueError(f"{sources[alike[-1]]} is given twice")
        for i in longer:
            level[i] += 1


def _possible_names(source: str) -> list[str]:
    """Names for a source, from short to certain."""
    if source == STDIN:
        return ["stdin"]
    path = Path(os.fsencode(source).decode("utf-8", "replace"))
    folder = Path(source).absolute().parent.name
    whole = re.sub(r"[/\\:]+", "_", str(path.absolute()))
    return [path.stem, path.name, f"{folder}_{path.stem}", f"{folder}_{path.name}", whole.strip("_")]


def stdout_is_terminal() -> bool:
    """Whether what is printed is read by a person."""
    return sys.stdout is not None and sys.stdout.isatty()
