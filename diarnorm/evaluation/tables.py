"""An evaluation as text: a report in Markdown, and all figures as CSV and JSON."""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from diarnorm.evaluation.causes import EDGE_S, PARTS, Causes
from diarnorm.evaluation.comparison import Comparison
from diarnorm.evaluation.config import NO_GROUPS, SPEAKERS
from diarnorm.evaluation.rows import (
    DIFFERENCE,
    FAMILY,
    FAMILY_DIFFERENCE,
    GROUP,
    GROUP_DIFFERENCE,
    POOLED,
    RECORDING,
    Row,
)
from diarnorm.evaluation.scores import markdown_table
from diarnorm.files import replacing

Column = tuple[str, Callable[[Row], str]]
NO_VALUE = "n/a"


def percent(rate: float | None, *, sign: bool = False) -> str:
    """A rate in percent with one decimal.

    >>> percent(0.444), percent(-0.021, sign=True), percent(None)
    ('44.4', '-2.1', 'n/a')
    """
    return NO_VALUE if rate is None else f"{100 * rate:{'+' if sign else ''}.1f}"


def _interval(row: Row, *, sign: bool = False) -> str:
    if row.der_low is None or row.der_high is None:
        return NO_VALUE
    return f"{percent(row.der_low, sign=sign)} to {percent(row.der_high, sign=sign)}"


def _number(value: float | None, decimals: int) -> str:
    return NO_VALUE if value is None else f"{value:.{decimals}f}"


WHO: list[Column] = [("set", lambda row: row.set_name), ("model", lambda row: row.model)]
RATES: list[Column] = [
    ("DER", lambda row: percent(row.der)),
    ("95 % interval", _interval),
    ("miss", lambda row: percent(row.miss)),
    ("false alarm", lambda row: percent(row.false_alarm)),
    ("confusion", lambda row: percent(row.confusion)),
    ("merged DER", lambda row: percent(row.merged_der)),
    ("JER", lambda row: percent(row.jer)),
]
COUNTS: list[Column] = [
    ("mean DER", lambda row: percent(row.mean_der)),
    ("speakers off by", lambda row: _number(row.count_error, 2)),
    ("RTF", lambda row: _number(row.rtf, 4)),
]
NUMBER: Column = ("recordings", lambda row: str(row.num_recordings))
LABELS: list[Column] = [
    ("recordings", lambda row: str(row.num_long)),
    ("label switches per hour", lambda row: _number(row.label_switches_per_hour, 1)),
    ("re-identified after silence", lambda row: f"{row.num_recognised} of {row.num_returned}"),
]
LESS: Column = ("less", lambda row: row.minus or "")
DIFFERENCE_OF_DER: list[Column] = [
    NUMBER,
    ("DER difference", lambda row: percent(row.der, sign=True)),
    ("95 % interval", lambda row: _interval(row, sign=True)),
]
ONE_RECORDING: list[Column] = [
    ("set", lambda row: row.set_name),
    ("recording", lambda row: row.recording or ""),
    ("model", lambda row: row.model),
    *(column for column in RATES if column[0] != "95 % interval"),
    ("speakers found (true)", lambda row: f"{row.num_hypothesis_speakers} ({row.num_reference_speakers})"),
    ("RTF", lambda row: _number(row.rtf, 4)),
]


def _members_interval(row: Row, *, sign: bool = False) -> str:
    if row.members_low is None or row.members_high is None:
        return NO_VALUE
    return f"{percent(row.members_low, sign=sign)} to {percent(row.members_high, sign=sign)}"


CAUSES: list[Column] = [
    (f"{kind.replace('_', ' ')}: {words}", lambda row, name=name: percent(row.cause(name)))
    for kind, parts in PARTS.items()
    for name, words in parts.items()
]
WHAT_CAUSES_ARE = f"""
Overlap: two or more speak. Never found: no label is given to the speaker. Late: before the speaker's label is right
for the first time. Edge: within {EDGE_S:g} s of where speech begins or ends. Speech: more labels than people speak.
What fits several causes counts for the first; those of miss, false alarm and confusion add up to it."""


FAMILIES: list[Column] = [
    ("set", lambda row: row.set_name),
    ("models", lambda row: f"{row.model} ({row.num_members})"),
    NUMBER,
    RATES[0],
    ("95 % over models", _members_interval),
    ("95 % over recordings", _interval),
    *RATES[2:],
    COUNTS[1],
]
FAMILY_DIFFERENCES: list[Column] = [
    ("set", lambda row: row.set_name),
    ("models", lambda row: row.model),
    LESS,
    ("DER difference", lambda row: percent(row.der, sign=True)),
    ("95 % over models", lambda row: _members_interval(row, sign=True)),
    ("95 % over recordings", lambda row: _interval(row, sign=True)),
]


def pooled_table(comparison: Comparison) -> str:
    """The headline: every model on every set, with the first collar."""
    collar_s = comparison.collars_s[0]
    table = _table([*WHO, NUMBER, *RATES, *COUNTS], comparison.of_kind(POOLED, collar_s))
    return "\n".join([f"DER and its parts in % of the reference's speech, {collar_in_words(collar_s)}:", "", *table])


def collar_in_words(collar_s: float) -> str:
    """A collar by its convention."""
    return f"collar {collar_s:g} s on each side (NIST)" if collar_s else "collar 0"


def report(comparison: Comparison) -> str:
    """The whole evaluation in Markdown."""
    heading, first, others = comparison.shard.heading, comparison.collars_s[0], comparison.collars_s[1:]
    parts = ["# Evaluation", "", *_conventions(comparison), "", pooled_table(comparison)]
    parts += _beside_others(comparison, first)
    for collar_s in others:
        columns = [*WHO, NUMBER, *RATES]
        parts += _section(f"With {collar_in_words(collar_s)}", columns, comparison.of_kind(POOLED, collar_s))
        parts += _beside_others(comparison, collar_s)
    group_by = heading.settings["group_by"]
    what = "speakers" if group_by == SPEAKERS else "group"
    group: Column = (what, lambda row: row.group or "")
    if group_by != NO_GROUPS:
        columns = [*WHO, group, NUMBER, *RATES, *COUNTS]
        parts += _section(f"By {what}, {collar_in_words(first)}", columns, comparison.of_kind(GROUP, first))
        title = f"Differences in DER by {what}, {collar_in_words(first)}, in points; the interval is paired"
        columns = [*WHO, LESS, group, *DIFFERENCE_OF_DER]
        parts += _section(title, columns, comparison.of_kind(GROUP_DIFFERENCE, first))
    columns = [*WHO, (what, lambda row: row.group or "all"), *CAUSES]
    title = f"Where the errors come from, {collar_in_words(first)}, in % of the reference's speech"
    parts += [*_section(title, columns, comparison.with_groups(first)), *WHAT_CAUSES_ARE.splitlines()]
    steady = [row for row in comparison.of_kind(POOLED, first) if row.num_long]
    minutes = heading.settings["long_s"] / 60, heading.settings["pause_s"] / 60
    title = f"Labels in recordings of {minutes[0]:g} min or more; silence of {minutes[1]:g} min or more"
    parts += _section(title, [*WHO, *LABELS], steady)
    parts += _section(f"Recordings, {collar_in_words(first)}", ONE_RECORDING, comparison.of_kind(RECORDING, first))
    notes = [f"- {sentence}" for sentence in notes_of(comparison)]
    return "\n".join([*parts, *(["", "## Notes", "", *notes] if notes else [])]) + "\n"


def _beside_others(comparison: Comparison, collar_s: float) -> list[str]:
    """Means over models that were trained several times, and all differences, with one collar."""
    words = collar_in_words(collar_s)
    title = f"Means of models that were trained several times, {words}; over models: Student's t"
    parts = _section(title, FAMILIES, comparison.of_kind(FAMILY, collar_s))
    title = f"Differences between these means, {words}, in points; models are paired in their order, recordings too"
    parts += _section(title, FAMILY_DIFFERENCES, comparison.of_kind(FAMILY_DIFFERENCE, collar_s))
    title = f"Differences in DER, {words}, in points; the interval is paired"
    return parts + _section(title, [*WHO, LESS, *DIFFERENCE_OF_DER], comparison.of_kind(DIFFERENCE, collar_s))


def _conventions(comparison: Comparison) -> list[str]:
    """What was asked of the models, and how they were scored."""
    settings, sets = comparison.shard.heading.settings, comparison.shard.heading.sets
    models = comparison.shard.heading.models
    return [
        f"- {_changes(settings)}; device: {settings['device']}",
        *(f"- {name}: {_changes(each['changes'])}" for name, each in models.items() if _differs(each, settings)),
        f"- overlap: {'left out' if settings['skip_overlap'] else 'scored'}; diarnorm {settings['diarnorm']}",
        *(f"- scored of {name}: {each['region']}; {_extent(comparison, name)}" for name, each in sets.items()),
        f"- intervals: bootstrap over recordings, {settings['num_resamples']} resamples, seed {settings['seed']}; of "
        "many, one in 20 misses by chance",
        "- RTF: time the model worked per time of audio, one thread, beside whatever else the machine did",
        "- DER: pooled over seconds; mean DER: of the recordings, each weighing the same",
        "- merged DER: of the same activity with one label for everybody, which a diarizer must beat",
    ]


def _differs(model: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Whether more is asked of a model than of all."""
    return any(settings[name] != value for name, value in model["changes"].items())


def _changes(asked: dict[str, Any]) -> str:
    """What was asked of models, in words."""
    chunk = "each model's own" if asked["chunk_ms"] is None else f"{asked['chunk_ms']} ms"
    turns = _pairs(asked["turns"], ", ") or "each model's own settings"
    memory = _memory(asked, ", ")
    memory = f"; memory: {memory}" if memory else ""
    speakers = "" if asked["max_speakers"] is None else f"; speakers at most: {asked['max_speakers']}"
    return f"chunk: {chunk}; turns: {turns}{memory}{speakers}"


def _memory(asked: dict[str, Any], between: str) -> str:
    """What was asked of the memory; results of older versions do not speak of an oracle."""
    told = ["told by the reference (a bound)"] if asked.get("oracle_memory", False) else []
    return between.join([*([_pairs(asked["memory"], between)] if asked["memory"] else []), *told])


def _pairs(values: dict[str, Any], between: str) -> str:
    return between.join(f"{name}={value}" for name, value in values.items())


def _extent(comparison: Comparison, set_name: str) -> str:
    """How much is scored of a set, and what its reference loses on the grid of frames."""
    rows = [row for row in comparison.of_kind(POOLED, comparison.collars_s[0]) if row.set_name == set_name]
    floor = f"the reference itself on the grid of 80-ms frames has a DER of {percent(rows[0].grid_floor_der)} %"
    return f"{_number(rows[0].scored_s, 1)} s; {floor}"


def notes_of(comparison: Comparison) -> list[str]:
    """What to know about sets, models and recordings, as sentences."""
    heading = comparison.shard.heading
    notes = [f"{name}: {note}" for name, each in heading.sets.items() for note in each["notes"]]
    for result in comparison.shard.results:
        notes += [f"{result.set_name}: {result.recording} by {result.model}: {note}" for note in result.notes]
    if any(
        row.der is None or row.der > 1
        for row in comparison.rows
        if row.kind not in (DIFFERENCE, FAMILY_DIFFERENCE, GROUP_DIFFERENCE)
    ):
        notes.append("a DER above 100 % (n/a without speech): more false alarm than the reference has speech")
    return list(dict.fromkeys(notes))


def _section(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    return ["", f"## {title}", "", *_table(columns, rows)] if rows else []


def _table(columns: Sequence[Column], rows: Iterable[Row]) -> list[str]:
    cells = [[value(row) for _, value in columns] for row in rows]
    num_left = sum(name in ("set", "model", "models", "recording", "less") for name, _ in columns)
    return markdown_table([name for name, _ in columns], cells, num_left)


def to_plain(comparison: Comparison) -> dict[str, Any]:
    """Everything as plain JSON values: rates where 1 is 100 %, seconds, None where not defined."""
    heading = comparison.shard.heading
    rows = [{"overlap": not heading.settings["skip_overlap"], **asdict(row)} for row in comparison.rows]
    return {**asdict(heading), "notes": notes_of(comparison), "missing": comparison.missing, "rows": rows}


def write_tables(comparison: Comparison, folder: Path) -> list[Path]:
    """Write `evaluation.md`, `.csv` and `.json`; their paths."""
    paths = [folder / f"evaluation.{ending}" for ending in ("md", "csv", "json")]
    with replacing(paths[0]) as partial:
        partial.write_text(report(comparison), "utf-8")
    with replacing(paths[1]) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        _write_csv(comparison, file)
    with replacing(paths[2]) as partial:
        text = json.dumps(to_plain(comparison), ensure_ascii=False, indent=1, allow_nan=False)
        partial.write_text(text + "\n", "utf-8")
    return paths


ASKED = ("chunk_ms", "max_speakers", "turns", "memory")
"""Columns of the CSV that say what was asked of a model."""


def _asked(changes: dict[str, Any]) -> dict[str, Any]:
    words = {"turns": _pairs(changes["turns"], " "), "memory": _memory(changes, " ")}
    return {name: words.get(name, changes[name]) for name in ASKED}


def _write_csv(comparison: Comparison, file: Any) -> None:
    """One line per row; what was asked of its model stands in every line."""
    asked = {name: _asked(each["changes"]) for name, each in comparison.shard.heading.models.items()}
    names = [each.name for each in (*fields(Row), *fields(Causes)) if each.name != "causes"]
    writer = csv.DictWriter(file, [*names, *ASKED], lineterminator="\n")
    writer.writeheader()
    for row in comparison.rows:
        values = asdict(row)
        causes = values.pop("causes") or {}
        writer.writerow({**values, **causes, **asked.get(row.model, {})})
