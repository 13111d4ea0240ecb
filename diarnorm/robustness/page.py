"""A robustness study as one page that needs nothing else: styles, pictures and sounds lie in it, nothing is fetched."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from diarnorm.evaluation.tables import NO_VALUE, percent
from diarnorm.files import replacing
from diarnorm.robustness.figures import colour_of
from diarnorm.robustness.players import Player
from diarnorm.robustness.study import Study
from diarnorm.robustness.summary import FAILS, HOLDS, UNDECIDED, Cell, Change, Factor, Row, factors_of, worst_verdict
from diarnorm.robustness.tables import (
    ALONE,
    LEGEND,
    SIGNS,
    WHO,
    Column,
    conventions,
    details_of,
    interval,
    points,
)

STYLE = """
:root{color-scheme:light dark;--ink:#1c1c1e;--soft:#5c5c63;--paper:#ffffff;--line:#dcdce0;--card:#f5f5f7}
@media (prefers-color-scheme:dark){:root{--ink:#ececf0;--soft:#a5a5ad;--paper:#141416;--line:#37373c;--card:#1f1f23}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.2rem}h3{font-size:1rem;margin:1.6rem 0 .4rem}
p,li{max-width:46rem}.soft{color:var(--soft);font-size:.875rem}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch;border:1px solid var(--line);border-radius:8px}
table{border-collapse:separate;border-spacing:0;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:.35rem .6rem;white-space:nowrap;text-align:right;border-bottom:1px solid var(--line)}
tr:last-child>*{border-bottom:0}thead th{color:var(--soft);font-weight:600}
th:first-child{position:sticky;left:0;background:var(--paper);text-align:left;font-weight:500}
td.heat{color:#1c1c1e;border-left:1px solid var(--paper)}tr.clean>*{font-weight:700}
.holds{color:#1a7f4b}.fails{color:#c2410c}.undecided{color:var(--soft)}
@media (prefers-color-scheme:dark){.holds{color:#5fd39a}.fails{color:#ff9a5c}}
figure{margin:1rem 0}img{max-width:100%;height:auto;background:#fff;border-radius:8px}
figcaption{color:var(--soft);font-size:.875rem}
.sounds{display:grid;grid-template-columns:repeat(auto-fill,minmax(15rem,1fr));gap:.8rem}
.sounds div{background:var(--card);border-radius:8px;padding:.6rem}audio{width:100%}
details{border-top:1px solid var(--line);padding:.5rem 0}summary{cursor:pointer;font-weight:600}
"""


def page(
    study: Study, rows: Sequence[Row], cells: Sequence[Cell], pictures: Mapping[str, Path], players: Sequence[Player]
) -> str:
    """The page as HTML."""
    parts = ["<h1>Robustness</h1>", _summary(study, rows)]
    for set_name in study.recordings:
        own = [row for row in rows if row.set_name == set_name]
        parts += [f"<h2>{escape(set_name)}</h2>", *_set_parts(study, own, [c for c in cells if c.set_name == set_name])]
        captions = [caption for caption in pictures if caption.startswith(f"{set_name}: ")]
        parts += [_figure(caption, pictures[caption]) for caption in captions]
    alone = [row for row in rows if row.set_name not in study.recordings]
    if alone:
        parts += [
            f"<h2>Nobody speaks</h2><p>{study.config.alone_s:g} s of digital silence with this done to it; there "
            "must be no turns.</p>",
            _table([*WHO, *ALONE], alone),
        ]
    if players:
        parts += ["<h2>Listen</h2>", _sounds(players)]
    lines = "".join(f"<li>{escape(line)}</li>" for line in [*conventions(study), *study.notes])
    parts.append(f"<h2>How it was measured</h2><ul class=soft>{lines}</ul>")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    body = "\n".join(parts)
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>Robustness</title><style>{STYLE}</style></head>'
        f"<body>\n{body}\n</body></html>\n"
    )


def _set_parts(study: Study, rows: Sequence[Row], cells: Sequence[Cell]) -> list[str]:
    """Tables of one set: the coloured one, verdicts, the grid, and the rest folded away."""
    parts = [
        "<h3>Change of the error rate, in points</h3>",
        "<p class=soft>The first line is the DER of the clean recordings in %. Below it stands what each change of the "
        f"audio adds: orange is worse, blue is better. {escape(LEGEND)}.</p>",
        _heat_map(study, rows),
        "<h3>Verdicts</h3>",
        _verdicts(study, rows),
    ]
    if cells:
        parts += ["<h3>Front ends and norms</h3>", _grid(cells)]
    return parts + [
        f"<details><summary>{escape(title, quote=False)}</summary>{_table([*WHO, *columns], some)}</details>"
        for title, columns, some in details_of(rows)
    ]


def _summary(study: Study, rows: Sequence[Row]) -> str:
    """One line per model or peer: how many factors hold."""
    items = []
    factors = factors_of(study, rows)
    for model in study.columns:
        verdicts = [each.verdict for each in factors if each.model == model]
        counts = ", ".join(
            f"<span class={word}>{verdicts.count(word)} {word} {SIGNS[word]}</span>"
            for word in (HOLDS, FAILS, UNDECIDED)
        )
        facts = study.models.get(model)
        kind = "another program" if facts is None else f"norm {facts['norm']}, front end {facts['frontend']}"
        items.append(f"<li><strong>{escape(model)}</strong> ({escape(kind)}): {counts}</li>")
    return (
        f"<p>Factors whose margin holds, fails, or on which these recordings do not tell:</p><ul>{''.join(items)}</ul>"
    )


def _heat_map(study: Study, rows: Sequence[Row]) -> str:
    """Conditions down, models across: colour and figure."""
    by_place = {(row.condition, row.model): row for row in rows}
    lines = []
    for condition in study.conditions:
        found = [by_place.get((condition.name, model)) for model in study.columns]
        if condition.is_alone or not any(found):
            continue
        if condition.is_clean:
            fields = "".join(f"<td>{percent(None if row is None else row.errors.der)}</td>" for row in found)
            lines.append(f"<tr class=clean><th scope=row>clean, DER %</th>{fields}</tr>")
        else:
            fields = "".join(map(_heat, found))
            lines.append(f"<tr><th scope=row>{escape(condition.name)}</th>{fields}</tr>")
    return _scroll(["condition", *study.columns], lines)


def _heat(row: Row | None) -> str:
    if row is None:
        return f"<td>{NO_VALUE}</td>"
    title = f"95 % interval {interval(row.change)}, DER {percent(row.errors.der)} %"
    return _field(row.change, worst_verdict([row.verdict, row.quiet_verdict]), title)


def _field(change: Change, verdict: str | None, title: str) -> str:
    """A field with the colour and the figure of a change."""
    colour = colour_of(change.points)
    return f'<td class=heat style="background:{colour}" title="{escape(title)}">{points(change)} {SIGNS[verdict]}</td>'


def _verdicts(study: Study, rows: Sequence[Row]) -> str:
    factors = factors_of(study, rows)
    by_place = {(each.factor, each.model): each for each in factors}

    def field(each: Factor | None) -> str:
        if each is None:
            return f"<td>{NO_VALUE}</td>"
        at = each.worst.condition.removeprefix(f"{each.factor}=")
        word = each.verdict or "no margin"
        return (
            f"<td><span class={each.verdict or 'soft'}>{word}</span> {points(each.worst.change)} at {escape(at)}</td>"
        )

    lines = [
        f"<tr><th scope=row>{escape(name)}</th>{''.join(field(by_place.get((name, m))) for m in study.columns)}</tr>"
        for name in dict.fromkeys(each.factor for each in factors)
    ]
    return _scroll(["factor", *study.columns], lines)


def _grid(cells: Sequence[Cell]) -> str:
    """Conditions down, front ends with their norms across."""
    kinds = list(dict.fromkeys((cell.frontend, cell.norm) for cell in cells))
    by_place = {(cell.condition, cell.frontend, cell.norm): cell for cell in cells}
    lines = []
    for name in dict.fromkeys(cell.condition for cell in cells):
        found = [by_place.get((name, *kind)) for kind in kinds]
        fields = "".join(
            f"<td>{NO_VALUE}</td>" if cell is None else _field(cell.change, cell.verdict, interval(cell.change))
            for cell in found
        )
        lines.append(f"<tr><th scope=row>{escape(name)}</th>{fields}</tr>")
    return _scroll(["condition", *(f"{front} / {norm}" for front, norm in kinds)], lines)


def _table(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    lines = [
        f"<tr><th scope=row>{escape(columns[0][1](row))}</th>"
        + "".join(f"<td>{escape(tell(row))}</td>" for _, tell in columns[1:])
        + "</tr>"
        for row in rows
    ]
    return _scroll([name for name, _ in columns], lines)


def _scroll(head: Iterable[str], lines: Iterable[str]) -> str:
    """A table in a container of its own that scrolls."""
    titles = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    return f"<div class=scroll><table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"


def _figure(caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    text = escape(caption)
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def _sounds(players: Iterable[Player]) -> str:
    items = "".join(
        f'<div>{escape(each.name)}<audio controls preload="none" src="{each.uri}"></audio></div>' for each in players
    )
    return f"<div class=sounds>{items}</div>"


def write_page(text: str, folder: Path) -> Path:
    """Write `report.html`; its path."""
    with replacing(folder / "report.html") as partial:
        partial.write_text(text, "utf-8")
    return folder / "report.html"
