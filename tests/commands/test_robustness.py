"""`diarnorm robustness`: what it writes and where, its recipe, every mistake one sentence with exit 2."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from diarnorm.cli import main
from diarnorm.robustness.config import Margin, RobustnessConfig

KEYS = "alone alone_s batch_s chunk_ms collar_s corruptions device edge_s halves margin margins max_speakers memory "
KEYS += "models num_resamples peer_limit_s peers player_s players quiet recovery_distance recovery_hold_s same_labels "
KEYS += "same_labels_share seed sets skip_overlap turns workers"
FILES = {"records.jsonl", "report.html", "report.json", "report.md", ".hydra"}

pytestmark = pytest.mark.usefixtures("one_thread", "model_and_set")

MODEL, SET = "models=[loud.safetensors]", "sets.mine='my set'"


def test_it_prints_the_changes_and_writes_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["robustness", MODEL, SET, "corruptions=['loudness.gain=-40','dc.offset=0.1']", "alone=[nothing]"]
    assert main([*words, "players=['dc.offset=0.1']", "hydra.run.dir=out"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("mine:\n\n| change of the DER, points |")
    assert "| loudness.gain=-40 " in out
    assert err.startswith("written: ")
    assert {path.name for path in Path("out").iterdir()} == FILES | {"mine_changes.png", "mine_residual.png"}
    values = json.loads(Path("out/report.json").read_text("utf-8"))
    assert {row["condition"] for row in values["rows"]} == {"clean", "loudness.gain=-40", "dc.offset=0.1", "nothing"}
    (quiet,) = [row for row in values["rows"] if row["condition"] == "loudness.gain=-40"]
    assert quiet["change"]["points"] > 40  # this model hears loudness only
    assert Path("out/report.html").read_text("utf-8").count("<audio") == 2


def test_the_outcome_has_a_folder_named_after_the_settings() -> None:
    assert main(["robustness", MODEL, SET, "corruptions=['dc.step=0.1']", "seed=3"]) == 0
    (folder,) = [path.parent for path in Path("runs/robustness").rglob("report.md")]
    assert folder.name == "corruptions=['dc.step=0.1'],seed=3"


def test_peers_stand_in_the_table_and_do_not_name_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ("import sys", "from pathlib import Path", "wavs, rttms = map(Path, sys.argv[1:])")
    loop = "[(rttms / f'{wav.stem}.rttm').touch() for wav in wavs.iterdir()]"
    Path("nobody.py").write_text("\n".join([*lines, loop]))
    words = ["robustness", MODEL, SET, "corruptions=['dc.step=0.1','features.scale=1.25']"]
    assert main([*words, f"peers.nobody='\"{sys.executable}\" nobody.py {{wavs}} {{rttms}}'"]) == 0
    out = capsys.readouterr().out
    (head,) = [line for line in out.splitlines() if "change of the DER" in line]
    assert [cell.strip() for cell in head.split("|")[2:-1]] == ["loud", "nobody"]
    assert re.search(r"\| clean \(DER\) +\| +[\d.]+ \| +100.0 \|", out)
    assert re.search(r"\| features.scale=1.25 +\|.*\| +n/a \|", out)
    (folder,) = [path.parent for path in Path("runs/robustness").rglob("report.md")]
    assert folder.name == "corruptions=['dc.step=0.1','features.scale=1.25']"


def test_the_recipe_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["robustness", "recipe=robustness", "--cfg", "job"]) == 0
    from omegaconf import OmegaConf

    from diarnorm.checkpoint import from_plain
    from diarnorm.robustness.conditions import find_conditions
    from diarnorm.robustness.corruption import catalogue

    values = OmegaConf.to_container(OmegaConf.create(capsys.readouterr().out), resolve=False)
    assert isinstance(values, dict)
    config = from_plain(RobustnessConfig, {str(key): value for key, value in values.items()})
    conditions = find_conditions(config)
    changed = [each for each in conditions if not (each.is_clean or each.is_alone)]
    assert len(changed) == 101
    severities = Counter(each.factor for each in changed if each.severity is not None)
    assert set(severities) == {each.name for each in catalogue()}
    assert {name for name, number in severities.items() if number < 3} == {
        "silence.hum_60",
        "damage.inf",
        "noise.hum_60",
    }  # hum of the other mains, and the same damage by another number
    margins = {each.name: each.margin for each in conditions if not each.is_alone}
    expected = {
        "loudness.gain=-40": None,
        "loudness.gain=-30": 1.0,
        "loudness.gain=10": 1.0,
        "loudness.gain=20": None,
        "loudness.swing=20": 2.0,
        "loudness.tremolo=12": 2.0,
        "dc.offset=0.1": 0.3,
        "dc.drift=0.1": 0.3,
        "dc.step=-0.1": 0.3,
        "silence.gaps=9.6": 0.5,
        "silence.middle=10": 0.5,
        "loudness.gain_int16=10": 2.0,
        "loudness.gain_int16=20": None,
        "loudness.gain_int16=-40": None,
        "silence.end=28.8": None,
        "band.limit=4000": 2.0,
        "band.limit=2000": None,
        "band.mu_law=6": None,
        "loudness.swing=12 noise.pink=10 room.reverb=0.4": 2.0,
        "noise.babble=10": 2.0,
    }
    assert {name: margins[name] for name in expected} == expected
    silent = [each.name for each in conditions if each.factor.startswith("silence.") and not each.is_alone]
    assert [each.name for each in conditions if each.is_quiet] == silent
    in_between = [name for name in silent if not name.startswith(("silence.start", "silence.end"))]
    assert [each.name for each in conditions if each.keeps_labels] == in_between
    jumps = {each.factor for each in changed if each.with_halves}
    assert {"loudness.swing", "loudness.turns", "dc.step", "loudness.swing noise.pink room.reverb"} <= jumps
    assert {"nothing", "silence.lsb=20", "silence.hum_50=20"} <= {each.name for each in conditions if each.is_alone}


def test_recipes_of_ones_own() -> None:
    Path("own").mkdir()
    text = (
        "defaults: [robustness, _self_]\nsets: {mine: my set}\ncorruptions: [dc.step=0.1]\nmodels: loud.safetensors\n"
    )
    Path("own/conditions.yaml").write_text(text)
    assert main(["robustness", "recipe=own"]) == 0
    assert Path("runs/own/report.html").exists()


def test_without_matplotlib_there_are_no_pictures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["robustness", MODEL, SET, "corruptions=['dc.step=0.1']"]) == 0
    assert "diarnorm robustness: pictures need matplotlib" in capsys.readouterr().err
    assert not list(Path("runs").rglob("*.png"))
    assert list(Path("runs").rglob("report.html"))


def test_keys_are_frozen() -> None:
    assert " ".join(sorted(RobustnessConfig.__dataclass_fields__)) == KEYS
    assert " ".join(Margin.__dataclass_fields__) == "factor points low high"


MISTAKES = [
    ([], "no recordings to change: give a folder of them as sets.NAME=FOLDER"),
    (["sets.mine=nosuch"], "sets.mine: {cwd}/nosuch does not exist"),
    ([SET, "models=['my set']"], "models=my set: no model files (*.safetensors) in this folder"),
    ([SET, "models={x: 'my set'}"], "models: x is a folder, {cwd}/my set: give a model file, or models=[FOLDER] for"),
    ([SET, "models={x: {path: rms, oracle_memory: true}}"], "oracle_memory is for `diarnorm evaluate`"),
    ([SET, "models=[nosuch]"], "no shipped model is called 'nosuch'"),
    ([SET, "corruptions=[loudnes]"], "no corruption or family is called 'loudnes'; did you mean loudness?"),
    ([SET, "corruptions=['dc.offset=7']"], "dc.offset=7.0 is out of range"),
    ([SET, "corruptions=[dc.offset=7]"], "needs quotes of its own: 'corruptions=[\"dc.offset=0.1\"]'"),
    ([SET, "corruptions=[]"], "corruptions is empty"),
    ([SET, "marginn=1"], "did you mean margin?"),
    ([SET, "margins=[{factr: dc}]"], "factr"),
    ([SET, "players=[nosuch]"], "no corruption is called 'nosuch'; families are"),
    ([SET, "players=['features.offset=1']"], "players=features.offset=1: log-mel frames cannot be heard, leave out"),
    ([SET, "quiet=[dc]"], "quiet=dc puts nothing in that could be quiet: give silence"),
    ([SET, "workers=0"], "workers=0 is out of range"),
    ([SET, "chunk_ms=500"], "chunk_ms=500 is not a multiple of 80 ms"),
    (
        [SET, "peers={x: 'python x.py {wavs}'}"],
        "peers.x=python x.py {{wavs}} has no {{rttms}} after its program: give a",
    ),
    (["sets.mine=nosuch", "peers.x='x.py {wavs}'"], "peers.x=x.py {{wavs}} has no {{rttms}}"),
    ([SET, "peers.x=[a,b]"], "peers.x"),
    ([SET, "peers.loud='true {wavs} {rttms}'"], "peers.loud is the name of a model, too: choose another"),
    ([SET, "peers.x='nosuchprogram {wavs} {rttms}'"], "peers.x: there is no program nosuchprogram: give its path"),
    (["recipe=smoke"], "recipe=smoke is neither a recipe (robustness) nor a folder with a conditions.yaml"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: " ".join(mistake[0]) or "nothing")
def test_a_mistake_is_one_sentence(mistake: tuple[list[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    words, message = mistake
    model = [] if any(word.startswith("models=") for word in words) else [MODEL]
    assert main(["robustness", *model, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("diarnorm robustness: ")
    assert err.count("\n") == 1, err
    assert message.format(cwd=Path.cwd()) in err


def test_help_comes_without_torch() -> None:
    import subprocess

    code = (
        "import sys; from diarnorm.cli import main; main(['robustness', '--help']); assert 'torch' not in sys.modules"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("usage: diarnorm robustness")
