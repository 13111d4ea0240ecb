"""`diarnorm corrupt`: files, what is said, mistakes in one sentence."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from diarnorm.audio.reader import read_mono
from diarnorm.cli import main
from diarnorm.robustness.corruption import Sound, catalogue, corrupt, parse
from diarnorm.rttm import read_rttm
from tests.robustness.talk import talk

pytestmark = pytest.mark.usefixtures("one_thread")

RTTM = "SPEAKER talk 1 {:.3f} {:.3f} <NA> <NA> {} <NA> <NA>\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a recording in 16 bits and its reference."""
    soundfile.write(tmp_path / "talk.wav", talk().samples, 16_000, subtype="PCM_16")
    lines = [RTTM.format(turn.start, turn.duration, turn.speaker) for turn in talk().turns]
    (tmp_path / "talk.rttm").write_text("".join(lines), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> int:
    return main(["corrupt", *words])


def test_the_file_holds_what_the_library_makes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["loudness.swing=12", "silence.middle=10", "burst.slam=mild", "noise.white=inf"]
    assert run("talk.wav", "out.wav", *words, "--seed", "3", "--rttm", "talk.rttm", "--rttm-out", "out.rttm") == 0
    out, err = capsys.readouterr()
    samples, rate = soundfile.read("out.wav", dtype="float32")
    clean, _ = soundfile.read("talk.wav", dtype="float32")
    turns = tuple(read_rttm("talk.rttm")["talk"])
    expected = corrupt(Sound(clean, turns), parse(words), 3)
    assert (rate, soundfile.info("out.wav").subtype, soundfile.info("out.wav").channels) == (16_000, "FLOAT", 1)
    np.testing.assert_array_equal(samples, expected.samples)
    found = read_rttm("out.rttm")["out"]
    assert [turn.speaker for turn in found] == [turn.speaker for turn in expected.turns]
    np.testing.assert_allclose(
        [(turn.start, turn.end) for turn in found], [(t.start, t.end) for t in expected.turns], atol=2.1e-3
    )
    assert found[-1].end > 20
    assert out == ""
    lines = err.splitlines()
    assert lines[0].startswith("talk.wav: 12.000 s, active speech level -27.")
    assert lines[1] == "  loudness.swing=12: gain of +12 and -12 dB, changing every 2 s"
    assert lines[2] == "  silence.middle=10: 10 s of digital zeros put in the middle"
    assert "RMS over its length 0 dB above" in lines[3]
    assert lines[4] == "  noise.white=inf: changes nothing"
    assert lines[5].startswith("out.wav: 22.000 s, active speech level")
    assert lines[5].endswith(", 32-bit float")
    assert "changed at " in lines[6]
    assert lines[7] == f"out.rttm: {len(found)} turns"
    assert sorted(path.name for path in folder.iterdir()) == ["out.rttm", "out.wav", "talk.rttm", "talk.wav"]


def test_the_same_arguments_give_the_same_file(folder: Path) -> None:
    for name in ("a", "b"):
        assert run("talk.wav", f"{name}.wav", "noise.pink=10", "damage.dropouts=strong") == 0
    assert run("talk.wav", "c.wav", "noise.pink=10", "damage.dropouts=strong", "--seed", "1") == 0
    contents = [(folder / f"{name}.wav").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]
    assert b"PEAK" not in contents[0][:200]  # holds the time of day


@pytest.mark.parametrize(
    ("word", "subtype"),
    [
        ("silence.gaps=2", "PCM_16"),
        ("loudness.gain_int16=20", "PCM_16"),
        ("loudness.gain=0", "PCM_16"),
        ("loudness.gain=-0.5", "FLOAT"),
        ("loudness.gain=40", "FLOAT"),
        ("damage.nan=10", "FLOAT"),
        ("damage.inf=10", "FLOAT"),
    ],
)
def test_16_bits_where_nothing_is_lost(word: str, subtype: str, folder: Path) -> None:
    assert run("talk.wav", "out.wav", word) == 0
    assert soundfile.info("out.wav").subtype == subtype
    clean, _ = soundfile.read("talk.wav", dtype="float32")
    samples, _ = soundfile.read("out.wav", dtype="float32")
    np.testing.assert_array_equal(samples, corrupt(Sound(clean), parse([word]), 0).samples)


def test_any_format_rate_and_number_of_channels_goes_in(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = np.stack([talk().samples[::2], talk().samples[::2]], axis=1)
    soundfile.write("phone.flac", both, 8000)
    assert run("phone.flac", "out.wav", "silence.end=1") == 0
    samples, warnings = read_mono("phone.flac")
    assert warnings
    assert f"phone.flac: {warnings[0]}" in capsys.readouterr().err
    written, _ = soundfile.read("out.wav", dtype="float32")
    np.testing.assert_array_equal(written[: 12 * 16_000], samples)
    assert len(written) == 13 * 16_000


def test_which_reference_is_meant(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = "SPEAKER other 1 1.0 2.0 <NA> <NA> x <NA> <NA>\n"
    (folder / "two.rttm").write_text(other + (folder / "talk.rttm").read_text("utf-8"), "utf-8")
    (folder / "third.wav").write_bytes((folder / "talk.wav").read_bytes())
    assert run("talk.wav", "a.wav", "loudness.speaker=20", "--rttm", "two.rttm") == 0
    assert run("third.wav", "b.wav", "loudness.speaker=20", "--rttm", "talk.rttm") == 0  # the only one there is
    assert (folder / "a.wav").read_bytes() == (folder / "b.wav").read_bytes()
    assert run("third.wav", "c.wav", "loudness.speaker=20", "--rttm", "two.rttm") == 2
    assert "two.rttm has no recording third, but other, talk: give a file about one" in capsys.readouterr().err
    assert run("talk.wav", "d.wav", "silence.start=1", "--rttm", "talk.rttm") == 0
    assert "turns have moved: --rttm-out FILE writes them" in capsys.readouterr().err


def test_a_list_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [item.name for item in catalogue()]
    rows = {line.split()[0]: line for line in lines}
    assert " dB " in rows["loudness.swing"]
    assert " 6/12/20 " in rows["loudness.swing"]
    assert rows["loudness.turns"].endswith("(needs --rttm)")
    assert rows["features.scale"].endswith("(not in files)")
    assert err == ""


def test_a_list_needs_no_torch() -> None:
    code = (
        "import sys; from diarnorm.cli import main; code = main(['corrupt', '--list']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    root = Path(__file__).resolve().parent.parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["out.wav", "silence.start"], "silence.start has no severity: write silence.start=10 (s; mild 1, medium 10"),
        (["out.wav", "silence.start=x"], "silence.start=x is no number: give one in s"),
        (["out.wav", "features.offset=1"], "features.offset=1 changes log-mel frames, which no WAV file holds"),
        (["out.wav", "loudness.turns=6"], "loudness.turns=6 needs to know who speaks when"),
        (["out.wav", "damage.nan=6", "room.reverb=0.3"], "room.reverb=0.3 needs samples that are finite"),
        (["talk.wav", "dc.offset=0.1"], "talk.wav exists: choose another name, or remove it"),
        (["no/out.wav", "dc.offset=0.1"], "no/out.wav cannot be written: there is no folder no"),
        (["out.wav", "dc.offset=0.1", "--rttm", "no.rttm"], "no.rttm: No such file"),
        (["out.wav", "dc.offset=0.1", "--rttm", "talk.rttm", "--rttm-out", "talk.rttm"], "talk.rttm exists: choose"),
        (["out.wav", "dc.offset=0.1", "--rttm", "talk.rttm", "--rttm-out", "./out.wav"], "--rttm-out ./out.wav is OUT"),
        (["out.wav", "dc.offset=0.1", "--sed", "3"], "unknown option --sed"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("talk.wav", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1
    assert not (folder / "out.wav").exists()


def test_a_name_with_a_dash_goes_after_two(folder: Path) -> None:
    (folder / "talk.wav").rename(folder / "-talk.wav")
    assert run("--seed", "2", "--", "-talk.wav", "-out.wav", "dc.offset=0.5") == 0
    assert (folder / "-out.wav").exists()
