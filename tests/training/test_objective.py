"""Gradient of a step: several batches, or several processes, give that of one large batch; bf16 stays near float32."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diarnorm.model import Model
from diarnorm.training import objective
from diarnorm.training.batches import Batch, CurriculumStage
from diarnorm.training.config import RunConfig
from diarnorm.training.distributed import num_processes, rank
from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.losses import training_losses
from diarnorm.training.objective import Draw, add_gradients, draw, loss_counts, loss_shares, mix
from diarnorm.training.rundata import RunData
from diarnorm.training.trainer import Trainer
from diarnorm.training.voices import SpeakerHeads
from tests.processes import run_group
from tests.tiny_run import tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = LossConfig(no_delay=1.0, decoded=1.0)
"""Nothing is drawn per batch, so that batches can be cut and joined."""
STAGES = (CurriculumStage(0, crop_s=2.0, batch_size=4, max_speakers=2, speaker_probabilities=(0.3, 0.7)),)
TEACHER_DIM = 5


def run_of(corpus: Path, norm: str = "rms", *, loss: LossConfig = PLAIN, **changes: Any) -> RunConfig:
    """A run in which only data and weights are random, unless another loss draws, too."""
    return tiny_run(corpus, norm, STAGES, dropout=0.0, loss=loss, rollout_share=0.0, chunks=(5,), **changes)


def parts(config: RunConfig, data: RunData) -> tuple[Model, SpeakerHeads, torch.Tensor]:
    """A model in training with large weights, heads, and a teacher that knows every other utterance."""
    torch.manual_seed(0)
    assert data.speech is not None
    model = Model(config.model).train()
    teacher = torch.randn(data.speech.num_utterances * data.speech.num_factors, TEACHER_DIM)
    teacher[::2] = 0.0
    classes = data.speech.num_classes
    return model, SpeakerHeads(config.model.memory.embedding_dim, classes, TEACHER_DIM), teacher


def gradients(config: RunConfig, batches: Sequence[Batch] | None = None) -> dict[str, torch.Tensor]:
    """Gradients and losses of step 0, of the run's own batches unless others are given."""
    data = RunData(config)
    model, heads, teacher = parts(config, data)
    batches = next(data.steps(0)) if batches is None else batches
    values = add_gradients(model, heads, batches, config, step=0, teacher=teacher)
    found = {name: p.grad for name, p in [*model.named_parameters(), *heads.named_parameters()] if p.grad is not None}
    statistics = {name: value for name, value in model.state_dict().items() if "running" in name}
    return found | statistics | {f"loss {name}": torch.tensor(value) for name, value in values.items()}


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """The same names; differences no more than rounding of sums in another order."""
    assert found.keys() == expected.keys()
    largest = max(float(value.abs().max()) for name, value in expected.items() if "running" not in name)
    for name, value in expected.items():
        scale = float(value.abs().max())
        error = float((found[name] - value).abs().max())
        assert error <= 2e-5 * scale + 1e-6 * largest, (name, error, scale)


def shared_gradients(config: RunConfig, batch: Batch) -> dict[str, torch.Tensor]:
    """The same in one of several processes, of its rows of `batch`."""
    size = batch.mel.shape[0] // num_processes()
    return gradients(config, [Batch(*(part[rank() * size : (rank() + 1) * size] for part in batch))])


@pytest.mark.parametrize("loss", [PLAIN, LossConfig()], ids=["plain", "drawn"])
@pytest.mark.parametrize("norm", ["rms", "layer", "batch"])
def test_two_processes_give_the_gradient_of_one(corpus: Path, tmp_path: Path, norm: str, loss: LossConfig) -> None:
    """With delays and decoded frames that are drawn, too."""
    config = run_of(corpus, norm, loss=loss)
    (batch,) = next(RunData(config).steps(0))
    expected = gradients(config, [batch])
    first, second = run_group(shared_gradients, 2, tmp_path, config, batch)
    assert_close(first, expected)
    assert_close(second, expected)
    if norm == "batch":
        assert any("running_mean" in name for name in expected)


@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_accumulated_batches_give_the_gradient_of_a_large_one(corpus: Path, norm: str) -> None:
    config = run_of(corpus, norm, accumulate=3)
    batches = next(RunData(config).steps(0))
    assert len(batches) == 3
    shares = [share["speaker"].item() for share in loss_shares(batches, config, 5, None) if share is not None]
    assert len(set(shares)) == 3  # not one third each
    whole = Batch(*(torch.cat(rows) for rows in zip(*batches, strict=True)))
    expected = gradients(replace(config, train=replace(config.train, accumulate=1)), [whole])
    assert {"loss births", "loss own", "loss speech", "loss speaker", "loss teacher", "teacher.weight"} <= set(expected)
    assert_close(gradients(config, batches), expected)


def test_batches_that_count_alike_whatever_they_hold_do_not(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_of(corpus, accumulate=3)
    batches = next(RunData(config).steps(0))
    expected = gradients(config, batches)
    third = dict.fromkeys(("births", "own", "speech", "speaker", "teacher"), torch.tensor(1 / 3))
    monkeypatch.setattr(objective, "loss_shares", lambda *_: [third] * 3)
    with pytest.raises(AssertionError):
        assert_close(gradients(config, batches), expected)


def test_a_batch_in_which_nobody_speaks_alone_counts_for_the_rest(corpus: Path) -> None:
    config = run_of(corpus, accumulate=2)
    first, second = next(RunData(config).steps(0))
    silent = second._replace(activity=torch.zeros_like(second.activity), source=torch.full_like(second.source, -1))
    alone, both = gradients(config, [first]), gradients(config, [first, silent])
    for name in ("loss speaker", "loss teacher", "classes", "teacher.weight"):
        torch.testing.assert_close(both[name], alone[name])
    assert both["loss births"] < alone["loss births"] != 0
    only = gradients(config, [silent, silent])
    assert "classes" not in only


def test_counts_are_those_of_the_losses(corpus: Path) -> None:
    """Doubling a loss's rows and halving its share is the same: each loss is a mean over what is counted."""
    config = run_of(corpus)
    (batch,) = next(RunData(config).steps(0))
    frames = batch.activity.shape[1] // 7 * 7
    counts = loss_counts(batch, config, 7, torch.ones(1000, 2))
    assert counts["births"] == counts["own"] == counts["speech"] == 4 * frames
    alone = [
        (row, t)
        for row in range(4)
        for t in range(frames)
        if batch.activity[row, t].max() * (1 - batch.activity[row, t].min()) >= 0.9
    ]
    assert counts["speaker"] == len(alone) > 0
    assert counts["teacher"] == sum(bool(batch.source[row, t] >= 0) for row, t in alone)


def test_counts_of_other_losses(corpus: Path) -> None:
    config = run_of(corpus)
    (batch,) = next(RunData(config).steps(0))
    plain = loss_counts(batch, config, 7, None)
    contrasted = replace(config, loss=replace(PLAIN, contrastive=0.1, contrastive_frames=6))
    assert loss_counts(batch, contrasted, 7, None) == plain | {"contrastive": torch.tensor(6.0)}
    memory = replace(config.model.memory, kind="none")
    without = replace(config, model=replace(config.model, memory=memory), loss=LossConfig())
    found = loss_counts(batch, without, 7, None)
    assert found.keys() == {"outputs", "speech", "speaker"}
    assert found["outputs"] == plain["births"]


def test_accumulated_batches_without_memory_give_the_gradient_of_a_large_one(corpus: Path) -> None:
    plain = run_of(corpus, accumulate=3)
    memory = replace(plain.model.memory, kind="none")
    config = replace(plain, model=replace(plain.model, memory=memory), loss=LossConfig())
    batches = next(RunData(config).steps(0))
    whole = Batch(*(torch.cat(rows) for rows in zip(*batches, strict=True)))
    expected = gradients(replace(config, train=replace(config.train, accumulate=1)), [whole])
    assert "loss outputs" in expected
    assert_close(gradients(config, batches), expected)


def test_accumulated_batches_have_a_contrastive_loss_each(corpus: Path) -> None:
    config = replace(run_of(corpus, accumulate=2), loss=replace(PLAIN, contrastive=0.2, contrastive_frames=9))
    found = gradients(config)
    assert 0 < found["loss contrastive"] < 2
    assert found.keys() == gradients(run_of(corpus, accumulate=2)).keys() | {"loss contrastive"}


def test_one_batch_alone_is_not_touched(corpus: Path) -> None:
    config = run_of(corpus)
    data = RunData(config)
    model, heads, teacher = parts(config, data)
    (batch,) = next(data.steps(0))
    assert loss_shares([batch], config, 5, teacher) == [None]
    generator = torch.Generator().manual_seed(mix(config.train.seed, 0, objective.BATCH))
    losses = training_losses(
        model, heads, batch, PLAIN, chunk=5, free_running=False, generator=generator, teacher=teacher
    )
    torch.stack(list(losses.values())).sum().backward()
    found = gradients(config)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert torch.equal(found[name], parameter.grad), name
    assert found["loss births"] == losses["births"].item()


def test_mixed_precision_stays_near_and_keeps_float32(corpus: Path, tmp_path: Path) -> None:
    wide, narrow = (gradients(run_of(corpus, precision=precision)) for precision in ("fp32", "bf16"))
    assert wide.keys() == narrow.keys()
    for name in ("births", "own", "speech", "speaker"):
        torch.testing.assert_close(narrow[f"loss {name}"], wide[f"loss {name}"], rtol=0.02, atol=0.02)
    names = [name for name in wide if name.endswith("weight")]
    assert all(narrow[name].dtype == torch.float32 for name in names)
    ours, theirs = (torch.cat([found[name].flatten() for name in names]) for found in (narrow, wide))
    cosine = torch.cosine_similarity(ours, theirs, dim=0)
    assert 0.98 < cosine < 0.999999
    trainer = Trainer(tiny_run(corpus, num_steps=2, precision="bf16"), tmp_path)
    trainer.run()
    assert all(value.dtype == torch.float32 for value in trainer.ema.values() if value.is_floating_point())


def test_what_is_drawn_once_per_step(corpus: Path) -> None:
    config = tiny_run(corpus, num_steps=100, rollout_from=0.5, rollout_share=0.4)
    draws = [draw(config, step) for step in range(100)]
    assert draws == [draw(config, step) for step in range(100)]
    assert {drawn.chunk for drawn in draws} == {4, 6}
    assert not any(drawn.rolled for drawn in draws[:50])
    assert 8 < sum(drawn.rolled for drawn in draws[50:]) < 32
    assert draws != [draw(tiny_run(corpus, num_steps=100, seed=1), step) for step in range(100)]


def test_each_batch_of_a_step_has_random_numbers_of_its_own(corpus: Path) -> None:
    config = tiny_run(corpus, stages=STAGES, dropout=0.5)
    data = RunData(config)
    model, heads, _ = parts(config, data)
    (batch,) = next(data.steps(0))

    def births(step: int, number: int) -> float:
        losses = objective.batch_losses(
            model, heads, batch, config, Draw(5, False), step=step, number=number, teacher=None
        )
        return losses["births"].item()

    found = [births(step, number) for step in range(2) for number in range(2)]
    assert len(set(found)) == 4
    assert found[1] == births(0, 1)
