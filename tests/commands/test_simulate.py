"""`diarnorm simulate`: files that agree with one another, the same for the same arguments; mistakes in one sentence."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import yaml

from diarnorm.checkpoint import from_plain
from diarnorm.cli import main
from diarnorm.commands.simulatorfile import read_simulator
from diarnorm.resources import recipes_dir
from diarnorm.rttm import read_rttm, read_uem
from diarnorm.simulation.planner import SimulatorConfig
from tests.commands.test_process import environment, private_memory

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _cache(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(corpus.parent.parent))


def simulate(*arguments: object) -> int:
    return main(["simulate", "synthetic", *map(str, arguments)])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_files_agree_and_depend_on_the_arguments_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--num", 2, "--duration", 12, "--speakers", 2]
    assert simulate("--output", tmp_path / "a", *shape, "--seed", 5) == 0
    out, err = capsys.readouterr()
    assert "| conversations" in out
    assert err.count("\n") == 2
    assert simulate("--output", tmp_path / "b", *shape, "--seed", 5, "--json") == 0
    counted = json.loads(capsys.readouterr().out)["simulated"]
    assert simulate("--output", tmp_path / "c", *shape, "--seed", 6) == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    names = [f"talk_000{i}.{suffix}" for i in (0, 1) for suffix in ("rttm", "uem", "wav")]
    assert list(contents(tmp_path / "a")) == names
    assert contents(tmp_path / "a")["talk_0000.wav"] != contents(tmp_path / "c")["talk_0000.wav"]
    assert counted["num_conversations"] == 2
    assert counted["duration_s"] == 24.0
    for name in ("talk_0000", "talk_0001"):
        samples, rate = soundfile.read(tmp_path / "a" / f"{name}.wav")
        assert (rate, samples.shape) == (16_000, (192_000,))
        turns = read_rttm(tmp_path / "a" / f"{name}.rttm")[name]
        assert read_uem(tmp_path / "a" / f"{name}.uem") == {name: [(0.0, 12.0)]}
        assert max(turn.end for turn in turns) <= 12.0
        power = np.square(samples.reshape(-1, 1280)).mean(1)
        centres = (np.arange(150) + 0.5) * 0.08
        spoken = np.array([any(turn.start < t < turn.end for turn in turns) for t in centres])
        assert power[spoken].mean() > 2 * power[~spoken].mean()


def test_a_silence_is_kept_and_what_was_counted_is_in_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--duration", 60, "--speakers", 4, "--silence", "20:15", "--silence", "50:2.5", "--json"]
    assert simulate("--output", tmp_path, *options) == 0
    counted = json.loads(capsys.readouterr().out)["simulated"]
    turns = read_rttm(tmp_path / "talk_0000.rttm")["talk_0000"]
    for start, end in ((20, 35), (50, 52.5)):
        assert not any(turn.start < end and turn.end > start for turn in turns)
    assert any(turn.start < 20 for turn in turns)
    assert any(35 <= turn.start < 36 for turn in turns)
    assert simulate("--duration", 0.08, "--compare", tmp_path, "--json") == 0
    compared = json.loads(capsys.readouterr().out)["compared"]
    assert compared["speech_share"] == pytest.approx(counted["speech_share"], abs=1e-3)
    assert compared["turn_quantiles_s"] == pytest.approx(counted["turn_quantiles_s"], abs=2e-3)
    assert compared["level_quantiles_db"] == pytest.approx(counted["level_quantiles_db"], abs=0.05)


def test_real_conversations_stand_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.rttm").write_text("SPEAKER x 1 1.0 2.0 <NA> <NA> a <NA> <NA>\n")
    (tmp_path / "x.uem").write_text("x 1 0.0 8.0\n")
    assert simulate("--duration", 8, "--num", 2, "--compare", tmp_path, "--uem", tmp_path / "x.uem") == 0
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["", "simulated", "compared"]
    rows = {line[0]: line[1:] for line in lines}
    assert rows["conversations"] == ["2", "1"]
    assert rows["speech, % of time"][1] == "25.0"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".wav"] == []


def test_noise_rooms_and_a_configuration_are_used(tmp_path: Path, corpus: Path) -> None:
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    response = np.zeros(4000)
    response[[100, 1700, 3300]] = 0.9, 0.5, 0.3
    soundfile.write(rooms / "r.wav", response, 16_000)
    (tmp_path / "clean.yaml").write_text(
        "noise: {quiet_probability: 1.0}\nchannel: {level_db: [-20, -20], eq_db: 0.0, hum_probability: 0, "
        "band_limit_probability: 0, swing_probability: 0, dc_probability: 0, clipping_probability: 0, "
        "mu_law_probability: 0}\nrooms: {dry_probability: 1.0, speaker_eq_probability: 0}\n"
    )
    shape = ["--duration", 10, "--speakers", 2, "--config", tmp_path / "clean.yaml"]
    assert simulate("--output", tmp_path / "dry", *shape) == 0
    assert simulate("--output", tmp_path / "wet", *shape, "--rooms", rooms) == 0
    assert simulate("--output", tmp_path / "noisy", *shape, "--noise", corpus / "dev") == 0
    dry, wet = (soundfile.read(tmp_path / name / "talk_0000.wav")[0] for name in ("dry", "wet"))
    expected = np.convolve(dry, response[100:])[: len(dry)]
    assert np.corrcoef(expected, wet)[0, 1] > 0.99
    assert np.corrcoef(dry, wet)[0, 1] < 0.95
    assert contents(tmp_path / "dry")["talk_0000.rttm"] == contents(tmp_path / "wet")["talk_0000.rttm"]


def test_a_recipe_is_a_configuration(tmp_path: Path) -> None:
    """All of `data.simulator`, nothing else of it, and no less than the same keys in a file of their own."""
    recipe = recipes_dir() / "base" / "recipe.yaml"
    keys = yaml.safe_load(recipe.read_text("utf-8"))["data"]["simulator"]
    (tmp_path / "keys.yaml").write_text(yaml.safe_dump(keys), "utf-8")
    config = read_simulator(recipe)
    assert config == read_simulator(tmp_path / "keys.yaml")
    assert config == from_plain(SimulatorConfig, keys)
    assert config.turns.long_silence_s == (2.0, 12.0)
    assert config.speaker_probabilities == SimulatorConfig().speaker_probabilities
    shape = ["--duration", 5, "--config"]
    assert simulate("--output", tmp_path / "a", *shape, recipe) == 0
    assert simulate("--output", tmp_path / "b", *shape, tmp_path / "keys.yaml") == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize("text", ["", "data: {speech: x}", "data: {}"])
def test_a_file_that_changes_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    assert read_simulator(tmp_path / "c.yaml") == SimulatorConfig()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "the following arguments are required: SPEECH"),
        (["synthetic"], "give --output DIR, --compare RTTM, or both"),
        (["nosuch", "--output", "o"], "SPEECH nosuch does not exist"),
        (["synthetic", "--output", "o", "--uem", "x"], "--uem belongs to --compare"),
        (["synthetic", "--output", "o", "--noise", "nosuch"], "--noise nosuch does not exist"),
        (["synthetic", "--output", "o", "--rooms", "nosuch"], "--rooms nosuch does not exist"),
        (["synthetic", "--output", "o", "--duration", "0"], "0 is out of range: give seconds from 0.08 to 129600"),
        (["synthetic", "--output", "o", "--duration", "nan"], "nan is out of range"),
        (["synthetic", "--output", "o", "--speakers", "4-2"], "4-2 goes down: give the smaller number first"),
        (["synthetic", "--output", "o", "--speakers", "few"], "'few' is not a whole number"),
        (["synthetic", "--output", "o", "--silence", "5"], "5 is no START:LENGTH in seconds, as 1500:600"),
        (["synthetic", "--output", "o", "--silence", "5:x"], "'x' is not a number"),
        (["synthetic", "--output", "o", "--silence", "50:20"], "--silence 50:20 ends after --duration 60"),
        (["synthetic", "--output", "o", "--sed", "1"], "unknown option --sed 1; did you mean --seed?"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_later_mistakes_are_one_sentence_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "talk_0000.rttm").write_text("")
    assert simulate("--output", tmp_path) == 2
    assert "talk_0000.rttm exists: choose another --output, or remove it" in capsys.readouterr().err
    assert simulate("--output", tmp_path / "o", "--speakers", 9) == 2
    assert "num_speakers is 9; the speech allows 1 to 8" in capsys.readouterr().err
    config = tmp_path / "c.yaml"
    for text, sentence in (
        ("nois: {}", "nois is no key of data.simulator; did you mean noise?"),
        ("noise: {snr_dbs: 3}", "noise.snr_dbs is no key of data.simulator; did you mean snr_db?"),
        ("data: {simulator: {nois: {}}}", "nois is no key of data.simulator"),
        ("close_gap_s: much", "close_gap_s: Value 'much' of type 'str' could not be converted to Float"),
        ("noise: 3", "int is not a subclass of NoiseConfig"),
        (
            "noise: {snr_db: [1, 2, 3]}",
            "data.simulator.noise.snr_db=[1.0, 2.0, 3.0] is no range: give [LOW,HIGH] in dB",
        ),
        ("turns: {turn_median_s: 0}", "data.simulator.turns.turn_median_s=0.0 is out of range: give a number above 0"),
        ("data: {simulator: {pad_s: -1}}", "data.simulator.pad_s=-1.0 is out of range"),
        ("data: {simulator: 3}", "c.yaml: it has no keys"),
        ("3", "c.yaml: "),
        ("{", "c.yaml"),
        ("- 3", "c.yaml: it has no keys"),
        ("same_person: [anna]", "give two speakers' names"),
    ):
        config.write_text(text)
        assert simulate("--output", tmp_path / "o", "--config", config) == 2
        err = capsys.readouterr().err
        assert sentence in err
        assert err.count("\n") == 1
    assert not list((tmp_path / "o").iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_an_hour_takes_the_memory_of_minutes(tmp_path: Path) -> None:
    peaks = []
    for duration_s in (120, 3600):
        options = ["--duration", str(duration_s), "--speakers", "4", "--output", str(tmp_path / str(duration_s))]
        options += ["--silence", f"{0.4 * duration_s}:{duration_s / 6}"]
        command = [sys.executable, "-m", "diarnorm", "simulate", "synthetic", *options]
        memory = [0]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
            while run.poll() is None:
                try:
                    memory.append(private_memory(run.pid))
                except (OSError, StopIteration):  # it has just ended
                    break
        assert run.returncode == 0
        peaks.append(max(memory))
    assert peaks[1] - peaks[0] < 50e6
    turns = read_rttm(tmp_path / "3600" / "talk_0000.rttm")["talk_0000"]
    assert len({turn.speaker for turn in turns if turn.end <= 1440}) == 4
    assert len({turn.speaker for turn in turns if turn.start >= 2040}) == 4
    assert not any(turn.end > 1440 and turn.start < 2040 for turn in turns)
    assert soundfile.info(tmp_path / "3600" / "talk_0000.wav").frames == 3600 * 16_000
