"""Read and write RTTM (who spoke when) and read UEM (what is scored), the text formats of NIST.

Reading is lenient about form (UTF-8 with or without a mark, any line ends, tabs, blank lines, `;;` comments,
9 or 10 fields, other NIST line types) and strict about content: an error names the file and the line. Times
are whole milliseconds when written, cut rather than rounded, so that no turn ends after its recording.
"""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from diarnorm.turns import Turn

OTHER_TYPES = frozenset((
    "SPKR-INFO", "SEGMENT", "LEXEME", "NON-LEX", "NON-SPEECH", "NOSCORE", "NO_RT_METADATA",
    "FILLER", "EDIT", "IP", "SU", "CB", "A/P",
))  # fmt: skip
"""Line types of RTTM that say nothing about who spoke when."""

_BLANKS = re.compile(r"[ \t\f\v]+")
_BYTE_ORDER_MARK = "\ufeff"


class RttmError(ValueError):
    """A line of an RTTM or UEM file that cannot be read; the message starts with `file:line`."""


def read_rttm(path: str | Path, notes: list[str] | None = None) -> dict[str, list[Turn]]:
    """Turns per recording, both in the order of the file; channels are not told apart.

    Turns of zero duration are left out (a recording that has no others stays, with an empty list); a sentence
    that says how many is appended to `notes`, with the file's name but not its folder: notes of the same files are the
    same wherever these lie.

    Errors: RttmError for a line that is not RTTM, a time that is no number, a negative time or duration;
    OSError.
    """
    recordings: dict[str, list[Turn]] = {}
    num_empty = 0
    for place, fields in _lines(path):
        if fields[0].upper() in OTHER_TYPES:
            continue
        if fields[0].upper() != "SPEAKER":
            raise RttmError(f"{place}: {fields[0]!r} is no RTTM line type; expected SPEAKER")
        if len(fields) not in (9, 10):
            raise RttmError(
                f"{place}: a SPEAKER line has 9 or 10 fields, got {len(fields)}; names must be free of spaces"
            )
        turns = recordings.setdefault(fields[1], [])
        onset, duration = (_seconds(place, name, fields[i]) for name, i in (("onset", 3), ("duration", 4)))
        end = round(onset + duration, 6)
        if end > onset:
            turns.append(Turn(onset, end, fields[7]))
        else:
            num_empty += 1
    if num_empty and notes is not None:
        notes.append(f"{Path(path).name}: {num_empty} of the turns have zero duration and were left out")
    return recordings


def read_uem(path: str | Path) -> dict[str, list[tuple[float, float]]]:
    """Scored regions (start, end) in seconds per recording, in the order of the file, all channels alike.

    Errors: RttmError for a line without 4 fields, a time that is no number, an end not after its start;
    OSError.
    """
    regions: dict[str, list[tuple[float, float]]] = {}
    for place, fields in _lines(path):
        if len(fields) != 4:
            raise RttmError(f"{place}: a UEM line is `recording channel start end`, got {len(fields)} fields")
        start, end = _seconds(place, "start", fields[2]), _seconds(place, "end", fields[3])
        if end <= start:
            raise RttmError(f"{place}: the end {fields[3]} must come after the start {fields[2]}")
        regions.setdefault(fields[0], []).append((start, end))
    return regions


def format_turn(turn: Turn, uri: str) -> str:
    """One RTTM line, without a line end; a turn shorter than its resolution gets 1 ms.

    >>> format_turn(Turn(0.24, 1.5, "speaker_1"), "my recording")
    'SPEAKER my_recording 1 0.240 1.260 <NA> <NA> speaker_1 <NA> <NA>'
    """
    end_ms = max(milliseconds(turn.end), 1)
    start_ms = min(milliseconds(turn.start), end_ms - 1)
    onset, duration = start_ms / 1000, (end_ms - start_ms) / 1000
    name, speaker = legal_name(uri), legal_name(turn.speaker)
    return f"SPEAKER {name} 1 {onset:.3f} {duration:.3f} <NA> <NA> {speaker} <NA> <NA>"


def write_rttm(turns: Iterable[Turn], uri: str, file: TextIO) -> None:
    """Write one line per turn, in the given order, to an open text file (UTF-8)."""
    for turn in turns:
        file.write(format_turn(turn, uri) + "\n")


def legal_name(name: str) -> str:
    """A name as RTTM can hold it: each stretch of white space becomes `_`, and so does an empty name.

    >>> legal_name("Board meeting\\t3")
    'Board_meeting_3'
    """
    return re.sub(r"\s+", "_", name) if name else "_"


def milliseconds(seconds: float) -> int:
    """Whole milliseconds, cut; within a microsecond of the next one counts as there.

    >>> milliseconds(0.29), milliseconds(1.9996)
    (290, 1999)
    """
    return math.floor(seconds * 1000 + 1e-3)


def _lines(path: str | Path) -> Iterator[tuple[str, list[str]]]:
    """`file:line` and the fields of each line that is neither blank nor a comment."""
    for number, raw in enumerate(Path(path).read_bytes().splitlines(), start=1):
        place = f"{path}:{number}"
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RttmError(f"{place}: not UTF-8 text; save the file as UTF-8") from error
        fields = [field for field in _BLANKS.split(line.strip(_BYTE_ORDER_MARK)) if field]
        if fields and not fields[0].startswith(";"):
            yield place, fields


def _seconds(place: str, name: str, text: str) -> float:
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise RttmError(f"{place}: {name} must be a number of seconds, 0 or more, got {text!r}")
    return value
