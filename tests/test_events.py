"""JSON lines: fields of each event, and the summary of a recording."""

import json

from diarnorm.events import json_line, start_event, summarize, summary_event, turn_event
from diarnorm.turns import Turn, TurnStart

TURNS = [Turn(0.0, 3.0, "speaker_1"), Turn(2.0, 2.96, "speaker_2"), Turn(5.0, 6.0, "speaker_1")]


def test_a_turn_and_its_start_carry_the_same_time() -> None:
    start, turn = (
        start_event(TurnStart(0.08, "speaker_1"), "talk"),
        turn_event(Turn(0.08, 1.0, "speaker_1"), "talk"),
    )
    assert turn == {
        "schema": "diarnorm/1",
        "event": "turn",
        "uri": "talk",
        "start": 0.08,
        "end": 1.0,
        "speaker": "speaker_1",
    }
    assert (start["schema"], start["event"], start["time"]) == ("diarnorm/1", "start", turn["start"])


def test_summary_counts_speech_and_marks_short_labels() -> None:
    event = summary_event(summarize(TURNS, 10.0), "talk", ["resampled 44100 -> 16000 Hz"])
    assert (event["duration_s"], event["speech_s"], event["overlap_s"]) == (10.0, 4.0, 0.96)
    assert event["speakers"] == [
        {"speaker": "speaker_1", "speech_s": 4.0, "share": 4 / 4.96, "num_turns": 2, "is_short": False},
        {"speaker": "speaker_2", "speech_s": 0.96, "share": 0.96 / 4.96, "num_turns": 1, "is_short": True},
    ]
    assert event["notes"] == ["resampled 44100 -> 16000 Hz"]


def test_silence_has_a_summary() -> None:
    summary = summarize([], 3.0)
    assert (summary.speech_s, summary.overlap_s, summary.speakers) == (0, 0, ())


def test_a_json_line_is_one_line_of_readable_json() -> None:
    line = json_line(turn_event(Turn(0.0, 1.0, "Zoë"), "a\nb"))
    assert "\n" not in line
    assert "Zoë" in line
    assert json.loads(line)["uri"] == "a\nb"
