"""A run from another's weights: the file or folder, what must fit, and what the record says."""

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diarnorm.checkpoint import load_checkpoint, save_checkpoint
from diarnorm.commands.info import info_lines
from diarnorm.modelfile import read_header
from diarnorm.training.trainer import Trainer
from diarnorm.training.warmstart import Ancestor, find_ancestor, find_weights
from tests.tiny_run import differing, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def ended(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run of three steps, finished."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("ended")
    Trainer(tiny_run(corpus, num_steps=3), folder).run()
    return folder


def half(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.half().to(value.dtype) for name, value in values.items()}


def test_a_run_starts_from_a_models_weights_and_nothing_else(corpus: Path, ended: Path, tmp_path: Path) -> None:
    model_file = ended / "model.safetensors"
    trainer = Trainer(tiny_run(corpus, init_from=str(model_file), seed=3), tmp_path)
    saved = torch.load(ended / "last.pt", weights_only=True)
    assert differing(trainer.model.state_dict(), half(saved["ema"])) == []
    assert differing(trainer.ema, trainer.model.state_dict()) == []
    assert trainer.step == 0
    assert not trainer.optimizer.state_dict()["state"]
    assert not torch.equal(trainer.heads.classes, saved["heads"]["classes"])
    assert trainer.ancestor is not None
    record = read_header(model_file).facts["training"]
    assert trainer.ancestor.sha256 == hashlib.sha256(model_file.read_bytes()).hexdigest()
    assert trainer.ancestor.steps == 3
    assert trainer.ancestor.hours_heard == trainer.ancestor.total_hours == record["hours_heard"]


def test_hours_add_up_over_generations(corpus: Path, ended: Path, tmp_path: Path) -> None:
    facts = load_checkpoint(ended / "model.safetensors")
    source = tmp_path / "grandchild.safetensors"
    save_checkpoint(source, replace(facts, training={"steps": 40, "hours_heard": 5.0, "total_hours": 12.0}))
    trainer = Trainer(tiny_run(corpus, num_steps=2, init_from=str(source)), tmp_path / "run")
    trainer.heard_s = 3600.0
    record = trainer.record({})
    assert (record["hours_heard"], record["total_hours"]) == (1.0, 13.0)
    trainer.heard_s = 0.0
    trainer.run()
    (source).unlink()  # a run that goes on does not need it any more
    longer = Trainer(tiny_run(corpus, num_steps=3, init_from=str(source)), tmp_path / "run")
    assert longer.step == 2
    longer.run()
    record = load_checkpoint(tmp_path / "run" / "model.safetensors").training
    expected = {"file": "grandchild.safetensors", "steps": 40, "hours_heard": 5.0, "total_hours": 12.0}
    assert expected.items() <= record["init_from"].items()
    assert record["total_hours"] == round(12.0 + record["hours_heard"], 2)
    lines = info_lines(source, read_header(tmp_path / "run" / "model.safetensors"))
    assert any('init_from={"file": "grandchild.safetensors", "sha256": "' in line for line in lines)


def test_the_record_of_a_new_run_has_its_own_hours(ended: Path) -> None:
    record = read_header(ended / "model.safetensors").facts["training"]
    assert record["total_hours"] == record["hours_heard"]
    assert "init_from" not in record


def test_a_folder_means_its_newest_weights(ended: Path, tmp_path: Path) -> None:
    assert find_weights(ended) == ended / "model.safetensors"
    assert find_weights(ended / "model.safetensors") == ended / "model.safetensors"
    for name in ("model.safetensors", "ema.safetensors"):
        (tmp_path / name).touch()
    assert find_weights(tmp_path).name == "ema.safetensors"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"init_from=.*empty holds neither ema.safetensors nor model.safetensors"):
        find_weights(tmp_path / "empty")


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("encoder", {"dim": 32}, r"another architecture: model.encoder.dim=32 was 16; set them as there"),
        ("encoder", {"norm": "layer"}, r"was trained with norm=rms, not norm=layer"),
        ("encoder", {"conv_norm": "batch"}, r"model.encoder.conv_norm=batch was None"),
        ("encoder", {"num_blocks": 2, "kernel_size": 5}, r"num_blocks=2 was 1, model.encoder.kernel_size=5 was 3"),
        ("encoder", {"num_heads": 4}, r"model.encoder.num_heads=4 was 2"),  # the same shapes
        ("memory", {"embedding_dim": 16}, r"model.memory.embedding_dim=16 was 8"),
        ("frontend", {"kind": "pcen"}, r"model.frontend.kind=pcen was ema"),
        ("memory", {"num_slots": 5, "birth": 0.3, "dropout": 0.2}, None),
        ("encoder", {"dropout": 0.3, "left_context": 9}, None),
    ],
)
def test_weights_of_another_architecture(
    corpus: Path, ended: Path, part: str, changes: dict[str, Any], message: str | None
) -> None:
    model = tiny_run(corpus).model
    model = replace(model, **{part: replace(getattr(model, part), **changes)})
    if message is None:
        find_ancestor(ended, model)
    else:
        with pytest.raises(ValueError, match=message):
            find_ancestor(ended, model)


def test_no_such_file_is_told_before_data_is_read(corpus: Path, tmp_path: Path) -> None:
    config = tiny_run(corpus, init_from=str(tmp_path / "nosuch.safetensors"))
    config = replace(config, data=replace(config.data, speech=str(tmp_path / "no speech")))
    with pytest.raises(ValueError, match=r"nosuch.safetensors: no such file"):
        Trainer(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_cold_run_is_not_warmed_up_later(corpus: Path, ended: Path, tmp_path: Path) -> None:
    Trainer(tiny_run(corpus, num_steps=1), tmp_path).run()
    with pytest.raises(ValueError, match=r"of another run \(train.init_from=.* was None\)"):
        Trainer(tiny_run(corpus, num_steps=2, init_from=str(ended)), tmp_path)


def test_an_ancestor_is_plain_values() -> None:
    ancestor = Ancestor("a.safetensors", "00", 1, 0.5, 1.5)
    assert Ancestor(**asdict(ancestor)) == ancestor
