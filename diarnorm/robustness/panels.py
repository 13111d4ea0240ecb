"""Panels of one kind: all in one picture, for a file, or one picture each, which a page lays out to its own width."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from diarnorm.evaluation.figures import INK, PALE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

COLUMNS = 3
"""Panels in a row."""
WIDTH_IN = 3.4
"""Width of a panel."""
LETTERS = 12
"""Of a legend, in an inch, marker and gap being as wide as `MARKER_LETTERS`."""
MARKER_LETTERS = 6
INKS: dict[Any, Any] = dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK
)


LONGEST = 36
"""Letters that fit over a panel or into its legend."""


def short(name: str) -> str:
    """A name that fits, without its middle where it is long.

    >>> short("a" * 30 + "b" * 30)
    'aaaaaaaaaaaaaaaaaa…bbbbbbbbbbbbbbbbb'
    """
    half = LONGEST // 2
    return name if len(name) <= LONGEST else f"{name[:half]}…{name[1 - half :]}"


@dataclass(frozen=True)
class Panels:
    """What is drawn into axes, by name.

    Attributes:
        names: of the panels.
        draw: draws the one of this name.
        label: of the upright axis; none for a table of colours.
        height_in: of a panel without its legend.
        legend: whether lines are named below all, as in the first panel, below each, or nowhere.
    """

    names: Sequence[str]
    draw: "Callable[[Axes, str], None]"
    label: str = ""
    height_in: float = 2.3
    legend: Literal["common", "each", "none"] = "common"

    def together(self) -> "Figure":
        """One picture."""
        return self._figure(self.names)

    def apart(self) -> "dict[str, Figure]":
        """A picture of each, by name."""
        return {name: self._figure([name]) for name in self.names}

    def _figure(self, names: Sequence[str]) -> "Figure":
        import matplotlib
        from matplotlib.figure import Figure

        num_columns = min(COLUMNS, len(names))
        num_rows = -(-len(names) // num_columns)
        with matplotlib.rc_context(INKS):
            figure = Figure(layout="constrained")
            boxes = figure.subfigures(num_rows, num_columns, squeeze=False).ravel()[: len(names)]
            axes = [box.subplots() for box in boxes]
            for axis, name in zip(axes, names, strict=True):
                self.draw(axis, name)
                self._dress(axis)
            below_all_in, below_each_in = 0.0, 0.2
            if self.legend == "common":
                below_all_in = _name_lines(figure, axes[0], WIDTH_IN * num_columns)
            elif self.legend == "each":
                below_each_in = max(_name_lines(*pair, WIDTH_IN) for pair in zip(boxes, axes, strict=True))
        figure.set_size_inches(WIDTH_IN * num_columns, (self.height_in + below_each_in) * num_rows + below_all_in)
        return figure

    def _dress(self, axis: "Axes") -> None:
        axis.tick_params(labelsize=8)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        if self.label:
            axis.set_ylabel(self.label, fontsize=9)
            axis.grid(axis="y", color=PALE, linewidth=0.8)
            axis.set_axisbelow(True)


def _name_lines(box: "FigureBase", axis: "Axes", width_in: float) -> float:
    """Put a legend of the axis' lines at the bottom, in as many columns as there is room for; its height in inches."""
    handles, labels = axis.get_legend_handles_labels()
    if not handles:
        return 0.0
    num_columns = int(LETTERS * width_in / (max(map(len, labels)) + MARKER_LETTERS))
    num_columns = max(1, min(4, len(labels), num_columns))
    box.legend(handles, labels, loc="outside lower center", ncols=num_columns, frameon=False, fontsize=8)
    return 0.2 + 0.18 * -(-len(labels) // num_columns)
