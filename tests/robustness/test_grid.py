"""Kinds of models under each condition, and norms against one another, on records written by hand."""

import numpy as np
import pytest
from scipy import stats

from diarnorm.evaluation.scores import Components
from diarnorm.robustness import grid
from diarnorm.robustness.grid import cells_of, contrasts_of
from diarnorm.robustness.summary import rows_of
from diarnorm.robustness.tables import contrast_lines, word_on_contrasts, word_on_kinds
from tests.robustness.madeup import CORRUPTIONS, made_up
from tests.robustness.test_summary import worse


def test_cells_add_up_the_models_of_a_kind() -> None:
    study = made_up({("a", "loudness.swing=6"): {"errors": worse}})
    cells = {
        (cell.frontend, cell.norm): cell
        for cell in cells_of(study, rows_of(study))
        if cell.condition == "loudness.swing=6"
    }
    assert set(cells) == {("none", "rms"), ("frame", "rms"), ("none", "layer <ln>")}
    both = cells["none", "rms"]
    assert both.models == ("a", "d")
    assert both.change.points == pytest.approx(100 * (8 * 2.0 + 0.1 * 28) / 160)  # `d` did not change
    assert cells["frame", "rms"].change.points == 0.0
    assert both.verdict == "fails"


def test_a_cell_fails_with_what_its_models_fail() -> None:
    study = made_up({("d", "silence.middle=10"): {"inserted_speech_s": 1.0}})
    cells = [cell for cell in cells_of(study, rows_of(study)) if cell.condition == "silence.middle=10"]
    found = {(cell.frontend, cell.norm): (cell.verdict, cell.outcome) for cell in cells}
    assert found["none", "rms"] == ("holds", "fails")  # of its two models one heard speech in silence
    assert found["none", "layer <ln>"] == ("holds", "holds")


def test_norms_are_compared_by_the_difference_of_their_changes() -> None:
    """Only behind one front end: `a` and `d` are `rms` behind `none`, `c` is `layer` there, `b` is alone."""
    own_clean = lambda number: Components(1.0 + 0.2 * number, 0.3, 0.2, 10.0)  # noqa: E731
    changes = {
        ("c", "clean"): {"errors": own_clean},
        **{("c", name): {"errors": own_clean} for name in CORRUPTIONS},
        ("a", "loudness.swing=20"): {"errors": worse},
        ("d", "loudness.swing=20"): {"errors": worse},
    }
    found = {each.condition: each for each in contrasts_of(made_up(changes))}
    assert set(found) == set(CORRUPTIONS)
    assert {(each.frontend, each.norm, each.other) for each in found.values()} == {("none", "rms", "layer <ln>")}
    swing, offset = found["loudness.swing=20"], found["dc.offset=0.1"]
    ours = [20.0 + number for number in range(8)]  # what the other lost before is no matter
    assert swing.difference.points == pytest.approx(np.mean(ours))
    assert swing.difference.low is not None
    assert swing.difference.high is not None
    interval = stats.ttest_1samp(ours, 0.0).confidence_interval(0.95)  # as much speech in each
    assert (swing.difference.low, swing.difference.high) == pytest.approx((interval.low, interval.high))
    _, chance = stats.ttest_1samp(ours, 0.0)
    assert swing.p == pytest.approx(chance)
    assert swing.stands
    assert swing.is_apart
    assert (offset.difference.points, offset.p) == (pytest.approx(0.0, abs=1e-9), pytest.approx(1.0, abs=0.1))
    assert not offset.stands


def test_from_many_recordings_on_differences_have_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "FEW", 8)  # as many as there are
    study = made_up({(model, "loudness.swing=20"): {"errors": worse} for model in "ad"})
    (found,) = [each for each in contrasts_of(study) if each.condition == "loudness.swing=20"]
    drawn = np.random.default_rng(0).integers(8, size=(200, 8))
    expected = np.percentile(20.0 + np.arange(8)[drawn].mean(axis=1), [2.5, 97.5])
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(expected))


def test_of_many_differences_those_that_chance_makes_do_not_stand() -> None:
    rng = np.random.default_rng(4)
    names = tuple(f"dc.offset={number / 1000:g}" for number in range(1, 101))

    def scattered(_: int) -> Components:
        return Components(0.5, 0.3, 0.2 + rng.uniform(0.0, 1.0), 10.0)

    study = made_up({(model, name): {"errors": scattered} for model in "acd" for name in names}, corruptions=names)
    contrasts = contrasts_of(study)
    apart, stand = (sum(getattr(each, name) for each in contrasts) for name in ("is_apart", "stands"))
    assert len(contrasts) == 100
    assert apart == sum(each.p is not None and each.p < 0.05 for each in contrasts)  # few: both are Student's
    assert 0.01 <= np.mean([each.p is not None and each.p < 0.05 for each in contrasts]) <= 0.1
    assert stand == 0
    text = word_on_contrasts(contrasts)
    assert f"Of 100 differences {apart} have an interval without 0 (*), where chance alone makes about 5; " in text
    assert "; 0 are there when all are looked at together" in text
    assert word_on_kinds(cells_of(study, rows_of(study))).startswith(
        "Models, by front end and norm: none / rms: a, d; frame / rms: b; none / layer <ln>: c. Intervals are over"
    )
    head, lines = contrast_lines(contrasts)
    assert head == ["condition", "none: rms less layer <ln>"]
    assert len(lines) == 100


def test_models_of_one_kind_have_no_grid() -> None:
    study = made_up()
    alone = type(study)(
        study.config, study.conditions, {"a": study.models["a"]}, study.recordings, study.records, study.notes
    )
    assert cells_of(alone, rows_of(alone)) == contrasts_of(alone) == []
