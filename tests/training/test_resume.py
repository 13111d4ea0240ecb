"""A run that goes on with other settings: which they are, where they are told, and what the record keeps of them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diarnorm.checkpoint import load_checkpoint
from diarnorm.simulation.warps import Warp
from diarnorm.training.config import RunConfig
from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.resume import as_words, new_settings
from diarnorm.training.trainer import Trainer
from tests.tiny_run import STAGES, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")


def kept(config: RunConfig) -> dict[str, Any]:
    """Its settings as a checkpoint holds them."""
    return json.loads(json.dumps(asdict(config)))


def test_settings_that_are_other_by_their_keys(tmp_path: Path) -> None:
    before = tiny_run(tmp_path)
    assert new_settings(kept(before), before, 4) == []
    stages = (replace(STAGES[0], crop_s=1.0),)
    data = replace(before.data, stages=stages, warps=(Warp(pitch=1.2),), cache_dir="/elsewhere", store="/shared")
    train = replace(before.train, chunks=(4,), workers=3, device="cuda", init_from="rms")
    after = replace(before, loss=LossConfig(teacher=0.5), data=data, train=train)
    found = {each["key"]: (each["was"], each["is"]) for each in new_settings(kept(before), after, 4)}
    assert found == {
        "loss.teacher": (1.0, 0.5),
        "data.warps[0].pitch": (None, 1.2),
        "data.warps[0].tract": (None, 1.0),
        "data.stages[0].crop_s": (2.0, 1.0),
        **{f"data.stages[1].{key}": (value, None) for key, value in kept(before)["data"]["stages"][1].items()},
        "data.warps": ([], None),
        "train.chunks": ([4, 6], [4]),
    }


def test_a_key_that_is_newer_than_the_run_had_its_default(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, stages=(STAGES[0], replace(STAGES[1], max_speakers=4)), num_slots=4)
    there = kept(config)
    del there["loss"]["contrastive"], there["data"]["recordings"], there["data"]["stages"][1]["max_speakers"]
    assert new_settings(there, config, 4) == []
    (change,) = new_settings(there, replace(config, loss=LossConfig(contrastive=0.5)), 4)
    assert change == {"step": 4, "key": "loss.contrastive", "was": 0.0, "is": 0.5}
    assert as_words([change, change]) == "loss.contrastive=0.5 was 0.0, loss.contrastive=0.5 was 0.0"


def test_other_settings_are_told_and_kept_with_their_step(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Trainer(tiny_run(corpus, num_steps=2, decay_from=1.0), tmp_path).run()
    assert "changes" not in load_checkpoint(tmp_path / "model.safetensors").training
    capsys.readouterr()
    other = tiny_run(corpus, num_steps=4, decay_from=1.0, learning_rate=1e-4, threads=2)
    Trainer(other, tmp_path).run()
    told = capsys.readouterr().err.splitlines()
    words = "train.num_steps=4 was 2, train.learning_rate=0.0001 was 0.001"
    assert told[0] == f"{tmp_path} goes on from step 2 with other settings: {words}"
    assert not any("other settings" in line for line in told[1:])
    longer = replace(other, train=replace(other.train, num_steps=5))
    Trainer(longer, tmp_path).run()
    assert f"{tmp_path} goes on from step 4 with other settings: train.num_steps=5 was 4\n" in capsys.readouterr().err
    Trainer(longer, tmp_path).run()
    assert "other settings" not in capsys.readouterr().err
    expected = [
        {"step": 2, "key": "train.num_steps", "was": 2, "is": 4},
        {"step": 2, "key": "train.learning_rate", "was": 1e-3, "is": 1e-4},
        {"step": 4, "key": "train.num_steps", "was": 4, "is": 5},
    ]
    assert torch.load(tmp_path / "last.pt", weights_only=True)["changes"] == expected
    assert load_checkpoint(tmp_path / "model.safetensors").training["changes"] == expected


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_another_weight_decay_holds_from_there_on(corpus: Path, tmp_path: Path, optimizer: str) -> None:
    Trainer(tiny_run(corpus, num_steps=1, optimizer=optimizer), tmp_path).run()
    trainer = Trainer(tiny_run(corpus, num_steps=2, optimizer=optimizer, weight_decay=0.5), tmp_path)
    assert {group["weight_decay"] for group in trainer.optimizer.param_groups} == {0.5}


def test_a_finished_run_says_that_others_are_asked_for(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Trainer(tiny_run(corpus, num_steps=1), tmp_path).run()
    capsys.readouterr()
    Trainer(tiny_run(corpus, num_steps=1, learning_rate=1e-4), tmp_path).run()
    told = capsys.readouterr().err
    assert told.endswith("; it was trained with other settings: train.learning_rate=0.0001 was 0.001\n")
    assert told.count("\n") == 1


def test_a_checkpoint_from_before_changes_were_kept_goes_on(corpus: Path, tmp_path: Path) -> None:
    Trainer(tiny_run(corpus, num_steps=1), tmp_path).run()
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    del saved["changes"]
    torch.save(saved, tmp_path / "last.pt")
    trainer = Trainer(tiny_run(corpus, num_steps=2), tmp_path)
    assert trainer.changes == [{"step": 1, "key": "train.num_steps", "was": 1, "is": 2}]
