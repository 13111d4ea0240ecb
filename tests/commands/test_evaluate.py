"""`diarnorm evaluate`: what it writes and where, shards in a sweep, every mistake one sentence with exit 2."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from diarnorm.cli import main
from diarnorm.evaluation.config import EvaluateConfig, MemoryChanges, TurnChanges, Variant
from diarnorm.resources import recipes_dir, samples_dir
from tests.evalset import save_rttm

ROOT = Path(__file__).resolve().parents[2]
KEYS = "chunk_ms collars_s device family_by group_by long_s max_speakers memory models num_resamples pause_s seed sets "
KEYS += "shard skip_overlap strict turns workers"
MEMORY_KEYS = "birth cap_frames confirm_frames drop_frames floor"
VARIANT_KEYS = "chunk_ms max_speakers memory oracle_memory path turns"
TURN_KEYS = "hold_frames min_off_frames min_on_frames offset onset pad_frames undivided"
FILES = {"evaluation.md", "evaluation.csv", "evaluation.json", "evaluation.png", "causes.png"}

pytestmark = pytest.mark.usefixtures("one_thread", "model_and_set")

MODEL, SET = "models=[loud.safetensors]", "sets.mine='my set'"


def rows(folder: str = "runs/evaluate") -> list[dict[str, str]]:
    with Path(folder, "evaluation.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_it_prints_a_table_and_writes_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", MODEL, SET]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("DER and its parts in % of the reference's speech, collar 0:\n\n| set  | model |")
    assert "| mine | loud  |          2 |" in out
    assert out in Path("runs/evaluate/evaluation.md").read_text("utf-8")
    assert err.startswith("written: ")
    there = {path.name for path in Path("runs/evaluate").iterdir()}
    assert there == FILES | {"results", "hypotheses", ".hydra"}
    assert {path.name for path in Path.cwd().iterdir()} == {"my set", "loud.safetensors", "runs"}
    assert rows()[0]["model"] == "loud"


def test_changed_settings_have_a_folder_of_their_own_and_are_stated() -> None:
    assert main(["evaluate", MODEL, SET, "turns.min_off_frames=20", "chunk_ms=480"]) == 0
    folder = "runs/evaluate/chunk_ms=480,turns.min_off_frames=20"
    assert rows(folder)[0]["turns"] == "min_off_frames=20"
    assert "- chunk: 480 ms; turns: min_off_frames=20;" in Path(folder, "evaluation.md").read_text("utf-8")
    hypothesis = Path(folder, "hypotheses", "loud", "mine", "a_one.rttm").read_text("utf-8")
    assert len(hypothesis.splitlines()) == 1  # the pause of a second is bridged


def test_a_sweep_over_shards_gives_the_table_of_one_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", MODEL, SET, "hydra.run.dir=one"]) == 0
    alone = capsys.readouterr().out
    assert main(["evaluate", "-m", MODEL, SET, "shard=0/3,1/3,2/3"]) == 0
    out, err = capsys.readouterr()
    assert "shard 0/3 is done; 1 of 3 are there" in err
    assert out.count("DER and its parts") == 1
    for ours, theirs in zip(rows(), rows("one"), strict=True):
        assert {**ours, "rtf": ""} == {**theirs, "rtf": ""}
    assert out.splitlines()[0] == alone.splitlines()[0]
    before = {name: Path("runs/evaluate", name).read_bytes() for name in FILES if not name.endswith("png")}
    assert main(["evaluate", "merge=runs/evaluate"]) == 0
    assert capsys.readouterr().out == out
    assert {name: Path("runs/evaluate", name).read_bytes() for name in before} == before


def test_shards_that_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", MODEL, SET, "shard=1/3"]) == 0
    assert not Path("runs/evaluate/evaluation.md").exists()
    capsys.readouterr()
    assert main(["evaluate", "merge=runs/evaluate"]) == 2
    assert capsys.readouterr().err == ("diarnorm evaluate: 2 of 3 shards are missing: run shard=0/3 first\n")


def test_turns_from_elsewhere_stand_beside_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    save_rttm(Path("other/a_one.rttm"), [("x", 1.0, 2.0), ("x", 3.0, 4.5)])
    words = ["evaluate", "models=[loud.safetensors,other]", SET]
    assert main(words) == 0
    assert "mine: b_two: no hypothesis by other; all of its speech counts as missed" in capsys.readouterr().err
    found = {(row["model"], row["recording"]): row for row in rows() if row["kind"] == "recording"}
    assert float(found["other", "a_one"]["der"]) == 0
    assert float(found["other", "b_two"]["der"]) == 1
    assert next(row["minus"] for row in rows() if row["kind"] == "difference") == "other"
    assert main([*words, "strict=true"]) == 2
    err = capsys.readouterr().err
    assert err.endswith("diarnorm evaluate: no hypothesis for mine: b_two by other\n")


def test_models_may_be_named_and_sets_have_parts() -> None:
    save_rttm(Path("ref/a_one.rttm"), [("x", 1.0, 2.0)])
    parts = ["sets.x.audio='my set'", "sets.x.rttm=ref", "sets.x.region_s=[0,2.5]"]
    assert main(["evaluate", "models={first: loud.safetensors, again: ./loud.safetensors}", *parts]) == 0
    pooled = [row for row in rows() if row["kind"] == "pooled" and row["collar_each_side_s"] == "0.0"]
    assert [(row["set_name"], row["model"], row["scored_s"]) for row in pooled] == [
        ("x", "first", "2.5"),
        ("x", "again", "2.5"),
    ]


def test_variants_of_a_model_stand_in_one_table() -> None:
    variants = "{own: loud.safetensors, sum: {path: loud.safetensors, memory: {cap_frames: inf}, chunk_ms: 480}}"
    assert main(["evaluate", f"models={variants}", SET, "memory.birth=0.3"]) == 0
    folder = Path("runs/evaluate/memory.birth=0.3")
    pooled = [row for row in rows(str(folder)) if row["kind"] == "pooled" and row["collar_each_side_s"] == "0.0"]
    assert [(row["model"], row["chunk_ms"], row["memory"]) for row in pooled] == [
        ("own", "", "birth=0.3"),
        ("sum", "480", "birth=0.3 cap_frames=inf"),
    ]
    text = (folder / "evaluation.md").read_text("utf-8")
    assert "- chunk: each model's own; turns: each model's own settings; memory: birth=0.3; device: cpu" in text
    own = "- sum: chunk: 480 ms; turns: each model's own settings; memory: birth=0.3, cap_frames=inf"
    assert [line for line in text.splitlines() if line.startswith(("- sum:", "- own:"))] == [own]
    json.loads((folder / "evaluation.json").read_text("utf-8"), parse_constant=pytest.fail)


def test_what_is_no_result_says_so() -> None:
    variants = "{own: loud.safetensors, told: {path: loud.safetensors, oracle_memory: true}}"
    assert main(["evaluate", f"models={variants}", SET]) == 0
    text = Path("runs/evaluate/evaluation.md").read_text("utf-8")
    assert (
        "- told: chunk: each model's own; turns: each model's own settings; memory: told by the reference (a bound)"
        in text
    )
    assert [row["memory"] for row in rows() if row["kind"] == "pooled"] == ["", "told by the reference (a bound)"] * 2


def test_every_job_of_a_sweep_has_a_folder_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Models, sets and what else does not name a folder names it in a sweep; paths in it are no folders."""
    save_rttm(Path("ref/a_one.rttm"), [("x", 1.0, 2.0)])
    for name in ("one", "two"):
        save_rttm(Path("turns", name, "a_one.rttm"), [(name, 1.0, 2.0)])
    assert main(["evaluate", "-m", "models=turns/one,./turns/two", "sets.x=ref,./ref", "shard=0/2,1/2"]) == 0
    assert sorted(path.parent.relative_to("runs/evaluate").as_posix() for path in Path().rglob("evaluation.csv")) == [
        "models=.∕turns∕two,sets.x=.∕ref",
        "models=.∕turns∕two,sets.x=ref",
        "models=turns∕one,sets.x=.∕ref",
        "models=turns∕one,sets.x=ref",
    ]
    assert rows("runs/evaluate/models=turns∕one,sets.x=ref")[0]["model"] == "one"
    assert "two" not in Path("runs/evaluate/models=turns∕one,sets.x=ref/evaluation.csv").read_text("utf-8")


def test_what_was_asked_stands_in_every_line() -> None:
    assert main(["evaluate", "models={a: loud.safetensors, b: {path: loud.safetensors, max_speakers: 2}}", SET]) == 0
    asked = {(row["model"], row["max_speakers"]) for row in rows() if row["kind"] != "difference"}
    assert asked == {("a", ""), ("b", "2")}


def test_recipes_for_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = sorted(path.parent.name for path in recipes_dir().glob("*/evaluation.yaml"))
    assert names == ["long", "norm_study", "samples"]
    words = ["evaluate", "recipe=samples", MODEL]
    assert main([*words, "collars_s=[0]"]) == 0
    values = json.loads(Path("runs/samples/collars_s=[0]/evaluation.json").read_text("utf-8"))
    assert values["sets"]["samples"]["recordings"] == sorted(path.stem for path in samples_dir().glob("*.flac"))
    Path("own").mkdir()
    Path("own/evaluation.yaml").write_text("defaults: [evaluate, _self_]\nsets: {mine: my set}\n")
    assert main(["evaluate", "recipe=own", MODEL]) == 0
    assert rows("runs/own")[0]["set_name"] == "mine"


def test_without_matplotlib_there_is_no_picture(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["evaluate", MODEL, SET]) == 0
    assert "diarnorm evaluate: a picture needs matplotlib" in capsys.readouterr().err
    assert not Path("runs/evaluate/evaluation.png").exists()


def test_an_error_of_drawing_is_no_want_of_matplotlib(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("of our making")

    monkeypatch.setattr("diarnorm.evaluation.figures.draw", fail)
    assert main(["evaluate", MODEL, SET]) == 2
    assert capsys.readouterr().err == "diarnorm evaluate: of our making\n"


def test_results_of_another_evaluation_do_not_go_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """Sets do not name the folder; what is scored against does not, either."""
    assert main(["evaluate", MODEL, SET]) == 0
    assert main(["evaluate", MODEL, SET]) == 0
    assert "another evaluation" not in capsys.readouterr().err
    save_rttm(Path("my set/a_one.rttm"), [("anna", 1.0, 2.0)])
    assert main(["evaluate", MODEL, SET]) == 0
    said = "the results of another evaluation that were in {} are gone: sets differ in mine"
    assert f"diarnorm evaluate: {said.format(Path('runs/evaluate').resolve())}\n" in capsys.readouterr().err


def test_shards_of_an_older_reference_are_not_merged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", MODEL, SET, "shard=0/2", "hydra.run.dir=runs/there/one"]) == 0
    save_rttm(Path("my set/a_one.rttm"), [("anna", 1.0, 2.0)])
    assert main(["evaluate", MODEL, SET, "shard=1/2", "hydra.run.dir=runs/there/two"]) == 0
    capsys.readouterr()
    assert main(["evaluate", "merge=runs/there"]) == 2
    assert "is of another evaluation than 0/2: sets differ in mine" in capsys.readouterr().err


def test_a_tilde_is_the_users_folder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd()))
    Path("own").mkdir()
    Path("own/evaluation.yaml").write_text("defaults: [evaluate, _self_]\nsets: {mine: my set}\n")
    assert main(["evaluate", "recipe=~/own", MODEL]) == 0
    out = capsys.readouterr().out
    assert main(["evaluate", "merge=~/runs/own"]) == 0
    assert capsys.readouterr().out == out


def test_the_environment_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    for value in (None, "0"):
        if value is not None:
            monkeypatch.setenv("HYDRA_FULL_ERROR", value)
        assert main(["evaluate", MODEL]) == 2
        assert os.environ.get("HYDRA_FULL_ERROR") == value


def test_keys_are_frozen() -> None:
    assert " ".join(sorted(EvaluateConfig.__dataclass_fields__)) == KEYS
    assert " ".join(sorted(TurnChanges.__dataclass_fields__)) == TURN_KEYS
    assert " ".join(sorted(MemoryChanges.__dataclass_fields__)) == MEMORY_KEYS
    assert " ".join(sorted(Variant.__dataclass_fields__)) == VARIANT_KEYS


MISTAKES = [
    ([], "no recordings to evaluate on: give a folder of them as sets.NAME=FOLDER"),
    (["sets.mine=nosuch"], "sets.mine: {cwd}/nosuch does not exist"),
    (["sets.mine=~/a=b,c"], "needs quotes of its own: 'sets.mine=\"~/a=b,c\"'"),
    ([SET, "sets.mine.umm=3"], "umm"),
    (["sets.x.audio='my set'", "sets.x.umm=3"], "sets.x.umm is no key of a set; did you mean uem?"),
    ([SET, "models=[nosuch]"], "no shipped model is called 'nosuch' (shipped: "),
    ([SET, "models=[no.safetensors]"], "no.safetensors: no such file"),
    ([SET, "chunk_ms=500"], "chunk_ms=500 is not a multiple of 80 ms"),
    ([SET, "chunks=5"], "Could not override 'chunks'"),
    ([SET, "+chunk=5"], "chunk is no key of an evaluation; did you mean chunk_ms?"),
    ([SET, "turns.min_of_frames=5"], "did you mean turns.min_off_frames?"),
    ([SET, "turns.confirm_frames=5"], "Key 'confirm_frames' not in 'TurnChanges'"),
    ([SET, "memory.cap_frame=5"], "did you mean memory.cap_frames?"),
    ([SET, "memory.cap_frames=0"], "memory of loud with these changes: cap_frames=0 is too low: give 1 or more"),
    ([SET, "models={x: {path: loud.safetensors, chunk: 480}}"], "Variant has no field chunk: known are chunk_ms"),
    ([SET, "turns.onset=abc"], "'abc' of type 'str' could not be converted to Float"),
    ([SET, "turns.pad_frames=40"], "with these changes: min_off_frames=6 is less than twice pad_frames=40"),
    ([SET, "family_by=rms"], "family_by=rms has 0 groups: give none, or an expression with one group, such as"),
    ([SET, "family_by='(rms'"], "family_by=(rms is no regular expression"),
    ([SET, "workers=0"], "workers=0 is out of range: give a number of at least 1"),
    ([SET, "shard=3/3"], "shard=3/3 is none: give K/N"),
    ([SET, "device=abacus"], "device=abacus cannot be used here"),
    ([SET, "--shrd"], "unknown option --shrd"),
    ([SET, "typo"], "give KEY=VALUE"),
    (["recipe=smoke"], "recipe=smoke is neither a recipe (long, norm_study, samples) nor a folder"),
    (["merge=nosuch"], "nosuch is no folder: give the one that the jobs wrote to"),
    (["merge=runs", "workers=2"], "merge=FOLDER goes alone"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: " ".join(mistake[0]) or "nothing")
def test_a_mistake_is_one_sentence(mistake: tuple[list[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    words, message = mistake
    model = [] if any(word.startswith(("models=", "merge=")) for word in words) else [MODEL]
    assert main(["evaluate", *model, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("diarnorm evaluate: ")
    assert err.count("\n") == 1, err
    assert message.format(cwd=Path.cwd()) in err
    assert not list(Path.cwd().rglob("evaluation.md"))


def test_a_recording_without_audio_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my set/a_one.wav").unlink()
    assert main(["evaluate", MODEL, SET]) == 2
    assert "sets.mine: the reference a_one has no recording of that name" in capsys.readouterr().err


def test_help_loads_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: diarnorm evaluate ")
    heavy = {"torch", "hydra", "omegaconf", "pyannote.core", "matplotlib"}
    code = (
        "import sys; from diarnorm.cli import main; main(['evaluate', '--help']); "
        f"sys.exit(len({heavy!r} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, stdout=-3)


@pytest.mark.parametrize("given", ["rms", "[rms]", "{mine: rms}"])
def test_models_of_ones_own_take_the_place_of_a_recipes(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The recipe has three by name; a dict would be merged into them, a list or a name refused."""
    assert main(["evaluate", "recipe=long", f"models={given}", "--cfg", "job"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["models"] == yaml.safe_load(given)
