"""An evaluation as a picture: DER in its three parts for every model and set.

Colours are those of Okabe and Ito (2008), which people with any colour vision tell apart, and differ in lightness.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diarnorm.evaluation.comparison import Comparison
from diarnorm.evaluation.hypotheses import replacing
from diarnorm.evaluation.rows import POOLED, Row
from diarnorm.evaluation.tables import collar_in_words, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""For lines and models, in any figure."""
PARTS = {"miss": "#0072B2", "false_alarm": "#56B4E9", "confusion": "#E69F00"}
"""Parts of the DER with their colours, from left to right."""
INK, PALE = "#222222", "#DDDDDD"
BAR_IN, PANEL_IN, MARGIN_IN, WIDTH_IN = 0.42, 0.45, 1.45, 9.0
"""Inches: height of a bar with its gap, of a panel beside its bars, of title, legend and axis, width of the picture."""


def draw(comparison: Comparison, path: Path) -> None:
    """Write the picture (PNG): a panel for each set, a bar for each model.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError("a picture needs matplotlib: pip install 'diarnorm[plot]'") from error
    collar_s = comparison.collars_s[0]
    rows = comparison.of_kind(POOLED, collar_s)
    panels = {name: [row for row in rows if row.set_name == name] for name in comparison.shard.heading.sets}
    heights = [len(panel) * BAR_IN + PANEL_IN for panel in panels.values()]
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + MARGIN_IN), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    reach = max([_reach(row) for row in rows] or [0.0])
    for axis, (name, panel) in zip(axes, panels.items(), strict=True):
        _draw_panel(axis, panel, reach)
        number = panel[0].num_recordings
        axis.set_title(f"{name}, {number} recording{'' if number == 1 else 's'}", loc="left", fontsize=11, color=INK)
        axis.text(1.02, 1.0, "DER", transform=axis.transAxes, fontsize=9, color=INK, va="bottom")
    axes[-1].set_xlabel("% of the reference's speech", color=INK)
    overlap = "overlap left out" if comparison.shard.heading.settings["skip_overlap"] else "overlap scored"
    figure.suptitle(f"Diarization error rate, {collar_in_words(collar_s)}, {overlap}", fontsize=13, color=INK)
    handles, labels = axes[0].get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda at: LEGEND.index(labels[at]))
    figure.legend(
        [handles[at] for at in order],
        [labels[at] for at in order],
        loc="outside lower center",
        ncols=len(order),
        frameon=False,
        fontsize=10,
    )
    with replacing(path) as partial:
        figure.savefig(partial, dpi=150, format="png")


LEGEND = [*(part.replace("_", " ") for part in PARTS), "95 % interval", "merged: one label for all"]


def _reach(row: Row) -> float:
    """How far to the right a bar and what belongs to it go, in percent."""
    return 100 * max(row.der or 0.0, row.der_high or 0.0, row.merged_der or 0.0)


def _draw_panel(axis: "Axes", rows: Sequence[Row], reach: float) -> None:
    """Bars of one set, the first model on top."""
    from matplotlib.patheffects import Normal, Stroke

    for at, row in enumerate(rows):
        left = 0.0
        for name, colour in PARTS.items():
            width = 100 * (getattr(row, name) or 0.0)
            label = name.replace("_", " ") if at == 0 else None
            axis.barh(at, width, left=left, height=0.62, color=colour, edgecolor="white", linewidth=0.8, label=label)
            left += width
        if row.der_low is not None and row.der_high is not None and row.der is not None:
            ends = [[100 * (row.der - row.der_low)], [100 * (row.der_high - row.der)]]
            label = "95 % interval" if at == 0 else None
            drawn = axis.errorbar(
                [100 * row.der], [at], xerr=ends, fmt="none", ecolor=INK, elinewidth=1.4, capsize=4, label=label
            )
            for line in (*drawn[1], *drawn[2]):  # a pale rim, so that it is seen on any colour
                line.set_path_effects([Stroke(linewidth=3.2, foreground="white"), Normal()])
        if row.merged_der is not None:
            label = LEGEND[-1] if at == 0 else None
            axis.plot(
                [100 * row.merged_der],
                [at],
                "D",
                color="white",
                markeredgecolor=INK,
                markersize=7,
                zorder=5,
                label=label,
            )
        axis.text(1.02, at, percent(row.der), transform=axis.get_yaxis_transform(), va="center", color=INK)
    axis.set_yticks(range(len(rows)), [row.model for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(0, max(1.0, 1.05 * reach))
    axis.grid(axis="x", color=PALE, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0, colors=INK)
    axis.tick_params(axis="x", colors=INK)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(PALE)
