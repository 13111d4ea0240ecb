"""Curves of training runs side by side, from their logs: loss, DER on held-out speakers, gradient norm.

A run is a folder with `log.csv`. Its loss is that of births (of outputs, where the model has no memory), averaged over
a tenth of the run. A run counts as diverged when that average, at its end, is not below what it was at its start, or
when a tenth of its steps had no finite gradient, so that nothing was learned from them. What is not finite enters no
average.
"""

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from diarnorm.evaluation.figures import COLOURS, NO_MATPLOTLIB
from diarnorm.evaluation.scores import markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG, SHARE = "log.csv", 0.1
LOSS_NAMES = ("births", "outputs")
LOSS_TICKS, GRADIENT_TICKS = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3), (0.5, 1, 2, 5, 10, 20, 50, 100)
NEEDED = ("step", "hours", "audio_s_per_s", "grad_norm", "der")


@dataclass(frozen=True)
class Curve:
    """One run, a value per step; NaN where a step has none, or none that is finite."""

    name: str
    family: str
    """Runs of one family share a colour."""
    loss_name: str
    """One of `LOSS_NAMES`."""
    step: Float64[np.ndarray, " steps"]
    hours: Float64[np.ndarray, " steps"]
    loss: Float64[np.ndarray, " steps"]
    grad_norm: Float64[np.ndarray, " steps"]
    der: Float64[np.ndarray, " steps"]
    rate: Float64[np.ndarray, " steps"]
    """Seconds of audio per second of each step."""

    @property
    def width(self) -> int:
        """Steps in a tenth of the run."""
        return max(1, round(SHARE * len(self.step)))

    @property
    def num_skipped(self) -> int:
        """Steps without a finite gradient, which the training leaves out."""
        return int(np.isnan(self.grad_norm).sum())

    @property
    def diverged(self) -> bool:
        """See the module."""
        at_start = _over(np.mean, self.loss[: self.width])
        return not self.last_loss < at_start or self.num_skipped >= SHARE * len(self.step)

    @property
    def last_loss(self) -> float:
        """Mean over the last tenth of the run."""
        return _over(np.mean, self.loss[-self.width :])

    def smooth(self, values: Float64[np.ndarray, " steps"]) -> Float64[np.ndarray, " smooth"]:
        """Mean over as many steps as a quarter of `width`, each centred; shorter at both ends by half of that.

        NaN where none of them has a value.
        """
        kernel, there = np.ones(max(1, self.width // 4)), ~np.isnan(values)
        sums = np.convolve(np.where(there, values, 0.0), kernel, mode="valid")
        counts = np.convolve(there, kernel, mode="valid")
        return np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)


def read_curve(folder: Path, family_by: str | None = None) -> Curve:
    """The run in a folder; `family_by` is a regular expression whose one group names its family.

    Raises:
        ValueError: no log, one without a step, or one that is none.
    """
    path = folder / LOG
    if not path.is_file():
        raise ValueError(f"{folder} holds no {LOG}: give folders of training runs")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in LOSS_NAMES if any(row.get(name) for row in rows)]
    if not rows or not names or any(name not in rows[0] for name in NEEDED):
        raise ValueError(f"{path} holds no step of a training run")

    def column(name: str) -> Float64[np.ndarray, " steps"]:
        values = np.array([float(row[name] or "nan") for row in rows])
        return np.where(np.isfinite(values), values, np.nan)

    match = re.search(family_by, folder.name) if family_by else None
    family = match[1] if match and match[1] else folder.name
    values = [column(name) for name in ("step", "hours", names[0], "grad_norm", "der", "audio_s_per_s")]
    return Curve(folder.name, family, names[0], *values)


def table(curves: Sequence[Curve]) -> str:
    """The runs in Markdown: what they came to, and how."""
    head = ["run", "steps", "hours", "loss", "DER", "gradient norm", "its 99th percentile", "audio s per s"]
    rows = [
        [
            curve.name,
            f"{curve.step[-1]:.0f}" + (f", {curve.num_skipped} left out" if curve.num_skipped else ""),
            f"{curve.hours[-1]:.1f}",
            f"{curve.last_loss:.3f}" + (", diverged" if curve.diverged else ""),
            f"{_last(curve.der):.1f}",
            f"{_over(np.median, curve.grad_norm):.2f}",
            f"{_over(lambda norms: np.percentile(norms, 99), curve.grad_norm):.2f}",
            f"{_over(np.median, curve.rate):.0f}",
        ]
        for curve in curves
    ]
    return "\n".join(markdown_table(head, rows))


def _last(values: Float64[np.ndarray, " steps"]) -> float:
    """The last value that is there; NaN for none."""
    return _over(lambda there: there[-1], values)


def _over(what: Callable[[np.ndarray], float], values: Float64[np.ndarray, " steps"]) -> float:
    """`what` of the values that are there; NaN for none."""
    there = values[~np.isnan(values)]
    return float(what(there)) if len(there) else float("nan")


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Write the picture (PNG): loss, DER and gradient norm over hours of audio heard.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError(NO_MATPLOTLIB) from error
    figure = Figure(figsize=(9.0, 9.0), layout="constrained")
    loss, der, grad = figure.subplots(3, 1, sharex=True)
    families = list(dict.fromkeys(curve.family for curve in curves))
    for curve in curves:
        colour = COLOURS[families.index(curve.family) % len(COLOURS)]
        first = curve is next(each for each in curves if each.family == curve.family)
        style = {"color": colour, "linewidth": 1.3, "alpha": 0.9}
        hours = curve.smooth(curve.hours)
        loss.plot(hours, curve.smooth(curve.loss), label=curve.family if first else None, **style)
        there = ~np.isnan(curve.der)
        der.plot(curve.hours[there], curve.der[there], marker="o", markersize=4, **style)
        grad.plot(hours, curve.smooth(curve.grad_norm), **style)
    _label(loss, f"Training loss of {' or '.join(dict.fromkeys(curve.loss_name for curve in curves))}")
    _label(der, "DER on held-out speakers (%)")
    _label(grad, "Gradient norm before clipping")
    for axis, ticks in ((loss, LOSS_TICKS), (grad, GRADIENT_TICKS)):
        axis.set_yscale("log")
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_yticks([], minor=True)
    grad.set_xlabel("hours of audio heard")
    figure.legend(loc="outside upper center", ncols=min(len(families), 5), frameon=False)
    figure.savefig(path, dpi=130, format="png")


def _label(axis: "Axes", title: str) -> None:
    axis.set_title(title, loc="left", fontsize=11)
    axis.grid(color="#DDDDDD", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
