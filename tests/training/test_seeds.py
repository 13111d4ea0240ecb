"""The same seed gives the same training, whatever else differs from process to process."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diarnorm.training.trainer import Trainer
from tests.tiny_run import differing, saved_tensors, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")

CHANGES: dict[str, Any] = {"num_steps": 20, "eval_every": 10, "checkpoint_every": 20}


def losses_in(folder: Path) -> list[dict[str, str]]:
    """Rows of the log to the last digit, without the speed."""
    with (folder / "log.csv").open(newline="", encoding="utf-8") as file:
        return [{key: value for key, value in row.items() if key != "audio_s_per_s"} for row in csv.DictReader(file)]


def test_twenty_steps_are_the_same_in_a_process_that_hashes_otherwise(corpus: Path, tmp_path: Path) -> None:
    here = Trainer(tiny_run(corpus, **CHANGES), tmp_path / "here")
    here.run()
    code = (
        "import sys; from pathlib import Path; from diarnorm.training.trainer import Trainer; "
        "from tests.tiny_run import tiny_run; corpus, folder = map(Path, sys.argv[1:]); "
        f"Trainer(tiny_run(corpus, **{CHANGES}), folder).run(); print(hash('diarnorm'))"
    )
    seeds = [seed for seed in ("1", "2") if os.environ.get("PYTHONHASHSEED") != seed]
    there = subprocess.run(
        [sys.executable, "-c", code, str(corpus), str(tmp_path / "there")],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "PYTHONHASHSEED": seeds[0]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert there.returncode == 0, there.stderr
    assert int(there.stdout.split()[-1]) != hash("diarnorm")
    losses = losses_in(tmp_path / "here")
    assert losses == losses_in(tmp_path / "there")
    assert len(losses) == 20
    assert differing(saved_tensors(tmp_path / "here"), saved_tensors(tmp_path / "there")) == []


def test_another_seed_is_another_training(corpus: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        Trainer(tiny_run(corpus, num_steps=3, seed=seed), tmp_path / f"{seed}").run()
    assert losses_in(tmp_path / "0") != losses_in(tmp_path / "1")
