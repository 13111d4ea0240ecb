"""Training: resumed runs equal whole ones to the bit, checkpoints survive a kill, losses fall, averages add up."""

import csv
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torch import distributed

from diarnorm.checkpoint import load_checkpoint
from diarnorm.norms import NORMS
from diarnorm.simulation.speech import load_speech
from diarnorm.simulation.synthetic import write_tree
from diarnorm.training import objective, rundata, tune
from diarnorm.training import trainer as train
from diarnorm.training.batches import Batch, CurriculumStage, SimulatedBatches
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.losses import training_losses
from diarnorm.training.optimizers import learning_rate_factor, make_optimizer
from diarnorm.training.trainer import Trainer
from diarnorm.training.trainlog import TrainingLog
from tests.processes import CONTEXT
from tests.tiny_run import STAGES, differing, saved_tensors, tensors_in, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def whole_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    Trainer(tiny_run(corpus), folder).run()
    return folder


def losses_in(run_dir: Path) -> list[dict[str, str]]:
    """Rows of the log, without the speed."""
    with (run_dir / "log.csv").open(newline="", encoding="utf-8") as file:
        return [{key: value for key, value in row.items() if key != "audio_s_per_s"} for row in csv.DictReader(file)]


# ---- resuming ---------------------------------------------------------------------------------------------


def test_a_run_without_a_cap_trains_goes_on_and_is_saved(corpus: Path, tmp_path: Path) -> None:
    run = tiny_run(corpus, rollout_from=0.0)
    run = replace(run, model=replace(run.model, memory=replace(run.model.memory, cap_frames=math.inf)))
    interrupt(run, tmp_path, at_step=4)
    Trainer(run, tmp_path).run()
    assert all(math.isfinite(float(row["births"])) for row in losses_in(tmp_path))
    model = load_checkpoint(tmp_path / "model.safetensors")
    assert model.model.memory.config.cap_frames == math.inf
    assert model.training["config"]["model"]["memory"]["cap_frames"] == "inf"
    with pytest.raises(ValueError, match=r"of another run \(model.memory.cap_frames=200.0 was inf\)"):
        Trainer(tiny_run(corpus, rollout_from=0.0), tmp_path)


class Stop(KeyboardInterrupt):
    """What a test throws into a run."""


def interrupt(config: Any, folder: Path, at_step: int) -> None:
    """Run until step `at_step` is about to be logged."""
    with pytest.MonkeyPatch.context() as patch:

        def add(log: TrainingLog, step: int, *rest: Any) -> None:
            if step == at_step:
                raise Stop
            logged(log, step, *rest)

        logged = TrainingLog.add
        patch.setattr(TrainingLog, "add", add)
        with pytest.raises(Stop):
            Trainer(config, folder).run()


@pytest.mark.parametrize("at_step", [3, 6])
def test_a_resumed_run_equals_a_whole_one(corpus: Path, whole_run: Path, tmp_path: Path, at_step: int) -> None:
    interrupt(tiny_run(corpus), tmp_path, at_step)
    trainer = Trainer(tiny_run(corpus), tmp_path)
    assert trainer.step == at_step - 1 - (at_step - 1) % 2
    trainer.run()
    assert trainer.step == 6
    assert differing(saved_tensors(tmp_path), saved_tensors(whole_run)) == []
    assert losses_in(tmp_path) == losses_in(whole_run)
    assert [row["step"] for row in losses_in(tmp_path)] == list("123456")
    assert (tmp_path / "model.safetensors").stat().st_size == (whole_run / "model.safetensors").stat().st_size


def without_optimizer(trainer: Trainer) -> None:
    trainer.optimizer = make_optimizer(trainer.model, trainer.heads, trainer.config.train)


def without_average(trainer: Trainer) -> None:
    trainer.ema = {name: value.clone() for name, value in trainer.model.state_dict().items()}


def one_step_back(trainer: Trainer) -> None:
    trainer.step -= 1


def without_heads(trainer: Trainer) -> None:
    torch.nn.init.normal_(trainer.heads.classes)


@pytest.mark.parametrize("forget", [without_optimizer, without_average, one_step_back, without_heads])
def test_a_run_that_forgets_something_does_not(
    corpus: Path, whole_run: Path, tmp_path: Path, forget: Callable[[Trainer], None]
) -> None:
    interrupt(tiny_run(corpus), tmp_path, 5)
    trainer = Trainer(tiny_run(corpus), tmp_path)
    forget(trainer)
    trainer.run()
    assert differing(saved_tensors(tmp_path), saved_tensors(whole_run))


def test_another_seed_gives_another_run(corpus: Path, whole_run: Path, tmp_path: Path) -> None:
    Trainer(tiny_run(corpus, seed=1), tmp_path).run()
    assert len(differing(saved_tensors(tmp_path), saved_tensors(whole_run))) > 50


def test_a_finished_run_stays_as_it_is(corpus: Path, whole_run: Path) -> None:
    before = (whole_run / "last.pt").read_bytes()
    log = (whole_run / "log.csv").read_bytes()
    trainer = Trainer(tiny_run(corpus), whole_run)
    figures = trainer.run()
    assert (whole_run / "last.pt").read_bytes() == before
    assert (whole_run / "log.csv").read_bytes() == log
    assert figures["der"] == pytest.approx(float(losses_in(whole_run)[-1]["der"]), abs=0.01)


def test_a_finished_run_says_so_and_tunes_nothing(
    corpus: Path, whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("last.pt", "model.safetensors"):
        (tmp_path / name).write_bytes((whole_run / name).read_bytes())
    monkeypatch.setattr(train, "Tuner", None)  # whoever asks for it fails
    figures = Trainer(tiny_run(corpus, tune_rounds=1), tmp_path).run()
    assert figures == load_checkpoint(whole_run / "model.safetensors").training["development"]
    told = capsys.readouterr().err
    assert told.startswith(f"{tmp_path} is finished, 6 steps: nothing to do (train.num_steps above 6 trains on")
    assert told.count("\n") == 1
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(TypeError):
        Trainer(tiny_run(corpus, tune_rounds=1), tmp_path).run()


def test_a_run_that_goes_on_leaves_its_average_for_others(corpus: Path, tmp_path: Path, whole_run: Path) -> None:
    interrupt(tiny_run(corpus), tmp_path, 6)
    saved = torch.load(tmp_path / "last.pt", weights_only=True)
    shared = load_checkpoint(tmp_path / "ema.safetensors", norm="rms")
    for name, value in shared.model.state_dict().items():
        assert torch.equal(value, saved["ema"][name].half().to(value.dtype)), name
    assert shared.training["finished"] is False
    assert (shared.training["steps"], saved["step"]) == (4, 4)
    assert shared.training["development"]["der"] > 0  # of step 3
    assert (shared.chunk, shared.chunks) == (4, (4, 6))
    size = (tmp_path / "ema.safetensors").stat().st_size
    assert size < 0.25 * (tmp_path / "last.pt").stat().st_size
    assert {path.name for path in whole_run.iterdir()} == {"last.pt", "log.csv", "model.safetensors"}
    assert "finished" not in load_checkpoint(whole_run / "model.safetensors").training


def train_to_a_kill(corpus: Path, folder: Path) -> None:
    """In a process of its own, which ends amid saving step 4."""

    def save(state: dict[str, Any], path: Path) -> None:
        whole_save(state, path)
        if state["step"] == 4:
            os.truncate(path, Path(path).stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    torch.set_num_threads(1)
    whole_save, torch.save = torch.save, save
    Trainer(tiny_run(corpus, workers=1), folder).run()


def test_a_kill_while_saving_leaves_the_checkpoint_before(corpus: Path, whole_run: Path, tmp_path: Path) -> None:
    killed = CONTEXT.Process(target=train_to_a_kill, args=(corpus, tmp_path))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert torch.load(tmp_path / "last.pt", weights_only=True)["step"] == 2
    with pytest.raises((RuntimeError, EOFError)):
        torch.load(tmp_path / "last.part", weights_only=True)
    assert [row["step"] for row in losses_in(tmp_path)] == list("1234")
    trainer = Trainer(tiny_run(corpus), tmp_path)
    assert trainer.step == 2
    trainer.run()
    assert differing(saved_tensors(tmp_path), saved_tensors(whole_run)) == []  # with batches from a worker as without
    assert losses_in(tmp_path) == losses_in(whole_run)


PLAIN_LOAD = """
import collections, sys
sys.modules["hydra"] = sys.modules["omegaconf"] = sys.modules["diarnorm"] = None
import torch

def types(value):
    inside = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return {type(value)}.union(*map(types, inside))

found = types(torch.load(sys.argv[1], weights_only=True))
print(sorted(kind.__name__ for kind in found))
containers = {dict, collections.OrderedDict, list, tuple}
assert found <= containers | {str, int, float, bool, type(None), torch.Tensor}, found
"""


def test_checkpoints_load_without_this_package_or_hydra(whole_run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PLAIN_LOAD, str(whole_run / "last.pt")]
    loaded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    assert "Tensor" in loaded.stdout


# ---- what a run leaves ------------------------------------------------------------------------------------


def test_the_model_file_is_the_average_with_its_record(corpus: Path, whole_run: Path) -> None:
    checkpoint = load_checkpoint(whole_run / "model.safetensors", norm="rms")
    average = torch.load(whole_run / "last.pt", weights_only=True)["ema"]
    for name, value in checkpoint.model.state_dict().items():
        assert torch.equal(value, average[name].half().to(value.dtype)), name
    assert checkpoint.chunk == 4  # as often as 6, and first
    assert checkpoint.chunks == (4, 6)
    record = checkpoint.training
    assert record["steps"] == 6
    assert record["speakers"] == 8
    assert record["hours_heard"] == round((3 * 2 * 25 + 3 * 37) * 0.08 / 3600, 2)
    assert record["config"]["train"]["num_steps"] == 6
    assert set(record["development"]) >= {"der", "merged", "count_error"}
    assert record["commit"]


def test_a_run_ends_with_its_thresholds_tuned(
    corpus: Path, tmp_path: Path, whole_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "MEMORY_GRID", {"birth": (0.1, 0.3, 0.6)})
    monkeypatch.setattr(tune, "TURN_GRID", {"onset": (0.2, 0.5)})
    (tmp_path / "last.pt").write_bytes((whole_run / "last.pt").read_bytes())
    Trainer(tiny_run(corpus, tune_rounds=1, tune_conversations=2, tune_duration_s=4.0), tmp_path).run()
    tuned, plain = (load_checkpoint(folder / "model.safetensors") for folder in (tmp_path, whole_run))
    record = tuned.training
    assert record["after_tuning"]["der"] <= record["before_tuning"]["der"] < 100
    assert record["development"] == plain.training["development"]  # as the run was shown, before tuning
    assert differing(tuned.model.state_dict(), plain.model.state_dict()) == []
    speech = load_speech(corpus, split="dev", cache_dir=corpus.parent)
    conversations = DevelopmentSet.simulated(speech, 2, 4.0, seed=rundata.TUNE_SEED)
    assert conversations.evaluate(tuned.model, tuned.turns)["der"] == pytest.approx(
        record["after_tuning"]["der"],
        abs=3.0,  # the file holds half precision
    )


def test_one_step_is_a_run(corpus: Path, tmp_path: Path) -> None:
    Trainer(tiny_run(corpus, num_steps=1), tmp_path).run()
    assert [row["step"] for row in losses_in(tmp_path)] == ["1"]
    assert losses_in(tmp_path)[0]["der"]


# ---- the optimiser ----------------------------------------------------------------------------------------


def test_steps_use_the_learning_rate_and_the_average_follows(corpus: Path, tmp_path: Path) -> None:
    config = tiny_run(corpus, norm="batch", ema_decay=0.25)
    trainer = Trainer(config, tmp_path)
    expected = {name: value.double() for name, value in trainer.model.state_dict().items()}
    for number, batches in enumerate(trainer.data.steps(0)):
        trainer._train_step(batches)
        trainer.step += 1
        rates = {group["lr"] for group in trainer.optimizer.param_groups}
        assert rates == {1e-3 * learning_rate_factor(number, config.train)}
        decay = min(0.25, (1 + number) / (10 + number))
        for name, value in trainer.model.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * value.double()
    for name, value in trainer.ema.items():
        if value.is_floating_point():
            torch.testing.assert_close(value.double(), expected[name], rtol=1e-5, atol=1e-7)
            assert "running" not in name or not torch.equal(value, trainer.model.state_dict()[name])
        else:
            assert value.item() == trainer.model.state_dict()[name].item()


def spoil_loss(patch: pytest.MonkeyPatch) -> None:
    """The loss of step 1 is not a number."""

    def losses(*arguments: Any, **options: Any) -> dict[str, torch.Tensor]:
        values = training_losses(*arguments, **options)
        calls.append(1)
        return values | ({"births": values["births"] * math.nan} if len(calls) == 2 else {})

    calls: list[int] = []
    patch.setattr(objective, "training_losses", losses)


def test_the_speed_of_a_step_counts_its_data_and_nothing_before(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that shows one second more after each training step, two after each wait for a batch, ten after the
    fourth wait, a hundred after each evaluation."""
    clock = [0.0]

    def steps(data: rundata.RunData, first: int) -> Iterator[tuple[Batch, ...]]:
        for number, batches in enumerate(fetch(data, first)):
            clock[0] += 10.0 if number == 3 else 2.0
            yield batches

    def train_step(trainer: Trainer, batches: Sequence[Batch]) -> dict[str, float]:
        clock[0] += 1.0
        return learn(trainer, batches)

    def evaluate(trainer: Trainer) -> dict[str, float]:
        clock[0] += 100.0
        return judge(trainer)

    fetch, learn, judge = rundata.RunData.steps, Trainer._train_step, Trainer.evaluate
    monkeypatch.setattr(rundata.RunData, "steps", steps)
    monkeypatch.setattr(Trainer, "_train_step", train_step)
    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    monkeypatch.setattr(train.time, "perf_counter", lambda: clock[0])
    Trainer(tiny_run(corpus, accumulate=2), tmp_path).run()
    with (tmp_path / "log.csv").open(newline="", encoding="utf-8") as file:
        rates = [float(row["audio_s_per_s"]) for row in csv.DictReader(file)]
    whole_s = [2 * 2 * 2.0] * 3 + [2 * 1 * 37 * 0.08] * 3  # batches, conversations, seconds in whole frames
    seconds = [3.0, 3.0, 3.0, 11.0, 3.0, 3.0]
    assert rates == [round(audio_s / step_s, 1) for audio_s, step_s in zip(whole_s, seconds, strict=True)]


def spoil_input(patch: pytest.MonkeyPatch) -> None:
    """The mel frames of step 1 are not numbers."""

    def spoiled(data: rundata.RunData, first: int) -> Iterator[tuple[Batch, ...]]:
        for number, (batch,) in enumerate(steps(data, first)):
            mel = batch.mel.clone()
            mel[1:] = math.nan
            yield (batch._replace(mel=mel) if number == 1 else batch,)

    steps = rundata.RunData.steps
    patch.setattr(rundata.RunData, "steps", spoiled)


@pytest.mark.parametrize("norm", ["rms", "batch"])
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (spoil_loss, "step 1 of seed 0: births not finite, skipped"),
        (
            spoil_input,
            "step 1 of seed 0: births, own, speech, speaker not finite, skipped; "
            "at fault, as [seed, batch, row]: [0, 1, 1]",
        ),
    ],
)
def test_a_gradient_that_is_not_finite_is_skipped_and_told(
    corpus: Path,
    tmp_path: Path,
    norm: str,
    spoil: Callable[[pytest.MonkeyPatch], None],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(monkeypatch)
    trainer = Trainer(tiny_run(corpus, norm=norm), tmp_path)
    weights = []
    for batches in trainer.data.steps(0):
        trainer._train_step(batches)
        trainer.step += 1
        weights.append({name: value.clone() for name, value in tensors_in(trainer.model.state_dict()).items()})
    changed = [name for name in differing(weights[0], weights[1]) if "running" not in name and "tracked" not in name]
    assert changed == []
    assert differing(weights[1], weights[2])
    assert all(value.isfinite().all() for value in weights[-1].values())
    assert all(value.isfinite().all() for value in trainer.ema.values())
    assert capsys.readouterr().err.splitlines() == [told]
    assert trainer.record({})["skipped_steps"] == 1
    assert trainer.skips.in_row == 0


def test_a_run_in_which_nothing_is_finite_stops(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However often it is started again: the count is kept."""

    def losses(*arguments: Any, **options: Any) -> dict[str, torch.Tensor]:
        values = training_losses(*arguments, **options)
        return values | {"own": values["own"] * math.inf}

    monkeypatch.setattr(objective, "training_losses", losses)
    stages = (CurriculumStage(0, crop_s=2.0, batch_size=2, max_speakers=1, speaker_probabilities=(1.0,)),)
    changes = {"num_steps": 40, "checkpoint_every": 5, "rollout_share": 0.0, "eval_every": 40}
    config = tiny_run(corpus, stages=stages, **changes)
    interrupt(config, tmp_path, 11)
    trainer = Trainer(config, tmp_path)
    assert (trainer.step, trainer.skips.in_row, trainer.skips.total) == (10, 10, 10)
    with pytest.raises(ValueError, match=r"21 steps in a row .* last was step 20 \(own\): lower train.learning"):
        trainer.run()
    told = capsys.readouterr().err.splitlines()
    assert "step 19 of seed 0: own not finite, skipped" in told  # with every conversation: the fault is not theirs


# ---- learning ---------------------------------------------------------------------------------------------


def loss_on_new_voices(trainer: Trainer, corpus: Path) -> float:
    """Loss of the slots on conversations of speakers never trained on."""
    speech = load_speech(corpus, split="dev", cache_dir=corpus.parent)
    stages = (CurriculumStage(0, 6.0, 8, 2, (0.3, 0.7)),)
    item = SimulatedBatches(speech, seed=5, num_steps=1, stages=stages)[0]
    batch = Batch(*(item[name] for name in Batch._fields))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        losses = training_losses(
            trainer.model.eval(),
            trainer.heads,
            batch,
            trainer.config.loss,
            chunk=6,
            free_running=False,
            generator=generator,
        )
    return (losses["births"] + losses["own"]).item()


def assert_learns(corpus: Path, folder: Path) -> None:
    """40 steps take a quarter off the loss on new voices (measured with three seeds: from 2.8, 3.1, 3.5 to 1.8)."""
    stages = (CurriculumStage(0, 3.0, 4, 2, (0.3, 0.7)),)
    config = tiny_run(corpus, stages=stages, num_steps=40, learning_rate=5e-3, eval_every=40, checkpoint_every=40)
    trainer = Trainer(config, folder)
    before = loss_on_new_voices(trainer, corpus)
    trainer.run()
    after = loss_on_new_voices(trainer, corpus)
    assert after < 0.75 * before, (before, after)


def test_training_learns(corpus: Path, tmp_path: Path) -> None:
    assert_learns(corpus, tmp_path)


def test_training_without_a_learning_rate_does_not(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "learning_rate_factor", lambda step, config: 0.0)
    with pytest.raises(AssertionError):
        assert_learns(corpus, tmp_path)


ONE_VALUE = [(1, 0.08, 1), (2, 0.08, 1), (1, 0.96, 6)]
"""Batch size, seconds of a crop, frames of a chunk: BatchNorm's statistics are of so little. It meets all of them,
every other norm one."""
PAIRS = [("batch", *few) for few in ONE_VALUE]
PAIRS += [(norm, *ONE_VALUE[number % 3]) for number, norm in enumerate(norm for norm in NORMS if norm != "batch")]


@pytest.mark.parametrize(("norm", "batch_size", "crop_s", "chunk"), PAIRS)
def test_one_value_per_channel_trains(
    corpus: Path, tmp_path: Path, norm: str, batch_size: int, crop_s: float, chunk: int
) -> None:
    stages = (CurriculumStage(0, crop_s, batch_size, 1, (1.0,)),)
    changes = {"num_steps": 5, "chunks": (chunk,), "warmup_steps": 0, "eval_every": 5}
    trainer = Trainer(tiny_run(corpus, norm, stages, **changes), tmp_path)
    start = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    figures = trainer.run()
    for row in losses_in(tmp_path):
        assert all(math.isfinite(float(value)) for value in row.values() if value)
    assert all(value.isfinite().all() for value in saved_tensors(tmp_path).values())
    assert differing(start, trainer.model.state_dict())
    assert math.isfinite(figures["der"])


def test_batch_norm_in_a_process_group_of_one_is_batch_norm(corpus: Path, tmp_path: Path) -> None:
    config = tiny_run(corpus, "batch", num_steps=2)
    Trainer(config, tmp_path / "alone").run()
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        Trainer(config, tmp_path / "group").run()
    finally:
        distributed.destroy_process_group()
    assert differing(saved_tensors(tmp_path / "group"), saved_tensors(tmp_path / "alone")) == []
    model = load_checkpoint(tmp_path / "group" / "model.safetensors", norm="batch").model
    assert int(model.state_dict()["encoder.final_norm.num_batches_tracked"]) == 2


@pytest.mark.parametrize(("norm", "batch_size"), [("batch", 1), ("batch", 2), ("rms", 1)])
def test_five_utterances_are_enough(tmp_path: Path, norm: str, batch_size: int) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=5, num_utterances=1, duration_s=2.0)
    stages = (CurriculumStage(0, 2.0, batch_size, 2, (0.5, 0.5)),)
    Trainer(tiny_run(tree, norm, stages), tmp_path / "run").run()
    assert all(value.isfinite().all() for value in saved_tensors(tmp_path / "run").values())


# ---- refused before training ------------------------------------------------------------------------------


def test_more_speakers_than_there_are(corpus: Path, tmp_path: Path) -> None:
    crowd = replace(STAGES[1], from_step=5, max_speakers=9, speaker_probabilities=(0,) * 8 + (1.0,))
    config = tiny_run(corpus, stages=(STAGES[0], crowd), num_slots=9)
    with pytest.raises(ValueError, match=rf"data.stages\[1\].*asks for 9 speakers.*{corpus} has 8 with speech"):
        Trainer(config, tmp_path)
    possible = replace(crowd, speaker_probabilities=(1.0,) + (0,) * 8)  # no more than one, whatever the slots
    Trainer(tiny_run(corpus, stages=(STAGES[0], possible), num_slots=9), tmp_path / "other")


def test_an_utterance_without_speech(tmp_path: Path) -> None:
    (tmp_path / "tree" / "one").mkdir(parents=True)
    soundfile.write(tmp_path / "tree" / "one" / "short.wav", np.zeros(400), 16_000)
    stages = (CurriculumStage(0, 2.0, 1, 1, (1.0,)),)
    with pytest.raises(ValueError, match=r"asks for 1 speakers in a conversation.* has 0 with speech to train on"):
        Trainer(tiny_run(tmp_path / "tree", stages=stages), tmp_path / "run")


def test_going_on_from_a_checkpoint_of_version_0_1_0(corpus: Path, whole_run: Path, tmp_path: Path) -> None:
    saved = torch.load(whole_run / "last.pt", weights_only=True)
    del saved["speakers"]
    torch.save(saved, tmp_path / "last.pt")
    with pytest.raises(ValueError, match=r"last.pt was written by an older diarnorm: remove its folder"):
        Trainer(tiny_run(corpus), tmp_path)


def test_going_on_with_another_model_or_other_speakers(corpus: Path, whole_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"last.pt is of another run \(model.encoder.norm=layer was rms\)"):
        Trainer(tiny_run(corpus, norm="layer"), whole_run)
    tree = write_tree(tmp_path / "tree", num_speakers=4, num_utterances=1, duration_s=2.0)
    with pytest.raises(ValueError, match=r"is of another run \(data.speech now has 20 voices\)"):
        Trainer(tiny_run(tree), whole_run)
    with pytest.raises(ValueError, match=r"of another run \(train.seed=1 was 0, train.optimizer=muon was adamw\)"):
        Trainer(tiny_run(corpus, seed=1, optimizer="muon"), whole_run)
    others = write_tree(tmp_path / "others" / "train", num_speakers=8, num_utterances=1, first_speaker=3).parent
    config = tiny_run(others)
    with pytest.raises(ValueError, match=r"is of another run \(data.speech now has other speakers\)"):
        Trainer(replace(config, data=replace(config.data, dev_split=None)), whole_run)
    assert Trainer(tiny_run(corpus, num_steps=8), whole_run).step == 6  # longer is the same run


def test_trees_with_one_split_alone(corpus: Path, tmp_path: Path) -> None:
    config = tiny_run(corpus)
    for split, message in (("dve", "has a folder train, but none called dve"), ("train", None)):
        changed = replace(config, data=replace(config.data, dev_split=split))
        if message is None:
            Trainer(changed, tmp_path)
        else:
            with pytest.raises(ValueError, match=message):
                Trainer(changed, tmp_path)


def test_shared_speakers_are_told(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny_run(corpus)
    Trainer(config, tmp_path)
    assert capsys.readouterr().err == ""
    Trainer(replace(config, data=replace(config.data, dev_split="train")), tmp_path)
    assert capsys.readouterr().err.startswith("development and training share speakers")


def test_devices_that_are_not_there(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device=abacus cannot be used here"):
        Trainer(tiny_run(corpus, device="abacus"), tmp_path)
