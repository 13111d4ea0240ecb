"""A robustness study as text: a report in Markdown, and everything as JSON."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diarnorm.evaluation.scores import markdown_table
from diarnorm.evaluation.tables import NO_VALUE, percent
from diarnorm.files import replacing
from diarnorm.modelfile import as_json
from diarnorm.robustness.conditions import CLEAN
from diarnorm.robustness.factors import Factor, factors_of
from diarnorm.robustness.study import Study
from diarnorm.robustness.summary import FAILS, HOLDS, UNDECIDED, Cell, Change, Row

Column = tuple[str, Callable[[Row], str]]
SIGNS = {HOLDS: "✓", FAILS: "✗", UNDECIDED: "?", None: ""}
"""What stands behind a figure in tables and pictures."""
LEGEND = "✓ within its margin, ✗ beyond it or speech heard in silence, ? the recordings do not tell, no sign: no margin"


VERDICTS = "Verdicts: the worst over severities with a margin, and the largest change that has it"


def points(change: Change) -> str:
    """A change of the DER in points.

    >>> points(Change(1.26, -0.5, 3.0)), points(Change(None, None, None))
    ('+1.3', 'n/a')
    """
    return NO_VALUE if change.points is None else f"{change.points:+.1f}"


def interval(change: Change) -> str:
    """Its 95 % interval."""
    return NO_VALUE if change.low is None or change.high is None else f"{change.low:+.1f} to {change.high:+.1f}"


def number(value: float | None, decimals: int = 2) -> str:
    """A figure, or that there is none."""
    return NO_VALUE if value is None else f"{value:.{decimals}f}"


def listed(values: Sequence[float | None] | None, decimals: int = 2, scale: float = 1.0) -> str:
    """Figures of the blocks, or of the halves."""
    return ", ".join(number(None if each is None else scale * each, decimals) for each in values or ()) or NO_VALUE


def _recovery(row: Row) -> str:
    if row.recovered is None:
        return NO_VALUE
    median = "not" if row.recovery_s is None else f"{row.recovery_s:.1f}"
    return f"{median} ({100 * row.recovered:.0f} % of {row.num_events})"


WHO: list[Column] = [("condition", lambda row: row.condition), ("model", lambda row: row.model)]
RATES: list[Column] = [
    ("recordings", lambda row: str(row.num_recordings)),
    ("DER", lambda row: percent(row.errors.der)),
    ("clean", lambda row: percent(row.clean.der)),
    ("change", lambda row: points(row.change)),
    ("95 % interval", lambda row: interval(row.change)),
    ("margin", lambda row: NO_VALUE if row.margin is None else f"{row.margin:g}"),
    ("verdict", lambda row: row.verdict or NO_VALUE),
    ("miss", lambda row: percent(row.errors.rate(row.errors.miss_s))),
    ("false alarm", lambda row: percent(row.errors.rate(row.errors.false_alarm_s))),
    ("confusion", lambda row: percent(row.errors.rate(row.errors.confusion_s))),
    ("merged DER", lambda row: percent(row.merged.der)),
]
SPEECH: list[Column] = [
    ("false speech seconds", lambda row: number(row.false_speech_s)),
    ("clean", lambda row: number(row.clean_false_speech_s)),
    ("labels added", lambda row: f"{row.labels_added:+.2f}"),
    ("most", lambda row: f"{row.most_labels_added:+d}"),
    ("drift", lambda row: number(row.drift, 3)),
    ("recovery s", _recovery),
    ("DC % FS", lambda row: number(row.dc_percent, 3)),
    ("level dBFS", lambda row: number(row.level_dbfs, 1)),
]
QUIET: list[Column] = [
    ("put in s", lambda row: number(row.inserted_s)),
    ("speech in it s", lambda row: number(row.inserted_speech_s)),
    ("verdict", lambda row: row.quiet_verdict or NO_VALUE),
]
HALVES: list[Column] = [
    ("first half, second half", lambda row: listed(row.halves, 1, 100)),
    ("clean", lambda row: listed(row.clean_halves, 1, 100)),
]
INSIDE: list[Column] = [
    ("residual RMS per block", lambda row: listed(row.rms)),
    ("clean", lambda row: listed(row.clean_rms)),
    ("in the changed pieces", lambda row: listed(row.event_rms)),
]
ATTENTION: list[Column] = [
    ("attention on changed frames %", lambda row: listed(row.attention, 1, 100)),
    ("clean run", lambda row: listed(row.clean_attention, 1, 100)),
    ("if uniform", lambda row: percent(row.uniform_attention)),
]
ALONE: list[Column] = [
    ("verdict", lambda row: row.verdict or NO_VALUE),
    ("turns", lambda row: str(row.num_turns)),
    ("false speech seconds", lambda row: number(row.false_speech_s)),
    ("DC % FS", lambda row: number(row.dc_percent, 3)),
    ("level dBFS", lambda row: number(row.level_dbfs, 1)),
]


def report(study: Study, rows: Sequence[Row], cells: Sequence[Cell], pictures: Mapping[str, Path] | None = None) -> str:
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
            parts += ["### Front ends and norms: change of the DER in points", grid_table(mine)]
    alone = [row for row in rows if row.set_name not in study.recordings]
    if alone:
        title = f"## Nobody speaks: {study.config.alone_s:g} s of digital silence with this done to it"
        parts += [title, _table([*WHO, *ALONE], alone)]
    return "\n\n".join([*parts, *(f"- {note}" for note in study.notes)]) + "\n"


def _of_set(set_name: str, pictures: Mapping[str, Path]) -> list[tuple[str, Path]]:
    start = f"{set_name}: "
    return [(caption.removeprefix(start), path) for caption, path in pictures.items() if caption.startswith(start)]


def details_of(rows: Sequence[Row]) -> list[tuple[str, list[Column], list[Row]]]:
    """The tables of a set beside those that compare models: titles, columns and rows, where there are any."""
    changed = [row for row in rows if row.condition != CLEAN]
    tables = [
        ("Diarization error rate, % of the reference's speech; change and margin in points", RATES, list(rows)),
        ("Speech, labels, embeddings, level", SPEECH, list(rows)),
        ("Speech in silence that was put in", QUIET, [row for row in changed if row.quiet_verdict]),
        ("Halves, each scored by itself: DER, %", HALVES, [row for row in rows if row.halves]),
        ("Residual stream", INSIDE, [row for row in rows if row.rms]),
        ("Attention, per block", ATTENTION, [row for row in changed if row.attention]),
    ]
    return [table for table in tables if table[2]]


def finding(factor: Factor) -> str:
    """The change behind a verdict, at which severity, and whether the DER is not what decided."""
    row = factor.worst
    heard = ", speech in silence" if row.quiet_verdict == FAILS else ""
    return f"{points(row.change)} at {factor.at}{heard}"


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
    return f"{points(row.change)} {SIGNS[row.outcome]}".strip()


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
    return NO_VALUE if cell is None else f"{points(cell.change)} {SIGNS[cell.verdict]}".strip()


def _table(columns: Sequence[Column], rows: Iterable[Row]) -> str:
    return "\n".join(
        markdown_table([name for name, _ in columns], [[tell(row) for _, tell in columns] for row in rows], len(WHO))
    )


def conventions(study: Study) -> list[str]:
    """What was done and how it is scored, in lines."""
    config = study.config
    sets = ", ".join(f"{name} ({len(names)} recordings)" for name, names in study.recordings.items())
    return [
        f"sets: {sets or 'none'}; collar {config.collar_s:g} s on each side, overlap "
        f"{'left out' if config.skip_overlap else 'scored'}; seed {config.seed}",
        "change: pooled DER of the changed recordings less that of the clean ones, in points; 95 % interval by paired "
        f"bootstrap over recordings ({config.num_resamples} resamples)",
        "holds: the whole interval is within the margin; fails: all of it is beyond; undecided: the recordings do not "
        "tell",
        "false speech: speech of the model where nobody speaks; labels added: against the clean run, mean and most",
        "drift: mean of 1 - cosine between the speaker embeddings of the same frames, where somebody speaks",
        "recovery: median time from the end of a change until the activity of every slot stays within "
        f"{config.recovery_distance:g} of the clean run's for {config.recovery_hold_s:g} s",
        f"speech in silence that was put in is counted from {config.edge_s:g} s after its start to {config.edge_s:g} s "
        "before its end",
        *(
            f"model {name}: norm {facts['norm']}, front end {facts['frontend']}, sha256 {facts['sha256'][:12]}"
            for name, facts in study.models.items()
        ),
        *(
            f"peer {name}: another program, which got the same damaged samples as files; {facts['command']}"
            for name, facts in study.peers.items()
        ),
    ]


def everything(study: Study, rows: Iterable[Row], cells: Iterable[Cell]) -> dict[str, Any]:
    """All figures and settings as plain JSON values."""
    return as_json(
        {
            "settings": asdict(study.config),
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
            "records": [asdict(record) for record in study.records.values()],
            "notes": study.notes,
        }
    )


def write_tables(
    study: Study,
    rows: Sequence[Row],
    cells: Sequence[Cell],
    folder: Path,
    pictures: Mapping[str, Path] | None = None,
) -> list[Path]:
    """Write `report.md` and `report.json`; their paths."""
    text = json.dumps(everything(study, rows, cells), ensure_ascii=False, indent=1, allow_nan=False)
    paths = []
    for name, content in (("report.md", report(study, rows, cells, pictures)), ("report.json", f"{text}\n")):
        with replacing(folder / name) as partial:
            partial.write_text(content, "utf-8")
        paths.append(folder / name)
    return paths
