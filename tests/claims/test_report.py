"""The report: three files that say the same, and a page that needs nothing else."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import sem, t

from diarnorm.claims.evidence import (
    Evidence,
    Measure,
    Plot,
    Series,
    Table,
    average,
    geometric,
    number,
    share,
    share_difference,
    spoken,
)
from diarnorm.claims.pictures import svg
from diarnorm.claims.records import Record, load_all, save
from diarnorm.claims.report import judge_all, write_report
from diarnorm.claims.rules import OPEN, Criterion, judge
from diarnorm.claims.words import headline

PLOT = Plot("A & B", "x", "y", (Series("one", (1.0, 2.0), (1.0, 4.0), (0.5, 3.0), (1.5, 5.0)), Series("none", (), ())))
EVIDENCE = Evidence(
    "half_precision",
    (
        Measure("wide_wrong", 0.0, 0.0, 0.0),
        Measure("narrow_repaired", math.inf, math.inf, math.inf),
        Measure("loss_db", 3.01, 2.0, 4.0),
        Measure("gradient_not_finite", 0.0, 0.0, 0.0),
    ),
    (Table("Table <1>", ("a", "b"), (("1 | 2", "x < y"),)),),
    (PLOT,),
    ("A note with `code`.",),
)
RECORD = Record(EVIDENCE, "abc1234", "a machine", 1.0, ("data.speech=x",))


class Page(HTMLParser):
    """Elements that are open, and all that a page asks for."""

    VOID = ("meta", "br", "img", "link", "path", "use", "rect")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.asked: list[str] = []
        self.ids: list[str] = []
        self.sections: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        values = dict(attrs)
        self.asked += [value for key, value in values.items() if key in ("src", "href") and value is not None]
        if tag == "section":
            self.sections.append(str(values["id"]))
        if values.get("id") is not None:
            self.ids.append(str(values["id"]))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(RECORD, tmp_path)
    write_report(tmp_path, load_all(tmp_path))
    return tmp_path


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    path = save(RECORD, tmp_path)
    assert load_all(tmp_path) == {"half_precision": RECORD}
    json.loads(path.read_text("utf-8"), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = save(RECORD, tmp_path)
    path.write_text('{"seconds": 1}', "utf-8")
    with pytest.raises(ValueError, match="is no evidence of this version"):
        load_all(tmp_path)


def test_the_page_is_whole_and_asks_for_nothing(folder: Path) -> None:
    text = (folder / "claims.html").read_text("utf-8")
    page = Page(text)
    assert page.open == []
    assert all(link.startswith("#") for link in page.asked), page.asked
    assert page.sections == [f"claim-{number}" for number in range(1, 15)]
    assert len(page.ids) == len(set(page.ids)) > 14
    assert text.index("<strong>1 refuted, 13 not measured</strong>") < text.index("<nav")
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert "Table &lt;1&gt;" in text
    assert "<code>code</code>" in text
    assert text.count("<svg") == 1


def test_what_lies_above_the_top_of_a_picture_stands_there() -> None:
    """A run that exploded leaves the others to be seen, interval and all."""
    low, wild = (
        Series("low", (1.0, 2.0), (0.5, 0.6)),
        Series("wild", (1.0, 2.0), (0.7, 1e14), (0.6, -1e14), (0.8, 3e14)),
    )
    kept = Series("wild", (1.0, 2.0), (0.7, 3.0), (0.6, 3.0), (0.8, 3.0))
    one, two = (svg(Plot("t", "x", "y", (low, each), top=3.0)) for each in (wild, kept))
    assert [line for line in one.splitlines() if "1e14" in line] == []
    marks = [re.findall(r'<use [^>]*y="([^"]+)"', picture) for picture in (one, two)]
    assert marks[0][:4] == marks[1][:4]


def test_pictures_take_the_colours_of_the_page() -> None:
    picture = svg(PLOT)
    assert "var(--ink)" in picture
    assert "#010203" not in picture
    assert "A &amp; B" in picture
    assert "one" in picture
    assert svg(PLOT) == picture  # nothing random in it


def test_markdown_and_json_say_the_same(folder: Path) -> None:
    text = (folder / "claims.md").read_text("utf-8")
    values = json.loads((folder / "claims.json").read_text("utf-8"))
    verdicts = {each["number"]: each["verdict"] for each in values["claims"]}
    assert verdicts[10] == "refuted"
    assert "## 10. Half precision needs eps 1e-4: refuted" in text
    assert "| 1 \\| 2 | x < y |" in text
    assert "3.01 (2 to 4) dB" in text
    assert "commit abc1234, a machine" in text
    assert [n for n, verdict in verdicts.items() if verdict != "not measured"] == [10]
    (plot,) = re.findall(r"!\[A & B\]\((.*)\)", text)
    assert (folder / plot).read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_page_have_ids_of_their_own_and_its_colours() -> None:
    one, two = svg(PLOT), svg(replace(PLOT, title="Another"))
    ids = [re.findall(r'\bid="([^"]+)"', each) for each in (one, two)]
    assert all(ids)
    assert not set(ids[0]) & set(ids[1])
    assert svg(PLOT) == one
    assert "var(--ink)" in one
    assert not re.search("#010203|#040506|<metadata|<!--", one)


def test_ticks_stand_where_points_are_numbered_or_named() -> None:
    def ticks(plot: Plot) -> list[str]:
        (group,) = re.findall(r"(?s)<g[^>]*>\s*<text[^>]*>.*", svg(plot))[:1]
        return re.findall(r"<text[^>]*>([^<]*)</text>", group)

    names = Plot("t", "x", "y", (Series("rms", (0.0,), (1.0,)), Series("batch", (1.0,), (2.0,))))
    assert ticks(names)[:2] == ["rms", "batch"]
    numbered = Plot("t", "x", "y", (Series("a", (0.0, 1.0, 2.0), (1.0, 2.0, 3.0)),))
    assert ticks(numbered)[:4] == ["0", "1", "2", "x"]


def test_what_is_changed_by_reads_as_a_sentence() -> None:
    (judgement,) = (each for each in judge_all({}) if each.claim.number == 5)
    criterion = judgement.findings[0][0]
    assert criterion.says.endswith(": by")
    measure = Measure(criterion.measure, 3.0, 2.0, 4.0)
    line = headline(judge(judgement.claim, {criterion.measure: measure}))
    assert line.endswith("log-mel by 3 (2 to 4) %")


def test_claims_of_two_experiments_are_judged_by_both() -> None:
    exact = Evidence("swap", (Measure("naive_error", 30.0, 29.0, 31.0), Measure("exact_error", 0.0, 0.0, 0.0)))
    tuned = Evidence("finetuning", tuple(Measure(f"{arm}_der", 3.0, 2.0, 4.0) for arm in ("naive", "exact", "frozen")))
    records = {each.experiment: Record(each, "", "", 0.0, ()) for each in (exact, tuned)}
    states = [state for _, _, state in judge_all(records)[10].findings]
    assert states == ["holds", "fails", "holds", "holds", "holds"]


def test_intervals() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    mean = average("x", values)
    low, high = t.interval(0.95, 7, loc=4.5, scale=sem(values))
    assert (mean.value, mean.low, mean.high) == (4.5, pytest.approx(low), pytest.approx(high))
    two = geometric("x", [1.0, 100.0])
    assert (two.value, two.low) == (pytest.approx(10.0), pytest.approx(10.0 * 10.0 ** -t.ppf(0.975, 1)))
    assert geometric("x", [1.0, 4.0, 16.0]).value == pytest.approx(4.0)
    assert geometric("x", [1.0, 1e300]).high < math.inf
    half = share("x", 50, 100)
    assert (half.low, half.high) == (pytest.approx(0.404, abs=1e-3), pytest.approx(0.596, abs=1e-3))  # Wilson's formula
    assert number(-0.00001) == "-1e-05"
    assert (number(4.567e-5), number(1234567.0)) == ("4.57e-05", "1.23e+06")
    with pytest.raises(ValueError, match="no values"):
        average("x", [])


def test_intervals_of_few_draws_hold_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    for count in (2, 4):
        found = [average("x", draws) for draws in generator.normal(size=(1000, count)).tolist()]
        assert sum(each.low <= 0.0 <= each.high for each in found) / len(found) == pytest.approx(0.95, abs=0.02)


def test_a_single_draw_and_an_infinite_one_bound_nothing() -> None:
    for measure in (average("x", [3.0]), geometric("x", [3.0]), average("x", [1.0, math.inf])):
        assert (measure.low, measure.high) == (-math.inf, math.inf)
        assert Criterion("x", "", low=1.0).state(measure) == OPEN
        assert spoken(measure) in ("3", "inf")
    assert spoken(Measure("x", 3.0, 2.0, math.inf)) == "3 (2 to inf)"


def test_a_difference_of_shares_by_newcombe() -> None:
    """His method 10, from Wilson's formula written out."""
    found = share_difference("x", 56, 42, 70)
    p, n = np.array([56 / 70, 42 / 70]), 70
    z = 1.959964
    centre, reach = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (centre - reach) / (1 + z * z / n), (centre + reach) / (1 + z * z / n)
    assert found.value == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2 - np.hypot(p[0] - low[0], high[1] - p[1]), abs=1e-6)
    assert found.high == pytest.approx(0.2 + np.hypot(high[0] - p[0], p[1] - low[1]), abs=1e-6)


def test_a_series_draws_no_bound_that_is_not_known() -> None:
    series = Series.of("a", [1, 2], [Measure("x", 3.0, 2.0, 4.0), average("x", [5.0])])
    assert series == Series("a", (1.0, 2.0), (3.0, 5.0), (2.0, 5.0), (4.0, 5.0))
