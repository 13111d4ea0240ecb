"""BatchNorm in both modes on the same batches: the gap is the statistics', and nothing is changed by looking."""

from pathlib import Path

import pytest
import torch

from diarnorm.model import Model
from diarnorm.modelfile import read_header
from diarnorm.norms import BatchNorm
from diarnorm.training.batchgap import gap_sentence, has_batch_norm, loss_in_both_modes
from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.rundata import RunData
from diarnorm.training.trainer import Trainer
from tests.tiny_run import differing, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")


def test_models_with_batch_norm_are_known(corpus: Path) -> None:
    for norm in ("rms", "layer", "none", "batch"):
        assert has_batch_norm(Model(tiny_run(corpus, norm).model)) == (norm == "batch")


def test_the_gap_is_that_of_the_statistics(corpus: Path) -> None:
    """Running statistics set to a batch's own close it; wrong ones open it, and only in evaluation mode."""
    config = tiny_run(corpus, "batch")
    batch = RunData(config).held_out_batches()[:1]
    torch.manual_seed(0)
    model = Model(config.model).train()
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.momentum = 1.0
    loss_config = LossConfig(decoded=1.0)
    with torch.no_grad():  # one pass in which every layer keeps the batch's own statistics
        mel, _ = model.frontend(batch[0].mel.float())
        for dropout in (m for m in model.modules() if isinstance(m, torch.nn.Dropout)):
            dropout.eval()
        model.encoder(mel[:, : mel.shape[1] // 48 * 48], chunk=6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    near = loss_in_both_modes(model, batch, loss_config, chunk=6)
    assert differing(model.state_dict(), before) == []
    assert model.training
    assert near["train_mode"] == pytest.approx(near["eval_mode"], rel=0.02)  # biased, unbiased variance
    for module in model.modules():
        if isinstance(module, BatchNorm) and module.running_var is not None:
            module.running_var.mul_(100.0)
    far = loss_in_both_modes(model, batch, loss_config, chunk=6)
    assert far["train_mode"] == near["train_mode"]
    assert abs(far["eval_mode"] - far["train_mode"]) > 5 * abs(near["eval_mode"] - near["train_mode"])


def test_a_run_ends_with_it_on_console_and_record(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for norm in ("batch", "rms"):
        trainer = Trainer(tiny_run(corpus, norm, num_steps=3), tmp_path / norm)
        trainer.run()
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("BatchNorm")]
        record = read_header(tmp_path / norm / "model.safetensors").facts["training"]
        if norm == "batch":
            gap = record["batch_norm_loss"]
            assert told == [gap_sentence(gap)]
            assert gap.keys() == {"train_mode", "eval_mode"}
            assert gap["train_mode"] != gap["eval_mode"]  # three steps: the statistics have hardly begun
        else:
            assert told == []
            assert "batch_norm_loss" not in record
