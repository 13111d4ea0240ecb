"""Sets of recordings by lists: text files of paths, and patterns for the names that a file holds."""

import re
import shutil
from pathlib import Path

import pytest

from diarnorm.evaluation.recordings import RecordingSet, read_set
from diarnorm.evaluation.sources import parse_source
from tests.evalset import REFERENCES, save_set, turns


def read(folder: Path, given: object, key: str | None = None) -> RecordingSet:
    return read_set("s", parse_source("s", given, key), folder, key=key)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Audio, references and regions in trees of their own, file names that are not those of the references."""
    save_set(tmp_path / "set", ["a_one", "a_two", "b_one"])
    for name in ("a_one", "a_two", "b_one"):
        audio = tmp_path / "audio" / name / f"{name}.Mix-Headset.wav"
        audio.parent.mkdir(parents=True)
        shutil.move(tmp_path / "set" / f"{name}.wav", audio)
        (tmp_path / "uems").mkdir(exist_ok=True)
        (tmp_path / "uems" / f"{name}.uem").write_text(f"{name} 1 0.5 3.0\n")
    (tmp_path / "names.txt").write_text("b_one\r\n\r\n  a_two\nb_one\n")
    return tmp_path


PATTERNS = {
    "names": "names.txt",
    "audio": "audio/{uri}/{uri}.Mix-Headset.wav",
    "rttm": "set/{uri}.rttm",
    "uem": "uems/{uri}.uem",
}


@pytest.mark.parametrize("changes", [{}, {"rttm": "set"}])
def test_patterns_find_what_belongs_to_each_name(folder: Path, changes: dict[str, str]) -> None:
    found = read(folder, PATTERNS | changes)
    assert [recording.name for recording in found.recordings] == ["a_two", "b_one"]
    for recording in found.recordings:
        assert recording.audio == folder / "audio" / recording.name / f"{recording.name}.Mix-Headset.wav"
        assert list(recording.reference) == turns(REFERENCES[recording.name])
        assert recording.region == ((0.5, 3.0),)
    assert (found.region, found.notes) == ("UEM", ())


def test_one_file_of_references_for_all_names(folder: Path) -> None:
    text = "".join((folder / "set" / f"{name}.rttm").read_text() for name in ("a_one", "a_two", "b_one"))
    (folder / "all.rttm").write_text(text)
    found = read(folder, PATTERNS | {"rttm": "all.rttm"})
    assert [len(recording.reference) for recording in found.recordings] == [2, 1]


@pytest.mark.parametrize(("part", "ending"), [("rttm", "set/{}.rttm"), ("uem", "uems/{}.uem")])
def test_a_file_about_others_is_refused(folder: Path, part: str, ending: str) -> None:
    """Not silence, nor time that is not scored: somebody put the wrong file there."""
    files = {name: folder / ending.format(name) for name in ("a_one", "a_two", "b_one")}
    others = "".join(files[name].read_text() for name in ("a_one", "a_two"))
    files["b_one"].write_text(others)
    sentence = f"{files['b_one']} is not about b_one but about a_one, a_two: give the file of b_one"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read(folder, PATTERNS)
    own = "SPEAKER b_one 1 2 1 <NA> <NA> x <NA> <NA>\n" if part == "rttm" else "b_one 1 2 3\n"
    files["b_one"].write_text(others + own)
    found = read(folder, PATTERNS).recordings[1]
    spans = [(turn.start, turn.end) for turn in found.reference] if part == "rttm" else list(found.region or ())
    assert spans == [(2.0, 3.0)]


def test_an_empty_file_leaves_a_recording_silent(folder: Path) -> None:
    (folder / "set" / "b_one.rttm").write_text("")
    a_two, b_one = read(folder, PATTERNS).recordings
    assert (len(a_two.reference), b_one.reference) == (2, ())


def test_a_text_file_lists_recordings_relative_to_itself(folder: Path) -> None:
    (folder / "lists").mkdir()
    save_set(folder / "plain", ["a_one", "b_two"])
    (folder / "lists" / "few.txt").write_text("../plain/b_two.wav\n")
    found = read(folder, "lists/few.txt")
    assert [recording.name for recording in found.recordings] == ["b_two"]
    assert found.recordings[0].audio is not None
    assert found.recordings[0].audio.samefile(folder / "plain" / "b_two.wav")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"audio": "audio/{uri}.wav"}, "has a pattern, audio/{uri}.wav: give a file of names as KEY.names=FILE"),
        (
            {"audio": "audio", "names": "names.txt"},
            "KEY.names needs a pattern: give one path with {uri} in it as KEY.audio",
        ),
        (PATTERNS | {"names": "no.txt"}, "KEY.names: {folder}/no.txt does not exist"),
        (PATTERNS | {"audio": "{uri}.wav"}, "KEY: {folder}/b_one.wav does not exist"),
        (PATTERNS | {"rttm": "rttms/{uri}.rttm"}, "KEY.rttm: {folder}/rttms/b_one.rttm does not exist"),
        (PATTERNS | {"uem": "{uri}.uem"}, "KEY.uem: {folder}/b_one.uem does not exist"),
        ({"audoi": "x"}, "KEY.audoi is no key of a set; did you mean audio?"),
    ],
)
@pytest.mark.parametrize("key", [None, "data.recordings.train"])
def test_mistakes_name_the_key(folder: Path, given: object, message: str, key: str | None) -> None:
    expected = message.replace("KEY", key or "sets.s").replace("{folder}", str(folder))
    with pytest.raises(ValueError, match=re.escape(expected)):
        read(folder, given, key)


def test_a_list_that_names_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "few.txt").write_text("gone.wav\n")
    with pytest.raises(ValueError, match=r"few.txt: .*gone.wav does not exist"):
        read(tmp_path, "few.txt")
