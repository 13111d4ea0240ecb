"""A robustness study as pictures: what each factor costs each model, and what is seen inside of them.

Colours of lines are those of Okabe and Ito (2008), one for each norm and each peer; front ends differ in markers and
dashes. Changes go from blue (fewer errors) over white to orange (more), which people with any colour vision tell apart,
and the figure stands in every field.
"""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from diarnorm.evaluation.figures import COLOURS, INK, PALE
from diarnorm.evaluation.svg import as_svg
from diarnorm.files import legal_folder, replacing
from diarnorm.robustness.columns import points, signs
from diarnorm.robustness.conditions import CLEAN, Condition
from diarnorm.robustness.grid import Cell
from diarnorm.robustness.panels import Panels, short
from diarnorm.robustness.rows import Row
from diarnorm.robustness.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = (("o", "-"), ("s", "--"), ("^", ":"), ("D", "-."))
"""Of front ends."""
PEER_MARK = ("x", (0, (6, 2)))
"""Of all peers."""
BETTER, WORSE = (0x2C, 0x7B, 0xB6), (0xE6, 0x6A, 0x00)
FULL_POINTS = 20.0
"""Change of the DER at which a colour is full."""
LEAST_POINTS = 6.0
"""Least height of a panel, so that nothing looks large that is not."""
FIELD_LETTERS = 15
"""That fit below a field of a table."""
CAPTIONS = {
    "factors": "DER against severity; dotted: on the clean recordings",
    "changes": "Change of the DER in points",
    "residual": "RMS of the residual stream after each block, where it changed most; *: in the changed pieces alone",
    "attention": "Share of the attention on changed frames; dotted: in the clean run on the same, dashed: if uniform",
    "grid": "Front ends and norms: change of the DER, points",
}
PAGE_COLOURS = {INK.lower(): "var(--ink)", "#000000": "var(--ink)", PALE.lower(): "var(--line)"}


def colour_of(change: float | None) -> str:
    """Colour of a change of the DER in points, as `#rrggbb`; grey where there is none. Dark text is readable on it.

    >>> colour_of(0.0), colour_of(None)
    ('#ffffff', '#dddddd')
    """
    if change is None:
        return PALE.lower()
    share = min(1.0, abs(change) / FULL_POINTS) ** 0.7 * 0.85
    end = WORSE if change > 0 else BETTER
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in end)


def draw_all(study: Study, rows: Sequence[Row], cells: Sequence[Cell], folder: Path) -> dict[str, Path]:
    """Write all pictures (PNG) that there is something for; their paths by caption."""
    found: dict[str, Path] = {}
    for set_name in study.recordings:
        own = [row for row in rows if row.set_name == set_name]
        mine = [cell for cell in cells if cell.set_name == set_name]
        drawings = {**_panels_of(study, own), "changes": draw_changes(study, own), "grid": draw_grid(mine)}
        for name, caption in CAPTIONS.items():
            drawing = drawings[name]
            if drawing is None:
                continue
            path = folder / f"{legal_folder(set_name)}_{name}.png"
            figure = drawing.together() if isinstance(drawing, Panels) else drawing
            with replacing(path) as partial:
                figure.savefig(partial, dpi=110, format="png")
            found[f"{set_name}: {caption}"] = path
    return found


def draw_for_page(study: Study, rows: Sequence[Row], set_name: str) -> dict[str, list[str]]:
    """The pictures of a set as SVG, a panel each, by caption, in the colours `--ink` and `--line` of a page; without
    those that say what the page's tables do."""
    own = [row for row in rows if row.set_name == set_name]
    return {
        CAPTIONS[name]: [
            as_svg(figure, f"{set_name}: {CAPTIONS[name]}: {panel}", PAGE_COLOURS)
            for panel, figure in panels.apart().items()
        ]
        for name, panels in _panels_of(study, own).items()
        if panels is not None
    }


def _panels_of(study: Study, rows: Sequence[Row]) -> "dict[str, Panels | None]":
    return {
        "factors": draw_factors(study, rows),
        "residual": draw_residual(study, rows),
        "attention": draw_attention(study, rows),
    }


def _style(study: Study, model: str) -> dict[str, Any]:
    """Colour, marker and dashes of a model, or a peer."""
    norms = list(dict.fromkeys(each["norm"] for each in study.models.values()))
    if model in study.peers:
        colour = COLOURS[(len(norms) + list(study.peers).index(model)) % len(COLOURS)]
        return {"color": colour, "marker": PEER_MARK[0], "linestyle": PEER_MARK[1]}
    facts = study.models[model]
    fronts = list(dict.fromkeys(each["frontend"] for each in study.models.values()))
    marker, dashes = MARKS[fronts.index(facts["frontend"]) % len(MARKS)]
    return {"color": COLOURS[norms.index(facts["norm"]) % len(COLOURS)], "marker": marker, "linestyle": dashes}


def draw_factors(study: Study, rows: Sequence[Row]) -> Panels | None:
    """A panel for each corruption with more than one severity: DER against severity, a line for each model."""
    severities: dict[str, list[tuple[float, str]]] = {}
    for each in study.conditions:
        if each.severity is not None and not each.is_alone:
            severities.setdefault(each.factor, []).append((each.severity, each.name))
    found = {row.condition for row in rows}
    panels = {f: sorted(p for p in pairs if p[1] in found) for f, pairs in severities.items()}
    units = {each.factor: each.unit for each in study.conditions if not each.is_alone}
    by_place = {(row.condition, row.model): row for row in rows}

    def panel(axis: "Axes", factor: str) -> None:
        pairs = panels[factor]
        for model in study.columns:
            ours = [by_place.get((name, model)) for _, name in pairs]
            ders = [None if row is None or row.errors.der is None else 100 * row.errors.der for row in ours]
            axis.plot(range(len(pairs)), _gaps(ders), label=short(model), markersize=5, **_style(study, model))
            clean = by_place.get((CLEAN, model))
            if clean is not None and clean.errors.der is not None:
                colour = _style(study, model)["color"]
                axis.axhline(100 * clean.errors.der, color=colour, linestyle=(0, (1, 2)), linewidth=1.2, zorder=0)
        axis.set_xticks(range(len(pairs)), [f"{severity:g}" for severity, _ in pairs])
        axis.set_title(short(f"{factor}, {units[factor]}" if units[factor] else factor), fontsize=10, loc="left")
        axis.margins(x=0.12)
        low, high = axis.get_ylim()
        spare = max(0.0, LEAST_POINTS - (high - low)) / 2
        axis.set_ylim(max(0.0, low - spare), high + spare)

    return _some(Panels([factor for factor, pairs in panels.items() if len(pairs) > 1], panel, "DER, %"))


def draw_changes(study: Study, rows: Sequence[Row]) -> "Figure | None":
    """A table of colours and figures: conditions down, models across."""
    from matplotlib.figure import Figure

    names = [each.name for each in study.conditions if not (each.is_clean or each.is_alone)]
    by_place = {(row.condition, row.model): row for row in rows}
    names = [name for name in names if any((name, model) in by_place for model in study.columns)]
    if not names:
        return None
    models = study.columns
    names_in = 0.15 * max(_folded(model).count("\n") for model in models)
    size = (3.0 + 1.1 * len(models), 1.0 + 0.27 * len(names) + names_in)
    figure = Figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    for y, name in enumerate(names):
        for x, model in enumerate(models):
            row = by_place.get((name, model))
            if row is not None:
                _field(axis, x, y, row.change.points, f"{points(row.change)} {signs(row.change, row.outcome)}".strip())
    _finish_table(axis, models, names)
    return figure


def draw_grid(cells: Sequence[Cell]) -> Panels | None:
    """A panel for each corruption at its largest change: front ends down, norms across."""
    if not cells:
        return None
    fronts = list(dict.fromkeys(cell.frontend for cell in cells))
    norms = list(dict.fromkeys(cell.norm for cell in cells))
    worst: dict[str, tuple[float, str]] = {}
    for cell in cells:
        factor = cell.condition.partition("=")[0] if " " not in cell.condition else cell.condition
        worst[factor] = max(worst.get(factor, (float("-inf"), "")), (cell.change.points or 0.0, cell.condition))

    def panel(axis: "Axes", name: str) -> None:
        for cell in cells:
            if cell.condition == name:
                text = f"{points(cell.change)} {signs(cell.change, cell.outcome)}".strip()
                _field(axis, norms.index(cell.norm), fronts.index(cell.frontend), cell.change.points, text)
        _finish_table(axis, norms, fronts)
        axis.set_title(short(name), fontsize=10, loc="left")

    names = [name for _, name in worst.values()]
    return _some(Panels(names, panel, height_in=0.7 + 0.4 * len(fronts), legend="none"))


def draw_residual(study: Study, rows: Sequence[Row]) -> Panels | None:
    """A panel for each model: clean, and the four corruptions that move its residual stream most."""
    factors = {each.name: each.factor for each in study.conditions if not each.is_alone}
    by_model = {model: [row for row in rows if row.model == model and row.rms] for model in study.models}

    def most(row: Row) -> float:
        ours, clean = (row.event_rms or row.rms or ()), (row.clean_rms or ())
        return max((abs(a / b - 1) for a, b in zip(ours, clean, strict=True) if b > 0), default=0.0)

    def panel(axis: "Axes", model: str) -> None:
        own = by_model[model]
        clean = [row for row in own if row.condition == CLEAN]
        moved = sorted((row for row in own if row.condition != CLEAN), key=most, reverse=True)
        firsts = {factors[row.condition]: row for row in reversed(moved)}
        shown = [row for row in moved if firsts[factors[row.condition]] is row]
        for row, colour, mark in zip([*clean, *shown[:4]], (INK, *COLOURS), "osD^v", strict=False):
            values = row.event_rms or row.rms or ()
            where = " *" if row.event_rms else ""
            blocks = range(1, len(values) + 1)
            axis.plot(blocks, values, marker=mark, markersize=4, color=colour, label=f"{short(row.condition)}{where}")
            axis.set_xticks(blocks)
        axis.set_title(short(model), fontsize=10, loc="left")
        axis.set_xlabel("block", fontsize=9)
        axis.set_ylim(bottom=0)

    names = [model for model, own in by_model.items() if own]
    return _some(Panels(names, panel, "RMS", legend="each"))


def draw_attention(study: Study, rows: Sequence[Row]) -> Panels | None:
    """A panel for each corruption that changes pieces that were there, at its strongest: share per block; dotted in the
    clean run on the same frames; dashed what their number alone would make it."""
    strongest: dict[str, Condition] = {}
    for each in study.conditions:
        if each.is_clean or each.is_alone:
            continue
        known = strongest.setdefault(each.factor, each)
        if abs(each.severity or 0.0) > abs(known.severity or 0.0):
            strongest[each.factor] = each
    names = [each.name for each in strongest.values()]
    by_place = {(row.condition, row.model): row for row in rows if row.attention and row.clean_attention}

    def panel(axis: "Axes", name: str) -> None:
        for model in study.models:
            row = by_place.get((name, model))
            if row is None or row.attention is None:
                continue
            blocks, style = range(1, len(row.attention) + 1), _style(study, model)
            axis.plot(blocks, [100 * each for each in row.attention], label=short(model), markersize=5, **style)
            if row.clean_attention is not None:
                pale = {**style, "linestyle": ":", "marker": "", "alpha": 0.7}
                axis.plot(blocks, [100 * each for each in row.clean_attention], **pale)
            if row.uniform_attention is not None:
                axis.axhline(100 * row.uniform_attention, color="#999999", linestyle=(0, (4, 3)), linewidth=1, zorder=0)
            axis.set_xticks(blocks)
        axis.set_title(short(name), fontsize=10, loc="left")
        axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
        axis.set_xlabel("block", fontsize=9)

    shown = [name for name in names if any((name, model) in by_place for model in study.models)]
    return _some(Panels(shown, panel, "% of attention"))


def _some(panels: Panels) -> Panels | None:
    return panels if panels.names else None


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _field(axis: "Axes", x: int, y: int, change: float | None, text: str) -> None:
    """One field of a table of colours."""
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour_of(change), edgecolor=PALE, linewidth=0.8))
    axis.text(x, y, text, ha="center", va="center", fontsize=8, color=INK)


def _folded(name: str) -> str:
    """A name in lines as wide as a field of a table."""
    return "\n".join(wrap(short(name), FIELD_LETTERS))


def _finish_table(axis: "Axes", across: Sequence[str], down: Sequence[str]) -> None:
    axis.set_xlim(-0.5, len(across) - 0.5)
    axis.set_ylim(len(down) - 0.5, -0.5)
    axis.set_xticks(range(len(across)), [_folded(name) for name in across], fontsize=8)
    axis.set_yticks(range(len(down)), down, fontsize=8)
    axis.tick_params(length=0)
    for side in ("top", "right", "left", "bottom"):
        axis.spines[side].set_visible(False)
