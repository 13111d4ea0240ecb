"""Steps without a finite gradient: left out, counted, and traced to the conversations or crops at fault."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from diarnorm.model import Model
from diarnorm.training.batches import Batch
from diarnorm.training.config import RunConfig
from diarnorm.training.distributed import num_processes, rank, sum_over_processes
from diarnorm.training.objective import batch_losses, draw
from diarnorm.training.voices import SpeakerHeads

MAX_IN_ROW = 20
"""Skipped steps, one after another, that a run lives through."""


class NothingFiniteError(ValueError):
    """A run had nothing finite to learn from, too many steps in a row."""


@dataclass
class Skips:
    """Steps skipped so far, and how many of them were the last ones."""

    total: int = 0
    in_row: int = 0

    def add(self, step: int, values: dict[str, float], config: RunConfig) -> str:
        """Count a step with losses `values`; what was not finite: their names, or the gradient.

        Raises:
            NothingFiniteError: too many in a row.
        """
        self.total, self.in_row = self.total + 1, self.in_row + 1
        names = [name for name, value in values.items() if name != "grad_norm" and not math.isfinite(value)]
        what = ", ".join(names) if names else "gradient"
        if self.in_row > MAX_IN_ROW:
            t = config.train
            raise NothingFiniteError(
                f"{self.in_row} steps in a row had nothing finite to learn from, the last was step {step} ({what}): "
                f"lower train.learning_rate={t.learning_rate} or train.clip={t.clip} and start anew"
            )
        return what


def report(
    what: str,
    model: Model,
    heads: SpeakerHeads,
    batches: Sequence[Batch],
    config: RunConfig,
    *,
    step: int,
    teacher: Tensor | None = None,
) -> None:
    """Say which step was skipped for `what`, and the rows at fault where they can be told, as [seed, batch, row]: what
    their conversations, or crops of recordings, are drawn from."""
    t = config.train
    found = suspects(model, heads, batches, config, step=step, teacher=teacher)
    rows = ", ".join(str([t.seed, step * t.accumulate + number, row]) for number, row in found)
    if rank() == 0:
        about = f"; at fault, as [seed, batch, row]: {rows}" if rows else ""
        print(f"step {step} of seed {t.seed}: {what} not finite, skipped{about}", file=sys.stderr)


@torch.no_grad()
def suspects(
    model: Model,
    heads: SpeakerHeads,
    batches: Sequence[Batch],
    config: RunConfig,
    *,
    step: int,
    teacher: Tensor | None = None,
) -> list[tuple[int, int]]:
    """Rows of a step whose input or loss is not finite on its own, as (batch, row in the whole batch).

    Empty where the fault is not theirs: it then shows with none, or with all.
    """
    drawn, training = draw(config, step), model.training
    model.eval()  # no statistics are kept, and none are shared with other processes
    found = torch.zeros(len(batches), num_processes(), batches[0].mel.shape[0])
    for number, batch in enumerate(batches):
        for row in range(batch.mel.shape[0]):
            alone = Batch(*(part[row : row + 1] for part in batch))
            losses = batch_losses(model, heads, alone, config, drawn, step=step, number=number, teacher=teacher)
            finite = bool(alone.mel.isfinite().all()) and all(math.isfinite(loss.item()) for loss in losses.values())
            found[number, rank(), row] = float(not finite)
    model.train(training)
    found = sum_over_processes(found).flatten(1)
    everywhere = found.numel() > 1 and bool(found.all())
    return [] if everywhere else [(int(number), int(row)) for number, row in found.nonzero()]
