"""Training in real processes: killed at any step, shared by two, started by torchrun."""

import csv
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from diarnorm.checkpoint import load_checkpoint
from diarnorm.training.batches import CurriculumStage
from diarnorm.training.config import RunConfig
from diarnorm.training.trainer import Trainer
from tests.processes import CONTEXT, run_group
from tests.tiny_run import differing, saved_tensors, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parents[2]


def rows(run_dir: Path) -> list[dict[str, str]]:
    """The log without the speed; whole rows only."""
    path = run_dir / "log.csv"
    lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    return [{k: v for k, v in row.items() if k != "audio_s_per_s"} for row in csv.DictReader(whole)]


# ---- killed ------------------------------------------------------------------------------------------------


def train(config: RunConfig, folder: Path) -> None:
    """A whole run in a process of its own."""
    torch.set_num_threads(1)
    Trainer(config, folder).run()


def start(config: RunConfig, folder: Path) -> Any:
    process = CONTEXT.Process(target=train, args=(config, folder))
    process.start()
    return process


def test_a_run_killed_at_three_random_steps_equals_a_whole_one(corpus: Path, tmp_path: Path) -> None:
    """Bit for bit: weights, optimisers (Muon's and AdamW's), average, every row of the log, and the model file."""
    changes = {"optimizer": "muon", "accumulate": 2, "checkpoint_every": 3, "eval_every": 8}
    config = tiny_run(corpus, "batch", num_steps=24, **changes)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    uninterrupted = start(config, whole)
    kills = sorted(random.Random(0).sample(range(2, 20), 3))
    for step in kills:
        process = start(config, killed)
        while len(rows(killed)) < step:
            assert process.is_alive()
            time.sleep(0.002)
        process.kill()
        process.join()
        assert process.exitcode == -9
        assert step <= len(rows(killed)) < 24
    last = start(config, killed)
    for process in (last, uninterrupted):
        process.join()
        assert process.exitcode == 0
    assert differing(saved_tensors(killed), saved_tensors(whole)) == []
    assert rows(killed) == rows(whole)
    assert len(rows(whole)) == 24
    models = [load_checkpoint(folder / "model.safetensors") for folder in (killed, whole)]
    assert differing(*(model.model.state_dict() for model in models)) == []
    records = [{**model.training, "commit": ""} for model in models]
    assert records[0] == records[1]
    assert {path.name for path in killed.iterdir()} == {"last.pt", "log.csv", "model.safetensors"}


# ---- shared ------------------------------------------------------------------------------------------------

STAGES = (
    CurriculumStage(0, crop_s=2.0, batch_size=4, max_speakers=2, speaker_probabilities=(0.3, 0.7)),
    CurriculumStage(3, crop_s=3.0, batch_size=2, max_speakers=3, speaker_probabilities=(0.2, 0.4, 0.4)),
)


def plain_run(corpus: Path, norm: str, num_steps: int, **changes: Any) -> RunConfig:
    """A run without dropout, so that two processes can repeat what one does; its steps are the same however many
    follow."""
    changes |= {"decay_from": 1.0, "rollout_from": 0.0}
    return tiny_run(corpus, norm, STAGES, dropout=0.0, num_steps=num_steps, **changes)


def share_run(config: RunConfig, folder: Path) -> dict[str, Any]:
    """What one process of several knows after a run."""
    trainer = Trainer(config, folder)
    first_step = trainer.step
    figures = trainer.run()
    return {"first": first_step, "figures": figures, "model": trainer.model.state_dict(), "heard_s": trainer.heard_s}


@pytest.mark.parametrize("norm", ["rms", "batch"])
def test_two_processes_train_the_model_of_one(corpus: Path, tmp_path: Path, norm: str) -> None:
    """Stopped half-way and resumed by both; only the first writes, evaluates and prints."""
    alone = Trainer(plain_run(corpus, norm, 6), tmp_path / "alone")
    start_weights = {name: value.clone() for name, value in alone.model.state_dict().items()}
    alone.run()
    shared = tmp_path / "shared"
    run_group(share_run, 2, tmp_path / "a", plain_run(corpus, norm, 4), shared)
    first, second = run_group(share_run, 2, tmp_path / "b", plain_run(corpus, norm, 6), shared)
    assert first["first"] == second["first"] == 4
    assert second["figures"] == {} != first["figures"]
    assert differing(first["model"], second["model"]) == []
    assert first["heard_s"] == pytest.approx(alone.heard_s)
    moved = worst = 0.0
    for name, value in alone.model.state_dict().items():
        if value.is_floating_point():
            moved = max(moved, float((value - start_weights[name]).abs().max()))
            worst = max(worst, float((value - first["model"][name]).abs().max()))
    assert worst < 0.2 * moved  # Adam's first steps are of one size whatever rounding left of a gradient near zero
    assert len(rows(shared)) == len(rows(tmp_path / "alone")) == 6
    for ours, theirs in zip(rows(shared), rows(tmp_path / "alone"), strict=True):
        for name in ("births", "own", "rolled", "speech", "speaker", "grad_norm"):
            if theirs[name]:
                assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=2e-3, abs=2e-3)
    assert load_checkpoint(shared / "model.safetensors").training["processes"] == 2
    assert {path.name for path in shared.iterdir()} == {"last.pt", "log.csv", "model.safetensors"}


def refused(config: RunConfig, folder: Path) -> str:
    try:
        Trainer(config, folder)
    except ValueError as error:
        return str(error)
    return ""


def test_batches_that_cannot_be_shared_are_refused(corpus: Path, tmp_path: Path) -> None:
    config = tiny_run(tmp_path / "no speech", stages=(STAGES[0], CurriculumStage(3, 3.0, 3, 2, (1.0,))))
    for message in run_group(refused, 2, tmp_path, config, tmp_path / "run"):
        assert message == "data.stages[1].batch_size=3 cannot be shared by 2 processes: give a multiple of 2"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_torchrun_as_a_user_types_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "diarnorm", "train", "recipe=smoke", "norm=batch", "train.num_steps=4", "train.eval_every=2"]
    environment = {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    odd = "data.stages=[{crop_s: 10.0, batch_size: 3, max_speakers: 2, speaker_probabilities: [0.3, 0.7]}]"
    for words, step in (([], 4), ([odd, "hydra.run.dir=runs/smoke/odd"], 0)):
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True
        )
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        if step:
            assert done.returncode == 0, done.stderr
            assert [line.split()[0] for line in lines if line.startswith("step=")] == ["step=2", "step=4"]
            assert sum(line.startswith("BatchNorm, loss") for line in lines) == 1
        else:
            assert done.returncode != 0
            assert sum("batch_size=3 cannot be shared by 2 processes" in line for line in lines) == 1
    (run_dir,) = [path.parent for path in (tmp_path / "runs").rglob("last.pt")]
    assert load_checkpoint(run_dir / "model.safetensors").training["processes"] == 2
    assert {path.name for path in run_dir.iterdir()} == {".hydra", "last.pt", "log.csv", "model.safetensors"}
