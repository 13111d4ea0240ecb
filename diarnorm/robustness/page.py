"""A robustness study as one page that needs nothing else: styles, pictures and sounds lie in it, nothing is fetched."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from diarnorm.evaluation.tables import NO_VALUE, percent
from diarnorm.files import replacing
from diarnorm.robustness.columns import ALONE, LEGEND, SIGNS, WHO, Column, details_of, interval, points, signs
from diarnorm.robustness.conventions import conventions
from diarnorm.robustness.factors import Factor, factors_of
from diarnorm.robustness.figures import colour_of
from diarnorm.robustness.grid import Cell, Contrast
from diarnorm.robustness.players import Player
from diarnorm.robustness.rows import FAILS, HOLDS, UNDECIDED, Change, Row
from diarnorm.robustness.study import Study
from diarnorm.robustness.tables import (
    CONTRASTS,
    VERDICTS,
    contrast_lines,
    finding,
    word_on_contrasts,
    word_on_kinds,
)

MOST_NAMED = 8
"""Factors that a model fails by name; the table below has all."""
BREAK = "\u200b"
"""Where a line may break."""
LONGEST = 16
"""Letters of a word that stay on a line."""
Pictures = Mapping[str, Sequence[str]]
"""Pictures as SVG by their common caption."""
STYLE = """
:root{color-scheme:light dark;--ink:#1c1c1e;--soft:#5c5c63;--paper:#ffffff;--line:#dcdce0;--card:#f5f5f7}
@media (prefers-color-scheme:dark){:root{--ink:#ececf0;--soft:#a5a5ad;--paper:#141416;--line:#37373c;--card:#1f1f23}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;line-height:1.2}h2{font-size:1.25rem;margin-top:2.2rem}h3{font-size:1rem;margin:1.6rem 0 .4rem}
p,li{max-width:46rem}.soft{color:var(--soft);font-size:.875rem}
ul{padding-left:1.2rem}.models li{margin:.6rem 0}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch;border:1px solid var(--line);border-radius:8px;
width:fit-content;max-width:100%}
table{border-collapse:separate;border-spacing:0;font-size:.875rem;font-variant-numeric:tabular-nums;line-height:1.35}
th,td{padding:.4rem .5rem;white-space:nowrap;text-align:right;border-bottom:1px solid var(--line)}
tbody tr:last-child>*{border-bottom:0}
thead th{color:var(--soft);font-weight:600;white-space:normal;vertical-align:bottom;
min-width:3.6rem}
th:first-child{position:sticky;left:0;background:var(--paper);text-align:left;font-weight:500;white-space:normal;
min-width:min(12rem,33vw);max-width:20rem;overflow-wrap:break-word;border-right:1px solid var(--line)}
td.heat{color:#1c1c1e;border-left:1px solid var(--paper)}tr.clean>*{font-weight:700}
thead:has(+tbody .told) th,td.told{text-align:left}td.told{white-space:normal;vertical-align:top}
.holds,.fails,.undecided{white-space:nowrap}td.told span{font-weight:600}
td.told small{display:block;font-size:.8125rem}
.holds{color:#1a7f4b}.fails{color:#c2410c}.undecided{color:var(--soft)}
@media (prefers-color-scheme:dark){.holds{color:#5fd39a}.fails{color:#ff9a5c}}
figure{margin:1.6rem 0}figcaption{max-width:46rem;margin-bottom:.6rem;font-weight:600}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(18rem,100%),1fr));gap:1rem}
svg{display:block;width:100%;max-width:26rem;height:auto}
.sounds{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(15rem,100%),1fr));gap:.8rem}
.sounds div{background:var(--card);border-radius:8px;padding:.6rem;overflow-wrap:break-word;min-width:0}
audio{display:block;width:100%;margin-top:.4rem}
details{border-top:1px solid var(--line);padding:.6rem 0}summary{cursor:pointer;font-weight:600}
details .scroll{margin-top:.6rem}h1,h2,h3,li,summary{overflow-wrap:anywhere}
@media (max-width:30rem){th,td{padding:.4rem .35rem}td.told span{font-size:.8125rem;font-weight:500}
th:first-child{min-width:24vw;max-width:37vw}body{padding:.75rem}}
"""


def page(
    study: Study,
    rows: Sequence[Row],
    cells: Sequence[Cell],
    contrasts: Sequence[Contrast],
    pictures: Mapping[str, Pictures],
    players: Sequence[Player],
) -> str:
    """The page as HTML; `pictures` by set."""
    parts = ["<h1>Robustness</h1>", _summary(study, rows)]
    for set_name in study.recordings:
        own = [row for row in rows if row.set_name == set_name]
        mine = [cell for cell in cells if cell.set_name == set_name]
        apart = [each for each in contrasts if each.set_name == set_name]
        parts += [f"<h2>{escape(set_name)}</h2>", *_set_parts(study, own, mine, apart, pictures.get(set_name, {}))]
    alone = _alone(study, rows)
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


def _alone(study: Study, rows: Sequence[Row]) -> list[Row]:
    """Rows in which nobody speaks."""
    return [row for row in rows if row.set_name not in study.recordings]


def _set_parts(
    study: Study, rows: Sequence[Row], cells: Sequence[Cell], contrasts: Sequence[Contrast], pictures: Pictures
) -> list[str]:
    """Of one set: verdicts, the coloured table, pictures, and the rest folded away."""
    title, _, meaning = VERDICTS.partition(": ")
    parts = [
        f"<h3>{title}</h3><p class=soft>{meaning.capitalize()}, in points of DER.</p>",
        _verdicts(study, rows),
        "<h3>Change of the error rate, in points</h3>",
        "<p class=soft>The first line is the DER of the clean recordings in %. Below it stands what each change of the "
        f"audio adds: orange is worse, blue is better. {escape(LEGEND)}.</p>",
        _heat_map(study, rows),
        *(_figure(caption, panels) for caption, panels in pictures.items()),
    ]
    details = [(title, _table([*WHO, *columns], some)) for title, columns, some in details_of(rows)]
    if contrasts:
        details.insert(0, (CONTRASTS, f"<p class=soft>{word_on_contrasts(contrasts)}</p>{_contrasts(contrasts)}"))
    if cells:
        words = f"<p class=soft>{escape(word_on_kinds(cells))}</p>"
        details.insert(0, ("Front ends and norms: change of the DER in points", words + _grid(cells)))
    return parts + [
        f"<details><summary>{escape(title, quote=False)}</summary>{table}</details>" for title, table in details
    ]


def _summary(study: Study, rows: Sequence[Row]) -> str:
    """For each model or peer: how many factors hold, those that do not, and whether it is quiet when nobody speaks."""
    factors = factors_of(study, rows)
    items = []
    for model in study.columns:
        own = [each for each in factors if each.model == model]
        verdicts = [each.verdict for each in own]
        counts = ", ".join(
            f"<span class={word}>{verdicts.count(word)} {word} {SIGNS[word]}</span>"
            for word in (HOLDS, FAILS, UNDECIDED)
        )
        facts = study.models.get(model)
        kind = "another program" if facts is None else f"norm {facts['norm']}, front end {facts['frontend']}"
        alone = [row for row in _alone(study, rows) if row.model == model]
        items.append(f"<li><strong>{_name(model)}</strong> ({escape(kind)}): {counts}{_failed(study, own, alone)}</li>")
    return (
        "<p>Factors whose margin holds, fails, or on which these recordings do not tell:</p>"
        f"<ul class=models>{''.join(items)}</ul>"
    )


def _failed(study: Study, factors: Sequence[Factor], alone: Sequence[Row]) -> str:
    """What a model fails by name, the worst first, and in which silences it makes turns."""
    failed = [each for each in factors if each.verdict == FAILS]
    failed.sort(key=lambda each: -(each.worst.change.points or 0.0))
    several = len(study.recordings) > 1
    words = [
        f"{each.set_name}: {each.factor} {finding(each)}" if several else f"{each.factor} {finding(each)}"
        for each in failed[:MOST_NAMED]
    ]
    more = [f"{len(failed) - MOST_NAMED} more"] if len(failed) > MOST_NAMED else []
    lines = ["fails " + "; ".join([*words, *more])] if words else []
    if alone:
        heard = [row.condition for row in alone if row.verdict == FAILS]
        lines.append(f"makes turns of {'; '.join(heard)}" if heard else "makes no turns when nobody speaks")
    return "".join(f"<br>{_name(line)}" for line in lines)


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
            lines.append(f"<tr><th scope=row>{_name(condition.name)}</th>{fields}</tr>")
    return _scroll(["condition", *study.columns], lines)


def _heat(row: Row | None) -> str:
    if row is None:
        return f"<td>{NO_VALUE}</td>"
    title = f"95 % interval {interval(row.change)}, DER {percent(row.errors.der)} %"
    return _field(row.change, row.outcome, title)


def _field(change: Change, verdict: str | None, title: str) -> str:
    """A field with the colour and the figure of a change."""
    colour, sign = colour_of(change.points), signs(change, verdict)
    return f'<td class=heat style="background:{colour}" title="{escape(title)}">{points(change)} {sign}</td>'


def _verdicts(study: Study, rows: Sequence[Row]) -> str:
    factors = factors_of(study, rows)
    by_place = {(each.factor, each.model): each for each in factors}

    def field(each: Factor | None) -> str:
        if each is None:
            return f"<td class=told>{NO_VALUE}</td>"
        word = f"{each.verdict} {SIGNS[each.verdict]}" if each.verdict else "no margin"
        return f"<td class=told><span class={each.verdict or 'soft'}>{word}</span> <small>{finding(each)}</small></td>"

    lines = [
        f"<tr><th scope=row>{_name(name)}</th>{''.join(field(by_place.get((name, m))) for m in study.columns)}</tr>"
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
            f"<td>{NO_VALUE}</td>" if cell is None else _field(cell.change, cell.outcome, interval(cell.change))
            for cell in found
        )
        lines.append(f"<tr><th scope=row>{_name(name)}</th>{fields}</tr>")
    return _scroll(["condition", *(f"{front} / {norm}" for front, norm in kinds)], lines)


def _contrasts(contrasts: Sequence[Contrast]) -> str:
    """Conditions down, pairs of norms across."""
    head, lines = contrast_lines(contrasts)
    return _scroll(
        head,
        (
            f"<tr><th scope=row>{_name(line[0])}</th>{''.join(f'<td>{escape(each)}</td>' for each in line[1:])}</tr>"
            for line in lines
        ),
    )


def _table(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    lines = [
        f"<tr><th scope=row>{_name(columns[0][1](row))}</th>"
        + "".join(f"<td>{escape(tell(row))}</td>" for _, tell in columns[1:])
        + "</tr>"
        for row in rows
    ]
    return _scroll([name for name, _ in columns], lines)


def _scroll(head: Iterable[str], lines: Iterable[str]) -> str:
    """A table in a container of its own that scrolls."""
    titles = "".join(f"<th scope=col>{_name(name)}</th>" for name in head)
    return f"<div class=scroll><table><thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"


def _figure(caption: str, panels: Iterable[str]) -> str:
    text = escape(caption)
    return f"<figure><figcaption>{text}</figcaption><div class=panels>{''.join(panels)}</div></figure>"


def _sounds(players: Iterable[Player]) -> str:
    items = "".join(
        f'<div>{_name(each.name)}<audio controls preload="none" aria-label="{escape(each.name)}" src="{each.uri}">'
        "</audio></div>"
        for each in players
    )
    return f"<div class=sounds>{items}</div>"


def _name(text: str) -> str:
    """A name that may break after a separator, and within a word of more than `LONGEST` letters.

    >>> _name("loudness.swing=6 <x>")
    'loudness.<wbr>swing=6 &lt;x&gt;'
    """
    text = re.sub(r"(?<=[._/-])(?=[^\W\d_])", BREAK, text)
    text = re.sub(rf"([^\W_]{{{LONGEST}}})(?=[^\W_])", rf"\1{BREAK}", text)
    return escape(text).replace(BREAK, "<wbr>")


def write_page(text: str, folder: Path) -> Path:
    """Write `report.html`; its path."""
    with replacing(folder / "report.html") as partial:
        partial.write_text(text, "utf-8")
    return folder / "report.html"
