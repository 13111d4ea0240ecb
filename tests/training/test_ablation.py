"""Recipe ablation: every command of its README composes, at equal budget, with the change that it says, and runs."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from diarnorm.cli import main
from diarnorm.resources import recipes_dir
from diarnorm.training.config import RunConfig

README = (recipes_dir() / "ablation" / "README.md").read_text("utf-8")
ROWS = [line for line in README.splitlines() if line.startswith("diarnorm train")]
BUDGET_S = 20 * 3600
OF_THE_BUDGET = {"data.stages", "train.num_steps", "train.warmup_steps", "train.decay_from", "train.eval_every"}
OF_THE_BUDGET |= {"train.checkpoint_every", "train.tune_conversations", "train.tune_duration_s"}
OF_THE_BUDGET |= {"train.tune_rounds", "train.tune_default_share"}
"""Keys in which the recipe differs from base."""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _elsewhere(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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


def words_of(row: str) -> list[str]:
    """Arguments of a command of the page, without `diarnorm`; `$data` stands for nothing here."""
    return [word for word in shlex.split(row)[1:] if word != "$data"]


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def changes(one: RunConfig, other: RunConfig) -> dict[str, Any]:
    """Keys in which one run differs from another, with its values."""
    before = dict(flat(asdict(other)))
    return {key: value for key, value in flat(asdict(one)) if value != before[key]}


def test_the_recipe_is_base_cut_short(jobs: list[tuple[RunConfig, Path]]) -> None:
    assert main(["train", "recipe=ablation"]) == main(["train", "recipe=base"]) == 0
    (ablation, _), (base, _) = jobs
    assert set(changes(ablation, base)) == OF_THE_BUDGET
    assert ablation.data.stages == base.data.stages[:1]


@pytest.mark.slow
def test_every_row_has_the_same_budget_and_a_folder_of_its_own(jobs: list[tuple[RunConfig, Path]]) -> None:
    assert main(["train", "recipe=ablation"]) == 0
    base = jobs.pop()[0]
    for row in ROWS:
        before = len(jobs)
        assert main(words_of(row)) == 0, row
        words = [word for word in words_of(row) if "=" in word and not word.startswith("recipe=")]
        for run, folder in jobs[before:]:
            changed = changes(run, base)
            keys = {word.partition("=")[0] for word in words}
            asked = {"model.frontend.kind" if key == "frontend" else key for key in keys}
            assert changed.keys() <= asked, row
            assert changed.keys() >= asked - {"train.seed"}, row
            assert folder.parent == Path.cwd() / "runs" / "ablation", row
        heard_s = [run.train.num_steps * run.train.accumulate * 4 * 30.0 for run, _ in jobs[before:]]
        assert set(heard_s) == {BUDGET_S}, row
        assert all(len(run.data.stages) == 1 and run.data.stages[0].batch_size == 4 for run, _ in jobs[before:])
    folders = [folder for _, folder in jobs]
    assert len(folders) == len(set(folders)) > 20


TINY = ["data.speech=synthetic", "train.num_steps=1", "train.dev_conversations=1", "train.dev_duration_s=4"]
TINY += ["train.workers=0", "train.tune_rounds=1", "train.tune_conversations=1", "train.tune_duration_s=4"]
TINY += ["model.encoder.dim=32", "model.encoder.num_blocks=1", "model.encoder.num_heads=2"]
TINY += ["data.stages=[{crop_s: 4.0, batch_size: 2, max_speakers: 2, speaker_probabilities: [0.3, 0.7]}]"]


@pytest.mark.parametrize("change", ["model.memory.kind=none", "loss.contrastive=0.1 loss.speaker=0 loss.teacher=0"])
def test_rows_with_losses_of_their_own_run(
    change: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a teacher, whatever its weight; the table of the page is printed from what they leave."""
    monkeypatch.setattr("diarnorm.training.tune.MEMORY_GRID", {"birth": (0.1, 0.3)})
    words = [*TINY, *change.split(), "hydra.sweep.subdir=row"]
    assert main(["train", "-m", "recipe=ablation", *words]) == 0
    log = next(Path.cwd().glob("runs/ablation/*/log.csv")).read_text("utf-8").splitlines()
    row = dict(zip(log[0].split(","), log[1].split(","), strict=True))
    assert row["teacher"] == ""
    assert float(row["outputs" if "none" in change else "contrastive"]) > 0
    capsys.readouterr()
    (table,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(table, "README.md", "exec"), {})
    head, _, line = capsys.readouterr().out.splitlines()
    assert head.count("|") == line.count("|") == 9
    assert line.startswith("| row | ")
