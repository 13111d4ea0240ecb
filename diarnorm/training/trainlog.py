"""Record of a run: a CSV file with one row per step, and a display of what a person wants to see."""

import csv
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from diarnorm.files import replacing
from diarnorm.training.develop import DevelopmentSet

LOSSES = ("births", "own", "rolled", "outputs", "speech", "speaker", "teacher", "contrastive", "grad_norm")
COLUMNS: tuple[str, ...] = ("step", "hours", "audio_s_per_s", *LOSSES, *DevelopmentSet.FIGURES)
LINE_EVERY = 20


class TrainingLog:
    """Writes `log.csv`; shows a live table on a terminal, a line now and then elsewhere.

    A run that goes on from `first_step` repeats the steps after it: their rows are taken out first. Losses that the
    program did not know when the run began have their column from then on.
    """

    def __init__(self, path: Path, num_steps: int, first_step: int = 0) -> None:
        self.path, self.num_steps = path, num_steps
        self._forget_after(first_step)
        self.last_figures: dict[str, float] = {}
        self._seen: set[str] = set()
        self._started, self._first_step = time.monotonic(), -1
        self._live = Live(console=Console(stderr=True), refresh_per_second=2) if sys.stderr.isatty() else None

    def __enter__(self) -> "TrainingLog":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def add(self, step: int, hours: float, rate: float, losses: dict[str, float], figures: dict[str, float]) -> None:
        """One finished step: audio hours heard so far, audio seconds per second of this step (its batches and what is
        learned from them), losses, new development figures if any."""
        row: dict[str, Any] = {"step": step, "hours": round(hours, 3), "audio_s_per_s": round(rate, 1)}
        row |= {name: round(losses[name], 4) if name in losses else "" for name in LOSSES}
        row |= {name: round(figures[name], 2) if name in figures else "" for name in DevelopmentSet.FIGURES}
        self._write(row)
        self._seen |= losses.keys()
        self.last_figures = figures if figures else self.last_figures
        if self._first_step < 0:
            self._first_step, self._started = step, time.monotonic()
        if self._live:
            self._live.update(self._table(row))
        elif figures or step % LINE_EVERY == 0 or step == self.num_steps:
            shown = {name: value for name, value in row.items() if value != ""}
            line = " ".join(f"{name}={value}" for name, value in shown.items())
            print(line, f"eta={self._eta(step)}", file=sys.stderr, flush=True)

    def _forget_after(self, step: int) -> None:
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8")
        rows = list(csv.DictReader(line for line in text.splitlines(keepends=True) if line.endswith("\n")))
        with replacing(self.path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(row for row in rows if int(row["step"]) <= step)

    def _write(self, row: dict[str, Any]) -> None:
        new = not self.path.exists() or self.path.stat().st_size == 0
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if new:
                writer.writeheader()
            writer.writerow(row)

    def _eta(self, step: int) -> str:
        done = step - self._first_step
        if done <= 0:
            return "?"
        left = (time.monotonic() - self._started) / done * (self.num_steps - step)
        return f"{int(left // 3600)}:{int(left % 3600 // 60):02d}"

    def _table(self, row: dict[str, Any]) -> Table:
        left = self._eta(row["step"])
        table = Table(title=f"step {row['step']} of {self.num_steps}, {row['hours']:.1f} h heard, {left} left")
        shown = ["audio_s_per_s", *(name for name in LOSSES if name in self._seen)]
        for name in shown:
            table.add_column(name, justify="right")
        table.add_row(*(str(row[name]) for name in shown))
        if self.last_figures:
            figures = "  ".join(f"{name} {value:.1f}" for name, value in self.last_figures.items())
            table.caption = f"free-running on held-out speakers: {figures}"
        return table
