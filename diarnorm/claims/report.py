"""The report: every claim with its verdict, as claims.md, claims.json and claims.html."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from diarnorm.claims.evidence import Table
from diarnorm.claims.page import make_page
from diarnorm.claims.pictures import png
from diarnorm.claims.records import Record
from diarnorm.claims.registry import CLAIMS
from diarnorm.claims.rules import NOT_MEASURED, Judgement, judge
from diarnorm.claims.words import INTRODUCTION, criteria_table, headline, made_on, tally
from diarnorm.evaluation.figures import has_matplotlib
from diarnorm.files import replacing
from diarnorm.modelfile import as_json

PLOTS = "plots"


def judge_all(records: Mapping[str, Record]) -> list[Judgement]:
    """Every claim with what the records say about it."""
    judgements = []
    for claim in CLAIMS:
        evidence = [records[each.name].evidence for each in claim.experiments if each.name in records]
        judgements.append(judge(claim, {measure.name: measure for each in evidence for measure in each.measures}))
    return judgements


def write_report(folder: Path, records: Mapping[str, Record]) -> list[Judgement]:
    """Write the three files, and the plots that claims.md shows, to `folder`; the judgements."""
    judgements = judge_all(records)
    if has_matplotlib():
        for name, record in records.items():
            for at, plot in enumerate(record.evidence.plots):
                png(plot, folder / PLOTS / f"{name}-{at + 1}.png")
    _write(folder / "claims.md", markdown(judgements, records))
    _write(folder / "claims.html", make_page(judgements, records))
    values = {"claims": [_plain(each) for each in judgements], "records": [asdict(each) for each in records.values()]}
    _write(folder / "claims.json", json.dumps(as_json(values), indent=1, allow_nan=False) + "\n")
    return judgements


def markdown(judgements: Sequence[Judgement], records: Mapping[str, Record]) -> str:
    """The whole report."""
    summary = Table(
        "",
        ("#", "claim", "verdict", "first figure (95 % interval)"),
        tuple((str(j.claim.number), j.claim.sentence, f"**{j.verdict}**", headline(j)) for j in judgements),
    )
    parts = ["# Claims about norms", INTRODUCTION, f"**{tally(judgements)}**", _table(summary)]
    for judgement in judgements:
        parts += _section(judgement, records)
    return "\n\n".join(parts) + "\n"


def _section(judgement: Judgement, records: Mapping[str, Record]) -> list[str]:
    claim = judgement.claim
    parts = [f"## {claim.number}. {claim.sentence}: {judgement.verdict}", f"Said by: {claim.source}."]
    if judgement.verdict == NOT_MEASURED:
        return [*parts, f"Not measured yet: `diarnorm claims {claim.number}`, see the recipes."]
    parts.append(_table(criteria_table(judgement)))
    for experiment in claim.experiments:
        if experiment.name not in records:
            parts.append(f"Experiment `{experiment.name}`: not run yet.")
            continue
        record = records[experiment.name]
        for table in record.evidence.tables:
            parts += [f"**{table.title}**", _table(table)]
        if has_matplotlib():
            parts += [
                f"![{plot.title}]({PLOTS}/{experiment.name}-{at + 1}.png)"
                for at, plot in enumerate(record.evidence.plots)
            ]
        parts += [*record.evidence.notes, made_on(record)]
    return parts


def _table(table: Table) -> str:
    head = [_row(table.columns), _row(["---"] * len(table.columns))]
    return "\n".join([*head, *(_row(row) for row in table.rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _plain(judgement: Judgement) -> dict[str, object]:
    claim = judgement.claim
    return {
        "number": claim.number,
        "sentence": claim.sentence,
        "source": claim.source,
        "verdict": judgement.verdict,
        "experiments": [each.name for each in claim.experiments],
        "criteria": [
            {**asdict(criterion), "measured": None if measure is None else asdict(measure), "state": state}
            for criterion, measure, state in judgement.findings
        ],
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
