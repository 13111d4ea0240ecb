"""Plots of evidence: SVG whose ink follows the page (light or dark), PNG for Markdown."""

from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from diarnorm.claims.evidence import Plot, Series
from diarnorm.evaluation.svg import as_svg

INK, RULE = "#010203", "#040506"
"""Stand for the page's colours of text and of rules in SVG."""
COLOURS = ("#2f8fd0", "#e08a00", "#19a37a", "#d1598f", "#a06fd8", "#8c8c8c", "#b5a000")
"""Told apart by people with any colour vision, with the markers, and seen on white and on black."""
MARKERS = "osD^vPX"
SIZE_IN = (4.7, 3.5)
"""So small that text is still read where a phone is as wide as the picture."""

LABEL_LETTERS = 28
"""That fit on a line along the upright axis."""


def svg(plot: Plot) -> str:
    """The picture as an element of a page, coloured by its CSS variables `--ink` and `--rule`."""
    return as_svg(_draw(plot, INK, RULE), plot.title, {INK: "var(--ink)", RULE: "var(--rule)"})


def png(plot: Plot, path: Path) -> None:
    """Write the picture on white."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _draw(plot, "#222222", "#dddddd").savefig(path, format="png", dpi=150, metadata={"Software": None})


def _draw(plot: Plot, ink: str, rule: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_IN, layout="constrained")
    axes = figure.subplots()
    for height in plot.lines:
        axes.axhline(height, color=ink, linewidth=0.8, linestyle="dotted")
    drawn = [series for series in plot.series if series.x]
    for number, series in enumerate(drawn):
        style = {
            "markersize": max(4, 8 - number),
            "linewidth": max(1.2, 3.2 - 0.7 * number),
        }  # what covers it is thinner
        style |= {
            "color": COLOURS[number % len(COLOURS)],
            "marker": MARKERS[number % len(MARKERS)],
            "label": series.name,
        }
        _draw_series(axes, series, plot.top, style)
    axes.set_xlabel(plot.x, color=ink)
    axes.set_ylabel("\n".join(wrap(plot.y, LABEL_LETTERS)), color=ink)
    axes.set_title(plot.title, loc="left", color=ink, fontsize=12)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    for axis, is_log in ((axes.xaxis, plot.log_x), (axes.yaxis, plot.log_y)):
        if is_log:
            axis.set_major_formatter(lambda value, position: f"{value:g}")
            axis.set_minor_formatter(lambda value, position: "")
    if plot.top is not None:
        axes.set_ylim(0.0, 1.03 * plot.top)
    _few_ticks(axes, plot)
    axes.grid(color=rule, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=ink)
    for spine in axes.spines.values():
        spine.set_color(rule)
    if len(drawn) > 1:
        columns = 2 if len(drawn) > 3 or max(len(series.name) for series in drawn) > 14 else 3
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, labelcolor=ink, fontsize=10)
    return figure


def _draw_series(axes: Any, series: Series, top: float | None, style: dict[str, Any]) -> None:
    edge = np.inf if top is None else top
    heights, highs = (np.minimum(values, edge) for values in (series.y, series.high))
    if series.low:
        lows = np.where(np.asarray(series.y) > edge, edge, series.low)
        below, above = np.maximum(0.0, heights - lows), np.maximum(0.0, highs - heights)
        axes.errorbar(series.x, heights, [below, above], capsize=3, **style)
    else:
        axes.plot(series.x, heights, **style)


def _few_ticks(axes: Any, plot: Plot) -> None:
    """Ticks where the points are, on a logarithmic axis of less than two decades and where points are numbered; names,
    where each series is one of these."""
    drawn = [series for series in plot.series if series.x]
    places = sorted({x for series in drawn for x in series.x})
    if not places:
        return
    if len(drawn) > 1 and all(len(series.x) == 1 for series in drawn):
        axes.set_xticks([series.x[0] for series in drawn], [series.name for series in drawn])
        axes.margins(x=0.2)
    elif (plot.log_x and places[-1] < 100 * places[0]) or places == list(range(len(places))):
        axes.set_xticks(places, [f"{place:g}" for place in places])
