"""Sets of recordings: what is found in a folder, which reference belongs to which, what is scored."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from diarnorm.evaluation.recordings import RecordingSet, measure_s, read_set
from diarnorm.evaluation.sources import parse_source
from diarnorm.turns import Turn
from tests.evalset import REFERENCES, duration_of, save_rttm, save_set, turns


def read(folder: Path, given: object = None, *, needs_audio: bool = True) -> RecordingSet:
    return read_set("s", parse_source("s", str(folder) if given is None else given), folder, needs_audio=needs_audio)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_set(tmp_path / "set")


def test_a_folder_holds_recordings_beside_references(folder: Path) -> None:
    found = read(folder)
    assert [recording.name for recording in found.recordings] == sorted(REFERENCES)
    for recording in found.recordings:
        assert recording.audio == folder / f"{recording.name}.wav"
        assert list(recording.reference) == turns(REFERENCES[recording.name])
        assert recording.duration_s == pytest.approx(duration_of(REFERENCES[recording.name]))
        assert recording.region is None
    assert (found.region, found.notes) == ("each recording from its start to its end", ())


@pytest.mark.parametrize("ending", ["flac", "ogg", "opus", "mp3", "WAV"])
def test_any_format_has_its_length(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x.{ending}"
    kind = {"opus": "OGG", "ogg": "OGG", "WAV": "WAV"}.get(ending, ending.upper())
    coding = {"opus": "OPUS", "ogg": "VORBIS"}.get(ending)
    soundfile.write(path, np.zeros(24_000), 16_000, format=kind, subtype=coding)
    save_rttm(tmp_path / "x.rttm", [("a", 0, 1)])
    (recording,) = read(tmp_path).recordings
    assert recording.duration_s == pytest.approx(1.5, abs=0.1 if ending == "mp3" else 1e-9)
    assert measure_s(path) == recording.duration_s


def test_one_file_may_speak_of_all_recordings(folder: Path) -> None:
    for uri in REFERENCES:
        (folder / f"{uri}.rttm").unlink()
    lines = [f"SPEAKER {uri} 1 0 1 <NA> <NA> x <NA> <NA>\n" for uri in REFERENCES]
    (folder / "all.rttm").write_text("".join(lines))
    assert {recording.name: recording.reference for recording in read(folder).recordings} == {
        uri: (Turn(0, 1, "x"),) for uri in REFERENCES
    }


def test_a_file_beside_a_recording_is_about_it_whatever_it_calls_it(tmp_path: Path) -> None:
    folder = save_set(tmp_path / "set", ["a_one"])
    save_rttm(folder / "a_one.rttm", [("x", 0, 1)], uri="somebody_else")
    (folder / "a_one.uem").write_text("another 1 0.5 2\n")
    (recording,) = read(folder).recordings
    assert (recording.name, recording.reference) == ("a_one", (Turn(0, 1, "x"),))
    assert recording.region == ((0.5, 2.0),)


def test_a_list_of_files_and_folders(folder: Path, tmp_path: Path) -> None:
    other = save_set(tmp_path / "other", ["a_one"])
    (other / "a_one.wav").rename(other / "new.wav")
    (other / "a_one.rttm").rename(other / "new.rttm")
    found = read(tmp_path, ["set/a_two.wav", "other"])
    assert [recording.name for recording in found.recordings] == ["a_two", "new"]
    assert found.recordings[1].audio == other / "new.wav"


def test_references_and_regions_may_lie_elsewhere(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "ref").mkdir()
    for path in folder.glob("*.rttm"):
        path.rename(tmp_path / "ref" / path.name)
    (tmp_path / "x.uem").write_text("a_one 1 0 2\na_one 1 3 4\nb_one 1 0 3\n")
    found = read(tmp_path, {"audio": "set", "rttm": "ref", "uem": "x.uem"})
    assert {recording.name: recording.region for recording in found.recordings} == {
        "a_one": ((0.0, 2.0), (3.0, 4.0)),
        "b_one": ((0.0, 3.0),),
    }
    assert found.region == "UEM"
    assert [note for note in found.notes if "not in the UEM" in note] == [
        f"{uri}: not in the UEM, not scored" for uri in ("a_two", "b_silent", "b_two")
    ]
    with_region = read(tmp_path, {"audio": ["set"], "rttm": "ref", "region_s": [0, 2.5]})
    assert {recording.region for recording in with_region.recordings} == {((0.0, 2.5),)}
    assert with_region.region == "0 to 2.5 s"


def test_what_is_left_out_is_said(folder: Path) -> None:
    (folder / "a_one.rttm").unlink()
    save_rttm(folder / "a_two.rttm", [("x", 0, 9)])
    found = read(folder)
    assert "a_one" not in [recording.name for recording in found.recordings]
    assert found.notes == ("a_two: the reference has turns after the end (4.000 s)", "a_one: no reference, not scored")
    (folder / "all.uem").write_text("a_one 1 0 2\na_two 1 0 2\n")
    found = read(folder)
    assert (found.recordings[0].name, found.recordings[0].reference) == ("a_one", ())
    assert "a_one: in the UEM but without a reference, taken as silent" in found.notes


def test_references_elsewhere_have_one_file_each(folder: Path, tmp_path: Path) -> None:
    """Two about the same recording, whichever name they have, would be two references for one."""
    for path in folder.glob("*.rttm"):
        (tmp_path / "ref").mkdir(exist_ok=True)
        path.rename(tmp_path / "ref" / path.name)
    given = {"audio": "set", "rttm": "ref"}
    assert len(read(tmp_path, given).recordings) == len(REFERENCES)
    _twice(tmp_path / "ref")
    with pytest.raises(ValueError, match=r"ref/copy.rttm and a_one.rttm are both about a_one: remove one"):
        read(tmp_path, given)


def test_a_region_ends_with_its_recording(tmp_path: Path) -> None:
    """What a UEM says beyond the end is not there to be scored; times in files are rounded to milliseconds."""
    folder = save_set(tmp_path / "set", ["a_one", "a_two", "b_one"])  # 5.5, 4 and 4 s
    spans = ["a_one 1 0.5 2", "a_one 1 4 3600", "a_one 1 7000 8000", "a_two 1 0 4.001", "b_one 1 5 6"]
    (folder / "all.uem").write_text("\n".join(spans))
    found = read(folder)
    assert [(each.name, each.region) for each in found.recordings] == [
        ("a_one", ((0.5, 2.0), (4.0, 5.5))),
        ("a_two", ((0.0, 4.001),)),
        ("b_one", ()),
    ]
    assert found.notes == (
        "a_one: the region goes on after the end (5.500 s) and is cut there",
        "b_one: the region goes on after the end (4.000 s) and is cut there",
    )


def test_a_list_that_is_no_text_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes("a_öne".encode("latin-1"))
    with pytest.raises(ValueError, match=r"names\.txt is no text in UTF-8: give a file with one name or path per line"):
        read(tmp_path, "names.txt")
    with pytest.raises(ValueError, match=r"set is a folder: give a text file with one name or path per line"):
        read(tmp_path, {"audio": "set/{uri}.wav", "names": "set"})


def test_notes_are_the_same_wherever_the_files_lie(tmp_path: Path) -> None:
    """Machines that see the same files under other paths take the same notes, so that their shards fit together."""
    notes = []
    for place in ("one", "two"):
        folder = save_set(tmp_path / place / "set", ["a_one"])
        with (folder / "a_one.rttm").open("a") as file:
            file.write("SPEAKER a_one 1 0.5 0 <NA> <NA> x <NA> <NA>\n")
        notes.append(read(folder).notes)
    assert notes[0] == notes[1] == ("a_one.rttm: 1 of the turns have zero duration and were left out",)


def test_hypotheses_can_be_scored_without_recordings(folder: Path) -> None:
    for path in folder.glob("*.wav"):
        path.unlink()
    found = read(folder, needs_audio=False)
    assert [recording.duration_s for recording in found.recordings] == [None] * 5
    assert found.region == "union of the extents of reference and hypothesis"
    assert found.notes[-1] == "no UEM given; scored region: union of the extents of reference and hypothesis"


def _two_formats(folder: Path) -> None:
    save_set(folder, ["a_one"], "flac")


def _no_audio(folder: Path) -> None:
    (folder / "a_one.wav").unlink()


def _text(folder: Path) -> None:
    (folder / "a_one.wav").write_text("not a recording\n" * 100)


def _bad_rttm(folder: Path) -> None:
    (folder / "a_one.rttm").write_text("SPEAKER a_one 1 nan 1 <NA> <NA> x <NA> <NA>\n")


def _no_references(folder: Path) -> None:
    for path in folder.glob("*.rttm"):
        path.unlink()


def _twice(folder: Path) -> None:
    save_rttm(folder / "copy.rttm", [("x", 0, 1)], uri="a_one")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_two_formats, "a_one.flac and .*a_one.wav have the same name"),
        (_no_audio, "sets.s: the reference a_one has no recording of that name"),
        (_text, "a_one.wav: looks like"),
        (_bad_rttm, "a_one.rttm:1: onset must be a number"),
        (_no_references, "sets.s: nothing to score, no recording has a reference"),
        (_twice, "set/copy.rttm and a_one.rttm are both about a_one: remove one"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, spoil: Callable[[Path], None], reason: str) -> None:
    spoil(folder)
    with pytest.raises(ValueError, match=reason):
        read(folder)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"sets.s: {tmp_path}/x does not exist"):
        read(tmp_path, "x")
