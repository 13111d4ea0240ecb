"""Scores worked out by hand, and a second opinion on a grid of milliseconds."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from diarnorm.evaluation import scoring as evaluate
from diarnorm.evaluation.scores import Components, bootstrap_difference, bootstrap_interval, format_table
from diarnorm.evaluation.scoring import score, score_files
from diarnorm.turns import Turn
from tests.randomturns import on_milliseconds, some_turns

TWO = [Turn(0, 10, "A"), Turn(10, 20, "B")]
TWO_LATE = [Turn(0, 10.2, "x"), Turn(10.2, 20, "y")]


def parts(components: Components) -> tuple[float, float, float, float]:
    """Miss, false alarm, confusion, speech in seconds, without the noise of floats."""
    values = (components.miss_s, components.false_alarm_s, components.confusion_s, components.speech_s)
    return tuple(round(value, 9) for value in values)  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("collar_s", "percent", "scored_s"),
    [(0.0, 1.0, 20.0), (0.125, 100 * 0.075 / 19.5, 19.5), (0.25, 0.0, 19.0)],
)
def test_collar_is_on_each_side(collar_s: float, percent: float, scored_s: float) -> None:
    result = score({"a": TWO}, {"a": TWO_LATE}, collar_s=collar_s)
    assert 100 * (result.pooled.der or 0) == pytest.approx(percent, abs=1e-9)
    assert result.files[0].scored_s == pytest.approx(scored_s)
    assert f"collar: {collar_s:g} s each side" in format_table(result)
    assert f"scored time: {scored_s:.2f} s" in format_table(result)


def test_a_collar_of_total_width_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = evaluate.score_recording
    monkeypatch.setattr(
        evaluate,
        "score_recording",
        lambda uri, ref, hyp, region, collar_s, skip: original(uri, ref, hyp, region, collar_s / 2, skip),
    )
    with pytest.raises(AssertionError):
        test_collar_is_on_each_side(0.25, 0.0, 19.0)


EARLY_REFERENCE = [Turn(5, 10, "s1"), Turn(10, 20, "s0")]
EARLY = [Turn(0, 10, "s1"), Turn(10, 20, "s0")]


@pytest.mark.parametrize(
    ("uem", "durations_s", "percent", "region"),
    [
        (None, None, 100 / 3, "union of the extents"),
        ([(0.0, 30.0)], None, 100 / 3, "UEM"),
        ([(5.0, 20.0)], None, 0.0, "UEM"),
        (None, 30.0, 100 / 3, "each file from 0 to its end"),
    ],
)
def test_false_alarms_outside_the_reference_count(
    uem: list | None, durations_s: float | None, percent: float, region: str
) -> None:
    result = score(
        {"a": EARLY_REFERENCE},
        {"a": EARLY},
        None if uem is None else {"a": uem},
        durations_s=None if durations_s is None else {"a": durations_s},
    )
    assert 100 * (result.pooled.der or 0) == pytest.approx(percent)
    assert result.region.startswith(region)
    assert f"region: {region}" in format_table(result)
    assert any("no UEM given" in warning for warning in result.warnings) == region.startswith("union")


def test_a_region_is_scored_up_to_the_end_of_its_recording() -> None:
    uem = {"a": [(0.0, 3600.0)], "b": [(0.0, 20.001)]}
    turns = {"a": TWO, "b": TWO}
    result = score(turns, {"a": [*TWO_LATE, Turn(30, 40, "x")], "b": TWO}, uem, durations_s={"a": 20.0, "b": 20.0})
    assert [file.scored_s for file in result.files] == pytest.approx([20.0, 20.001])
    assert result.pooled.false_alarm_s == 0
    assert result.warnings == ("a: the region goes on after the end (20.000 s) and is cut there",)
    assert score(turns, turns, uem).files[0].scored_s == pytest.approx(3600.0)  # no length, no end


def test_der_above_100_percent_is_explained() -> None:
    result = score({"a": [Turn(0, 1, "A")]}, {"a": [Turn(0, 10, "a")]})
    assert parts(result.pooled) == (0, 9, 0, 1)
    text = format_table(result)
    assert "pooled DER 900.00 % = miss 0.00 s (0.00 %) + false alarm 9.00 s (900.00 %) + confusion 0.00 s" in text
    assert "of 1.00 s of speech" in text
    assert "above 100 %" in text
    assert "above 100 %" not in format_table(score({"a": TWO}, {"a": TWO_LATE}))


def test_pooled_and_mean_differ() -> None:
    reference = {"a": [Turn(0, 10, "A")], "b": [Turn(0, 1, "A")]}
    result = score(reference, {"a": [Turn(0, 10, "x")], "b": [Turn(5, 6, "x")]})
    assert parts(result.pooled) == (1, 1, 0, 11)
    assert result.pooled.der == pytest.approx(2 / 11)
    assert result.mean_der == pytest.approx(1.0)
    assert "pooled DER 18.18 %" in format_table(result)
    assert "mean DER of recordings 100.00 %" in format_table(result)


OVERLAP = [Turn(0, 10, "A"), Turn(5, 15, "B")]


@pytest.mark.parametrize(
    ("hypothesis", "skip_overlap", "expected"),
    [
        ([Turn(0, 15, "a")], False, (5, 0, 5, 20)),
        ([Turn(0, 15, "a")], True, (0, 0, 5, 10)),
        ([Turn(0, 15, "a"), Turn(20, 22, "b")], False, (5, 2, 5, 20)),
        ([Turn(0, 15, "a"), Turn(20, 22, "b")], True, (0, 2, 5, 10)),
    ],
)
def test_overlap_is_scored_or_left_out(hypothesis: list, skip_overlap: bool, expected: tuple) -> None:
    result = score({"a": OVERLAP}, {"a": hypothesis}, skip_overlap=skip_overlap)
    assert parts(result.pooled) == expected
    assert f"overlap: {'left out' if skip_overlap else 'scored'}" in format_table(result)


def test_one_speaker_overlapping_himself_is_no_overlap() -> None:
    double = [Turn(0, 6, "A"), Turn(4, 10, "A")]
    for skip_overlap in (False, True):
        result = score({"a": double}, {"a": double}, skip_overlap=skip_overlap)
        assert parts(result.pooled) == (0, 0, 0, 10)


def test_empty_sides_have_defined_values() -> None:
    reference = {"silent": [], "both": [], "missed": [Turn(0, 10, "A")]}
    result = score(reference, {"silent": [Turn(0, 10, "x")], "both": [], "missed": []})
    silent, both, missed = result.files
    assert (silent.errors.der, silent.errors.false_alarm_s, silent.jer) == (None, 10, None)
    assert (both.errors.der, both.jer, both.scored_s) == (0, 0, 0)
    assert (missed.errors.der, missed.errors.miss_s, missed.jer) == (1, 10, 1)
    assert result.pooled.der == 2
    assert result.mean_der == 0.5
    assert "n/a" in format_table(result)
    json.dumps(result.to_dict(), allow_nan=False)
    with_options = score({"a": []}, {"a": []}, collar_s=0.25, skip_overlap=True)
    assert with_options.pooled.der == 0
    assert with_options.jer is None


def test_missing_and_surplus_hypotheses_are_reported() -> None:
    reference = {"talk_one": [Turn(0, 4, "A")], "b": [Turn(0, 1, "A")]}
    result = score(reference, {"talk_1": [Turn(0, 4, "A")], "b": [Turn(0, 1, "A")]})
    assert result.missing == ("talk_one",)
    assert parts(result.pooled) == (4, 0, 0, 5)
    assert "talk_one: no hypothesis; all of its speech counts as missed" in result.warnings
    surplus = "talk_1: hypothesis without a reference, not scored; is it 'talk_one' of the reference?"
    assert surplus in result.warnings
    assert score({"b": []}, {"b": [], "q": []}).warnings[0] == "q: hypothesis without a reference, not scored"


def test_uem_decides_what_is_scored() -> None:
    hypothesis = {"a": TWO, "b": TWO, "c": TWO}
    result = score({"a": TWO, "b": TWO}, hypothesis, {"a": [(0, 5), (4, 12)], "c": [(0, 20)], "d": [(0, 1)]})
    assert [file.uri for file in result.files] == ["a", "c"]
    assert parts(result.files[0].errors) == (0, 0, 0, 12)
    assert parts(result.files[1].errors) == (0, 20, 0, 0)
    assert result.warnings == (
        "b: not in the UEM, not scored",
        "c: in the UEM but not in the reference, taken as silent",
    )


def test_turns_after_the_end_of_the_file_are_reported() -> None:
    result = score({"a": TWO}, {"a": TWO}, durations_s={"a": 15.0})
    assert parts(result.pooled) == (0, 0, 0, 15)
    assert result.warnings == ("a: turns after the end of the file (15.000 s) are not scored",)


def test_nothing_to_score_and_a_negative_collar_are_refused() -> None:
    with pytest.raises(ValueError, match="the reference holds no recording"):
        score({}, {"a": TWO})
    with pytest.raises(ValueError, match="the reference holds a and the UEM b"):
        score({"a": TWO}, {"a": TWO}, {"b": [(0, 1)]})
    with pytest.raises(ValueError, match="collar_s must be seconds on each side"):
        score({"a": TWO}, {"a": TWO}, collar_s=-0.25)


def test_merged_output_speaker_counts_and_jer() -> None:
    hypothesis = [Turn(0, 10, "x"), Turn(8, 20, "y"), Turn(3, 4, "z")]
    result = score({"a": TWO, "b": TWO}, {"a": hypothesis, "b": TWO})
    assert parts(result.files[0].errors) == (0, 3, 0, 20)
    assert parts(result.files[0].merged) == (0, 0, 10, 20)
    assert [file.count_error for file in result.files] == [1, 0]
    assert result.mean_count_error == 0.5
    # A and x agree; B has 10 s and y 12 s of which 10 s agree: (0 + 2 / 12) / 2.
    assert result.files[0].jer == pytest.approx(1 / 12)
    assert result.jer == pytest.approx(1 / 24)


def test_grid_floor_is_what_frames_of_80_ms_cost() -> None:
    on_grid = score({"a": [Turn(0.08, 1.6, "A")]}, {"a": []})
    assert on_grid.grid.der == pytest.approx(0, abs=1e-9)
    off_grid = score({"a": [Turn(0.05, 1.62, "A")]}, {"a": []}, durations_s={"a": 2.0})
    assert parts(off_grid.grid) == (0.05, 0, 0, 1.57)  # 0.05 -> 0.08 and 1.62 -> 1.60


def test_interval_of_equal_recordings_is_a_point_and_needs_two() -> None:
    result = score({"a": TWO}, {"a": TWO_LATE})
    assert bootstrap_interval(result.errors) is None
    twice = replace(result, files=result.files * 5)
    assert bootstrap_interval(twice.errors) == pytest.approx((0.01, 0.01))
    low, high = bootstrap_interval(score({"a": TWO, "b": TWO}, {"a": TWO, "b": []}).errors) or (0, 0)
    assert (low, high) == (0, 1)


def test_a_paired_difference_is_drawn_together() -> None:
    """Two recordings, so a draw is (a, a), (a, b) or (b, b): differences of 10 and 20 points, or between."""
    easy, hard = Components(0, 0, 1.0, 10), Components(0, 0, 6.0, 10)
    easier, harder = Components(0, 0, 2.0, 10), Components(0, 0, 8.0, 10)
    assert bootstrap_difference([easier, harder], [easy, hard]) == pytest.approx((0.1, 0.2))
    assert bootstrap_difference([easy, hard], [easy, hard]) == (0, 0)
    # Drawn apart, the recordings' own difficulty would hide it: the interval of either alone is much wider.
    low, high = bootstrap_interval([easier, harder]) or (0, 0)
    assert (low, high) == pytest.approx((0.2, 0.8))
    assert bootstrap_difference([easy], [hard]) is None
    silent = Components(0, 1.0, 0, 0)
    assert bootstrap_interval([silent, silent]) is None
    assert bootstrap_difference([silent, easy], [silent, easy]) == (0, 0)
    with pytest.raises(ValueError, match="the same recordings: got 1 and 2"):
        bootstrap_difference([easy], [easy, hard])


LINE_OF_A = "SPEAKER a 1 0 10 <NA> <NA> A <NA> <NA>\n"


def test_files_and_folders(tmp_path: Path) -> None:
    line = "SPEAKER {} 1 {} {} <NA> <NA> {} <NA> <NA>\n"
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    reference.mkdir()
    hypothesis.mkdir()
    (reference / "a.rttm").write_text(line.format("a", 0, 10, "A") + line.format("a", 1, "0.000", "A"))
    (reference / "silent.rttm").write_text("")
    (hypothesis / "a.rttm").write_text(line.format("a", 0, 5, "x"))
    (hypothesis / "silent.rttm").write_text(line.format("silent", 0, 1, "x"))
    result = score_files(reference, hypothesis)
    assert {file.uri: parts(file.errors) for file in result.files} == {
        "a": (5, 0, 0, 10),
        "silent": (0, 1, 0, 0),
    }
    assert result.warnings[0] == "reference: a.rttm: 1 of the turns have zero duration and were left out"
    (tmp_path / "x.uem").write_text("a 1 0 5\n")
    assert parts(score_files(reference / "a.rttm", hypothesis, tmp_path / "x.uem").pooled) == (0, 0, 0, 5)
    with pytest.raises(ValueError, match=r"has no \*.rttm files"):
        score_files(tmp_path, hypothesis)


@pytest.mark.parametrize("content", [LINE_OF_A, f"{LINE_OF_A}SPEAKER b 1 0 1 <NA> <NA> B <NA> <NA>\n"])
@pytest.mark.parametrize("side", ["ref", "hyp"])
def test_two_files_about_one_recording_are_refused(tmp_path: Path, content: str, side: str) -> None:
    for folder in ("ref", "hyp"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.rttm").write_text(LINE_OF_A)
    (tmp_path / side / "old.rttm").write_text(content)
    with pytest.raises(ValueError, match=rf"{side}/old.rttm and a.rttm are both about a: remove one"):
        score_files(tmp_path / "ref", tmp_path / "hyp")


def test_table_is_markdown_and_json_has_raw_seconds() -> None:
    result = score({"a|b": TWO, "c": TWO}, {"a|b": TWO_LATE, "c": TWO})
    table = [line for line in format_table(result).splitlines() if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    assert [line.split(" | ")[0].strip("| ") for line in table[2:]] == [
        "a\\|b",
        "c",
        "pooled (2)",
        "mean of recordings (2)",
    ]
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert values["pooled"]["confusion_s"] == pytest.approx(0.2)
    assert values["files"][0]["errors"]["speech_s"] == pytest.approx(20)
    assert values["der_interval_95"] == list(bootstrap_interval(result.errors) or ())


def scored_ms(true: np.ndarray, collar_ms: int, skip_overlap: bool) -> np.ndarray:
    """Which milliseconds of a reference `[speakers, ms]` are scored."""
    edges = np.nonzero(np.diff(np.pad(true, ((0, 0), (1, 1))), axis=1))[1]
    scored = np.ones(true.shape[1], dtype=bool)
    for edge in edges:
        scored[max(0, edge - collar_ms) : edge + collar_ms] = False
    return scored & (true.sum(axis=0) < 2) if skip_overlap else scored


def counted_der(
    reference: list[Turn],
    hypothesis: list[Turn],
    collar_ms: int = 0,
    skip_overlap: bool = False,
    *,
    mapped_within_collars: bool = True,
) -> tuple[float, float]:
    """Error and speech in seconds, counted millisecond by millisecond for the best of all label maps."""
    true, found = on_milliseconds(reference, "ABC"), on_milliseconds(hypothesis, "xyz")
    scored = scored_ms(true, collar_ms, skip_overlap)
    num_right = []  # in all milliseconds, and in those that are scored
    for order in itertools.permutations(range(3)):
        right = (true & found[list(order)]).sum(axis=0)
        num_right.append((right.sum(), right[scored].sum()))
    best = max(scored_right for _, scored_right in num_right) if mapped_within_collars else max(num_right)[1]
    num_true, num_found = true.sum(axis=0)[scored], found.sum(axis=0)[scored]
    return (np.maximum(num_true, num_found).sum() - best) / 1000, num_true.sum() / 1000


@pytest.mark.parametrize(
    ("collar_ms", "skip_overlap"), [(0, False), (100, False), (250, False), (0, True), (100, True)]
)
@settings(max_examples=50, deadline=None)
@given(some_turns("ABC"), some_turns("xyz"))
def test_equals_counting_milliseconds(
    collar_ms: int, skip_overlap: bool, reference: list[Turn], hypothesis: list[Turn]
) -> None:
    uem, collar_s = {"a": [(0.0, 3.0)]}, collar_ms / 1000
    result = score({"a": reference}, {"a": hypothesis}, uem, collar_s=collar_s, skip_overlap=skip_overlap)
    assert (result.pooled.error_s, result.pooled.speech_s) == pytest.approx(
        counted_der(reference, hypothesis, collar_ms, skip_overlap), abs=1e-6
    )


def test_labels_are_mapped_where_it_is_scored() -> None:
    """md-eval maps labels before it leaves collars out: x has 0.75 s of A in all, but 0.25 s between the collars."""
    reference, hypothesis = [Turn(0, 1.6, "A")], [Turn(0, 0.5, "x"), Turn(0.5, 1.0, "y"), Turn(1.35, 1.6, "x")]
    result = score({"a": reference}, {"a": hypothesis}, {"a": [(0.0, 3.0)]}, collar_s=0.25)
    ours, theirs = (counted_der(reference, hypothesis, 250, mapped_within_collars=own) for own in (True, False))
    assert (result.pooled.error_s, result.pooled.speech_s) == pytest.approx(ours)
    assert ours == pytest.approx((0.6, 1.1))
    assert theirs == pytest.approx((0.85, 1.1))


def test_touching_turns_of_one_speaker_have_no_collar_between_them() -> None:
    """The other difference from md-eval, which would leave out 0.5 s more here."""
    halves = [Turn(0, 1, "A"), Turn(1, 2, "A")]
    result = score({"a": halves}, {"a": []}, {"a": [(0.0, 3.0)]}, collar_s=0.25)
    assert parts(result.pooled) == (1.5, 0, 0, 1.5)
