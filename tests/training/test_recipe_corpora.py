"""Recipes for corpora on disk, from one end to the other, on stand-ins that are laid out just as those are."""

import re
import shlex
import time
from pathlib import Path

import pytest
import torch

from diarnorm.checkpoint import load_checkpoint
from diarnorm.cli import main
from diarnorm.modelfile import read_header
from diarnorm.resources import model_path, recipes_dir
from diarnorm.rttm import read_rttm
from diarnorm.simulation.speech import Speech, load_speech
from tests.standins import write_ami, write_librispeech, write_recordings

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["model.encoder.dim=32", "model.encoder.num_blocks=1", "model.encoder.num_heads=2", "model.memory.dim=32"]
SMALL += ["model.memory.num_layers=1", "model.memory.embedding_dim=16"]
SHORT = ["train.num_steps=2", "train.eval_every=2", "train.dev_conversations=1", "train.dev_duration_s=4"]
SHORT += ["train.tune_conversations=1", "train.tune_duration_s=4", "train.workers=0"]


def stages(max_speakers: int) -> str:
    return (
        f"data.stages=[{{crop_s: 4.0, batch_size: 2, max_speakers: {max_speakers}, speaker_probabilities: [0.5, 0.5]}}]"
    )


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def speech(corpus: Path) -> Speech:
    return load_speech(corpus, split="train", cache_dir=corpus.parent)


@pytest.fixture(scope="module")
def dev_speech(corpus: Path) -> Speech:
    return load_speech(corpus, split="dev", cache_dir=corpus.parent)


def saved(run: str) -> dict:
    return torch.load(next(Path("runs", run).rglob("last.pt")), weights_only=True)


def command_of(recipe: str, command: str = "train") -> list[str]:
    """The first `diarnorm train`, or another command, of a recipe's README, as a shell reads it."""
    text = (recipes_dir() / recipe / "README.md").read_text("utf-8")
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    line = next(line for block in blocks for line in block.splitlines() if line.startswith(f"diarnorm {command}"))
    return shlex.split(line)[1:]


def test_librispeech_as_it_unpacks() -> None:
    write_librispeech(Path.cwd())
    words = [*SMALL, *SHORT, "train.tune_rounds=0", stages(2), "hydra.run.dir=runs/librispeech"]
    assert main([*command_of("librispeech"), *words]) == 0
    assert saved("librispeech")["speakers"] == [str(1000 + number) for number in range(6)]
    record = load_checkpoint("runs/librispeech/model.safetensors").training
    assert (record["steps"], record["speakers"]) == (2, 6)
    assert record["config"]["data"]["clips"] == str(Path.cwd() / "musan" / "noise")


def test_ami_as_its_setup_is_laid_out(speech: Speech, dev_speech: Speech, capsys: pytest.CaptureFixture[str]) -> None:
    write_ami(Path.cwd(), speech, {"train": ("ES2002a", "EN2001b", "IS1000c")})
    write_ami(Path.cwd(), dev_speech, {"dev": ("ES2011a",), "test": ("EN2002a",)})
    words = [*SHORT, "data.recordings.dev_duration_s=6", stages(5), "hydra.run.dir=runs/ami"]
    assert main([*command_of("ami"), *words]) == 0
    rttms = Path("AMI-diarization-setup/only_words/rttms/train").glob("*.rttm")
    labels = {turn.speaker for path in rttms for turns in read_rttm(path).values() for turn in turns}
    assert saved("ami")["speakers"] == sorted(labels)
    record = load_checkpoint("runs/ami/model.safetensors").training
    assert record["init_from"]["file"] == "rms.safetensors"
    assert record["after_tuning"]["der"] <= record["before_tuning"]["der"]
    assert record["development"].keys() == record["after_tuning"].keys()
    assert "share" not in capsys.readouterr().err
    assert main(command_of("ami", "evaluate")) == 0
    found = {path.parent.parent.name for path in Path("runs/evaluate").rglob("EN2002a.rttm")}
    assert len(found) == 2  # the shipped model and the trained one


def test_where_recordings_lie_does_not_name_the_run(speech: Speech, dev_speech: Speech, corpus: Path) -> None:
    """Patterns of a recipe may be changed one by one."""
    write_ami(Path.cwd(), speech, {"train": ("ES2002a",)})
    write_ami(Path.cwd(), dev_speech, {"dev": ("ES2011a",)})
    Path("amicorpus").rename("elsewhere")
    words = [
        f'data.recordings.{split}.audio="elsewhere/{{uri}}/audio/{{uri}}.Mix-Headset.wav"' for split in ("train", "dev")
    ]
    words += ["data.recordings.tune=false", "train.tune_rounds=0", "train.num_steps=1", "train.workers=0"]
    assert main(["train", "recipe=ami", *words, "data.stages=[{crop_s: 2.0, batch_size: 1, max_speakers: 5}]"]) == 0
    (run_dir,) = (path.parent for path in Path("runs").rglob("model.safetensors"))
    assert "elsewhere" not in run_dir.name
    assert "data.recordings.tune=false" in run_dir.name


def test_a_recording_cut_short_is_one_sentence_of_a_worker(
    speech: Speech, dev_speech: Speech, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recordings(Path("recordings/train"), speech, [0])
    write_recordings(Path("recordings/dev"), dev_speech, [10])
    path = Path("recordings/train/talk0.flac")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 4])
    words = [*command_of("finetune"), *SHORT, stages(4), f"data.speech={corpus}"]
    words += ["train.workers=1", "data.recorded_share=1.0"]
    assert main(words) == 2
    *_, told = capsys.readouterr().err.splitlines()
    assert told.startswith(f"diarnorm train: {path.resolve()} ")
    assert "worker" not in told


def test_a_fine_tune_on_recordings(speech: Speech, dev_speech: Speech, corpus: Path) -> None:
    write_recordings(Path("recordings/train"), speech, range(3))
    write_recordings(Path("recordings/dev"), dev_speech, range(10, 12))
    words = [*command_of("finetune"), *SHORT, stages(4), "hydra.run.dir=runs/finetune", f"data.speech={corpus}"]
    assert main(words) == 0
    state = saved("finetune")
    assert state["speakers"][:8] == [f"s{number}" for number in range(8)]
    assert len(state["speakers"]) > 8
    before, after = (
        load_checkpoint(path).model.state_dict()
        for path in (model_path("rms"), Path("runs/finetune/model.safetensors"))
    )
    moved = max(float((after[name] - value).abs().max()) for name, value in before.items())
    assert 0 < moved < 0.01  # it starts where the shipped model ends


def test_a_crowd_is_refused_at_once(speech: Speech, dev_speech: Speech, capsys: pytest.CaptureFixture[str]) -> None:
    """Before speech is decoded or a model made: the file, how many speak in it, and the key."""
    write_recordings(Path("recordings/train"), speech, range(2))
    lines = [f"SPEAKER talk1 1 {at}.5 1.0 <NA> <NA> p{at} <NA> <NA>\n" for at in range(5)]
    Path("recordings/train/talk1.rttm").write_text("".join(lines))
    words = ["train", "recipe=finetune", *SHORT[:2], "data.recordings.dev=recordings/train"]
    begin = time.process_time()  # whatever else the machine does
    assert main(words) == 2
    assert time.process_time() - begin < 5
    sentence = f"{Path.cwd()}/recordings/train/talk1.flac: its reference has 5 speakers, data.stages[0].max_speakers=4"
    assert sentence in (err := capsys.readouterr().err)
    assert err.count("\n") == 1
    assert not Path("cache").exists()


def test_a_crowd_can_be_taken_as_it_is(speech: Speech, corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a recording in which nobody speaks is a legal one."""
    write_recordings(Path("recordings/train"), speech, range(3))
    lines = [f"SPEAKER talk1 1 {at}.5 1.0 <NA> <NA> p{at} <NA> <NA>\n" for at in range(5)]
    Path("recordings/train/talk1.rttm").write_text("".join(lines))
    Path("recordings/train/talk2.rttm").write_text("")
    words = [
        "train",
        "recipe=smoke",
        *SHORT,
        stages(2),
        "data.recordings.train=recordings/train",
        "data.recorded_share=1",
    ]
    words += [
        "data.recordings.crowded=drop",
        "hydra.run.dir=runs/crowd",
        "train.tune_rounds=0",
        f"data.speech={corpus}",
    ]
    assert main(words) == 0
    err = capsys.readouterr().err
    assert err.count("recordings have more than 2 speakers (5 in talk1): in crops with more, those who say least") == 1
    assert read_header(Path("runs/crowd/model.safetensors")).facts["training"]["steps"] == 2


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("data.recordings.train=nosuch", "data.recordings.train: {cwd}/nosuch does not exist"),
        ("data.recordings.dev=[a.wav,b.wav]", "data.recordings.dev: {cwd}/a.wav does not exist"),
        ("data.recordings.train={audoi: x}", "data.recordings.train.audoi is no key of a set; did you mean audio?"),
        ("data.recordings.train=3", "data.recordings.train names no recordings: give a folder"),
        ("data.recordings.trian=x", "did you mean data.recordings.train?"),
        ("data.recordings.labels=file", "labels=file is not known: choose one of corpus, recording"),
        ("data.recordings.crowded=maybe", "crowded=maybe is not known: choose one of refuse, drop"),
        ("data.recordings.gain_db=[3]", "gain_db=[3.0] is no range: give [LOW,HIGH] in dB"),
        ("data.recordings.noise_probability=0.5", "needs noise: give a folder as data.clips"),
        ("data.recordings.tune=true", "tune=true needs recordings to tune on: give them as data.recordings.dev"),
        ("data.recorded_share=1.5", "data.recorded_share=1.5 is out of range"),
        ("data.speech=null", "data.speech=null leaves nothing to simulate: give recordings as data.recordings.train"),
    ],
)
def test_a_mistake_is_one_sentence(word: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipe=smoke", *SHORT, word]) == 2
    err = capsys.readouterr().err
    assert err.startswith("diarnorm train: ")
    assert err.count("\n") == 1, err
    assert message.format(cwd=Path.cwd()) in err
