"""A figure as an element of an HTML page: text is text, colours are the page's, ids clash with no other figure's."""

import io
import re
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def as_svg(figure: "Figure", title: str, colours: Mapping[str, str]) -> str:
    """The figure as `<svg>`, the same text whenever it is the same figure.

    Args:
        figure: drawn in colours of its own.
        title: what a screen reader says; two figures on one page have different ones.
        colours: by colour of the figure, `#rrggbb` in small letters, what stands in its place, such as `var(--ink)`.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # nothing refers to groups; every figure has the same names for them
    text = re.sub(r"\s*\n\s*", "\n", text)
    for colour, ours in colours.items():
        text = text.replace(colour, ours)
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1).strip()
