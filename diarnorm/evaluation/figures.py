"""An evaluation as pictures: DER in its three parts for every model and set, and where each of the parts comes from.

Colours are those of Okabe and Ito (2008), which people with any colour vision tell apart, and differ in lightness.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from diarnorm.evaluation import causes
from diarnorm.evaluation.comparison import Comparison
from diarnorm.evaluation.config import SPEAKERS
from diarnorm.evaluation.rows import POOLED, Row
from diarnorm.evaluation.tables import collar_in_words, percent
from diarnorm.files import replacing

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Affine2DBase

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
"""For lines and models, in any figure."""
KINDS = {"miss": "#0072B2", "false_alarm": "#56B4E9", "confusion": "#E69F00"}
"""Kinds of errors with their colours, from left to right."""
NO_MATPLOTLIB = "a picture needs matplotlib: pip install 'diarnorm[plot]'"
INK, PALE = "#222222", "#DDDDDD"
BAR_IN, PANEL_IN, MARGIN_IN, WIDTH_IN = 0.42, 0.45, 1.45, 9.0
"""Inches: height of a bar with its gap, of a panel beside its bars, of title, legend and axis, width of the picture."""
CAUSES_MARGIN_IN, LABEL_IN = 2.8, 0.5
"""Inches: height of title, legends and axis in the picture of causes, and of the axis alone."""


def has_matplotlib() -> bool:
    """Whether there can be pictures."""
    return find_spec("matplotlib") is not None


def draw(comparison: Comparison, path: Path) -> None:
    """Write the picture (PNG): a panel for each set, a bar for each model.

    Raises:
        ValueError: matplotlib is not installed.
    """
    collar_s = comparison.collars_s[0]
    rows = comparison.of_kind(POOLED, collar_s)
    figure, lines = _panels(comparison, rows, MARGIN_IN)
    reach = max([_reach(row) for row in rows] or [0.0])
    for panel, (axis,) in lines:
        _draw_panel(axis, panel, reach)
        axis.text(1.02, 1.0, "DER", transform=axis.transAxes, fontsize=9, color=INK, va="bottom")
        axis.set_yticks(range(len(panel)), [row.model for row in panel])
    lines[-1][1][0].set_xlabel("% of the reference's speech", color=INK)
    figure.suptitle(f"Diarization error rate, {_conventions(comparison)}", fontsize=13, color=INK)
    shown = _shown([axis for _, (axis,) in lines])
    figure.legend(
        list(shown.values()),
        list(shown),
        loc="outside lower center",
        ncols=len(shown),
        frameon=False,
        fontsize=10,
    )
    with replacing(path) as partial:
        figure.savefig(partial, dpi=150, format="png")


def draw_causes(comparison: Comparison, path: Path) -> None:
    """Write the picture (PNG) of where errors come from: a line of panels for each set, a bar for each model and group.

    Raises:
        ValueError: matplotlib is not installed.
    """
    rows = comparison.with_groups(comparison.collars_s[0])
    figure, lines = _panels(comparison, rows, CAUSES_MARGIN_IN, len(KINDS))
    reach = 100 * max(getattr(row, kind) or 0.0 for row in rows for kind in KINDS)
    unit = " speakers" if comparison.shard.heading.settings["group_by"] == SPEAKERS else ""
    for panel, axes in lines:
        for axis, kind in zip(axes, KINDS, strict=True):
            _draw_causes_of(axis, panel, kind)
            axis.set_xlim(0, max(1.0, 1.2 * reach))
        axes[0].set_yticks(range(len(panel)), [f"{row.group}{unit}" if row.group else row.model for row in panel])
    for axis, kind in zip(lines[-1][1], KINDS, strict=True):
        _add_legend(axis, kind, figure.dpi_scale_trans)
    figure.suptitle(f"Where the errors come from, {_conventions(comparison)}", fontsize=13, color=INK)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=150, format="png")


def _panels(
    comparison: Comparison, rows: Sequence[Row], margin_in: float, num_columns: int = 1
) -> "tuple[Figure, list[tuple[list[Row], list[Axes]]]]":
    """A figure with a line of panels for each set, titled, and the set's rows beside its panels.

    Errors: ValueError without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError(NO_MATPLOTLIB) from error
    panels = [[row for row in rows if row.set_name == name] for name in comparison.shard.heading.sets]
    heights = [len(panel) * BAR_IN + PANEL_IN for panel in panels]
    figure = Figure(figsize=(WIDTH_IN, sum(heights) + margin_in), layout="constrained")
    grid = figure.subplots(
        len(panels), num_columns, sharex=True, sharey="row", squeeze=False, height_ratios=heights
    ).tolist()
    for panel, axes in zip(panels, grid, strict=True):
        number = panel[0].num_recordings
        title = f"{panel[0].set_name}, {number} recording{'' if number == 1 else 's'}"
        axes[0].set_title(title, loc="left", fontsize=11, color=INK)
        for axis in axes:
            _dress(axis, len(panel))
    return figure, list(zip(panels, grid, strict=True))


def _conventions(comparison: Comparison) -> str:
    overlap = "overlap left out" if comparison.shard.heading.settings["skip_overlap"] else "overlap scored"
    return f"{collar_in_words(comparison.collars_s[0])}, {overlap}"


LEGEND = [*(kind.replace("_", " ") for kind in KINDS), "95 % interval", "merged: one label for all"]
"""What the picture may show, in the order in which it is explained."""


def _shown(axes: "Sequence[Axes]") -> "dict[str, Artist]":
    """What the legend explains: all that any panel shows, once, in the order of `LEGEND`."""
    found: dict[str, Artist] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return {label: found[label] for label in LEGEND if label in found}


def _reach(row: Row) -> float:
    """How far to the right a bar and what belongs to it go, in percent."""
    return 100 * max(row.der or 0.0, row.der_high or 0.0, row.merged_der or 0.0)


def _draw_panel(axis: "Axes", rows: Sequence[Row], reach: float) -> None:
    """Bars of one set, the first model on top."""
    from matplotlib.patheffects import Normal, Stroke

    for at, row in enumerate(rows):
        left = 0.0
        for name, colour in KINDS.items():
            width = 100 * (getattr(row, name) or 0.0)
            label = name.replace("_", " ")
            axis.barh(at, width, left=left, height=0.62, color=colour, edgecolor="white", linewidth=0.8, label=label)
            left += width
        if row.der_low is not None and row.der_high is not None and row.der is not None:
            ends = [[100 * (row.der - row.der_low)], [100 * (row.der_high - row.der)]]
            drawn = axis.errorbar(
                [100 * row.der], [at], xerr=ends, fmt="none", ecolor=INK, elinewidth=1.4, capsize=4, label=LEGEND[-2]
            )
            for line in (*drawn[1], *drawn[2]):  # a pale rim, so that it is seen on any colour
                line.set_path_effects([Stroke(linewidth=3.2, foreground="white"), Normal()])
        if row.merged_der is not None:
            axis.plot(
                [100 * row.merged_der],
                [at],
                "D",
                color="white",
                markeredgecolor=INK,
                markersize=7,
                zorder=5,
                label=LEGEND[-1],
            )
        axis.text(1.02, at, percent(row.der), transform=axis.get_yaxis_transform(), va="center", color=INK)
    axis.set_xlim(0, max(1.0, 1.05 * reach))


def _draw_causes_of(axis: "Axes", rows: Sequence[Row], kind: str) -> None:
    """Bars of one set and one kind of error, each in its parts, from dark to pale, with their sum."""
    from matplotlib.colors import to_rgb

    parts = causes.PARTS[kind]
    for step, (name, words) in enumerate(parts.items()):
        towards, by = ((0.0, 0.0, 0.0), 0.4) if step == 0 else ((1.0, 1.0, 1.0), 0.8 * (step - 1) / (len(parts) - 1))
        colour = [(1 - by) * own + by * other for own, other in zip(to_rgb(KINDS[kind]), towards, strict=True)]
        widths = [100 * (row.cause(name) or 0.0) for row in rows]
        left = [100 * sum(row.cause(each) or 0.0 for each in list(parts)[:step]) for row in rows]
        axis.barh(
            range(len(rows)),
            widths,
            left=left,
            height=0.62,
            color=colour,
            edgecolor="white",
            linewidth=0.8,
            label=words,
        )
    for at, row in enumerate(rows):
        axis.text(100 * (getattr(row, kind) or 0.0), at, f" {percent(getattr(row, kind))}", va="center", color=INK)


def _add_legend(axis: "Axes", kind: str, inches: "Affine2DBase") -> None:
    """What the parts of a kind of error are, below the axis."""
    from matplotlib.transforms import ScaledTranslation

    axis.set_xlabel("% of the reference's speech", color=INK)
    legend = axis.legend(title=kind.replace("_", " "), alignment="left", loc="upper left", frameon=False)
    legend.set_bbox_to_anchor((0, 0), transform=axis.transAxes + ScaledTranslation(0, -LABEL_IN, inches))


def _dress(axis: "Axes", num_rows: int) -> None:
    """Axes of a panel, the first row on top."""
    axis.set_ylim(num_rows - 0.5, -0.5)
    axis.grid(axis="x", color=PALE, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0, colors=INK)
    axis.tick_params(axis="x", colors=INK)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(PALE)
