"""Training: simulated conversations in, a checkpoint out, resumable to the step.

Everything random is a pure function of the seed and the step (data, delays, chunk sizes, dropout), so a run needs no
random state to resume: weights, optimiser, moving average and the step are enough.
"""

import contextlib
import csv
import ctypes
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from diarnorm.data import CurriculumStage, SimulatedBatches
from diarnorm.develop import DevelopmentSet
from diarnorm.losses import Batch, LossConfig, SpeakerHeads, training_losses
from diarnorm.model import Model, ModelConfig
from diarnorm.planner import SimulatorConfig
from diarnorm.speech import CLIPS, Speech, load_speech
from diarnorm.timebase import FRAME_SAMPLES, frames_to_seconds


@dataclass(frozen=True)
class DataConfig:
    """Where speech, noise clips and teacher embeddings lie, and how conversations are made of them."""

    speech: str = "data/utterances.tsv"
    """A manifest or a tree with one folder per speaker."""
    train_split: str | None = "train"
    dev_split: str | None = "dev"
    clips: str | None = None
    """A tree of noise recordings."""
    teacher: str | None = None
    """A folder of teacher embeddings by speed factor, see `load_teacher`."""
    cache_dir: str = ".cache/diarnorm"
    stages: tuple[CurriculumStage, ...] = (CurriculumStage(),)
    simulator: SimulatorConfig = field(default_factory=SimulatorConfig)


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation, evaluation and record of a run."""

    run_dir: str = "runs/base"
    seed: int = 0
    num_steps: int = 3000
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    final_share: float = 0.02
    """Learning rate at the end, as a share of the highest."""
    weight_decay: float = 0.01
    clip: float = 2.0
    ema_decay: float = 0.998
    chunks: tuple[int, ...] = (12, 12, 6, 25)
    """Chunk sizes in frames, drawn per step."""
    rollout_from: float = 0.4
    """Share of the run after which the memory is trained on its own rollouts, too."""
    rollout_share: float = 0.5
    eval_every: int = 200
    checkpoint_every: int = 50
    dev_conversations: int = 24
    dev_duration_s: float = 40.0
    threads: int = 1
    workers: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class RunConfig:
    """A whole run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


class Trainer:
    """One run. `Trainer(config).run()` starts it, or goes on where its folder says it stopped."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        t, d = config.train, config.data
        self.run_dir = Path(t.run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(t.threads)
        keep_freed_memory()
        self.speech = load_speech(d.speech, split=d.train_split, cache_dir=d.cache_dir)
        clips = load_speech(d.clips, config=CLIPS, cache_dir=d.cache_dir) if d.clips else None
        self.batches = SimulatedBatches(
            self.speech, seed=t.seed, num_steps=t.num_steps, stages=d.stages, simulator=d.simulator, clips=clips
        )
        dev_speech = load_speech(d.speech, split=d.dev_split, cache_dir=d.cache_dir)
        self.development = DevelopmentSet.simulated(dev_speech, t.dev_conversations, t.dev_duration_s, clips)
        self.teacher = load_teacher(d.teacher, self.speech) if d.teacher else None
        self._build()
        self._restore()

    def _build(self) -> None:
        t = self.config.train
        torch.manual_seed(t.seed)
        self.model = Model(self.config.model).to(t.device)
        teacher_dim = self.teacher.shape[1] if self.teacher is not None else 0
        classes = self.speech.num_classes
        self.heads = SpeakerHeads(self.config.model.memory.embedding_dim, classes, teacher_dim).to(t.device)
        self.model.frontend.calibrate(torch.cat([self.batches[step]["mel"] for step in range(2)]))
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
        saved = torch.load(self.checkpoint_path, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.heads.load_state_dict(saved["heads"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.ema = saved["ema"]
        self.step, self.heard_s, self.trained_s = saved["step"], saved["heard_s"], saved["trained_s"]

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
        os.replace(partial, self.checkpoint_path)

    def run(self) -> dict[str, float]:
        """Train to the last step and return the last development figures."""
        figures: dict[str, float] = {}
        for batch in self._loader():
            begin = time.perf_counter()
            losses = self._train_step(batch)
            self.trained_s += time.perf_counter() - begin
            self.heard_s += batch.mel.shape[0] * frames_to_seconds(batch.activity.shape[1])
            self.step += 1
            last = self.step == self.config.train.num_steps
            if self.step % self.config.train.eval_every == 0 or last:
                figures = self.evaluate()
            self._log(losses, figures if self.step % self.config.train.eval_every == 0 or last else {})
            if self.step % self.config.train.checkpoint_every == 0 or last:
                self.save()
        return figures

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

    def _log(self, losses: dict[str, float], figures: dict[str, float]) -> None:
        row: dict[str, Any] = {
            "step": self.step,
            "hours": round(self.heard_s / 3600, 3),
            "audio_s_per_s": round(self.heard_s / max(self.trained_s, 1e-9), 1),
        }
        columns = ["births", "own", "rolled", "speech", "speaker", "teacher", "grad_norm"]
        row |= {name: round(losses[name], 4) if name in losses else "" for name in columns}
        row |= {name: round(figures[name], 2) if name in figures else "" for name in DevelopmentSet.FIGURES}
        path = self.run_dir / "log.csv"
        new = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)
        if figures or self.step % 20 == 0:
            print(" ".join(f"{k}={v}" for k, v in row.items() if v != ""), flush=True)


def learning_rate_factor(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then a cosine down to `final_share`."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, config.num_steps - config.warmup_steps)
    return config.final_share + (1 - config.final_share) * 0.5 * (1 + math.cos(math.pi * progress))


def load_teacher(folder: str, speech: Speech) -> Tensor:
    """Teacher embeddings `[utterances * factors, dim]` float16, unit norm; rows of zeros where the teacher says nothing.

    `folder` holds `train_P_Q.npz` per speed factor P/Q (`train.npz` for 1/1) with `path` and `embedding`.
    """
    rows: dict[int, tuple[int, np.ndarray]] = {}
    index = {Path(path).name: i for i, path in enumerate(speech.paths)}
    for factor, (p, q) in enumerate(speech.speed_factors):
        file = Path(folder) / ("train.npz" if p == q else f"train_{p / q:g}.npz")
        if not file.exists():
            continue
        with np.load(file) as table:
            for path, embedding in zip(table["path"], table["embedding"], strict=True):
                rows[index[Path(str(path)).name] * speech.num_factors + factor] = (factor, embedding)
    if not rows:
        raise ValueError(f"{folder} holds no teacher embeddings: expected train.npz with path and embedding")
    dim = next(iter(rows.values()))[1].shape[0]
    out = torch.zeros(speech.num_utterances * speech.num_factors, dim, dtype=torch.float16)
    for row, (_, embedding) in rows.items():
        out[row] = F.normalize(torch.from_numpy(embedding.astype(np.float32)), dim=0).half()
    return out


def keep_freed_memory() -> None:
    """Ask glibc to keep freed memory: returning it after each large tensor costs a training step up to half its time."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-4, 0)  # M_MMAP_MAX: large blocks come from the heap, too
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def _mix(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0])


def _start_worker(_: int) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()


def chunk_seconds(chunk: int) -> float:
    """Activity latency of a chunk size, in seconds."""
    return chunk * FRAME_SAMPLES / 16_000
