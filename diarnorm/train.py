"""Training: simulated conversations in, a checkpoint out, resumable to the step.

Everything random is a pure function of the seed and the step (data, delays, chunk sizes, dropout), so a run needs no
random state to resume: weights, optimiser, moving average and the step are enough.
"""

import contextlib
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from diarnorm.checkpoint import Checkpoint, save_checkpoint
from diarnorm.data import CurriculumStage, SimulatedBatches, num_with_speech
from diarnorm.develop import DevelopmentSet
from diarnorm.losses import Batch, SpeakerHeads, training_losses
from diarnorm.model import Model
from diarnorm.runconfig import RunConfig, TrainConfig
from diarnorm.speech import CLIPS, load_speech
from diarnorm.stream import find_device
from diarnorm.teacher import load_teacher
from diarnorm.timebase import frames_to_seconds
from diarnorm.trainlog import TrainingLog
from diarnorm.tune import Tuner

DISPLAY_SEED, TUNE_SEED = 20_000, 30_000
"""Of the conversations shown during the run, and of those that thresholds are tuned on."""


class Trainer:
    """One run. `Trainer(config, run_dir).run()` starts it, or goes on where its folder says it stopped."""

    def __init__(self, config: RunConfig, run_dir: str | Path) -> None:
        self.config = config
        find_device(config.train.device)
        self.run_dir = Path(run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(config.train.threads)
        keep_freed_memory()
        self._load_data()
        self._build()
        self._restore()

    def _load_data(self) -> None:
        t, d = self.config.train, self.config.data
        check_splits(Path(d.speech), d.train_split, d.dev_split)
        cache = default_cache_dir() if d.cache_dir is None else Path(d.cache_dir)
        self.speech = load_speech(d.speech, split=d.train_split, cache_dir=cache)
        check_speakers(d.stages, num_with_speech(self.speech), d.speech)
        self.clips = load_speech(d.clips, config=CLIPS, cache_dir=cache) if d.clips else None
        self.batches = SimulatedBatches(
            self.speech, seed=t.seed, num_steps=t.num_steps, stages=d.stages, simulator=d.simulator, clips=self.clips
        )
        self.dev_speech = load_speech(d.speech, split=d.dev_split, cache_dir=cache)
        if set(self.dev_speech.speakers) & set(self.speech.speakers):
            print("development and training share speakers: DER will say little about new voices", file=sys.stderr)
        self.development = self._conversations(t.dev_conversations, t.dev_duration_s, DISPLAY_SEED)
        self.teacher = load_teacher(d.teacher, self.speech).to(t.device) if d.teacher else None

    def _conversations(self, num: int, duration_s: float, seed: int) -> DevelopmentSet:
        """Conversations of held-out speakers, simulated as those of the training are."""
        simulator = self.config.data.simulator
        return DevelopmentSet.simulated(self.dev_speech, num, duration_s, self.clips, seed=seed, simulator=simulator)

    def _build(self) -> None:
        t = self.config.train
        torch.manual_seed(t.seed)
        self.model = Model(self.config.model).to(t.device)
        teacher_dim = self.teacher.shape[1] if self.teacher is not None else 0
        classes = self.speech.num_classes
        self.heads = SpeakerHeads(self.config.model.memory.embedding_dim, classes, teacher_dim).to(t.device)
        self.model.frontend.calibrate(torch.cat([self.batches[step]["mel"] for step in range(min(2, t.num_steps))]))
        parameters = [*self.model.parameters(), *self.heads.parameters()]
        self.optimizer = torch.optim.AdamW(parameters, t.learning_rate, weight_decay=t.weight_decay)
        self.ema = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.step, self.heard_s, self.trained_s = 0, 0.0, 0.0

    @property
    def checkpoint_path(self) -> Path:
        """Where the run is kept."""
        return self.run_dir / "last.pt"

    def _restore(self) -> None:
        if not self.checkpoint_path.exists():
            return
        saved = torch.load(self.checkpoint_path, weights_only=True, map_location=self.config.train.device)
        self._check_same_run(saved)
        self.model.load_state_dict(saved["model"])
        self.heads.load_state_dict(saved["heads"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.ema = saved["ema"]
        self.step, self.heard_s, self.trained_s = saved["step"], saved["heard_s"], saved["trained_s"]

    def _check_same_run(self, saved: dict[str, Any]) -> None:
        """Refuse to go on with another model, or other speakers, than the run began with."""
        there, here = json.loads(saved["config"])["model"], json.loads(json.dumps(asdict(self.config.model)))
        changed = [
            f"model.{part}.{key}={value} was {there[part][key]}"
            for part, values in here.items()
            for key, value in values.items()
            if part in there and key in there[part] and there[part][key] != value
        ]
        if saved["heads"]["classes"].shape != self.heads.classes.shape:
            changed.append(f"data.speech now has {self.heads.classes.shape[0]} voices")
        if changed:
            raise ValueError(
                f"{self.checkpoint_path} is of another run ({', '.join(changed)}): "
                "remove its folder to start anew, or choose another with hydra.run.dir=FOLDER"
            )

    def save(self) -> None:
        """Write the checkpoint; a kill at any moment leaves the old one or the new one, whole."""
        state = {
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema,
            "step": self.step,
            "heard_s": self.heard_s,
            "trained_s": self.trained_s,
            "config": json.dumps(asdict(self.config)),
        }
        partial = self.checkpoint_path.with_suffix(".part")
        torch.save(state, partial)
        partial.replace(self.checkpoint_path)

    def run(self) -> dict[str, float]:
        """Train to the last step, write `model.safetensors`, and return the last development figures."""
        t = self.config.train
        with TrainingLog(self.run_dir / "log.csv", t.num_steps, self.step) as log:
            for batch in self._loader():
                begin = time.perf_counter()
                losses = self._train_step(batch)
                self.trained_s += time.perf_counter() - begin
                self.heard_s += batch.mel.shape[0] * frames_to_seconds(batch.activity.shape[1])
                self.step += 1
                last = self.step == t.num_steps
                figures = self.evaluate() if self.step % t.eval_every == 0 or last else {}
                log.add(self.step, self.heard_s / 3600, self.heard_s / self.trained_s, losses, figures)
                if self.step % t.checkpoint_every == 0 or last:
                    self.save()
        figures = log.last_figures or self.evaluate()
        save_checkpoint(self.run_dir / "model.safetensors", self.finished(figures))
        return figures

    def finished(self, figures: dict[str, float]) -> Checkpoint:
        """The averaged model with thresholds tuned on other conversations of the held-out speakers."""
        t = self.config.train
        chunks = tuple(sorted(set(t.chunks)))
        checkpoint = Checkpoint(self.averaged_model(), chunk=statistics.mode(t.chunks), chunks=chunks)
        record = self.record(figures)
        if t.tune_rounds:
            tuner = Tuner(checkpoint, self._conversations(t.tune_conversations, t.tune_duration_s, TUNE_SEED))
            record["before_tuning"] = _rounded(tuner.best.figures)
            trial = tuner.run(t.tune_rounds)
            record["after_tuning"] = _rounded(trial.figures)
            checkpoint = trial.applied_to(checkpoint)
        return replace(checkpoint, training=record)

    def record(self, figures: dict[str, float]) -> dict[str, object]:
        """What a reader needs to know about the run."""
        return {
            "steps": self.step,
            "hours_heard": round(self.heard_s / 3600, 2),
            "speakers": self.speech.num_speakers,
            "commit": _commit(),
            "torch": torch.__version__,
            "config": asdict(self.config),
            "development": _rounded(figures),
        }

    def _loader(self) -> Iterator[Batch]:
        t = self.config.train
        loader = DataLoader(
            self.batches,
            batch_size=None,
            sampler=range(self.step, t.num_steps),
            num_workers=t.workers,
            prefetch_factor=3 if t.workers else None,
            worker_init_fn=_start_worker,
        )
        for item in loader:
            yield Batch(*(item[name].to(t.device) for name in Batch._fields))

    def _train_step(self, batch: Batch) -> dict[str, float]:
        t = self.config.train
        self.model.train()
        generator = torch.Generator().manual_seed(_mix(t.seed, self.step))
        torch.manual_seed(_mix(t.seed + 1, self.step))
        chunk = t.chunks[int(torch.randint(len(t.chunks), (1,), generator=generator))]
        late = self.step >= t.rollout_from * t.num_steps
        rolled = late and bool(torch.rand(1, generator=generator) < t.rollout_share)
        losses = training_losses(
            self.model,
            self.heads,
            batch,
            self.config.loss,
            chunk=chunk,
            free_running=rolled,
            generator=generator,
            teacher=self.teacher,
        )
        for group in self.optimizer.param_groups:
            group["lr"] = t.learning_rate * learning_rate_factor(self.step, t)
        self.optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = nn.utils.clip_grad_norm_(parameters, t.clip)
        values = {name: loss.item() for name, loss in losses.items()}
        values["grad_norm"] = float(norm)
        if math.isfinite(values["grad_norm"]):
            self.optimizer.step()
            self._average()
        else:
            print(f"step {self.step}: gradient is not finite, batch skipped", file=sys.stderr)
        if rolled:
            values["rolled"] = values.pop("own")
        return values

    @torch.no_grad()
    def _average(self) -> None:
        decay = min(self.config.train.ema_decay, (1 + self.step) / (10 + self.step))
        for name, value in self.model.state_dict().items():
            if value.is_floating_point():
                self.ema[name].lerp_(value, 1 - decay)
            else:
                self.ema[name].copy_(value)

    def averaged_model(self) -> Model:
        """The model with the averaged weights, in evaluation mode."""
        model = Model(self.config.model)
        model.load_state_dict(self.ema)
        return model.eval()

    def evaluate(self) -> dict[str, float]:
        """Free-running figures of the averaged weights on the development set."""
        return self.development.evaluate(self.averaged_model())


def learning_rate_factor(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then a cosine down to `final_share`."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, config.num_steps - config.warmup_steps)
    return config.final_share + (1 - config.final_share) * 0.5 * (1 + math.cos(math.pi * progress))


def check_splits(source: Path, *splits: str | None) -> None:
    """Refuse a tree that has a folder for one split and none for another: the whole tree would stand for that one.

    Raises:
        ValueError: naming both.
    """
    named = [split for split in splits if split is not None] if source.is_dir() else []
    there = [split for split in named if (source / split).is_dir()]
    missing = [split for split in named if split not in there]
    if there and missing:
        raise ValueError(f"{source} has a folder {there[0]}, but none called {missing[0]}: add it")


def check_speakers(stages: Sequence[CurriculumStage], num_speakers: int, source: str) -> None:
    """Refuse conversations of more speakers than there are, before anything is trained.

    Raises:
        ValueError: naming the stage, what it asks for and what there is.
    """
    for number, stage in enumerate(stages):
        wanted = max(count for count, share in enumerate(stage.speaker_probabilities, start=1) if share > 0)
        if wanted > num_speakers:
            raise ValueError(
                f"data.stages[{number}].speaker_probabilities asks for {wanted} speakers in a conversation, "
                f"{source} has {num_speakers} with speech to train on: shorten it, or add speakers"
            )


def default_cache_dir() -> Path:
    """Where decoded speech is kept unless a run says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "diarnorm"


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory: returning it after each large tensor costs a step up to half its time."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-4, 0)  # M_MMAP_MAX: large blocks come from the heap, too
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in figures.items()}


def _mix(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0])


def _start_worker(_: int) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


def _commit() -> str:
    """The commit of the checkout that the package lies in; "unknown" for an installed wheel."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"
