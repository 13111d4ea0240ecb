"""A robustness study as text: a report in Markdown, and everything as JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diarnorm.evaluation.scores import markdown_table
from diarnorm.evaluation.tables import NO_VALUE, percent
from diarnorm.files import replacing
from diarnorm.modelfile import as_json
from diarnorm.robustness.columns import ALONE, LEGEND, WHO, Column, details_of, interval, points, signs
from diarnorm.robustness.conditions import CLEAN
from diarnorm.robustness.conventions import conventions, made_by
from diarnorm.robustness.factors import Factor, factors_of
from diarnorm.robustness.grid import Cell, Contrast
from diarnorm.robustness.intervals import FEW
from diarnorm.robustness.rows import FAILS, Row
from diarnorm.robustness.study import Study

VERDICTS = "Verdicts: the worst over severities with a margin or a failure, and the largest change that has it"
CONTRASTS = "Norms against one another: difference of the changes, in points"


def report(
    study: Study,
    rows: Sequence[Row],
    cells: Sequence[Cell],
    contrasts: Sequence[Contrast] = (),
    pictures: Mapping[str, Path] | None = None,
) -> str:
    """The whole report; `pictures` by `SET: CAPTION`, beside it."""
    parts = ["# Robustness", "\n".join(f"- {line}" for line in conventions(study))]
    for set_name in study.recordings:
        own = [row for row in rows if row.set_name == set_name]
        parts += [f"## {set_name}", change_table(study, own)]
        parts += [f"### {VERDICTS}"]
        parts += [factor_table(study, own)]
        for title, columns, some in details_of(own):
            parts += [f"### {title}", _table([*WHO, *columns], some)]
        parts += [f"![{caption}](<{path.name}>)" for caption, path in _of_set(set_name, pictures or {})]
        mine = [cell for cell in cells if cell.set_name == set_name]
        if mine:
            parts += ["### Front ends and norms: change of the DER in points", word_on_kinds(mine), grid_table(mine)]
        apart = [each for each in contrasts if each.set_name == set_name]
        if apart:
            head, lines = contrast_lines(apart)
            parts += [f"### {CONTRASTS}", word_on_contrasts(apart), "\n".join(markdown_table(head, lines))]
    alone = [row for row in rows if row.set_name not in study.recordings]
    if alone:
        title = f"## Nobody speaks: {study.config.alone_s:g} s of digital silence with this done to it"
        parts += [title, _table([*WHO, *ALONE], alone)]
    return "\n\n".join([*parts, *(f"- {note}" for note in study.notes)]) + "\n"


def _of_set(set_name: str, pictures: Mapping[str, Path]) -> list[tuple[str, Path]]:
    start = f"{set_name}: "
    return [(caption.removeprefix(start), path) for caption, path in pictures.items() if caption.startswith(start)]


def finding(factor: Factor) -> str:
    """The change behind a verdict, at which severity, and whether the DER is not what decided."""
    row = factor.worst
    heard = ", speech in silence" if row.quiet_verdict == FAILS else ""
    other = ", other labels after it" if row.labels_verdict == FAILS else ""
    return f"{points(row.change)} at {factor.at}{heard}{other}"


def factor_table(study: Study, rows: Sequence[Row]) -> str:
    """What came of every corruption for every model."""
    factors = factors_of(study, rows)
    by_place = {(each.factor, each.model): each for each in factors}

    def cell(each: Factor | None) -> str:
        if each is None:
            return NO_VALUE
        return f"{each.verdict or 'no margin'} ({finding(each)})"

    lines = [
        [factor, *(cell(by_place.get((factor, model))) for model in study.columns)]
        for factor in dict.fromkeys(each.factor for each in factors)
    ]
    return "\n".join(markdown_table(["factor", *study.columns], lines))


def change_table(study: Study, rows: Sequence[Row]) -> str:
    """The headline: change of the DER under every condition for every model, with signs of the verdicts."""
    by_place = {(row.condition, row.model): row for row in rows}
    conditions = [each.name for each in study.conditions if not each.is_alone]
    lines = []
    for name in conditions:
        found = [by_place.get((name, model)) for model in study.columns]
        if any(found):
            lines.append([f"{name} (DER)" if name == CLEAN else name, *map(_cell, found)])
    return "\n".join([*markdown_table(["change of the DER, points", *study.columns], lines), "", f"{LEGEND}."])


def _cell(row: Row | None) -> str:
    if row is None:
        return NO_VALUE
    if row.condition == CLEAN:
        return percent(row.errors.der)
    return f"{points(row.change)} {signs(row.change, row.outcome)}".strip()


def word_on_kinds(cells: Sequence[Cell]) -> str:
    """Which models each kind is made of, and what their number leaves open."""
    kinds = {f"{cell.frontend} / {cell.norm}": cell.models for cell in cells}
    listed = "; ".join(f"{kind}: {', '.join(models)}" for kind, models in kinds.items())
    return f"Models, by front end and norm: {listed}. Intervals are over recordings: other seeds may differ by more."


def grid_table(cells: Sequence[Cell]) -> str:
    """Conditions as rows, front ends with their norms as columns."""
    kinds = list(dict.fromkeys((cell.frontend, cell.norm) for cell in cells))
    by_place = {(cell.condition, cell.frontend, cell.norm): cell for cell in cells}
    lines = [
        [name, *(_grid_cell(by_place.get((name, *kind))) for kind in kinds)]
        for name in dict.fromkeys(cell.condition for cell in cells)
    ]
    return "\n".join(markdown_table(["front end / norm", *(f"{front} / {norm}" for front, norm in kinds)], lines))


def _grid_cell(cell: Cell | None) -> str:
    return NO_VALUE if cell is None else f"{points(cell.change)} {signs(cell.change, cell.outcome)}".strip()


def contrast_lines(contrasts: Sequence[Contrast]) -> tuple[list[str], list[list[str]]]:
    """A head, and lines: conditions down, pairs of norms behind each front end across."""
    pairs = list(dict.fromkeys((each.frontend, each.norm, each.other) for each in contrasts))
    by_place = {(each.condition, each.frontend, each.norm, each.other): each for each in contrasts}
    lines = [
        [name, *(_contrast(by_place.get((name, *pair))) for pair in pairs)]
        for name in dict.fromkeys(each.condition for each in contrasts)
    ]
    return ["condition", *(f"{front}: {norm} less {other}" for front, norm, other in pairs)], lines


def _contrast(each: Contrast | None) -> str:
    if each is None or each.difference.points is None:
        return NO_VALUE
    ends = "" if each.difference.low is None else f" ({interval(each.difference)})"
    return f"{points(each.difference)}{ends}{' **' if each.stands else ' *' if each.is_apart else ''}"


def word_on_contrasts(contrasts: Sequence[Contrast]) -> str:
    """How many differences there are, and how many chance alone would make."""
    tested = [each for each in contrasts if each.p is not None]
    apart, stand = (sum(each.is_apart for each in tested), sum(each.stands for each in tested))
    return (
        "How much more a condition costs the first norm than the second, behind one front end, with 95 % intervals by "
        f"paired bootstrap over recordings, of fewer than {FEW} by Student's distribution. Of {len(tested)} "
        f"differences {apart} have an interval without 0 (*), where chance alone makes about "
        f"{0.05 * len(tested):.0f}; {stand} are there when all are looked at together (**, false discovery rate of 5 % "
        "after Benjamini and Hochberg). They tell these models apart, of which there may be one for each norm: other "
        "seeds of the same norms may differ as much."
    )


def _table(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    return "\n".join(
        markdown_table([name for name, _ in columns], [[tell(row) for _, tell in columns] for row in rows], len(WHO))
    )


def everything(
    study: Study, rows: Iterable[Row], cells: Iterable[Cell], contrasts: Iterable[Contrast] = ()
) -> dict[str, Any]:
    """All figures and settings as plain JSON values."""
    return as_json(
        {
            "settings": asdict(study.config),
            "made_by": made_by(),
            "models": study.models,
            "peers": study.peers,
            "recordings": study.recordings,
            "conditions": [
                {"name": each.name, "factor": each.factor, "severity": each.severity, "unit": each.unit}
                | {"margin": each.margin, "alone": each.is_alone}
                for each in study.conditions
            ],
            "rows": [{**asdict(row), "der": row.errors.der, "clean_der": row.clean.der} for row in rows],
            "grid": [asdict(cell) for cell in cells],
            "contrasts": [asdict(each) for each in contrasts],
            "records": [{**asdict(record), "turns": None} for record in study.records.values()],
            "notes": study.notes,
        }
    )


def write_tables(
    study: Study,
    rows: Sequence[Row],
    cells: Sequence[Cell],
    contrasts: Sequence[Contrast],
    folder: Path,
    pictures: Mapping[str, Path] | None = None,
) -> list[Path]:
    """Write `report.md` and `report.json`; their paths."""
    text = report(study, rows, cells, contrasts, pictures)
    paths = []
    for name, content in (("report.md", text), ("report.json", _json(everything(study, rows, cells, contrasts)))):
        with replacing(folder / name) as partial:
            partial.write_text(content, "utf-8")
        paths.append(folder / name)
    return paths


def _json(values: dict[str, Any]) -> str:
    """As text to read, but a line for each of the records, which are many."""
    lines = ",\n".join(json.dumps(each, ensure_ascii=False, allow_nan=False) for each in values["records"])
    others = {name: value for name, value in values.items() if name != "records"}
    text = json.dumps(others, ensure_ascii=False, indent=1, allow_nan=False).removesuffix("\n}")
    return f'{text},\n "records": [\n{lines}\n ]\n}}\n'
