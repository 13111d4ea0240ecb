"""`diarnorm train`: recipes compose, every mistake is one sentence with exit 2, paths and folders are the caller's."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from diarnorm.checkpoint import load_checkpoint
from diarnorm.cli import main
from diarnorm.commands import train as recipe
from diarnorm.frontend import FRONT_ENDS
from diarnorm.modelfile import read_header
from diarnorm.norms import NORMS
from diarnorm.resources import configs_dir, recipes_dir
from diarnorm.training.config import RunConfig
from diarnorm.training.trainer import Trainer

ROOT = Path(__file__).resolve().parents[2]
TINY = ["recipe=smoke", "train.num_steps=1", "train.dev_conversations=1", "train.dev_duration_s=3", "train.workers=0"]
TINY += ["train.tune_rounds=0"]
TINY += ["data.stages=[{crop_s: 3.0, batch_size: 1, max_speakers: 2, speaker_probabilities: [0.3, 0.7]}]"]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _elsewhere(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, with the caches of the session."""
    folder = tmp_path / "where the command is typed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(corpus.parent.parent))


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RunConfig, Path]]:
    """What trainers would have been given; none trains."""

    class Recorder:
        def __init__(self, config: RunConfig, run_dir: str) -> None:
            given.append((config, Path(run_dir)))

        def run(self) -> dict[str, float]:
            return {}

    given: list[tuple[RunConfig, Path]] = []
    monkeypatch.setattr("diarnorm.training.trainer.Trainer", Recorder)
    return given


def here() -> set[str]:
    return {path.name for path in Path.cwd().iterdir()}


# ---- what goes in -----------------------------------------------------------------------------------------


def test_recipes_compose_and_differ_from_the_defaults_where_they_say(jobs: list[tuple[RunConfig, Path]]) -> None:
    names = sorted(path.parent.name for path in recipes_dir().glob("*/recipe.yaml"))
    assert {"base", "smoke"} <= set(names)
    for name in names:
        assert main(["train", f"recipe={name}"]) == 0
    runs = dict(zip(names, (run for run, _ in jobs), strict=True))
    assert runs["base"].model.encoder == replace(RunConfig().model.encoder, dropout=0.0)
    assert runs["base"].data.speech == str(Path.cwd() / "data" / "utterances.tsv")
    assert len(runs["base"].data.stages) >= 2
    assert runs["smoke"].model.encoder.dim == 32
    assert [run_dir for _, run_dir in jobs] == [Path.cwd() / "runs" / name for name in names]
    assert main(["train"]) == 0  # base is the default
    assert jobs[-1][0] == runs["base"]


def test_groups_set_what_their_name_says(jobs: list[tuple[RunConfig, Path]]) -> None:
    for norm, frontend in (("none", "pcen"), ("layer", "frame"), ("batch", "none")):
        assert main(["train", "recipe=smoke", f"norm={norm}", f"frontend={frontend}"]) == 0
        model = jobs[-1][0].model
        assert (model.encoder.norm, model.frontend.kind) == (norm, frontend)
        assert jobs[-1][1] == Path.cwd() / "runs" / "smoke" / f"frontend={frontend},norm={norm}"
    for group, options in (("norm", NORMS), ("frontend", FRONT_ENDS)):
        assert {path.stem for path in (configs_dir() / group).glob("*.yaml")} == set(options)


@pytest.mark.parametrize("spelling", ["1e-3", "1E-3", ".001", "'1e-3'"])
def test_a_number_may_be_spelled_in_any_way(spelling: str, jobs: list[tuple[RunConfig, Path]]) -> None:
    keys = ("model.encoder.eps", "train.learning_rate", "loss.speaker", "data.simulator.close_gap_s")
    assert main(["train", "recipe=smoke", *(f"{key}={spelling}" for key in keys), "train.num_steps='7'"]) == 0
    run = jobs[0][0]
    found = (run.model.encoder.eps, run.train.learning_rate, run.loss.speaker, run.data.simulator.close_gap_s)
    assert found == (1e-3,) * 4
    assert all(type(number) is float for number in found)
    assert run.train.num_steps == 7


def test_every_key_is_typed() -> None:
    """A word is refused wherever a number belongs."""
    schema = recipe.COMMAND.schema()
    for part in ("train", "loss"):
        for field in fields(getattr(RunConfig(), part)):
            if isinstance(getattr(getattr(RunConfig(), part), field.name), int | float):
                with pytest.raises(Exception, match="could not be converted"):
                    schema[part][field.name] = "abc"


@pytest.mark.parametrize("mode", [[], ["-m"]])
@pytest.mark.parametrize("chdir", ["true", "false"])
def test_relative_paths_mean_the_callers_folder(
    chdir: str, mode: list[str], jobs: list[tuple[RunConfig, Path]]
) -> None:
    caller = Path.cwd()
    arguments = ["data.speech=rel/speech", "data.clips=./clips", "data.teacher=../t", "data.cache_dir=/abs/cache"]
    assert main(["train", *mode, "recipe=smoke", *arguments, f"hydra.job.chdir={chdir}"]) == 0
    data, run_dir = jobs[0][0].data, jobs[0][1]
    expected = (caller / "rel" / "speech", caller / "clips", caller.parent / "t", Path("/abs/cache"))
    assert (data.speech, data.clips, data.teacher, data.cache_dir) == tuple(map(str, expected))
    assert run_dir == caller / "runs" / "smoke"  # paths do not name the run
    assert Path.cwd() == caller
    assert here() == {"runs"}


@pytest.mark.parametrize("chdir", ["true", "false"])
def test_so_do_those_of_measured_rooms(chdir: str, jobs: list[tuple[RunConfig, Path]]) -> None:
    rooms = 'data.simulator.rooms.measured=[rooms,"~/measured"]'
    assert main(["train", "recipe=smoke", rooms, f"hydra.job.chdir={chdir}"]) == 0
    expected = (Path.cwd() / "rooms", Path.home() / "measured")
    assert jobs[0][0].data.simulator.rooms.measured == tuple(map(str, expected))


def test_the_home_folder_and_odd_characters(
    jobs: list[tuple[RunConfig, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    for word, path in (
        ('"~/speech"', "/home/someone/speech"),
        ('"/x/k=v,1"', "/x/k=v,1"),
        ("'/x/naïve 日本.tsv'", "/x/naïve 日本.tsv"),
    ):
        assert main(["train", "recipe=smoke", f"data.speech={word}"]) == 0
        assert jobs[-1][0].data.speech == path


def test_a_recipe_of_ones_own_in_a_folder_with_an_odd_name(jobs: list[tuple[RunConfig, Path]]) -> None:
    folder = Path("my recipe, k=v 'ü'")
    (folder / "norm").mkdir(parents=True)
    (folder / "recipe.yaml").write_text("defaults: [run, _self_]\ntrain: {num_steps: 5}\n", encoding="utf-8")
    (folder / "norm" / "mine.yaml").write_text("# @package model.encoder\nnorm: layer\neps: 1e-3\n", encoding="utf-8")
    assert main(["train", f"recipe={folder}", "norm=mine"]) == 0
    run, run_dir = jobs[0]
    assert (run.train.num_steps, run.model.encoder.norm, run.model.encoder.eps) == (5, "layer", 1e-3)
    assert run_dir == Path.cwd() / "runs" / folder.name / "norm=mine"


@pytest.mark.parametrize(
    "words",
    [
        ["-m", "recipe=smoke", "norm=rms,batch", "train.seed=0"],
        ["recipe=smoke", "norm=rms,batch", "-m", "train.seed=0"],
    ],
)
def test_a_sweep_has_a_folder_for_each(words: list[str], jobs: list[tuple[RunConfig, Path]]) -> None:
    assert main(["train", *words]) == 0
    assert [run.model.encoder.norm for run, _ in jobs] == ["rms", "batch"]
    folders = [Path.cwd() / "runs" / "smoke" / f"norm={norm},train.seed=0" for norm in ("rms", "batch")]
    assert [run_dir for _, run_dir in jobs] == folders
    assert all(folder.is_dir() for folder in folders)
    assert here() == {"runs"}


def test_a_sweep_and_a_single_run_share_their_folder(jobs: list[tuple[RunConfig, Path]]) -> None:
    assert main(["train", "-m", "recipe=smoke", "norm=layer,none"]) == 0
    assert main(["train", "recipe=smoke", "norm=layer"]) == 0
    assert jobs[0][1] == jobs[2][1]


def test_paths_are_left_out_of_a_folders_name_unless_swept(jobs: list[tuple[RunConfig, Path]]) -> None:
    words = ["recipe=smoke", "train.threads=1", "data.clips=some/clips"]
    assert main(["train", *words, "data.speech=a/b"]) == 0
    assert jobs[-1][1] == Path.cwd() / "runs" / "smoke"
    assert main(["train", "-m", *words, 'data.speech=a/b,"c,d/e"', "norm=rms,none"]) == 0
    names = [run_dir.relative_to(Path.cwd() / "runs" / "smoke").as_posix() for _, run_dir in jobs[1:]]
    assert names == [f"data.speech={speech},norm={norm}" for speech in ("a∕b", '"c,d∕e"') for norm in ("rms", "none")]
    assert [run.data.speech for run, _ in jobs[1:]] == [
        str(Path.cwd() / path) for path in ("a/b",) * 2 + ("c,d/e",) * 2
    ]


def test_values_that_look_alike_have_folders_of_their_own(jobs: list[tuple[RunConfig, Path]]) -> None:
    assert main(["train", "-m", "recipe=smoke", "data.clips=a/b,a_b"]) == 0
    assert [run.data.clips for run, _ in jobs] == [str(Path.cwd() / "a" / "b"), str(Path.cwd() / "a_b")]
    assert jobs[0][1] != jobs[1][1]


def test_a_warm_start_has_a_folder_of_its_own(jobs: list[tuple[RunConfig, Path]]) -> None:
    assert main(["train", "recipe=smoke", "train.init_from=runs/smoke"]) == 0
    run, run_dir = jobs[0]
    assert run.train.init_from == str(Path.cwd() / "runs" / "smoke")
    assert run_dir == Path.cwd() / "runs" / "smoke" / "train.init_from=runs∕smoke"


def test_the_configuration_can_be_printed(
    jobs: list[tuple[RunConfig, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--cfg", "job", "recipe=smoke"], ["recipe=smoke", "norm=batch", "--cfg", "job"]):
        assert main(["train", *words]) == 0
    out = capsys.readouterr().out
    assert "norm: rms" in out
    assert "norm: batch" in out
    assert "rollout_share: 0.5" in out  # a default that no file names
    assert jobs == []
    assert here() == set()


def test_help_names_every_group_and_loads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipe=nosuch", "--help"]) == 0
    out = capsys.readouterr().out
    for group in ("norm", "frontend"):
        options = {path.stem for path in (configs_dir() / group).glob("*.yaml")}
        assert all(option in out for option in options)
    code = "import sys; from diarnorm.cli import main; main(['train', '--help']); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, stdout=-3)


# ---- mistakes ---------------------------------------------------------------------------------------------

GROUP = "is not known: choose one of batch, layer, none, rms"
MISTAKES = [
    ("norm.esp=1e-5", "Could not override 'norm.esp'", "did you mean model.encoder.eps?"),
    ("+norm.esp=1e-5", "norm.esp is no key of a run", "did you mean model.encoder.eps?"),
    ("model.encoder.esp=1e-5", "Key 'esp' not in 'EncoderConfig'", "did you mean model.encoder.eps?"),
    ("+model.encoder.esp=1e-5", "model.encoder.esp is no key of a run", "did you mean model.encoder.eps?"),
    ("++train.epochs=3", "train.epochs is no key of a run"),
    ("train.num_step=3", "did you mean train.num_steps?"),
    ("data.stages=[{lenght: 3}]", "Key 'lenght' not in 'CurriculumStage'"),
    (
        "data.stages=[{crop_s: 3}, {bach_size: 3}]",
        "'bach_size' not in 'Curr",
        "did you mean data.stages[0].batch_size?",
    ),
    (
        "data.stages=[{from_step: 0}, {from_step: 0}]",
        "data.stages start at from_step=[0, 0]: the first must start at 0",
    ),
    ("data.warps=[{pitch: 3}]", "warp pitch=3.0 is out of range: give a factor from 0.5 to 2"),
    ("data.warps=[{}]", "pitch=1 and tract=1 is the voice itself"),
    ("data.warps=[{ptich: 1.2}]", "Key 'ptich' not in 'Warp'"),
    ("data.stages=[{batch_size: 0}]", "data.stages[0].batch_size=0 is out of range"),
    ("data.stages=[{max_speakers: 2, speaker_probabilities: [1, 1, 1]}]", "speaker_probabilities has 3 entries, max"),
    ("data.stages=[{max_speakers: 5, speaker_probabilities: [1, 1, 1, 1, 1]}]", "asks for 5 speakers", "num_slots=4"),
    ("norm=rsm", "norm=rsm", GROUP),
    ("norm=no", "norm=no ", GROUP),
    ("norm=null", "norm=null", GROUP),
    ("norm=False", "norm=False", GROUP),
    ("norm=Off", "norm=Off", GROUP),
    ("norm=None", "norm=None", GROUP),
    ("norm=off", "norm=off", GROUP),
    ("norm=", "norm= ", GROUP),
    ("~norm", "norm=none and frontend=none stand for no normalisation"),
    ("frontend=emma", "frontend=emma is not known: choose one of ema, frame, none, pcen"),
    ("model.encoder.norm=no", "norm=no is not known: choose one of rms, layer, batch, none"),
    ("model.encoder.norm=null", "model.encoder.norm=null"),
    ("model.encoder.norm=Off", "norm=Off is not known: choose one of rms, layer, batch, none"),
    ("model.encoder.norm=False", "norm=False is not known: choose one of rms, layer, batch, none"),
    ("model.encoder.eps=-1e-5", "model.encoder.eps=-1e-05 is out of range: give a number above 0"),
    ("train.optimizer=adam", "train.optimizer=adam is not known: choose one of adamw, muon"),
    ("train.precision=fp16", "train.precision=fp16 is not known: choose one of fp32, bf16"),
    ("train.accumulate=0", "train.accumulate=0 is out of range: give a number of at least 1"),
    ("train.init_from=nosuch", "{cwd}/nosuch: no such file"),
    ("train.init_from=.", "{cwd} holds neither ema.safetensors nor model.safetensors"),
    ("loss.delay_frames=0", "loss.delay_frames=0.0 is out of range: give a number above 0"),
    ("model.encoder.conv_norm=off", "conv_norm=off is not known"),
    ("model.encoder.eps=0", "model.encoder.eps=0.0 is out of range: give a number above 0"),
    ("model.encoder.eps=abc", "model.encoder.eps=abc", "'abc' of type 'str' could not be converted to Float"),
    ("train.num_steps=1.5", "'1.5' of type 'float' could not be converted to Integer"),
    ("train.chunks=12", "train.chunks=12"),
    ("train.device=abacus", "device=abacus cannot be used here"),
    ("data.speech=rel/dir", "{cwd}/rel/dir does not exist; give a folder with one folder per speaker"),
    ('data.speech="/x/k=v,1"', "/x/k=v,1 does not exist"),
    ("data.speech=/x/k=v,1", "data.speech=/x/k=v,1: ", "needs quotes of its own: 'data.speech=\"~/a=b,c\"'"),
    ("data.speech=a,b", "Ambiguous value for argument 'data.speech=a,b'", "quote the value"),
    ("data.teacher=nosuch", "{cwd}/nosuch holds no teacher embeddings"),
    ("data.dev_split=dve", "has a folder train, but none called dve"),
    ("recipe=nosuch", "recipe=nosuch is neither a recipe (", "base, ", ", smoke) nor a folder with a recipe.yaml"),
    ("data.speech=~/x", "data.speech=~/x", "needs quotes of its own"),
    ("typo", "missing EQUAL", "give KEY=VALUE"),
    ("--multrun", "unknown option --multrun; did you mean --multirun?"),
    ("-x", "unknown option -x; options are -m, --cfg job, --help and --debug"),
    ("--cfg", "--cfg  is not known: give --cfg and one of job, hydra, all"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake[0])
def test_a_mistake_is_one_sentence(mistake: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    word, *messages = mistake
    assert main(["train", *TINY, word]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("diarnorm train: ")
    assert err.count("\n") == 1, err
    for message in messages:
        assert message.format(cwd=Path.cwd()) in err
    assert "hydra.cc" not in err
    assert not list(Path.cwd().rglob("last.pt"))
    assert here() <= {"runs"}


def test_a_traceback_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    for words, there in ((["recipe=nosuch"], False), (["recipe=nosuch", "--debug"], True)):
        assert main(["train", *words]) == 2
        assert ("Traceback" in capsys.readouterr().err) == there


def test_more_speakers_than_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    stages = "data.stages=[{max_speakers: 9, speaker_probabilities: [0, 0, 0, 0, 0, 0, 0, 0, 1]}]"
    assert main(["train", "recipe=smoke", stages, "model.memory.num_slots=9"]) == 2
    err = capsys.readouterr().err
    assert "data.stages[0].speaker_probabilities asks for 9 speakers in a conversation" in err
    assert "has 8 with speech" in err


def test_changes_too_many_for_the_name_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [f"loss.{key}=0.{'1' * 90}" for key in ("margin", "scale", "speaker")]
    assert main(["train", "recipe=smoke", *changes]) == 2
    assert capsys.readouterr().err.endswith("too long for the name of a folder: choose one with hydra.run.dir=FOLDER\n")


def test_a_mistake_in_a_sweep_is_found_before_it_starts(
    jobs: list[tuple[RunConfig, Path]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "-m", "recipe=smoke", "norm=rms,rsm"]) == 2
    assert capsys.readouterr().err == f"diarnorm train: norm=rsm {GROUP}\n"
    assert jobs == []


def test_a_job_that_fails_does_not_stop_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "-m", *TINY, "model.encoder.eps=0,1e-5"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "diarnorm train: model.encoder.eps=0.0 is out of range: give a number above 0"
    assert [line for line in err.splitlines() if line.startswith("runs/smoke/") and "eps=1e-05" in line]
    assert len(list(Path("runs").rglob("last.pt"))) == 1


def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "model.encoder.eps=0", "--debug"]) == 2
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "_check_model" in err


def test_errors_of_the_program_are_not_the_users(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(trainer: Trainer) -> None:
        raise ZeroDivisionError("of our making")

    monkeypatch.setattr(Trainer, "run", run)
    assert main(["train", *TINY]) == 1
    err = capsys.readouterr().err
    assert err == "diarnorm train: internal error, ZeroDivisionError: of our making (--debug shows where)\n"


def test_ctrl_c_is_a_quiet_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(trainer: Trainer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "run", run)
    assert main(["train", *TINY]) == 130
    assert capsys.readouterr().err == ""


# ---- what comes out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chdir", ["true", "false"])
def test_a_run_reads_from_and_writes_to_the_callers_folder(corpus: Path, chdir: str) -> None:
    Path("rel").mkdir()
    Path("rel/speech").symlink_to(corpus)
    assert main(["train", *TINY, "data.speech=rel/speech", "norm=batch", f"hydra.job.chdir={chdir}"]) == 0
    assert here() == {"rel", "runs"}
    assert {path.name for path in Path("rel").iterdir()} == {"speech"}
    (run_dir,) = (path.parent for path in Path("runs").rglob("last.pt"))
    assert run_dir.name.startswith("data.stages=[{")
    assert {path.name for path in run_dir.iterdir()} == {".hydra", "last.pt", "log.csv", "model.safetensors"}
    assert load_checkpoint(run_dir / "model.safetensors", norm="batch").training["steps"] == 1
    with pytest.raises(ValueError, match=r"was trained with norm=batch, not norm=rms"):
        load_checkpoint(run_dir / "model.safetensors", norm="rms")


def test_the_same_command_goes_on(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *TINY, f"data.speech={corpus}", "hydra.run.dir=one"]
    assert main(words) == 0
    first = Path("one/last.pt").read_bytes()
    assert main(words) == 0  # nothing left to do
    assert Path("one/last.pt").read_bytes() == first
    assert main([*words, "train.num_steps=2"]) == 0
    assert torch.load("one/last.pt", weights_only=True)["step"] == 2
    capsys.readouterr()
    assert main([*words, "model.encoder.dim=64"]) == 2
    assert "one/last.pt is of another run (model.encoder.dim=64 was 32)" in capsys.readouterr().err


def test_a_sweep_trains_two_norms(corpus: Path) -> None:
    assert main(["train", "-m", *TINY, f"data.speech={corpus}", "norm=none,layer"]) == 0
    models = sorted(Path("runs/smoke").glob("*/model.safetensors"))
    assert [read_header(path).facts["norm"] for path in models] == ["layer", "none"]
    assert here() == {"runs"}
    assert {path.name for path in Path("runs").iterdir()} == {"smoke"}


def test_two_by_two_have_four_folders_and_go_on_there(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "-m", *TINY, f"data.speech={corpus}", "norm=rms,batch", "train.seed=0,1"]
    assert main(words) == 0
    folders = [path.parent for path in Path("runs/smoke").glob("*/last.pt")]
    configs = [json.loads(torch.load(folder / "last.pt", weights_only=True)["config"]) for folder in folders]
    found = {(config["model"]["encoder"]["norm"], config["train"]["seed"]) for config in configs}
    assert found == {("rms", 0), ("rms", 1), ("batch", 0), ("batch", 1)}
    assert len(folders) == 4
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().err.count("is finished, 1 steps: nothing to do") == 4


@pytest.mark.slow
def test_the_smoke_recipe_as_a_user_runs_it() -> None:
    """In a process of its own, voices included."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(Path.cwd() / "cache")}
    command = [sys.executable, "-m", "diarnorm", "train", "recipe=smoke"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == ""
    lines = run.stderr.splitlines()
    assert [line.split()[0] for line in lines] == ["step=10", "step=20"]
    assert all("der=" in line and "eta=" in line for line in lines)
    assert here() == {"runs", "cache"}
