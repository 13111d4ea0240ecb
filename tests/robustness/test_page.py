"""The report in all its forms: figures where they belong, a page that fetches nothing, pictures that are pictures."""

import base64
import io
import json
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import soundfile

from diarnorm.evaluation.recordings import read_set
from diarnorm.evaluation.scores import Components
from diarnorm.evaluation.sources import parse_source
from diarnorm.resources import commit
from diarnorm.robustness import publish as publishing
from diarnorm.robustness.conditions import Condition
from diarnorm.robustness.corruption import parse
from diarnorm.robustness.figures import colour_of, draw_all, draw_changes, draw_factors, draw_for_page
from diarnorm.robustness.grid import cells_of, contrasts_of
from diarnorm.robustness.page import page
from diarnorm.robustness.players import Player, mp3_uri, players_of
from diarnorm.robustness.study import Study
from diarnorm.robustness.summary import rows_of
from diarnorm.robustness.tables import report, write_tables
from tests.evalset import save_set
from tests.robustness.madeup import CORRUPTIONS, KINDS, made_up, with_peer

VOID = {"meta", "br", "wbr", "path", "use", "rect"}


def example() -> Study:
    """A study with something in every table."""
    blocks = {
        "attention": (0.3, 0.4),
        "clean_attention": (0.1, 0.1),
        "uniform_attention": 0.12,
        "event_rms": (3.0, 4.0),
    }
    return made_up(
        {
            ("a", "loudness.swing=20"): {"errors": Components(1.0, 0.3, 2.2, 10.0)},
            ("b", "loudness.swing=20"): {"errors": Components(0.1, 0.3, 0.2, 10.0)},
            ("a", "burst.slam=15"): {**blocks, "recovery_s": (0.4, None)},
            ("c", "dc.offset=0.1"): {"dc": 0.1},
            ("a", "silence.middle=10"): {"after_s": 20.0, "same_labels_s": 15.0},
            ("a", "silence.hum_50=20"): {"num_turns": 2},
        }
    )


class Outline(HTMLParser):
    """Checks that elements are closed in order, and collects what matters."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables_outside: int = 0
        self.cells: list[list[str]] = []
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.text: str = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [value for name, value in attrs if name == "id" and value is not None]
        self.sources += [value for name, value in attrs if name in ("src", "href") and value is not None]
        if tag == "table" and "div.scroll" not in self.open:
            self.tables_outside += 1
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th") and self.cells:
            self.cells[-1].append("")
        if tag not in VOID:
            self.open.append(f"{tag}.{values['class']}" if tag == "div" and "class" in values else tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open.pop().partition(".")[0] == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.cells and self.cells[-1] and "table" in self.open:
            self.cells[-1][-1] += data


def outline_of(text: str) -> Outline:
    outline = Outline()
    outline.feed(text)
    outline.close()
    assert outline.open == []
    return outline


def test_the_page_fetches_nothing_and_is_whole(tmp_path: Path) -> None:
    study = example()
    rows = rows_of(study)
    cells, contrasts = cells_of(study, rows), contrasts_of(study)
    pictures = {"x": draw_for_page(study, rows, "x")}
    text = page(study, rows, cells, contrasts, pictures, [Player("a < b", mp3_uri(np.zeros(16_000, np.float32)))])
    outline = outline_of(text)
    assert outline.tables_outside == 0
    assert outline.sources
    assert all(source.startswith("data:audio/mpeg;base64,") for source in outline.sources)
    assert not re.search(r"https?:(?!//www\.w3\.org/)|url\([^#]|@import|<script|<link", text)
    assert len(outline.ids) == len(set(outline.ids)) > 0
    assert "width=device-width" in text
    assert "prefers-color-scheme:dark" in text
    assert "layer &lt;ln&gt;" in text
    assert "layer <ln>" not in text
    assert "a &lt; b" in text


def test_a_page_has_a_picture_for_each_panel_in_its_own_colours() -> None:
    study = example()
    found = draw_for_page(study, rows_of(study), "x")
    assert [len(panels) for panels in found.values()] == [1, len(KINDS), 1]  # a factor of severities, models, slam
    for caption, panels in found.items():
        for panel in panels:
            assert panel.startswith('<svg role="img" aria-label="x: ')
            assert escape(caption) in panel
            assert "var(--ink)" in panel
            assert "var(--line)" in panel
            assert "<text" in panel
            assert not re.search("#222222|#000000|#dddddd|<metadata|<!--", panel)
    assert draw_for_page(study, rows_of(study), "x") == found


def test_what_a_model_fails_stands_on_top_by_name() -> None:
    quiet = {"inserted_speech_s": 1.0}
    study = made_up(
        {
            ("a", "loudness.swing=20"): {"errors": Components(1.0, 0.3, 2.2, 10.0)},
            ("a", "burst.slam=15"): {"errors": Components(1.0, 0.3, 1.2, 10.0)},
            ("b", "silence.middle=10"): quiet,
            ("b", "silence.hum_50=20"): {"num_turns": 2},
        }
    )
    text = outline_of(page(study, rows_of(study), [], [], {}, [])).text
    top = text[text.index("Robustness", text.index("@media")) : text.index("Verdicts")]
    assert "a (norm rms, front end none): 2 holds ✓, 2 fails ✗, 0 undecided ?" in top
    assert "fails loudness.swing +25.0 at 20; burst.slam +15.0 at 15makes no turns when nobody speaks" in top
    assert "fails silence.middle +0.0 at 10, speech in silencemakes turns of silence.hum_50=20" in top


def test_long_names_break_or_are_cut() -> None:
    long = "checkpoints_" + "y" * 40
    study = made_up()
    records = {
        (long if at[0] == "a" else at[0], *at[1:]): replace(each, model=long if at[0] == "a" else each.model)
        for at, each in study.records.items()
    }
    models = {long if name == "a" else name: facts for name, facts in study.models.items()}
    study = replace(study, records=records, models=models)
    assert f"checkpoints_<wbr>{'y' * 16}<wbr>{'y' * 16}<wbr>{'y' * 8}" in page(study, rows_of(study), [], [], {}, [])
    factors = draw_factors(study, rows_of(study))
    changes = draw_changes(study, rows_of(study))
    assert factors is not None
    assert changes is not None
    for figure in (factors.together(), *factors.apart().values(), changes):
        figure.draw_without_rendering()
        box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert box.x0 > -0.05
        assert box.y0 > -0.05
        assert box.x1 < width + 0.05
        assert box.y1 < height + 0.05


def map_of(text: str) -> dict[str, list[str]]:
    """The coloured table by the name of its rows."""
    lines = outline_of(text).cells
    start = [cells[0] for cells in lines].index("condition")
    stop = next((at for at in range(start + 1, len(lines)) if lines[at][0] == "condition"), len(lines))
    return {cells[0]: [cell.strip() for cell in cells[1:]] for cells in lines[start:stop]}


def test_the_map_has_colour_and_figure_and_the_clean_line(tmp_path: Path) -> None:
    study = example()
    text = page(study, rows_of(study), cells_of(study, rows_of(study)), [], {}, [])
    rows = map_of(text)
    assert rows["condition"] == list(KINDS)
    assert rows["clean, DER %"] == ["10.0"] * 4
    assert rows["loudness.swing=20"] == ["+25.0 ✗", "-4.0 ✓↓", "+0.0 ✓", "+0.0 ✓"]
    assert f'style="background:{colour_of(25.0)}"' in text
    assert text.count("class=heat") == 5 * 4 + 5 * 3  # the map, and the grid of three kinds


def test_colours_grow_with_the_change_and_stay_light_enough_for_dark_text() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    for sign in (1, -1):
        values = [luminance(colour_of(sign * change)) for change in (0, 1, 5, 20)]
        assert values == sorted(values, reverse=True)
        assert len(set(values)) == 4
        assert (values[-1] + 0.05) / (luminance("#1c1c1e") + 0.05) > 4.5  # WCAG AA
    assert colour_of(25.0) == colour_of(20.0)


def test_pictures_are_there_and_not_empty(tmp_path: Path) -> None:
    study = example()
    found = draw_all(study, rows_of(study), cells_of(study, rows_of(study)), tmp_path)
    names = {path.name for path in found.values()}
    assert names == {f"x_{name}.png" for name in ("factors", "changes", "residual", "attention", "grid")}
    for path in found.values():
        pixels = matplotlib.image.imread(path)
        assert min(pixels.shape[:2]) > 200
        assert pixels.std() > 0.05
    text = report(study, rows_of(study), [], [], found)
    assert set(re.findall(r"!\[.+\]\(<(.*)>\)", text)) == {path.name for path in found.values()}
    plain = made_up()
    names = {path.name for path in draw_all(plain, rows_of(plain), [], tmp_path).values()}
    assert names == {f"x_{name}.png" for name in ("factors", "changes", "residual")}


def test_the_tables_say_what_was_found(tmp_path: Path) -> None:
    study = example()
    rows = rows_of(study)
    cells, contrasts = cells_of(study, rows), contrasts_of(study)
    text = report(study, rows, cells, contrasts)
    for line in (
        r"\| loudness.swing=20 +\| +\+25.0 ✗ \| +-4.0 ✓↓ \|",
        r"\| loudness.swing +\| +fails \(\+25.0 at 20\) \|",
        r"\| dc.offset=0.1 +\| c +\|.* 10.000 \|",
        r"\| burst.slam=15 +\| a +\| +30.0, 40.0 \| 10.0, 10.0 \| +12.0 \|",
        r"\| silence.hum_50=20 \| a +\| +fails \| +2 \|",
        r"\| burst.slam=15 +\| a .*\| not \(50 % of 16\) \| +n/a \|",
        r"\| silence.middle=10 +\| a +\| +160.00 \| +75.0 \| 75.0 to 75.0 \| +fails \|",
        r"\| silence.middle +\| +fails \(\+0.0 at 10, other labels after it\) \|",
        r"\| loudness.swing=20 +\| a +(\| +\+25.0 ){8}\|",
        r"\| loudness.swing=20 +\| \+12.5 \(\+12.5 to \+12.5\) \*\* \|",
        r"- made by diarnorm .*, commit .*, on .* cores, device cpu; code that measures [0-9a-f]{12}",
    ):
        assert re.search(line, text), line
    for words in ("false speech seconds", "labels added", "DC % FS", "- x: a note", "front end / norm"):
        assert words in text
    paths = write_tables(study, rows, cells, contrasts, tmp_path)
    assert [path.name for path in paths] == ["report.md", "report.json"]
    values = json.loads(paths[1].read_text("utf-8"), parse_constant=pytest.fail)
    assert len(values["rows"]) == len(rows) == 4 * (6 + 2)
    assert len(values["records"]) == len(study.records)
    assert {record["turns"] for record in values["records"]} == {None}  # these stay with the records
    assert values["made_by"]["commit"] == commit()
    assert len(values["contrasts"]) == len(contrasts)
    (worst,) = [each for each in values["rows"] if (each["model"], each["condition"]) == ("a", "loudness.swing=20")]
    assert worst["change"]["points"] == pytest.approx(25.0)
    assert worst["verdict"] == "fails"


def test_a_peer_stands_beside_the_models_in_everything_but_what_is_inside(tmp_path: Path) -> None:
    corruptions = (*CORRUPTIONS, "features.scale=1.25")
    study = with_peer(made_up(corruptions=corruptions), Components(1.0, 0.3, 2.2, 10.0))
    rows = rows_of(study)
    cells, contrasts = cells_of(study, rows), contrasts_of(study)
    assert {cell.norm for cell in cells} == {"rms", "layer <ln>"}
    text = report(study, rows, cells, contrasts)
    for line in (
        r"\| change of the DER, points +\| +a \| +b \| +c \| +d \| +<peer> \|",
        r"\| clean \(DER\) +(\| +10.0 ){5}\|",
        r"\| burst.slam=15 +(\| \+0.0 ✓ ){4}\| \+25.0 ✗ \|",
        r"\| features.scale=1.25 +(\| \+0.0 ✓ ){4}\| +n/a \|",
        r"\| burst.slam +(\| +holds \(\+0.0 at 15\) ){4}\| +fails \(\+25.0 at 15\) \|",
        r"\| burst.slam=15 +\| <peer> +\| +2.00 \| +2.00 \| +0.00 to 0.00 \| +\+0.00 \| +\+0 \|( +n/a \|){4}",
        r"\| nothing +\| <peer> +\| +holds \| +0 \|",
        r"- peer <peer>: another program, .* p.py {wavs}",
    ):
        assert re.search(line, text), line
    inside = text[text.index("### Residual stream") :]
    assert "<peer>" not in inside[: inside.index("##", 5)]
    path = write_tables(study, rows, cells, contrasts, tmp_path)[1]
    values = json.loads(path.read_text("utf-8"), parse_constant=pytest.fail)
    assert values["peers"] == {"<peer>": {"command": "p.py {wavs}", "files": {}}}
    assert set(values["models"]) == set(KINDS)
    (row,) = [row for row in values["rows"] if (row["model"], row["condition"]) == ("<peer>", "burst.slam=15")]
    assert (row["drift"], row["rms"], row["attention"], row["recovery_s"]) == (None, None, None, None)
    pictures = draw_all(study, rows, cells, tmp_path)
    assert {path.name for path in pictures.values()} == {
        f"x_{name}.png" for name in ("factors", "changes", "residual", "grid")
    }
    html = page(study, rows, cells, contrasts, {"x": draw_for_page(study, rows, "x")}, [])
    fields = map_of(html)
    assert fields["condition"] == [*KINDS, "<peer>"]
    assert fields["features.scale=1.25"] == [*["+0.0 ✓"] * 4, "n/a"]
    assert "<peer>" not in html
    assert "<strong>&lt;peer&gt;</strong> (another program): 0 holds" in re.sub(r"</?span[^>]*>", "", html)


def test_a_peer_has_a_line_of_its_own() -> None:
    study = with_peer(made_up(corruptions=("loudness.swing=6", "loudness.swing=20")))
    panels = draw_factors(study, rows_of(study))
    assert panels is not None
    lines = {str(line.get_label()): line for line in panels.together().axes[0].get_lines()}
    assert set(study.columns) <= set(lines)
    others = {lines[model].get_color() for model in KINDS}
    assert lines["<peer>"].get_color() not in others
    assert np.asarray(lines["<peer>"].get_ydata()) == pytest.approx([10.0, 10.0])


def test_players_give_back_the_changed_sound(tmp_path: Path) -> None:
    (recording,) = read_set("x", parse_source("x", str(save_set(tmp_path / "set", ["b_two"]))), tmp_path).recordings
    conditions = [Condition(), Condition(parse(["loudness.gain=-20"])), Condition(parse(["silence.middle=3"]))]
    players = players_of(recording, conditions, 2.0, 0)
    assert [player.name for player in players] == ["clean", "loudness.gain=-20", "silence.middle=3"]
    sounds = []
    for player in players:
        kind, _, data = player.uri.partition(",")
        assert kind == "data:audio/mpeg;base64"
        samples, rate = soundfile.read(io.BytesIO(base64.b64decode(data)))
        assert abs(len(samples) / rate - 2.0) < 0.05
        assert len(data) < 60_000
        sounds.append(samples)
    levels = [20 * np.log10(np.sqrt(np.mean(sound**2))) for sound in sounds]
    assert levels[0] - levels[1] == pytest.approx(20.0, abs=1.0)
    assert np.abs(sounds[2][-8000:]).max() < 0.01  # a second of what was, then silence


def test_page_and_report_have_the_same_tables() -> None:
    study = made_up({("a", "burst.slam=15"): {"attention": (0.3, 0.4)}})
    rows = rows_of(study)
    titles = re.findall(r"<summary>(.*?)</summary>", page(study, rows, [], [], {}, []))
    assert titles == re.findall(r"^### (.*)$", report(study, rows, []), re.MULTILINE)[1:]  # the first is of verdicts
    assert len(titles) == 6  # all but labels and halves


def test_pictures_of_a_set_of_any_name(tmp_path: Path) -> None:
    study = example()
    records = {(at[0], at[1].replace("x", "a/b"), *at[2:]): each for at, each in study.records.items()}
    records = {at: replace(each, set_name=at[1]) for at, each in records.items()}
    study = replace(study, recordings={"a/b": study.recordings["x"]}, records=records)
    found = draw_all(study, rows_of(study), [], tmp_path)
    assert {path.name for path in found.values()} == {
        f"a_b_{name}.png" for name in ("factors", "changes", "residual", "attention")
    }
    assert all(caption.startswith("a/b: ") for caption in found)


def test_a_failure_of_drawing_is_not_taken_for_want_of_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> dict[str, Path]:
        raise ValueError("cannot be drawn")

    monkeypatch.setattr(publishing, "draw_all", fail)
    with pytest.raises(ValueError, match="cannot be drawn"):
        publishing.publish(example(), tmp_path, tmp_path)
    monkeypatch.setattr(publishing, "has_matplotlib", lambda: False)
    _, paths, notes = publishing.publish(example(), tmp_path, tmp_path)
    assert [path.name for path in paths] == ["report.md", "report.json", "report.html"]
    assert notes == ["x: a note", "pictures need matplotlib: pip install 'diarnorm[plot]'"]
