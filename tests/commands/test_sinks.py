"""Where turns go: files that lose nothing, and names that never meet."""

import errno
from pathlib import Path

import pytest

from diarnorm.commands.sinks import RttmFile, deliver, recording_names
from diarnorm.rttm import format_turn, read_rttm
from diarnorm.turns import Turn, TurnStart

LONG, SHORT, LAST = Turn(0.0, 9.0, "speaker_1"), Turn(2.0, 3.0, "speaker_2"), Turn(9.5, 10.0, "speaker_2")


def lines(*turns: Turn) -> str:
    return "".join(f"{format_turn(turn, 'talk')}\n" for turn in turns)


def take_and_fail(sink: RttmFile, turns: list[Turn]) -> None:
    sink.take(turns)
    raise ZeroDivisionError


def test_a_file_grows_by_ends_and_is_left_by_onsets(tmp_path: Path) -> None:
    path = tmp_path / "talk.rttm"
    with RttmFile(path, "talk") as sink:
        assert path.read_text() == ""
        sink.take([SHORT, TurnStart(0.0, "speaker_1")])
        assert path.read_text() == lines(SHORT)
        sink.take([LONG])
        sink.take([LAST])
        assert path.read_text() == lines(SHORT, LONG, LAST)
    assert path.read_text() == lines(LONG, SHORT, LAST)
    assert [path.name for path in tmp_path.iterdir()] == ["talk.rttm"]


def test_an_error_leaves_the_turns_and_no_empty_file(tmp_path: Path) -> None:
    for turns, names in (([SHORT, LONG], ["talk.rttm"]), ([], [])):
        with pytest.raises(ZeroDivisionError), RttmFile(tmp_path / "talk.rttm", "talk") as sink:
            take_and_fail(sink, turns)
        assert [path.name for path in tmp_path.iterdir()] == names
        if names:
            assert (tmp_path / "talk.rttm").read_text() == lines(LONG, SHORT)


def test_a_rewrite_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "talk.rttm"
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left") as caught, RttmFile(path, "talk") as sink:
        sink.take([SHORT, LONG])
    assert caught.value.filename == str(path)
    assert sorted(read_rttm(path)["talk"]) == [LONG, SHORT]
    assert [path.name for path in tmp_path.iterdir()] == ["talk.rttm"]


def test_every_sink_gets_the_events_though_one_fails() -> None:
    class Kept:
        def __init__(self, error: OSError | None) -> None:
            self.events, self.error = [], error

        def take(self, events: object) -> None:
            self.events.append(events)
            if self.error is not None:
                raise self.error

    sinks = [Kept(OSError(1, "first")), Kept(None), Kept(OSError(2, "second"))]
    with pytest.raises(OSError, match="first"):
        deliver(sinks, [SHORT])
    assert [sink.events for sink in sinks] == [[[SHORT]]] * 3


@pytest.mark.parametrize(
    ("sources", "names"),
    [
        (["a/talk.wav", "-"], ["talk", "stdin"]),
        (["a/talk.wav", "a/talk.flac"], ["talk.wav", "talk.flac"]),
        (["a/talk.wav", "b/talk.wav", "b/talk.flac"], ["a_talk", "b_talk", "talk.flac"]),
        (["x.1.wav"], ["x.1"]),
        (["/a/d/talk.wav", "/b/d/talk.wav"], ["a_d_talk.wav", "b_d_talk.wav"]),
        (["stdin.wav", "-"], ["stdin.wav", "stdin"]),
    ],
)
def test_recording_names(sources: list[str], names: list[str]) -> None:
    assert recording_names(sources) == names


def test_names_of_odd_bytes_and_spaces() -> None:
    assert recording_names(["b\udcff.wav"]) == ["b\ufffd"]
    first, second = recording_names(["/a/my talk.wav", "/b/my_talk.wav"])
    assert first.replace(" ", "_") != second


@pytest.mark.parametrize("sources", [["x.wav", "x.wav"], ["x.wav", "./x.wav"], ["-", "-"]])
def test_a_source_given_twice_is_refused(sources: list[str]) -> None:
    with pytest.raises(ValueError, match="is given twice"):
        recording_names(sources)
