"""Training: simulated conversations in, a checkpoint out, resumable to the step.

Everything random is a pure function of the seed and the step (data, delays, chunk sizes, dropout), so a run needs no
random state to resume: weights, optimiser, moving average and the step are enough.
"""

import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from diarnorm.checkpoint import Checkpoint, save_checkpoint
from diarnorm.model import Model
from diarnorm.modelfile import as_json, read_header
from diarnorm.resources import commit
from diarnorm.stream import find_device
from diarnorm.timebase import frames_to_seconds
from diarnorm.training.batches import Batch
from diarnorm.training.batchgap import gap_sentence, has_batch_norm, loss_in_both_modes
from diarnorm.training.config import RunConfig
from diarnorm.training.distributed import from_first, num_processes, rank
from diarnorm.training.heap import keep_freed_memory
from diarnorm.training.objective import add_gradients
from diarnorm.training.optimizers import learning_rate_factor, make_optimizer
from diarnorm.training.resume import as_words, new_settings, read_run
from diarnorm.training.rundata import RunData, check_processes
from diarnorm.training.skips import Skips, report
from diarnorm.training.trainlog import TrainingLog
from diarnorm.training.tune import Tuner
from diarnorm.training.voices import SpeakerHeads
from diarnorm.training.warmstart import FINISHED, UNFINISHED, Ancestor, find_ancestor, first_weights


class Trainer:
    """One run. `Trainer(config, run_dir).run()` starts it, or goes on where its folder says it stopped.

    In a process group all processes make the same trainer; only the first writes, evaluates and prints.
    """

    def __init__(self, config: RunConfig, run_dir: str | Path) -> None:
        self.config, self.run_dir, self.is_first = config, Path(run_dir), rank() == 0
        find_device(config.train.device)
        check_processes(config.data.stages, num_processes())
        self.ancestor = from_first(self._find_ancestor)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(config.train.threads)
        keep_freed_memory()
        self.data = RunData(config)
        if self.is_first:
            self.development = self.data.development()
        self._build()
        self._restore()

    @property
    def checkpoint_path(self) -> Path:
        """Where the run is kept."""
        return self.run_dir / "last.pt"

    def _find_ancestor(self) -> Ancestor | None:
        """Where a run that is new starts from; one that goes on knows by itself."""
        source = self.config.train.init_from
        if source is None or self.checkpoint_path.exists():
            return None
        return find_ancestor(source, self.config.model)

    def _build(self) -> None:
        t = self.config.train
        torch.manual_seed(t.seed)
        self.model = Model(self.config.model)
        teacher = self.data.teacher
        self.teacher = None if teacher is None else teacher.to(t.device)
        self.heads = SpeakerHeads(
            self.config.model.memory.embedding_dim,
            self.data.num_classes,
            0 if teacher is None else teacher.shape[1],
        )
        self.model.load_state_dict(from_first(self._first_weights))
        self.model.to(t.device)
        self.heads.to(t.device)
        self.optimizer = make_optimizer(self.model, self.heads, t)
        self.ema = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.step, self.heard_s = 0, 0.0
        self.skips = Skips()
        self.changes: list[dict[str, Any]] = []
        self.now_other = ""

    def _first_weights(self) -> dict[str, Tensor]:
        if self.ancestor is not None and self.config.train.init_from is not None:
            return first_weights(self.config.train.init_from)
        self.model.frontend.calibrate(self.data.first_mel())
        return self.model.state_dict()

    # ---- the run's folder ---------------------------------------------------------------------------------

    def _restore(self) -> None:
        saved = from_first(self._read)
        if saved is None:
            return
        self.model.load_state_dict(saved["model"])
        self.heads.load_state_dict(saved["heads"])
        self.optimizer.load_state_dict(saved["optimizer"])
        for group in self.optimizer.param_groups:  # the state brings that of before; rates are set in each step
            group["weight_decay"] = self.config.train.weight_decay
        self.ema = {name: value.to(self.config.train.device) for name, value in saved["ema"].items()}
        self.step, self.heard_s = saved["step"], saved["heard_s"]
        self.skips = Skips(**saved["skips"])
        new = new_settings(json.loads(saved["config"]), self.config, self.step)
        self.changes, self.now_other = [*saved.get("changes", []), *new], as_words(new)
        self.ancestor = Ancestor(**saved["ancestor"]) if saved["ancestor"] else None

    def _read(self) -> dict[str, Any] | None:
        return read_run(self.checkpoint_path, self.config, self.data.speakers, self.data.num_classes)

    def save(self, figures: dict[str, float]) -> None:
        """Write the checkpoint, and the averaged weights for others; a kill at any moment leaves the old ones or the
        new ones, whole."""
        state = {
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "ema": self.ema,
            "step": self.step,
            "heard_s": self.heard_s,
            "skips": asdict(self.skips),
            "ancestor": asdict(self.ancestor) if self.ancestor else None,
            "speakers": self.data.speakers,
            "changes": self.changes,
            "config": json.dumps(asdict(self.config)),
        }
        partial = self.checkpoint_path.with_suffix(".part")
        torch.save(state, partial)
        partial.replace(self.checkpoint_path)
        self._write(UNFINISHED, replace(self._untuned(), training=self.record(figures) | {"finished": False}))

    def _write(self, name: str, checkpoint: Checkpoint) -> None:
        partial = (self.run_dir / name).with_suffix(".part")
        save_checkpoint(partial, checkpoint)
        partial.replace(self.run_dir / name)

    # ---- the run ------------------------------------------------------------------------------------------

    def run(self) -> dict[str, float]:
        """Train to the last step, write `model.safetensors`, and return the last development figures (in the first
        process; nothing in the others)."""
        before = from_first(self._figures_of_finished_run)
        if before is not None:
            return before
        if self.now_other and self.is_first:
            print(
                f"{self.run_dir} goes on from step {self.step} with other settings: {self.now_other}", file=sys.stderr
            )
        with self._log() as log:
            begin = time.perf_counter()
            for batches in self.data.steps(self.step):
                losses = self._train_step(batches)
                rows = sum(batch.mel.shape[0] for batch in batches) * num_processes()
                audio_s = rows * frames_to_seconds(batches[0].activity.shape[1])
                self.heard_s += audio_s
                self.step += 1
                if log is not None:
                    self._after_step(log, losses, rate=audio_s / (time.perf_counter() - begin))
                begin = time.perf_counter()
        gap = self._batch_norm_gap()
        if log is None:
            return {}
        figures = log.last_figures or self.evaluate()
        self._write(FINISHED, self.finished(figures, gap))
        (self.run_dir / UNFINISHED).unlink(missing_ok=True)
        return figures

    def _log(self) -> contextlib.AbstractContextManager[TrainingLog | None]:
        path = self.run_dir / "log.csv"
        return TrainingLog(path, self.config.train.num_steps, self.step) if self.is_first else contextlib.nullcontext()

    def _figures_of_finished_run(self) -> dict[str, float] | None:
        path, num_steps = self.run_dir / FINISHED, self.config.train.num_steps
        if self.step < num_steps or not path.exists():
            return None
        record = read_header(path).facts["training"]
        if record.get("steps") != self.step:
            return None
        hint = f"train.num_steps above {self.step} trains on, without {FINISHED} its thresholds are tuned again"
        other = f"; it was trained with other settings: {self.now_other}" if self.now_other else ""
        print(f"{self.run_dir} is finished, {self.step} steps: nothing to do ({hint}){other}", file=sys.stderr)
        return record["development"]

    def _after_step(self, log: TrainingLog, losses: dict[str, float], rate: float) -> None:
        t = self.config.train
        last = self.step == t.num_steps
        figures = self.evaluate() if self.step % t.eval_every == 0 or last else {}
        log.add(self.step, self.heard_s / 3600, rate, losses, figures)
        if self.step % t.checkpoint_every == 0 or last:
            self.save(log.last_figures)

    def _train_step(self, batches: Sequence[Batch]) -> dict[str, float]:
        t = self.config.train
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = t.learning_rate * learning_rate_factor(self.step, t)
        self.optimizer.zero_grad()
        values = add_gradients(self.model, self.heads, batches, self.config, step=self.step, teacher=self.teacher)
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        values["grad_norm"] = float(nn.utils.clip_grad_norm_(parameters, t.clip))
        if math.isfinite(values["grad_norm"]):
            self.optimizer.step()
            self._average()
            self.skips.in_row = 0
        else:
            what = self.skips.add(self.step, values, self.config)
            report(what, self.model, self.heads, batches, self.config, step=self.step, teacher=self.teacher)
        return values

    # ---- what it gives ------------------------------------------------------------------------------------

    @torch.no_grad()
    def _average(self) -> None:
        decay = min(self.config.train.ema_decay, (1 + self.step) / (10 + self.step))
        for name, value in self.model.state_dict().items():
            if value.is_floating_point():
                self.ema[name].lerp_(value, 1 - decay)
            else:
                self.ema[name].copy_(value)

    def averaged_model(self) -> Model:
        """The model with the averaged weights, in evaluation mode, on the CPU."""
        model = Model(self.config.model)
        model.load_state_dict(self.ema)
        return model.eval()

    def evaluate(self) -> dict[str, float]:
        """Free-running figures of the averaged weights on the development set."""
        return self.development.evaluate(self.averaged_model())

    def _batch_norm_gap(self) -> dict[str, float] | None:
        """Loss of the averaged model on held-out speakers in both modes; None for models without BatchNorm.

        In a process group all processes compute it, on the same batches: BatchNorm waits for all of them.
        """
        if not has_batch_norm(self.model):
            return None
        t = self.config.train
        model = self.averaged_model().to(t.device)
        gap = loss_in_both_modes(model, self.data.held_out_batches(), self.config.loss, statistics.mode(t.chunks))
        if self.is_first:
            print(gap_sentence(gap), file=sys.stderr)
        return gap

    def _untuned(self) -> Checkpoint:
        chunks = self.config.train.chunks
        return Checkpoint(self.averaged_model(), chunk=statistics.mode(chunks), chunks=tuple(sorted(set(chunks))))

    def finished(self, figures: dict[str, float], gap: dict[str, float] | None = None) -> Checkpoint:
        """The averaged model with thresholds tuned on other conversations of the held-out speakers."""
        t = self.config.train
        checkpoint, record = self._untuned(), self.record(figures)
        if gap is not None:
            record["batch_norm_loss"] = gap
        if t.tune_rounds:
            tuner = Tuner(checkpoint, self.data.tuning_set())
            record["before_tuning"] = _rounded(tuner.best.figures)
            trial = tuner.run(t.tune_rounds)
            record["after_tuning"] = _rounded(trial.figures)
            checkpoint = trial.applied_to(checkpoint)
        return replace(checkpoint, training=record)

    def record(self, figures: dict[str, float]) -> dict[str, object]:
        """What a reader needs to know about the run; `config` is that of its last steps, `changes` what was other
        before."""
        hours = round(self.heard_s / 3600, 2)
        started = {} if self.ancestor is None else {"init_from": asdict(self.ancestor)}
        before = 0.0 if self.ancestor is None else self.ancestor.total_hours
        return {
            "steps": self.step,
            "hours_heard": hours,
            "total_hours": round(before + hours, 2),
            **started,
            "skipped_steps": self.skips.total,
            "speakers": len(self.data.speakers),
            "processes": num_processes(),
            "commit": commit(),
            "torch": torch.__version__,
            "config": as_json(asdict(self.config)),
            **({"changes": self.changes} if self.changes else {}),
            "development": _rounded(figures),
        }


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in figures.items()}
