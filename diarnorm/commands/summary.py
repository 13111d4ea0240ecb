"""What is said about a recording once it has ended."""

from collections.abc import Iterator
from typing import Any

from diarnorm.commands.session import Outcome
from diarnorm.events import SHORT_LABEL_S, summary_event


def summary_lines(outcome: Outcome) -> list[str]:
    """Speakers with seconds and shares, latencies, speed, and notes."""
    summary = outcome.summary
    head = (
        f"{outcome.name}: {summary.duration_s:.2f} s of audio, {summary.speech_s:.2f} s of speech, "
        f"{summary.overlap_s:.2f} s of it overlapped"
    )
    return [
        head,
        f"  {_count(len(summary.speakers), 'speaker')} of at most {outcome.max_speakers}",
        *_speaker_lines(outcome),
        *_speed_lines(outcome),
        *(f"  note: {note}" for note in outcome.notes),
    ]


def json_summary(outcome: Outcome, uri: str) -> dict[str, Any]:
    """The same as the last JSON event of a recording."""
    event = summary_event(outcome.summary, uri, outcome.notes)
    rtf = None if outcome.rtf is None else round(outcome.rtf, 4)
    return {
        **event,
        "max_speakers": outcome.max_speakers,
        "latency_s": round(outcome.latency_s, 4),
        "rtf": rtf,
    }


def _speaker_lines(outcome: Outcome) -> Iterator[str]:
    for speaker in outcome.summary.speakers:
        flag = f"  short: less than {SHORT_LABEL_S:g} s, perhaps no speaker" if speaker.is_short else ""
        yield (
            f"  {speaker.speaker:<12} {speaker.speech_s:8.2f} s {100 * speaker.share:5.1f} %  "
            f"{_count(speaker.num_turns, 'turn')}{flag}"
        )


def _speed_lines(outcome: Outcome) -> Iterator[str]:
    speed = "" if outcome.rtf is None else f", RTF {outcome.rtf:.4f} ({outcome.busy_s:.2f} s of work)"
    yield f"  activity latency {outcome.latency_s:.2f} s{speed}"
    yield (
        f"  decisions add {outcome.start_s:.2f} s (a turn's start), {outcome.newcomer_s:.2f} s (a newcomer's), "
        f"{outcome.end_s:.2f} s (an end)"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
