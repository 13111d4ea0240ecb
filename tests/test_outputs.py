"""The arm without memory: outputs against all orders by hand, counts by the memory's rules, streams, files, runs."""

import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from torch.nn import functional as F

from diarnorm.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from diarnorm.memory import MemoryConfig, MemoryOutput, SpeakerMemory
from diarnorm.model import Model, ModelConfig
from diarnorm.outputs import FixedOutputs, in_best_order, make_memory
from diarnorm.stream import Diarizer
from diarnorm.training.batches import Batch, CurriculumStage
from diarnorm.training.config import RunConfig, TrainConfig
from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.losses import training_losses
from diarnorm.training.optimizers import make_optimizer
from diarnorm.training.trainer import Trainer
from diarnorm.training.voices import SpeakerHeads
from tests.tiny import ENCODER, MEMORY, QUICK_TURNS, in_steps, noise, tensors_of, two_voices, whole_chunks
from tests.tiny_run import differing, tiny_run

DIM = 32
WITHOUT = replace(MEMORY, kind="none", num_slots=3)


def make_outputs(**changes: Any) -> FixedOutputs:
    """Three outputs that talk a lot, in evaluation mode."""
    torch.manual_seed(4)
    outputs = FixedOutputs(DIM, replace(WITHOUT, **changes))
    with torch.no_grad():
        outputs.decoder.head.weight.mul_(6.0)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    return outputs.eval()


def make_model(num_slots: int = 3) -> Model:
    torch.manual_seed(2)
    return Model(ModelConfig(encoder=ENCODER, memory=replace(WITHOUT, num_slots=num_slots)))


# ---- the best order ---------------------------------------------------------------------------------------


def lowest_loss(logits: Tensor, activity: Tensor) -> tuple[float, Tensor]:
    """Cross-entropy of one row in the best of all orders, and the targets in that order."""
    outputs, speakers = logits.shape[1], activity.shape[1]
    padded = F.pad(activity, (0, outputs - speakers))
    p = logits.double().sigmoid()
    losses = {}
    for order in permutations(range(outputs)):
        target = padded[:, list(order)].double()
        losses[order] = -(target * p.log() + (1 - target) * (1 - p).log()).sum().item() / len(logits)
    best = min(losses, key=lambda order: losses[order])
    return losses[best], padded[:, list(best)]


@pytest.mark.parametrize(("outputs", "speakers"), [(1, 1), (3, 3), (4, 2), (5, 4)])
def test_the_best_order_is_the_best_of_all(outputs: int, speakers: int) -> None:
    logits = 3 * noise(6, 17, outputs)
    activity = (noise(6, 17, speakers, seed=1) > 0).float() * noise(6, 17, speakers, seed=2).sigmoid()
    found = in_best_order(logits, activity)
    for row in range(6):
        torch.testing.assert_close(found[row], lowest_loss(logits[row], activity[row])[1])


def test_speakers_in_any_order_are_the_same() -> None:
    logits, activity = noise(2, 9, 4), (noise(2, 9, 3, seed=1) > 0).float()
    assert torch.equal(in_best_order(logits, activity), in_best_order(logits, activity[..., [2, 0, 1]]))


def test_a_logit_that_is_no_number_stays_for_the_trainer_to_find() -> None:
    logits = noise(1, 5, 2).clone()
    logits[0, 2, 1] = math.nan
    assert in_best_order(logits, torch.ones(1, 5, 2)).isfinite().all()


def make_batch() -> Batch:
    """Two conversations of two of five speakers."""
    activity = torch.zeros(2, 24, 2)
    activity[:, 2:12, 0] = activity[0, 9:20, 1] = activity[1, 12:16, 1] = 1.0
    source = torch.where(activity.sum(dim=-1) == 1, 1, -1)
    return Batch(9 + 2 * noise(2, 192, 80), activity, torch.tensor([[0, 3], [4, 1]]), source)


def losses_of(model: Model, batch: Batch, config: LossConfig, *, free_running: bool = False) -> dict[str, Tensor]:
    torch.manual_seed(0)
    heads = SpeakerHeads(8, 5)
    generator = torch.Generator().manual_seed(0)
    return training_losses(model, heads, batch, config, chunk=4, free_running=free_running, generator=generator)


@pytest.mark.parametrize("free_running", [False, True])
def test_the_loss_by_hand_and_every_parameter_trained(free_running: bool) -> None:
    model, batch = make_model().train(), make_batch()
    found = losses_of(model, batch, LossConfig(), free_running=free_running)
    assert set(found) == {"outputs", "speech", "speaker"}
    with torch.no_grad():
        mel, _ = model.frontend(batch.mel.float())
        logits = model.memory.decoder.head(model.encoder(mel, chunk=4)[0])
    expected = sum(lowest_loss(logits[row], batch.activity[row])[0] for row in range(2)) / 2
    assert found["outputs"].item() == pytest.approx(expected, rel=1e-5)
    torch.stack(list(found.values())).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


# ---- counts -----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_activity_is_the_encoders_alone() -> None:
    outputs, h = make_outputs(), noise(2, 40, DIM)
    output, _ = outputs(h)
    torch.testing.assert_close(output.activity, outputs.logits(h).sigmoid())
    assert output.overflow.max() < 1e-9
    later, _ = outputs(h[:, 20:])
    torch.testing.assert_close(later.activity, output.activity[:, 20:])


@torch.no_grad()
def test_every_output_counts_its_exclusive_speech() -> None:
    """Nobody is dropped here; what is born late counts no less than what is born first."""
    outputs, h = make_outputs(birth=0.6, floor=0.4, drop_frames=10**6), noise(3, 60, DIM)
    output, _ = outputs(h)
    activity = output.activity.double().numpy()
    alone = np.stack([activity[..., s] * np.delete(1 - activity, s, axis=-1).prod(axis=-1) for s in range(3)], axis=-1)
    count = np.zeros((3, 3))
    for frame in range(60):
        weight = np.where(alone[:, frame] >= np.where(count > 0, 0.4, 0.6), alone[:, frame], 0.0)
        count += weight
        np.testing.assert_allclose(output.count[:, frame], count, atol=1e-4)
    assert (count > 2).all()


@torch.no_grad()
def test_an_output_that_falls_silent_before_it_is_confirmed_is_free_again() -> None:
    outputs = make_outputs(confirm_frames=50.0, drop_frames=2)
    output, _ = outputs(noise(4, 80, DIM))
    occupied = output.count > 0
    assert (occupied[:, :-1] & ~occupied[:, 1:]).any()


@torch.no_grad()
def test_slots_beyond_the_outputs_stay_free_and_fewer_are_refused() -> None:
    outputs, h = make_outputs(), noise(2, 40, DIM)
    few, _ = outputs(h)
    many, _ = outputs(h, outputs.init_state(2, 5))
    assert torch.equal(many.activity[..., :3], few.activity)
    assert torch.equal(many.count[..., :3], few.count)
    assert not many.count[..., 3:].any()
    assert many.activity[..., 3:].max() < 1e-9
    with pytest.raises(ValueError, match=r"3 fixed outputs, max_speakers=2 is fewer: give 3 or more"):
        outputs.init_state(1, 2)


@settings(max_examples=5)
@given(sizes=whole_chunks(20))
@torch.no_grad()
def test_stream_equals_one_step(sizes: list[int]) -> None:
    outputs, h = make_outputs(), noise(2, 20, DIM)
    whole, last = outputs(h)
    pieces, state = in_steps(outputs, None, h, sizes)
    for field in MemoryOutput._fields:
        joined = torch.cat([getattr(piece, field) for piece in pieces], dim=1)
        torch.testing.assert_close(joined, getattr(whole, field), rtol=0, atol=1e-5)
    for a, b in zip(tensors_of(state), tensors_of(last), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@torch.no_grad()
def test_invalid_frames_change_nothing() -> None:
    outputs, h = make_outputs(), noise(2, 30, DIM)
    valid = torch.ones(2, 40, dtype=torch.bool)
    valid[:, 10:20] = False
    clean, _ = outputs(h)
    output, _ = outputs(torch.cat([h[:, :10], 100 * noise(2, 10, DIM, seed=3), h[:, 10:]], dim=1), None, valid)
    assert not output.activity[:, 10:20].any()
    torch.testing.assert_close(output.count[valid], clean.count.flatten(0, 1), rtol=0, atol=1e-5)


# ---- as part of the rest ----------------------------------------------------------------------------------


class OnMps(Tensor):
    """A tensor on a device that has no float64."""

    def double(self, *args: Any, **kwargs: Any) -> Tensor:
        """Refused, as there."""
        raise TypeError("Cannot convert a MPS Tensor to float64 dtype")

    def cpu(self, *args: Any, **kwargs: Any) -> Tensor:
        """The numbers, where float64 is."""
        return self.as_subclass(Tensor)


def test_the_best_order_needs_float64_on_the_cpu_alone() -> None:
    logits, activity = noise(2, 9, 3), (noise(2, 9, 2, seed=1) > 0).float()
    found = in_best_order(logits.as_subclass(OnMps), activity.as_subclass(OnMps))
    assert torch.equal(found.as_subclass(Tensor), in_best_order(logits, activity))
    assert found.any()


def test_kinds() -> None:
    assert type(make_memory(DIM, MEMORY)) is SpeakerMemory
    assert type(make_memory(DIM, WITHOUT)) is FixedOutputs
    with pytest.raises(ValueError, match=r"model.memory.kind=some is not known: choose one of prototypes, none"):
        MemoryConfig(kind="some")


def test_turns_come_out_of_a_stream_and_of_the_file(tmp_path: Path) -> None:
    model = make_model()
    with torch.no_grad():
        model.memory.decoder.head.weight.mul_(8.0)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
    save_checkpoint(tmp_path / "m.safetensors", Checkpoint(model, QUICK_TURNS, 4, (4,)), dtype=torch.float32)
    loaded = load_checkpoint(tmp_path / "m.safetensors")
    assert loaded.model.config.memory.kind == "none"

    def turns(block: int) -> list[Any]:
        stream = Diarizer(loaded).stream()
        samples = two_voices()
        return list(stream.feed(samples[i : i + block] for i in range(0, len(samples), block)))

    assert len({turn.speaker for turn in turns(16_000)}) >= 2
    assert turns(16_000) == turns(777)
    with pytest.raises(ValueError, match=r"max_speakers=2 is fewer"):
        Diarizer(loaded).stream(max_speakers=2)


def test_muon_leaves_the_outputs_to_adamw() -> None:
    optimizer = make_optimizer(make_model(), SpeakerHeads(8, 5), TrainConfig(optimizer="muon"))
    head = make_model().memory.decoder.head.weight  # pyright: ignore[reportAttributeAccessIssue]
    shapes = [[p.shape for p in group["params"]] for group in optimizer.param_groups]
    assert head.shape not in shapes[0]
    assert head.shape in shapes[1]


def without_memory(run: RunConfig) -> RunConfig:
    return replace(run, model=replace(run.model, memory=replace(run.model.memory, kind="none")))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": LossConfig(no_delay=1.0)}, r"loss.no_delay=1.0 is for a speaker memory, and model.memory.kind=none"),
        ({"loss": LossConfig(decoded=1.0)}, r"loss.decoded=1.0 is for a speaker memory, and .* has none: leave it out"),
        (
            {"num_slots": 1, "stages": (CurriculumStage(0, 2.0, 1, 2, (1.0, 0.0)),)},
            r"model.memory.num_slots=1 .* of at least 2, data.stages\[0\].max_speakers, since .* output for each",
        ),
    ],
)
def test_what_needs_a_memory_is_refused(corpus: Path, changes: dict[str, Any], message: str) -> None:
    run = tiny_run(corpus, **changes)
    with pytest.raises(ValueError, match=message):
        without_memory(run)


@pytest.mark.usefixtures("one_thread")
def test_a_run_trains_tunes_and_goes_on(corpus: Path, tmp_path: Path) -> None:
    run = without_memory(tiny_run(corpus, rollout_from=0.0, tune_rounds=1))
    trainer = Trainer(run, tmp_path)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.run()
    assert "memory.decoder.head.weight" in differing(before, trainer.model.state_dict())
    header, *rows = (tmp_path / "log.csv").read_text("utf-8").splitlines()
    losses = [dict(zip(header.split(","), row.split(","), strict=True)) for row in rows]
    assert all(float(row["outputs"]) > 0 and row["births"] == row["own"] == row["rolled"] == "" for row in losses)
    model = load_checkpoint(tmp_path / "model.safetensors")
    assert model.training["after_tuning"]["der"] <= model.training["before_tuning"]["der"]
    assert Trainer(run, tmp_path).step == 6
    with pytest.raises(ValueError, match=r"of another run \(model.memory.kind=prototypes was none\)"):
        Trainer(tiny_run(corpus), tmp_path)


@pytest.mark.usefixtures("one_thread")
def test_no_model_starts_from_one_of_the_other_kind(corpus: Path, tmp_path: Path) -> None:
    run = without_memory(tiny_run(corpus, num_steps=1))
    Trainer(run, tmp_path / "first").run()
    source = str(tmp_path / "first")
    with pytest.raises(ValueError, match=r"another architecture: model.memory.kind=prototypes was none; set them"):
        Trainer(tiny_run(corpus, init_from=source), tmp_path / "second")
    more = without_memory(tiny_run(corpus, init_from=source, num_slots=4))
    with pytest.raises(ValueError, match=r"another architecture: model.memory.num_slots=4 was 3"):
        Trainer(more, tmp_path / "third")
    Trainer(without_memory(tiny_run(corpus, init_from=source, num_steps=1)), tmp_path / "fourth")


@pytest.mark.usefixtures("one_thread")
def test_batch_norm_is_compared_in_both_modes(corpus: Path, tmp_path: Path) -> None:
    Trainer(without_memory(tiny_run(corpus, "batch", num_steps=1)), tmp_path).run()
    gap = load_checkpoint(tmp_path / "model.safetensors").training["batch_norm_loss"]
    assert gap["train_mode"] > 0 < gap["eval_mode"]
