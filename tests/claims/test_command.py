"""`diarnorm claims` on the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

from diarnorm import cli
from diarnorm.claims import command
from diarnorm.claims.command import find_experiments, listing, make_parser
from diarnorm.claims.registry import CLAIMS
from diarnorm.claims.rules import Experiment


def test_options_are_these() -> None:
    options = {word for action in make_parser()._actions for word in action.option_strings}
    assert options == {"-h", "--help", "--list", "--output", "--report", "--debug"}


@pytest.mark.parametrize("option", ["--help", "--list"])
def test_help_and_list_do_not_import_torch(option: str) -> None:
    code = "import sys; from diarnorm import cli; sys.exit(cli.main(sys.argv[1:]) or 'torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code, "claims", option], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "claims" in run.stdout or "RMSNorm is LayerNorm without the mean" in run.stdout


def test_the_list_names_every_claim_and_recipe() -> None:
    text = "\n".join(listing())
    for claim in CLAIMS:
        assert claim.sentence in text
        assert all(criterion.bounds in text for criterion in claim.criteria)
    assert "recipes/claims/placement.yaml" in text
    assert "quality: needs evaluation=..., recipes/claims/quality.yaml" in text
    assert "placement: a study" in text


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["definition", "batch_size", "silence", "levels", "batchnorm_gap", "half_precision", "swap"]),
        (["7", "1"], ["definition", "batchnorm_gap", "batchnorm_modes"]),
        (["2", "13"], ["time", "bandwidth"]),
    ],
)
def test_what_is_run(words: list[str], names: list[str]) -> None:
    assert [each.name for each in find_experiments(words)] == names


def test_all_is_everything() -> None:
    assert len(find_experiments(["all"])) == sum(len(claim.experiments) for claim in CLAIMS)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["15"], "there is no claim 15: give numbers from 1 to 14, or all"),
        (["dc"], "'dc' is no claim: give numbers from 1 to 14, or all"),
        (["1", "rounds=3"], "rounds=3 changes a recipe, and none of these experiments has one"),
        (["--lits"], "unknown option --lits; did you mean --list?"),
        (["6"], "no models to compare: give models=[PATH,...], trained with different norms"),
        (["6", "models={a: nowhere}"], "nowhere"),
        (["7", "models={a: nowhere}"], "nowhere"),
        (["12"], "no results to compare: give evaluation=FOLDER"),
        (["12", "evaluation=nowhere"], "nowhere is no folder: give the one that the jobs wrote to"),
        (["12", "evaluatio=x"], "did you mean evaluation?"),
        (["8", "grid.part=2/2"], "grid.part=2/2 is none"),
        (["8", "grid.norms=[rsm]"], "grid.norms=rsm is not known: choose one of rms, layer, batch, none"),
        (["9", "grid.seeds=[]"], "grid.seeds is empty: give one or more"),
        (["9", "grid.depths=[6,24]"], "grid.depths=[6, 24]: runs of this study do not differ in it, give one value"),
        (["13", "sizes_kb=[1]"], "sizes_kb=[1] has no large call"),
        (["13", "rounds=5"], "rounds=5 is out of range: give a number of at least 6"),
        (["2", "rounds=5"], "rounds=5 is out of range: give a number of at least 6"),
        (["2", "device=meta"], "device=meta cannot be"),
        (["6", "models=[rms]", "levels_db=[0]"], "levels_db=[0.0] lacks 20"),
        (["11", "pretrained=rms"], "pretrained=rms has norm=rms: give a model trained with norm=layer"),
    ],
)
def test_a_mistake_is_one_sentence(
    argv: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "find_experiments", _without_exact)
    assert cli.main(["claims", *argv, "--output", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err


def _without_exact(words: list[str]) -> list:
    found = find_experiments(words)
    return found if words == ["1"] else [each for each in found if each.kind != "exact"]


def stubbed(monkeypatch: pytest.MonkeyPatch, refused: str = "") -> dict[str, list[str]]:
    """What would be run from here on, with the changes that each takes; one is refused."""
    ran: dict[str, list[str]] = {}

    def run(experiment: Experiment, overrides: list[str], output: Path) -> int:
        ran[experiment.name] = overrides
        return 2 if experiment.name == refused else 0

    monkeypatch.setattr(command, "run", run)
    return ran


def test_all_leaves_out_what_needs_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = stubbed(monkeypatch)
    assert cli.main(["claims", "all", "--output", str(tmp_path)]) == 0
    everything = find_experiments(["all"])
    needy = {each.name for each in everything if each.needs}
    assert needy >= {"bursts", "batchnorm_modes", "quality"}
    assert ran.keys() == {each.name for each in everything} - needy
    err = capsys.readouterr().err
    assert all(f"{name} is left out: give " in err for name in needy)
    assert cli.main(["claims", "all", "evaluation=x", "--output", str(tmp_path)]) == 0
    assert ran["quality"] == ["evaluation=x"]


def test_changes_go_to_those_that_have_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = stubbed(monkeypatch)
    assert cli.main(["claims", "2", "8", "13", "rounds=9", "+grid.part=0/2", "--output", str(tmp_path)]) == 0
    assert ran == {"time": ["rounds=9"], "placement": ["+grid.part=0/2"], "bandwidth": ["rounds=9"]}
    ran.clear()
    assert cli.main(["claims", "all", "roundz=9", "--output", str(tmp_path)]) == 2
    assert "roundz=9: no recipe of these has this key: time, bursts, " in capsys.readouterr().err
    assert not ran


def test_all_fails_with_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = stubbed(monkeypatch, refused="placement")
    assert cli.main(["claims", "all", "grid.part=5/2", "--output", str(tmp_path)]) == 2
    assert "start" in ran  # the others are run all the same


def test_a_run_leaves_evidence_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", "1", "--output", str(tmp_path)]) == 0
    assert "confirmed" in capsys.readouterr().out
    assert (tmp_path / "evidence" / "definition.json").exists()
    written = (tmp_path / "claims.md").read_text("utf-8")
    (tmp_path / "claims.md").unlink()
    assert cli.main(["claims", "--report", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "claims.md").read_text("utf-8") == written


def test_timed_claims_take_their_sizes_from_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["dims=[64]", "rows=[1,4]", "rounds=6", "compiled=false", "device=cpu", "step_frames=1"]
    assert cli.main(["claims", "2", *sizes, "--output", str(tmp_path)]) == 0
    text = (tmp_path / "claims.md").read_text("utf-8")
    assert "eager, float32, 4 x 64" in text
    assert "by torch.compile | at most 0.93 | - | not measured" in text
    assert "rounds=6" in text
