"""RTTM and UEM: what others write is read, what is wrong is named with its line, what is written is legal."""

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diarnorm import rttm
from diarnorm.rttm import RttmError, format_turn, legal_name, read_rttm, read_uem, write_rttm
from diarnorm.turns import Turn

MESSY = (
    "\ufeff;; made by hand\r\n"
    "SPKR-INFO talk 1 <NA> <NA> <NA> unknown MOT* <NA>\r\n"
    "SPEAKER\ttalk\t1\t0.50\t1.25\t<NA>\t<NA>\tMOT*\t<NA>\t<NA>\r\n"
    "\r\n"
    "  SPEAKER talk 1 2 .5 <NA> <NA> Zoë_日本 <NA>\r\n"
    "LEXEME talk 1 2.0 0.2 hello lex MOT* 0.9\r\n"
    "SPEAKER other 1   3.000   1e0 <NA> <NA> B <NA> 0.93  \r\n"
)
LINE = "SPEAKER talk 1 {onset} {duration} <NA> <NA> A <NA> <NA>\n"


def write(folder: Path, content: str | bytes, name: str = "x.rttm") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_reads_what_others_write(tmp_path: Path) -> None:
    assert read_rttm(write(tmp_path, MESSY)) == {
        "talk": [Turn(0.5, 1.75, "MOT*"), Turn(2.0, 2.5, "Zoë_日本")],
        "other": [Turn(3.0, 4.0, "B")],
    }


@pytest.mark.parametrize("content", ["", "\n\n", ";; nothing\n", "\ufeff"])
def test_an_empty_file_has_no_recordings(tmp_path: Path, content: str) -> None:
    assert read_rttm(write(tmp_path, content)) == {}


def test_turns_of_zero_duration_are_left_out_and_counted(tmp_path: Path) -> None:
    notes: list[str] = []
    path = write(tmp_path, LINE.format(onset="1.0", duration="0.000") * 2)
    assert read_rttm(path, notes) == {"talk": []}
    assert notes == [f"{path.name}: 2 of the turns have zero duration and were left out"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (LINE.format(onset="nan", duration="1"), "onset must be a number of seconds, 0 or more, got 'nan'"),
        (LINE.format(onset="inf", duration="1"), "onset must be"),
        (LINE.format(onset="-0.5", duration="1"), "onset must be"),
        (LINE.format(onset="1_0", duration="1"), "onset must be"),
        (LINE.format(onset="1", duration="-1.0"), "duration must be .* got '-1.0'"),
        (LINE.format(onset="1", duration="long"), "duration must be .* got 'long'"),
        (LINE.format(onset="1,5", duration="1"), "onset must be .* got '1,5'"),
        ("SPEAKER talk 1 0.0\n", "9 or 10 fields, got 4"),
        ("SPEAKER my talk 1 0 1 <NA> <NA> A <NA> <NA>\n", "got 11; names must be free of spaces"),
        ("<!DOCTYPE html>\n", "'<!DOCTYPE' is no RTTM line type"),
        (b"SPEAKER caf\xe9 1 0 1 <NA> <NA> A <NA> <NA>\n", "not UTF-8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str | bytes, message: str) -> None:
    good = LINE.format(onset="0", duration="1").encode()
    path = write(tmp_path, good * 5 + b"\n" + (line if isinstance(line, bytes) else line.encode()) + good)
    with pytest.raises(RttmError, match=message) as caught:
        read_rttm(path)
    assert f"{path}:7: " in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_reads_uem(tmp_path: Path) -> None:
    content = "\ufefftalk\t1\t0.00\t30.5\r\n;; a comment\r\n\r\nother 1 1 2\ntalk 1 40 50\n"
    assert read_uem(write(tmp_path, content, "x.uem")) == {
        "talk": [(0.0, 30.5), (40.0, 50.0)],
        "other": [(1.0, 2.0)],
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("talk 1 0\n", "`recording channel start end`, got 3 fields"),
        ("talk 1 5 5\n", "the end 5 must come after the start 5"),
        ("talk 1 x 5\n", "start must be"),
    ],
)
def test_a_wrong_uem_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, "talk 1 0 1\n" + line, "x.uem")
    with pytest.raises(RttmError, match=message) as caught:
        read_uem(path)
    assert f"{path}:2: " in str(caught.value)


def test_writes_lines_in_the_given_order() -> None:
    file = io.StringIO()
    write_rttm([Turn(2.0, 3.04, "speaker_2"), Turn(0.0, 36000.08, "speaker_1")], "talk", file)
    assert file.getvalue() == (
        "SPEAKER talk 1 2.000 1.040 <NA> <NA> speaker_2 <NA> <NA>\n"
        "SPEAKER talk 1 0.000 36000.080 <NA> <NA> speaker_1 <NA> <NA>\n"
    )


def test_names_with_spaces_become_legal(tmp_path: Path) -> None:
    line = format_turn(Turn(0, 1, "Ann\u00a0B."), "my \t talk\n")
    assert read_rttm(write(tmp_path, line)) == {"my_talk_": [Turn(0, 1, "Ann_B.")]}
    assert legal_name("") == "_"


def check_written_time(start_samples: int, length_samples: int) -> None:
    end_s = (start_samples + length_samples) / 16000
    fields = format_turn(Turn(start_samples / 16000, end_s, "a"), "x").split()
    onset, duration = float(fields[3]), float(fields[4])
    assert len(fields) == 10
    assert duration >= 0.001
    assert onset >= 0
    assert abs(onset - start_samples / 16000) < (0.001001 if length_samples >= 16 else 0.002001)
    if length_samples >= 16 and start_samples % 16 == 0:
        assert end_s - 0.001 < round(onset + duration, 3) <= end_s + 1e-9


@given(st.integers(0, 600_000_000), st.integers(1, 5_000_000))
def test_times_have_three_decimals_a_length_and_stay_before_the_end(start: int, length: int) -> None:
    check_written_time(start, length)
    check_written_time(start - start % 1280, length)


def test_rounded_times_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rttm, "milliseconds", lambda seconds: round(seconds * 1000))
    with pytest.raises(AssertionError):
        check_written_time(1280, 41)  # ends at 82.5625 ms


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    turns = [Turn(0.08 * n, 0.08 * n + 0.24, f"speaker_{n % 3}") for n in range(1000)]
    file = io.StringIO()
    write_rttm(turns, "talk", file)
    found = read_rttm(write(tmp_path, file.getvalue()))["talk"]
    assert [(round(t.start, 6), round(t.end, 6), t.speaker) for t in turns] == [
        (t.start, t.end, t.speaker) for t in found
    ]
