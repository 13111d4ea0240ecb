"""Causes worked out by hand, counted millisecond by millisecond, and that they add up to the parts of the DER."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diarnorm.evaluation import causes, scoring
from diarnorm.evaluation.causes import Causes, find_causes
from diarnorm.evaluation.run import clip
from diarnorm.evaluation.scores import FileScore
from diarnorm.evaluation.scoring import score, score_recording
from diarnorm.turns import Turn
from tests.evalset import turns
from tests.randomturns import LENGTH_MS, on_milliseconds, some_turns

Spans = Sequence[tuple[str, float, float]]
KINDS = ("miss", "confusion", "false_alarm")


def sums(found: Causes) -> tuple[float, ...]:
    """Seconds of miss, confusion and false alarm."""
    plain = asdict(found)
    return tuple(sum(value for name, value in plain.items() if name.startswith(kind)) for kind in KINDS)


def errors(file: FileScore) -> tuple[float, ...]:
    return tuple(getattr(file.errors, f"{kind}_s") for kind in KINDS)


def check(
    reference: Spans, hypothesis: Spans, expected: dict[str, float], region: tuple[float, float] = (0.0, 30.0)
) -> None:
    """Seconds that the DER's mapping and the region give, without those that are zero."""
    file = score_recording("a", turns(reference), turns(hypothesis), [region], 0.0, False)
    assert {name.removesuffix("_s"): value for name, value in asdict(file.causes).items() if value} == expected
    assert sums(file.causes) == pytest.approx(errors(file), abs=1e-9)


CASES: dict[str, tuple[Spans, Spans, dict[str, float]]] = {
    "missed in overlap, though B is found later only": (
        [("A", 0, 10), ("B", 8, 12)],
        [("x", 0, 10), ("y", 10, 12)],
        {"miss_overlap": 2},
    ),
    "missed and never found, though at an edge": (
        [("A", 0, 10), ("B", 12, 15)],
        [("x", 0, 10)],
        {"miss_never_found": 3},
    ),
    "missed and found late, at an edge too": ([("A", 0, 10)], [("x", 3, 10)], {"miss_late": 3}),
    "missed at an edge, and in the middle": (
        [("A", 0, 10)],
        [("x", 0, 5), ("x", 6, 9.5)],
        {"miss_edge": 0.25, "miss_rest": 1.25},
    ),
    "where another goes on at once there is no edge": (
        [("A", 0, 10), ("B", 10, 20)],
        [("x", 0, 9.5), ("y", 10, 20)],
        {"miss_rest": 0.5},
    ),
    "confused in overlap": (
        [("A", 0, 10), ("B", 8, 14)],
        [("x", 0, 10), ("z", 8, 10), ("y", 10, 14)],
        {"confusion_overlap": 2},
    ),
    "confused and never found": ([("A", 0, 10), ("B", 10, 13)], [("x", 0, 13)], {"confusion_never_found": 3}),
    "confused and found late": (
        [("A", 0, 10), ("B", 10, 20)],
        [("x", 0, 13), ("y", 13, 20)],
        {"confusion_late": 3},
    ),
    "a label that was somebody else's before is late, too": (
        [("A", 0, 10), ("B", 10, 20)],
        [("y", 0, 1), ("x", 1, 13), ("y", 13, 20)],
        {"confusion_late": 4},
    ),
    "confused with somebody known": (
        [("A", 0, 10), ("B", 10, 20), ("A", 20, 25)],
        [("x", 0, 10), ("y", 10, 23), ("x", 23, 25)],
        {"confusion_rest": 3},
    ),
    "under a second label": ([("A", 0, 10)], [("x", 0, 7), ("z", 7, 10)], {"confusion_rest": 3}),
    "too many speakers, at an edge too": (
        [("A", 0, 10)],
        [("x", 0, 10), ("z", 4, 6), ("z", 9.875, 10)],
        {"false_alarm_speech": 2.125},
    ),
    "speech in silence, and at its edges": (
        [("A", 5, 10)],
        [("x", 4, 11)],
        {"false_alarm_edge": 0.5, "false_alarm_silence": 1.5},
    ),
    "two labels in silence": ([("A", 0, 5)], [("x", 0, 5), ("x", 8, 9), ("y", 8, 9)], {"false_alarm_silence": 2}),
    "nothing wrong": ([("A", 0, 10), ("B", 8, 12)], [("x", 0, 10), ("y", 8, 12)], {}),
    "all in silence": ([], [("x", 2, 3)], {"false_alarm_silence": 1}),
    "all missed": ([("A", 0, 10)], [], {"miss_never_found": 10}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_cause(case: str) -> None:
    check(*CASES[case])


def test_one_who_was_found_before_the_scored_region_is_not_late() -> None:
    """From 20 to 22 s A is missed: a quarter of a second at an edge; their label was right from 0 to 5 s."""
    reference, hypothesis = [("A", 0, 10), ("A", 20, 30)], [("x", 0, 5), ("x", 22, 30)]
    check(reference, hypothesis, {"miss_edge": 0.25, "miss_rest": 1.75}, (12.0, 30.0))


def test_the_end_of_the_region_is_no_edge() -> None:
    check([("A", 0, 30)], [("x", 0, 10), ("x", 11, 30)], {"miss_rest": 1}, (10.0, 20.0))


def test_noise_of_floats_finds_nobody_and_makes_no_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """B begins a trillionth of a second after A ends and before y ends: there is no edge, and B is found at 2 s."""
    at = 1.0 + 1e-12
    reference = [("A", 0, 1), ("B", at, 9)]
    hypothesis = [("x", 0, 0.9), ("y", 0.95, at + 1e-12), ("y", 2, 4), ("y", 5, 9)]

    def parts() -> list[float]:
        found = find_causes(turns(reference), turns(hypothesis), [(0.0, 9.0)], {"x": "A", "y": "B"})
        return [round(value, 9) for value in (found.miss_late_s, found.miss_edge_s, found.miss_rest_s)]

    assert parts() == [1.0, 0.0, 1.05]
    monkeypatch.setattr(causes, "SECOND_NS", 10**15)
    assert parts() == [0.0, 0.3, 1.75]


def test_a_collar_leaves_no_edges_and_skipped_overlaps_none() -> None:
    reference = {"a": turns([("A", 1, 10), ("B", 8, 12), ("A", 14, 18)])}
    hypothesis = {"a": turns([("x", 0, 9), ("y", 9, 12.125), ("x", 15, 18.125)])}
    (plain,) = score(reference, hypothesis, {"a": [(0.0, 20.0)]}).files
    assert (plain.causes.miss_overlap_s, plain.causes.miss_edge_s, plain.causes.miss_rest_s) == (2, 0.25, 0.75)
    assert (plain.causes.false_alarm_edge_s, plain.causes.false_alarm_silence_s) == (0.5, 0.75)
    (file,) = score(reference, hypothesis, {"a": [(0.0, 20.0)]}, collar_s=0.25, skip_overlap=True).files
    assert file.causes == Causes(miss_rest_s=0.75, false_alarm_silence_s=0.75)


def test_what_nobody_scores_has_no_causes() -> None:
    assert find_causes([], [], [], {}) == Causes()
    assert find_causes(turns([("A", 0, 1)]), [], [], {}) == Causes()


def test_a_wider_edge_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "EDGE_S", 0.3)
    with pytest.raises(AssertionError):
        test_each_cause("missed at an edge, and in the middle")
    with pytest.raises(AssertionError):
        test_each_cause("speech in silence, and at its edges")


# ---- against counting, and against the DER ---------------------------------------------------------------------------


def counted(reference: list[Turn], hypothesis: list[Turn], scored: range, speaker_of: dict[str, str]) -> Counter[str]:
    """Milliseconds by cause, one after the other."""
    true, labelled = on_milliseconds(reference, "ABC"), on_milliseconds(hypothesis, "xyz")
    speech = [False, *(true.sum(axis=0) > 0), False]
    edges = [at for at in range(LENGTH_MS + 1) if speech[at] != speech[at + 1]]
    found: set[str] = set()
    parts: Counter[str] = Counter()
    for at in range(LENGTH_MS):
        speakers = {name for name, active in zip("ABC", true[:, at], strict=True) if active}
        given = [name for name, active in zip("xyz", labelled[:, at], strict=True) if active]
        right = speakers & {speaker_of.get(label, "") for label in given}
        found |= right
        if at not in scored:
            continue
        near = any(edge - 250 <= at < edge + 250 for edge in edges)
        cause = "rest"
        if len(speakers) > 1:
            cause = "overlap"
        elif speakers - set(speaker_of.values()):
            cause = "never_found"
        elif speakers - found:
            cause = "late"
        parts[f"miss_{'edge' if cause == 'rest' and near else cause}_s"] += max(len(speakers) - len(given), 0)
        parts[f"confusion_{cause}_s"] += min(len(speakers), len(given)) - len(right)
        cause = "speech" if speakers else "edge" if near else "silence"
        parts[f"false_alarm_{cause}_s"] += max(len(given) - len(speakers), 0)
    return parts


@settings(max_examples=50)
@given(some_turns("ABC"), some_turns("xyz"), st.integers(0, 1500), st.integers(1, 3000))
def test_equals_counting_milliseconds(reference: list[Turn], hypothesis: list[Turn], start: int, length: int) -> None:
    scored, speaker_of = range(start, min(start + length, LENGTH_MS)), {"x": "A", "y": "B"}
    found = find_causes(reference, hypothesis, [(scored.start / 1000, scored.stop / 1000)], speaker_of)
    expected = counted(reference, hypothesis, scored, speaker_of)
    assert {name: round(1000 * value, 6) for name, value in asdict(found).items()} == {
        name: expected[name] for name in asdict(Causes())
    }


def assert_causes_add_up(
    reference: list[Turn], hypothesis: list[Turn], region: list[tuple[float, float]], collar_s: float, skip: bool
) -> None:
    file = score_recording("a", reference, hypothesis, region, collar_s, skip)
    assert sums(file.causes) == pytest.approx(errors(file), abs=1e-6)
    assert min(asdict(file.causes).values()) >= 0


@settings(max_examples=50)
@given(
    some_turns("ABC"),
    some_turns("xyz"),
    st.sampled_from([[(0.0, 3.0)], [(0.25, 1.001), (1.5, 2.75)]]),
    st.sampled_from([0.0, 0.07, 0.25]),
    st.booleans(),
)
def test_causes_add_up_to_the_parts_of_the_der(
    reference: list[Turn], hypothesis: list[Turn], region: list[tuple[float, float]], collar_s: float, skip: bool
) -> None:
    assert_causes_add_up(reference, hypothesis, region, collar_s, skip)


Change = Callable[[Sequence[Turn], Sequence[Turn], Any, Any], Causes]
MUTANTS: dict[str, Change] = {
    "all is scored": lambda ref, hyp, scored, speaker_of: find_causes(ref, hyp, [(0.0, 3.0)], speaker_of),
    "another mapping": lambda ref, hyp, scored, speaker_of: find_causes(ref, hyp, scored, {"x": "B", "y": "A"}),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_causes_of_something_else_do_not_add_up(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = turns([("A", 0, 1), ("B", 1, 2)]), turns([("x", 0, 1), ("y", 1, 2), ("z", 1.5, 3)])
    assert_causes_add_up(*example, [(0.0, 2.5)], 0.0, False)
    monkeypatch.setattr(scoring, "find_causes", MUTANTS[mutant])
    with pytest.raises(AssertionError):
        assert_causes_add_up(*example, [(0.0, 2.5)], 0.0, False)


def test_turns_cut_to_the_region_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        scoring,
        "find_causes",
        lambda ref, hyp, scored, speaker_of: find_causes(clip(ref, scored), clip(hyp, scored), scored, speaker_of),
    )
    with pytest.raises(AssertionError):
        test_one_who_was_found_before_the_scored_region_is_not_late()
    with pytest.raises(AssertionError):
        test_the_end_of_the_region_is_no_edge()
