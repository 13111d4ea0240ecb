"""Rows worked out by hand, their text, and the picture."""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile  # noqa: F401 - beside matplotlib, as the command has it

from diarnorm.evaluation.causes import Causes
from diarnorm.evaluation.comparison import MERGED, Comparison, compare
from diarnorm.evaluation.figures import KINDS, LEGEND, draw, draw_causes
from diarnorm.evaluation.labels import LabelScore
from diarnorm.evaluation.results import Heading, Result, Shard
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
from diarnorm.evaluation.scores import Components, FileScore
from diarnorm.evaluation.tables import notes_of, pooled_table, report, write_tables

SETTINGS = {
    "chunk_ms": 480,
    "max_speakers": None,
    "skip_overlap": False,
    "group_by": "speakers",
    "family_by": "none",
    "long_s": 600.0,
    "pause_s": 300.0,
    "num_resamples": 200,
    "seed": 0,
    "turns": {"min_off_frames": 6},
    "memory": {"cap_frames": "inf"},
    "collars_s": [0.0, 0.25],
    "device": "cpu",
    "diarnorm": "9.9",
}
CHANGES = ("chunk_ms", "max_speakers", "turns", "memory", "device")


def result(model: str, name: str, parts: tuple[float, float, float, float], **changes: Any) -> Result:
    """Scores with these seconds without a collar, and half the errors with one; merged is 1 s worse.

    A quarter of the miss is late, the rest in overlap; all confusion is of people never found, false alarm at edges.
    """
    errors = Components(*parts)
    miss_s, false_alarm_s, confusion_s, speech_s = parts
    half = Components(miss_s / 2, false_alarm_s / 2, confusion_s / 2, speech_s)
    num_speakers = int(name[-1])
    scores = tuple(
        FileScore(name, e, e + Components(1.0), Components(), 0.25 * num_speakers, num_speakers, 2, 10.0, causes(e))
        for e in (errors, half)
    )
    labels = LabelScore(1800.0, 3, 4, 1) if name.startswith("long") else None
    return replace(Result("s", name, model, 100.0, 2.0, scores, labels, False, ()), **changes)


def causes(errors: Components) -> Causes:
    return Causes(
        miss_late_s=errors.miss_s / 4,
        miss_overlap_s=errors.miss_s * 3 / 4,
        confusion_never_found_s=errors.confusion_s,
        false_alarm_edge_s=errors.false_alarm_s,
    )


def make(results: list[Result], **settings: Any) -> Comparison:
    asked = {name: {**SETTINGS, **settings}[name] for name in CHANGES}
    models = {r.model: {"sha256": None, "changes": asked} for r in results}
    sets = {
        name: {"recordings": list(dict.fromkeys(r.recording for r in results)), "region": "UEM", "notes": ["odd"]}
        for name in dict.fromkeys(r.set_name for r in results)
    }
    return compare(Shard(Heading({**SETTINGS, **settings}, models, sets), 0, 1, tuple(results)))


RESULTS = [
    result("m", "short2", (1.0, 2.0, 3.0, 20.0)),
    result("m", "short3", (2.0, 0.0, 4.0, 40.0)),
    result("m", "long3", (0.0, 0.0, 0.0, 40.0), busy_s=5.0, duration_s=1800.0),
    result("n", "short2", (1.0, 2.0, 5.0, 20.0), busy_s=None, notes=("damaged",)),
    result("n", "short3", (2.0, 0.0, 8.0, 40.0), busy_s=None),
    result("n", "long3", (0.0, 0.0, 4.0, 40.0), busy_s=None, labels=None, missing=True),
]


@pytest.fixture
def comparison() -> Comparison:
    return make(RESULTS)


def find(comparison: Comparison, kind: str, model: str, collar_s: float = 0.0, **wanted: object) -> Row:
    rows = [row for row in comparison.of_kind(kind, collar_s) if row.model == model]
    (row,) = (row for row in rows if all(getattr(row, name) == value for name, value in wanted.items()))
    return row


def test_pooled_rows_weigh_recordings_by_their_speech(comparison: Comparison) -> None:
    row = find(comparison, POOLED, "m")
    assert (row.num_recordings, row.speech_s, row.miss_s, row.false_alarm_s, row.confusion_s) == (3, 100, 3, 2, 7)
    assert (row.der, row.miss, row.false_alarm, row.confusion) == pytest.approx((0.12, 0.03, 0.02, 0.07))
    assert row.merged_der == pytest.approx(0.15)
    assert row.jer == pytest.approx(0.25)
    assert row.mean_der == pytest.approx((6 / 20 + 6 / 40 + 0) / 3)
    assert row.count_error == pytest.approx(2 / 3)
    assert row.rtf == pytest.approx(9 / 2000)
    assert (row.label_switches_per_hour, row.num_recognised, row.num_returned, row.num_long) == (6.0, 1, 4, 1)
    low, high = row.der_low or 0, row.der_high or 0
    assert 0 <= low < 0.12 < high <= 0.3
    collared = find(comparison, POOLED, "m", 0.25)
    assert (collared.der, collared.merged_der) == pytest.approx((0.06, 0.09))
    given = find(comparison, POOLED, "n")
    assert (given.rtf, given.label_switches_per_hour, given.num_long) == (None, None, 0)


def test_groups_and_recordings(comparison: Comparison) -> None:
    assert [(row.model, row.group) for row in comparison.of_kind(GROUP, 0.0)] == [
        ("m", "2"),
        ("m", "3"),
        ("n", "2"),
        ("n", "3"),
    ]
    three = find(comparison, GROUP, "m", group="3")
    assert (three.num_recordings, three.speech_s) == (2, 80)
    assert three.der == pytest.approx(6 / 80)
    alone = find(comparison, GROUP, "m", group="2")
    assert (alone.der, alone.der_low) == (pytest.approx(0.3), None)  # one recording has no interval
    row = find(comparison, RECORDING, "n", recording="short3")
    assert (row.der, row.num_reference_speakers, row.num_hypothesis_speakers) == (pytest.approx(0.25), 3, 2)
    by_name = make(RESULTS, group_by="^(long|short)")
    assert [row.group for row in by_name.of_kind(GROUP, 0.0)] == ["long", "short"] * 2
    assert make(RESULTS, group_by="none").of_kind(GROUP) == []


def test_differences_are_paired(comparison: Comparison) -> None:
    """n has 2, 4 and 4 s more confusion of 20, 40 and 40 s: 10 % in every recording, so in every resample."""
    row = find(comparison, DIFFERENCE, "m", minus="n")
    assert (row.der, row.der_low, row.der_high) == pytest.approx((-0.1, -0.1, -0.1))
    merged = find(comparison, DIFFERENCE, "m", minus=MERGED)
    assert merged.der == pytest.approx(-3 / 100)
    # 1 s of 20 at most, 1 s of 40 at least
    assert (merged.der_low, merged.der_high) == pytest.approx((-1 / 20, -1 / 40), abs=5e-3)
    swapped = make([replace(r, model={"m": "n", "n": "m"}[r.model]) for r in RESULTS])
    assert find(swapped, DIFFERENCE, "n", minus="m").der == pytest.approx(-0.1)


def test_differences_of_every_collar_and_of_groups(comparison: Comparison) -> None:
    """n's 10 % more are 5 % with the collar, in every group; merged output is 1 s of 20 worse, or 2 s of 80."""
    collared = find(comparison, DIFFERENCE, "m", 0.25, minus="n")
    assert (collared.der, collared.der_low, collared.der_high) == pytest.approx((-0.05, -0.05, -0.05))
    rows = [row for row in comparison.of_kind(GROUP_DIFFERENCE, 0.0) if row.minus == "n"]
    assert [(row.model, row.group, row.num_recordings) for row in rows] == [("m", "2", 1), ("m", "3", 2)]
    assert [row.der for row in rows] == pytest.approx([-0.1, -0.1])
    assert (rows[0].der_low, rows[0].der_high) == (None, None)  # one recording has no interval
    assert (rows[1].der_low, rows[1].der_high) == pytest.approx((-0.1, -0.1))
    merged = [find(comparison, GROUP_DIFFERENCE, "m", minus=MERGED, group=group).der for group in "23"]
    assert merged == pytest.approx([-1 / 20, -2 / 80])
    assert make(RESULTS, group_by="none").of_kind(GROUP_DIFFERENCE) == []


def test_families_are_means_of_models_trained_several_times() -> None:
    """m-0 has 12, m-1 10 and m-2 8 s of error in 100; n-0, n-1 and n-2 each one second more than their sibling."""
    results = [
        result(f"{family}-{seed}", f"long{seed_of}2", (6.0 - seed + worse / 2, 0.0, 0.0, 50.0))
        for family, worse in (("m", 0.0), ("n", 1.0))
        for seed in range(3)
        for seed_of in "ab"
    ]
    found = make(results, family_by="^(.)-")
    row = find(found, FAMILY, "m")
    assert (row.num_members, row.num_recordings, row.der, row.miss) == (3, 2, pytest.approx(0.1), pytest.approx(0.1))
    assert (row.members_low, row.members_high) == pytest.approx((0.1 - 0.049683, 0.1 + 0.049683), abs=1e-5)
    assert (row.der_low, row.der_high) == pytest.approx((0.1, 0.1))
    assert row.merged_der == pytest.approx(0.12)
    assert (row.speech_s, row.duration_s, row.num_recognised, row.num_long) == (None, None, None, 0)
    less = find(found, FAMILY_DIFFERENCE, "m", minus="n")
    assert (less.der, less.members_low, less.members_high) == pytest.approx((-0.01, -0.01, -0.01))
    assert (less.der_low, less.der_high) == pytest.approx((-0.01, -0.01))
    text = " ".join(report(found).split())
    assert "| s | m (3) | 2 | 10.0 | 5.0 to 15.0 | 10.0 to 10.0 | 10.0 | 0.0 | 0.0 | 12.0 |" in text
    assert "| s | m | n | -1.0 | -1.0 to -1.0 | -1.0 to -1.0 |" in text
    between = cells(report(found), "## Differences between these means, collar 0.25 s on each side (NIST)")
    assert between[2] == ["s", "m", "n", "-0.5", "-0.5 to -0.5", "-0.5 to -0.5"]
    assert not make(results).of_kind(FAMILY)
    assert [row.model for row in make(results, family_by="^(m)-").of_kind(FAMILY, 0.0)] == ["m"]


def test_an_unknown_length_leaves_the_speed_open() -> None:
    partly = make([RESULTS[0], replace(RESULTS[1], duration_s=None)])
    row = find(partly, POOLED, "m")
    assert (row.rtf, row.duration_s) == (None, None)
    assert [row.rtf for row in partly.of_kind(RECORDING, 0.0)] == [0.02, None]


def test_nothing_but_silence_has_no_rates() -> None:
    silent = make([result("m", "a0", (0, 1.0, 0, 0)), result("m", "b0", (0, 0, 0, 0))])
    row = find(silent, POOLED, "m")
    assert (row.der, row.der_low, row.false_alarm_s) == (None, None, 1.0)
    assert find(silent, DIFFERENCE, "m").der is None
    assert "| n/a |" in pooled_table(silent)
    assert "a DER above 100 % (n/a without speech)" in report(silent)


def cells(table: str, head: str) -> list[list[str]]:
    """Rows of the first table after a heading."""
    lines = table[table.index(head) :].splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("| set"))
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines[start:] if line.startswith("|")]
    return rows[: next((at for at, line in enumerate(lines[start:]) if not line.startswith("|")), None)]


def test_the_report_has_every_table(comparison: Comparison) -> None:
    text = report(comparison)
    assert "- chunk: 480 ms; turns: min_off_frames=6; memory: cap_frames=inf; device: cpu" in text
    assert "- scored of s: UEM; 30.0 s; the reference itself on the grid of 80-ms frames has a DER of 0.0 %" in text
    head, _, m, n = cells(text, "# Evaluation")
    assert dict(zip(head, m, strict=True)) | {"95 % interval": ""} == {
        "set": "s",
        "model": "m",
        "recordings": "3",
        "DER": "12.0",
        "95 % interval": "",
        "miss": "3.0",
        "false alarm": "2.0",
        "confusion": "7.0",
        "merged DER": "15.0",
        "JER": "25.0",
        "mean DER": "15.0",
        "speakers off by": "0.67",
        "RTF": "0.0045",
    }
    assert n[-1] == "n/a"
    assert cells(text, "## With collar 0.25 s on each side (NIST)")[2][3] == "6.0"
    differences = cells(text, "## Differences in DER, collar 0, in points")
    assert differences[2] == ["s", "m", "n", "3", "-10.0", "-10.0 to -10.0"]
    differences = cells(text, "## Differences in DER, collar 0.25 s on each side (NIST)")
    assert differences[2] == ["s", "m", "n", "3", "-5.0", "-5.0 to -5.0"]
    assert [row[2] for row in cells(text, "## By speakers, collar 0")[2:]] == ["2", "3", "2", "3"]
    by_group = cells(text, "## Differences in DER by speakers, collar 0,")
    assert by_group[2] == ["s", "m", "n", "2", "1", "-10.0", "n/a"]
    assert by_group[5] == ["s", "m", "n", "3", "2", "-10.0", "-10.0 to -10.0"]
    assert [row[:4] for row in cells(text, "## Where the errors come from")[2:]] == [
        ["s", "m", "all", "2.2"],
        ["s", "m", "2", "3.8"],
        ["s", "m", "3", "1.9"],
        ["s", "n", "all", "2.2"],
        ["s", "n", "2", "3.8"],
        ["s", "n", "3", "1.9"],
    ]
    labels = cells(text, "## Labels in recordings of 10 min or more; silence of 5 min or more")
    assert labels[2:] == [["s", "m", "1", "6.0", "1 of 4"]]
    assert len(cells(text, "## Recordings, collar 0")) == 2 + 6
    assert text.endswith("## Notes\n\n- s: odd\n- s: short2 by n: damaged\n")
    assert notes_of(comparison) == ["s: odd", "s: short2 by n: damaged"]
    assert comparison.missing == ["s: long3 by n"]


def test_causes_stand_by_their_kind_and_add_up(comparison: Comparison) -> None:
    title = "Where the errors come from, collar 0, in % of the reference's speech"
    head, _, m, *_ = cells(report(comparison), f"## {title}\n")
    found = dict(zip(head, m, strict=True))
    assert list(found)[2:] == [
        "speakers",
        "miss: overlap",
        "miss: never found",
        "miss: late",
        "miss: edge",
        "miss: rest",
        "false alarm: speech",
        "false alarm: edge",
        "false alarm: silence",
        "confusion: overlap",
        "confusion: never found",
        "confusion: late",
        "confusion: rest",
    ]
    shown = {name: value for name, value in found.items() if value != "0.0"}
    assert shown == {
        "set": "s",
        "model": "m",
        "speakers": "all",
        "miss: overlap": "2.2",
        "miss: late": "0.8",
        "confusion: never found": "7.0",
        "false alarm: edge": "2.0",
    }
    row = find(comparison, GROUP, "m", group="3")
    assert row.causes == causes(Components(2.0, 0.0, 4.0))
    ungrouped = cells(report(make(RESULTS, group_by="none")), f"## {title}\n")
    assert [row[1:3] for row in ungrouped[2:]] == [["m", "all"], ["n", "all"]]


def test_files_hold_all_figures(comparison: Comparison, tmp_path: Path) -> None:
    markdown, table, values = write_tables(comparison, tmp_path)
    assert markdown.read_text("utf-8") == report(comparison)
    with table.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(comparison.rows)
    first = lines[0]
    asked = ("pooled", "m", "480", "min_off_frames=6", "cap_frames=inf")
    assert tuple(first[name] for name in ("kind", "model", "chunk_ms", "turns", "memory")) == asked
    assert float(first["der"]) == comparison.rows[0].der
    assert (first["miss_late_s"], first["confusion_never_found_s"], first["false_alarm_silence_s"]) == (
        "0.75",
        "7.0",
        "0.0",
    )
    assert "causes" not in first
    assert [line["miss_late_s"] for line in lines if line["kind"] == DIFFERENCE][:1] == [""]
    read = json.loads(values.read_text("utf-8"))
    assert read["settings"]["turns"] == {"min_off_frames": 6}
    assert read["rows"][0]["confusion_s"] == read["rows"][0]["causes"]["confusion_never_found_s"] == 7.0
    assert [row["causes"]["miss_late_s"] for row in read["rows"] if row["kind"] == RECORDING][:2] == [0.25, 0.5]
    assert read["missing"] == ["s: long3 by n"]
    assert {row["kind"] for row in read["rows"]} == {POOLED, GROUP, RECORDING, DIFFERENCE, GROUP_DIFFERENCE}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evaluation.csv", "evaluation.json", "evaluation.md"]


def test_the_picture_shows_the_parts_in_their_share(comparison: Comparison, tmp_path: Path) -> None:
    from matplotlib import image
    from matplotlib.colors import to_rgb

    draw(comparison, tmp_path / "x.png")
    pixels = image.imread(tmp_path / "x.png")[..., :3]
    counts = {name: int((np.abs(pixels - to_rgb(colour)).max(axis=-1) < 0.01).sum()) for name, colour in KINDS.items()}
    # miss 3 + 3, false alarm 2 + 2, confusion 7 + 17; marks and the legend take a little
    shares = {name: count / sum(counts.values()) for name, count in counts.items()}
    assert shares == pytest.approx({"miss": 6 / 34, "false_alarm": 4 / 34, "confusion": 24 / 34}, abs=0.04)


def test_the_picture_of_causes_has_all_bars_in_their_share(comparison: Comparison, tmp_path: Path) -> None:
    """Three bars of a model: all, 2 and 3 speakers; of each kind the part that is drawn in the kind's own colour."""
    from matplotlib import image
    from matplotlib.colors import to_rgb

    draw_causes(comparison, tmp_path / "x.png")
    pixels = image.imread(tmp_path / "x.png")[..., :3]
    counts = {name: int((np.abs(pixels - to_rgb(colour)).max(axis=-1) < 0.01).sum()) for name, colour in KINDS.items()}
    # never found: none missed; false alarm at edges 2, 10 and 0 %, twice; confusion 7, 15, 5, 17, 25 and 15 %
    shares = {name: count / sum(counts.values()) for name, count in counts.items()}
    assert shares == pytest.approx({"miss": 0, "false_alarm": 24 / 108, "confusion": 84 / 108}, abs=0.03)


def test_the_legend_explains_what_any_panel_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first panel has no interval, since its set has one recording."""
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    original = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, *given, **named: (drawn.append(figure), original(figure, *given, **named))
    )
    first = replace(result("m", "a2", (1.0, 2.0, 3.0, 20.0)), set_name="first")
    draw(make([first, *RESULTS[:2]]), tmp_path / "x.png")
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == LEGEND
    assert len(LEGEND) == len(KINDS) + 2


def test_a_picture_without_speech_or_of_many_models(tmp_path: Path) -> None:
    silent = make([result("m", "a0", (0, 1.0, 0, 0))])
    draw(silent, tmp_path / "silent.png")
    draw_causes(silent, tmp_path / "causes.png")
    many = [result(f"model {at}", "a2", (1.0, 2.0, 3.0, 20.0)) for at in range(12)]
    draw(make(many), tmp_path / "many.png")
    from matplotlib import image

    heights = [image.imread(tmp_path / f"{name}.png").shape[0] for name in ("silent", "many")]
    assert heights[1] > 2 * heights[0]


def test_without_matplotlib(comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"a picture needs matplotlib: pip install 'diarnorm\[plot\]'"):
        draw(comparison, tmp_path / "x.png")
