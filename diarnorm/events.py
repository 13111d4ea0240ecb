"""Turns as JSON lines: `start`, `turn` and `summary` events, and the summary of a recording.

Every event is an object with `schema` (raised when a field changes its meaning or goes), `event` and `uri`.
Times are seconds, cut to milliseconds as in RTTM.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from diarnorm.rttm import milliseconds
from diarnorm.turns import Turn, TurnStart, merge_turns

SCHEMA = "diarnorm/1"
"""Version of the events."""
SHORT_LABEL_S = 1.0
"""Speakers with less speech than this are marked: they may be phantoms."""


@dataclass(frozen=True)
class SpeakerSummary:
    """What one speaker said in a recording."""

    speaker: str
    speech_s: float
    share: float
    """Part of the speech of all speakers, 0 to 1."""
    num_turns: int
    is_short: bool
    """Whether `speech_s` is below the limit that makes a phantom likely."""


@dataclass(frozen=True)
class Summary:
    """Who spoke how much in a recording."""

    duration_s: float
    speech_s: float
    """Time in which anybody spoke."""
    overlap_s: float
    """Speech beyond that of one speaker at a time: the sum over speakers minus `speech_s`."""
    speakers: tuple[SpeakerSummary, ...]
    """In the order of their first turns."""


def summarize(turns: Iterable[Turn], duration_s: float, *, short_label_s: float = SHORT_LABEL_S) -> Summary:
    """Summary of a recording of `duration_s` seconds; the turns of one speaker must not overlap.

    >>> summary = summarize([Turn(0, 3, "speaker_1"), Turn(2, 3, "speaker_2")], 10.0)
    >>> summary.speech_s, summary.overlap_s, [s.share for s in summary.speakers]
    (3, 1, [0.75, 0.25])
    """
    by_speaker: dict[str, list[Turn]] = {}
    for turn in sorted(turns):
        by_speaker.setdefault(turn.speaker, []).append(turn)
    seconds = {speaker: sum(turn.duration for turn in own) for speaker, own in by_speaker.items()}
    total_s = sum(seconds.values())
    speech_s = sum(end - start for start, end in merge_turns(turn for own in by_speaker.values() for turn in own))
    speakers = tuple(
        SpeakerSummary(
            speaker, seconds[speaker], seconds[speaker] / total_s, len(own), seconds[speaker] < short_label_s
        )
        for speaker, own in by_speaker.items()
    )
    return Summary(duration_s, speech_s, total_s - speech_s, speakers)


def start_event(start: TurnStart, uri: str) -> dict[str, Any]:
    """A turn that is sure to come has begun at `time`.

    >>> start_event(TurnStart(1.2, "speaker_1"), "talk")
    {'schema': 'diarnorm/1', 'event': 'start', 'uri': 'talk', 'time': 1.2, 'speaker': 'speaker_1'}
    """
    return _event("start", uri, time=_cut(start.time), speaker=start.speaker)


def turn_event(turn: Turn, uri: str) -> dict[str, Any]:
    """A final turn; its `start` is the `time` of its start event."""
    return _event("turn", uri, start=_cut(turn.start), end=_cut(turn.end), speaker=turn.speaker)


def summary_event(summary: Summary, uri: str, notes: Iterable[str] = ()) -> dict[str, Any]:
    """The last event of a recording; `notes` are sentences for the reader, such as warnings."""
    fields = asdict(summary)
    speakers = [{**speaker, "speech_s": round(speaker["speech_s"], 3)} for speaker in fields.pop("speakers")]
    rounded = {name: round(value, 3) for name, value in fields.items()}
    return _event("summary", uri, **rounded, speakers=speakers, notes=list(notes))


def json_line(event: dict[str, Any]) -> str:
    """The event on one line, without a line end."""
    return json.dumps(event, ensure_ascii=False, allow_nan=False)


def _event(kind: str, uri: str, **fields: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "event": kind, "uri": uri, **fields}


def _cut(seconds: float) -> float:
    return milliseconds(seconds) / 1000
