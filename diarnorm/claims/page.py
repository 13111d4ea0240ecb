"""claims.html: the report as one file with everything in it, for a phone as for a desk, in light and dark."""

from collections.abc import Mapping, Sequence
from html import escape

from diarnorm.claims.evidence import Table
from diarnorm.claims.pictures import svg
from diarnorm.claims.records import Record
from diarnorm.claims.rules import CONDITIONAL, CONFIRMED, FAILS, HOLDS, NOT_MEASURED, REFUTED, Judgement
from diarnorm.claims.words import INTRODUCTION, criteria_table, headline, made_on, tally
from diarnorm.evaluation.figures import has_matplotlib

CLASSES = {
    CONFIRMED: "good",
    HOLDS: "good",
    REFUTED: "bad",
    FAILS: "bad",
    CONDITIONAL: "between",
    NOT_MEASURED: "none",
    "open": "between",
}
STYLE = """
:root { color-scheme: light dark; --ink: #1d1d1f; --soft: #5f6368; --paper: #ffffff; --card: #f5f6f8; --rule: #d9dce1;
  --good: #14713d; --bad: #b3261e; --between: #8a5a00; --none: #5f6368; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --soft: #a3a7ad; --paper: #121316; --card: #1c1e22;
  --rule: #3a3d43; --good: #67d08d; --bad: #ff8a80; --between: #f0b849; --none: #a3a7ad; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.15rem; line-height: 1.3; margin: 0 0 .3rem; }
a { color: inherit; } p { margin: .5rem 0; } .soft { color: var(--soft); font-size: .875rem; }
.verdict { font-weight: 600; white-space: nowrap; } .good { color: var(--good); } .bad { color: var(--bad); }
.between { color: var(--between); } .none { color: var(--none); }
nav ol { list-style: none; padding: 0; margin: 1rem 0; }
nav li { display: flex; gap: .75rem; justify-content: space-between; padding: .4rem 0;
  border-top: 1px solid var(--rule); }
nav a { text-decoration-color: var(--rule); text-underline-offset: .2em; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem; padding: 1rem; margin: 1rem 0; }
.wide { overflow-x: auto; margin: .5rem 0; } table { border-collapse: collapse; font-size: .875rem; min-width: 100%; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; } td { font-variant-numeric: tabular-nums; }
tr > :last-child { padding-right: 0; } summary { cursor: pointer; padding: .3rem 0; }
.criteria td:nth-child(2) { white-space: nowrap; }
figure { margin: .75rem 0; } svg { width: 100%; max-width: 34rem; height: auto; display: block; }
@media (max-width: 34rem) { section { padding: .75rem; }
  .criteria, .criteria tbody { display: block; }
  .criteria tr { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 5fr) auto; column-gap: .75rem;
    padding: .3rem 0; border-bottom: 1px solid var(--rule); }
  .criteria th, .criteria td { border: 0; padding: .1rem 0; } .criteria tr > :first-child { grid-column: 1 / -1; }
  .criteria td:nth-child(2) { white-space: normal; } }
"""


def make_page(judgements: Sequence[Judgement], records: Mapping[str, Record]) -> str:
    """The whole page; it asks nothing of the network."""
    listed = "\n".join(
        f'<li><a href="#claim-{each.claim.number}">{each.claim.number}. {escape(each.claim.sentence)}</a>'
        f"{_verdict(each.verdict)}</li>"
        for each in judgements
    )
    sections = "\n".join(_section(each, records) for each in judgements)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Claims about norms</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>Claims about norms</h1>\n"
        f"<p>{_text(INTRODUCTION)}</p>\n<p><strong>{tally(judgements)}</strong></p>\n"
        f"<nav aria-label=claims><ol>\n{listed}\n</ol></nav>\n{sections}\n</body>\n</html>\n"
    )


def _section(judgement: Judgement, records: Mapping[str, Record]) -> str:
    claim = judgement.claim
    parts = [
        f'<section id="claim-{claim.number}">',
        f"<h2>{claim.number}. {escape(claim.sentence)}</h2>",
        f"<p>{_verdict(judgement.verdict)} <span class=soft>said by: {escape(claim.source)}</span></p>",
    ]
    if judgement.verdict == NOT_MEASURED:
        parts.append(f"<p>Not measured yet: <code>diarnorm claims {claim.number}</code>, see the recipes.</p>")
    else:
        parts += [f"<p>{_text(headline(judgement))}</p>", _table(criteria_table(judgement), "criteria")]
    for experiment in claim.experiments:
        if experiment.name in records:
            parts.append(_experiment(records[experiment.name]))
    return "\n".join([*parts, "</section>"])


def _experiment(record: Record) -> str:
    evidence = record.evidence
    pictures = [f"<figure>{svg(plot)}</figure>" for plot in evidence.plots] if has_matplotlib() else []
    tables = [_table(table) for table in evidence.tables]
    return "\n".join(
        [
            *pictures,
            f"<details><summary>All figures of {escape(evidence.experiment)}</summary>",
            *tables,
            "</details>",
            *(f"<p>{_text(note)}</p>" for note in evidence.notes),
            f"<p class=soft>{_text(made_on(record))}</p>",
        ]
    )


def _table(table: Table, kind: str = "figures") -> str:
    head = "".join(f"<th scope=col>{escape(column)}</th>" for column in table.columns)
    rows = "\n".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in table.rows)
    body = f"<tbody><tr>{head}</tr>\n{rows}</tbody>"
    return f"<div class=wide><table class={kind}><caption>{escape(table.title)}</caption>{body}</table></div>"


def _cell(text: str) -> str:
    return f"<td>{_verdict(text) if text in CLASSES else escape(text)}</td>"


def _verdict(word: str) -> str:
    return f'<span class="verdict {CLASSES[word]}">{escape(word)}</span>'


def _text(text: str) -> str:
    """Prose with `code` in backticks."""
    pieces = escape(text, quote=False).split("`")
    return "".join(f"<code>{piece}</code>" if at % 2 else piece for at, piece in enumerate(pieces))
