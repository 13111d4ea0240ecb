"""Plots of evidence: SVG whose ink follows the page (light or dark), PNG for Markdown."""

import io
import re
from pathlib import Path
from typing import Any

from diarnorm.claims.evidence import Plot, Series

INK, RULE = "#010203", "#040506"
"""Stand for the page's colours of text and of rules in SVG."""
COLOURS = ("#2f8fd0", "#e08a00", "#19a37a", "#d1598f", "#a06fd8", "#8c8c8c", "#b5a000")
"""Told apart by people with any colour vision, with the markers, and seen on white and on black."""
MARKERS = "osD^vPX"
SIZE_IN = (6.4, 4.0)


def svg(plot: Plot) -> str:
    """The picture as an element of a page, coloured by its CSS variables `--ink` and `--rule`."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": plot.title, "font.family": "sans-serif"}):
        buffer = io.StringIO()
        _draw(plot, INK, RULE).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{_escaped(plot.title)}" ', 1)
    return text.replace(INK, "var(--ink)").replace(RULE, "var(--rule)")


def png(plot: Plot, path: Path) -> None:
    """Write the picture on white."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _draw(plot, "#222222", "#dddddd").savefig(path, format="png", dpi=110, metadata={"Software": None})


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
        _draw_series(axes, series, style)
    axes.set_xlabel(plot.x, color=ink)
    axes.set_ylabel(plot.y, color=ink)
    axes.set_title(plot.title, loc="left", color=ink, fontsize=12)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    for axis, is_log in ((axes.xaxis, plot.log_x), (axes.yaxis, plot.log_y)):
        if is_log:
            axis.set_major_formatter(lambda value, position: f"{value:g}")
            axis.set_minor_formatter(lambda value, position: "")
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


def _draw_series(axes: Any, series: Series, style: dict[str, Any]) -> None:
    if series.low:
        below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
        above = [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]
        axes.errorbar(series.x, series.y, [below, above], capsize=3, **style)
    else:
        axes.plot(series.x, series.y, **style)


def _few_ticks(axes: Any, plot: Plot) -> None:
    """On a logarithmic axis of less than two decades, ticks where the points are."""
    places = sorted({x for series in plot.series for x in series.x})
    if plot.log_x and places and places[-1] < 100 * places[0]:
        axes.set_xticks(places)


def _escaped(text: str) -> str:
    from html import escape

    return escape(text, quote=True)
