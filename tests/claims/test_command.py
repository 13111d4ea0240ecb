"""`diarnorm claims` on the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

from diarnorm import cli
from diarnorm.claims import command
from diarnorm.claims.command import find_experiments, listing, make_parser
from diarnorm.claims.registry import CLAIMS


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
        (["13", "sizes_kb=[1]"], "sizes_kb=[1] has no large call"),
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


def test_a_run_leaves_evidence_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["claims", "1", "--output", str(tmp_path)]) == 0
    assert "confirmed" in capsys.readouterr().out
    assert (tmp_path / "evidence" / "definition.json").exists()
    written = (tmp_path / "claims.md").read_text("utf-8")
    (tmp_path / "claims.md").unlink()
    assert cli.main(["claims", "--report", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "claims.md").read_text("utf-8") == written


def test_timed_claims_take_their_sizes_from_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["dims=[64]", "rows=[1,4]", "rounds=5", "compiled=false", "device=cpu", "step_frames=1"]
    assert cli.main(["claims", "2", *sizes, "--output", str(tmp_path)]) == 0
    text = (tmp_path / "claims.md").read_text("utf-8")
    assert "eager, float32, 4 x 64" in text
    assert "by torch.compile | at most 0.93 | - | not measured" in text
    assert "rounds=5" in text
