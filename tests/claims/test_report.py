"""The report: three files that say the same, and a page that needs nothing else."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, average, geometric, number, share
from diarnorm.claims.pictures import svg
from diarnorm.claims.records import Record, load_all, save
from diarnorm.claims.report import judge_all, write_report

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
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        values = dict(attrs)
        self.asked += [value for key, value in values.items() if key in ("src", "href") and value is not None]
        if tag == "section":
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
    assert page.ids == [f"claim-{number}" for number in range(1, 15)]
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert "Table &lt;1&gt;" in text
    assert "<code>code</code>" in text
    assert text.count("<svg") == 1


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


def test_claims_of_two_experiments_are_judged_by_both() -> None:
    exact = Evidence("swap", (Measure("naive_error", 30.0, 29.0, 31.0), Measure("exact_error", 0.0, 0.0, 0.0)))
    tuned = Evidence("finetuning", tuple(Measure(f"{arm}_der", 3.0, 2.0, 4.0) for arm in ("naive", "exact", "frozen")))
    records = {each.experiment: Record(each, "", "", 0.0, ()) for each in (exact, tuned)}
    states = [state for _, _, state in judge_all(records)[10].findings]
    assert states == ["holds", "fails", "holds", "holds", "holds"]


def test_intervals() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    mean = average("x", values)
    assert mean.value == 4.5
    assert 4.5 - 2.1 < mean.low < 4.5 - 1.2  # 1.96 standard errors of 2.29 / sqrt(8)
    assert 4.5 + 1.2 < mean.high < 4.5 + 2.1
    assert geometric("x", [1.0, 4.0, 16.0]).value == pytest.approx(4.0)
    half = share("x", 50, 100)
    assert (half.low, half.high) == (pytest.approx(0.404, abs=1e-3), pytest.approx(0.596, abs=1e-3))  # Wilson's formula
    assert average("x", [1.0, math.inf]) == Measure("x", math.inf, math.inf, math.inf)
    assert number(-0.00001) == "-1e-05"
    assert (number(4.567e-5), number(1234567.0)) == ("4.57e-05", "1.23e+06")
    with pytest.raises(ValueError, match="no values"):
        average("x", [])
