"""`diarnorm score` and `diarnorm info`: what they print, and their exit codes."""

import json
from pathlib import Path

import pytest

from diarnorm import cli
from tests.loudness import noise_bursts
from tests.wavbytes import save, wav16


def rttm(path: Path, *turns: tuple[str, float, float]) -> Path:
    """A file with turns (speaker, start, end)."""
    uri = path.stem
    path.write_text("".join(f"SPEAKER {uri} 1 {a} {b - a} <NA> <NA> {who} <NA> <NA>\n" for who, a, b in turns))
    return path


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """References and hypotheses of two recordings."""
    ref, hyp = tmp_path / "ref", tmp_path / "hyp"
    ref.mkdir()
    hyp.mkdir()
    rttm(ref / "one.rttm", ("A", 0, 10), ("B", 10, 20))
    rttm(hyp / "one.rttm", ("x", 0, 10.2), ("y", 10.2, 20))
    rttm(ref / "two.rttm", ("A", 0, 1))
    rttm(hyp / "two.rttm", ("x", 0, 10))
    return ref, hyp


def score(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, str, str]:
    code = cli.main(["score", *map(str, argv)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(("collar", "der"), [("0", "1.00"), ("0.125", "0.38"), ("0.25", "0.00")])
def test_the_collar_is_that_of_nist_and_named(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], collar: str, der: str
) -> None:
    code, out, _ = score(capsys, folders[0] / "one.rttm", folders[1] / "one.rttm", "--collar", collar)
    assert code == 0
    assert f"pooled DER {der} % = miss " in out
    assert f"collar: {collar} s each side" in out


def test_folders_are_scored_per_recording_and_pooled(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = score(capsys, *folders)
    rows = {line.split("|")[1].strip(): line.split("|")[2:] for line in out.splitlines() if line.startswith("| ")}
    assert code == 0
    assert [cell.strip() for cell in rows["two"][:7]] == ["10.00", "1.00", "0.00", "9.00", "0.00", "900.00", "900.00"]
    assert float(rows["pooled (2)"][5]) == pytest.approx(100 * 9.2 / 21, abs=0.01)
    assert float(rows["pooled (2)"][6]) == pytest.approx(100 * 19 / 21, abs=0.01)  # merged: 10 s of the wrong label
    assert "a DER above 100 %" in out
    assert "diarnorm score: no UEM given; scored region: union of the extents" in err


def test_uem_and_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ref = rttm(tmp_path / "a.rttm", ("A", 0, 10), ("B", 5, 15))
    (tmp_path / "hyp").mkdir()
    hyp = rttm(tmp_path / "hyp" / "a.rttm", ("a", 0, 15))
    uem = tmp_path / "a.uem"
    uem.write_text("a 1 0 10\n")
    assert "pooled DER 50.00 %" in score(capsys, ref, hyp)[1]
    assert "pooled DER 33.33 %" in score(capsys, ref, hyp, "--uem", uem)[1]
    code, out, err = score(capsys, ref, hyp, "--skip-overlap", "--uem", uem)
    assert (code, err) == (0, "")
    assert "pooled DER 0.00 %" in out
    assert "region: UEM" in out
    assert "overlap: left out; scored time: 5.00 s" in out


def test_json_has_raw_seconds(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    result = json.loads(score(capsys, *folders, "--json")[1])
    assert result["pooled"]["false_alarm_s"] == pytest.approx(9.0)
    assert result["collar_each_side_s"] == 0.0


def test_a_missing_hypothesis_is_said_and_strict_about(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (folders[1] / "two.rttm").unlink()
    code, _, err = score(capsys, *folders)
    assert code == 0
    assert "two: no hypothesis; all of its speech counts as missed" in err
    assert score(capsys, *folders, "--strict")[0] == 2


def test_bad_files_are_one_sentence(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    ref, hyp = folders
    (hyp / "one.rttm").write_text(
        "SPEAKER one 1 0 1 <NA> <NA> x <NA> <NA>\nSPEAKER one 1 nan 1 <NA> <NA> x <NA> <NA>\n"
    )
    cases = {
        hyp / "one.rttm": f"{hyp / 'one.rttm'}:2: onset must be a number",
        hyp / "absent.rttm": f"{hyp / 'absent.rttm'}: No such file or directory",
        ref.parent: "the folder has no *.rttm files",
    }
    for path, reason in cases.items():
        code, out, err = score(capsys, ref, path)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert reason in err
    rttm(hyp / "three.rttm", ("x", 0, 1))
    code, _, err = score(capsys, ref, hyp / "one.rttm", "--uem", ref / "none.uem")
    assert code == 2


def test_a_silent_recording_of_any_name_is_scored(
    tmp_path: Path, loudness_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = save(tmp_path, wav16(noise_bursts([], 3.0)), "my talk.wav")
    assert cli.main(["stream", "--model", str(loudness_model), str(sound), "--output", str(tmp_path / "out")]) == 0
    ref = tmp_path / "ref.rttm"
    ref.write_text("SPEAKER my_talk 1 0.5 1.0 <NA> <NA> anna <NA> <NA>\n")
    capsys.readouterr()
    code, out, err = score(capsys, ref, tmp_path / "out", "--strict")
    assert code == 0
    assert "pooled DER 100.00 % = miss 1.00 s" in out
    assert "no hypothesis" not in err


def test_info_tells_what_the_file_holds(loudness_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", str(loudness_model)]) == 0
    text = capsys.readouterr().out
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert lines["norm"] == "rms"
    assert lines["chunk"] == "960 ms (trained with 480, 960 ms)"
    assert "dim=32 num_blocks=1" in lines["encoder"]
    assert "num_slots=4" in lines["memory"]
    assert "confirm_frames=5.0" in lines["turns"]
    assert lines["training"] == "hours=0.0 data=none: set by hand"
    assert cli.main(["info", "--json", str(loudness_model)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["norm"], facts["chunks"]) == ("rms", [6, 12])
    assert f"{facts['num_values']} parameters and constants in 54 tensors" == lines["size"]


def test_swapped_arguments_are_noticed(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    ref, hyp = folders
    for name in ("one", "two"):
        (hyp / f"{name}.rttm").write_text(f"SPEAKER {name} 1 0.000 9.000 <NA> <NA> speaker_1 <NA> <NA>\n")
    (hyp / "silent.rttm").write_text("")
    question = "diarnorm score: REF holds turns that diarnorm wrote, HYP does not: are they swapped?"
    assert question in score(capsys, hyp, ref)[2]
    assert question in score(capsys, hyp / "one.rttm", ref / "one.rttm")[2]
    for given in ((ref, hyp), (hyp, hyp), (ref, ref)):
        assert "swapped" not in score(capsys, *given)[2]
