"""Label switches and recognition after pauses, worked out by hand."""

import random

import pytest

from diarnorm.evaluation.labels import LabelScore, label_score, label_switches, reidentified
from diarnorm.turns import Turn


def turns(*spans: tuple[str, float, float]) -> list[Turn]:
    return [Turn(start, end, who) for who, start, end in spans]


def test_a_switch_is_another_dominant_label_than_in_the_turn_before() -> None:
    reference = turns(("A", 0, 10), ("B", 10, 20), ("A", 20, 30), ("B", 30, 40), ("A", 40, 50))
    steady = turns(("x", 0, 10), ("y", 10, 20), ("x", 20, 30), ("y", 30, 40), ("x", 40, 50))
    assert label_switches(reference, steady) == 0
    # A: x, y (6 of 10 s), x; B: y, y
    once_other = turns(("x", 0, 10), ("y", 10, 20), ("x", 20, 24), ("y", 24, 40), ("x", 40, 50))
    assert label_switches(reference, once_other) == 2
    # A: x, x, z; B: y, nobody
    new_at_the_end = turns(("x", 0, 10), ("y", 10, 20), ("x", 20, 30), ("z", 40, 50))
    assert label_switches(reference, new_at_the_end) == 1
    # A: x, missed, z: the turn that nobody covers is passed over, the change is seen
    missed_between = turns(("x", 0, 10), ("y", 10, 20), ("z", 40, 50))
    assert label_switches(reference, missed_between) == 1
    assert label_switches(reference, []) == label_switches([], steady) == 0
    assert label_switches(reference, turns(("one", 0, 50))) == 0


def test_what_others_say_meanwhile_does_not_count() -> None:
    # B's 20-23 is inside A's turn: nobody speaks alone there but A, before and after.
    reference = turns(("B", 0, 10), ("A", 15, 30), ("B", 20, 23), ("B", 40, 45))
    hypothesis = turns(("y", 0, 10), ("x", 15, 30), ("y", 40, 45))
    assert label_switches(reference, hypothesis) == 0
    # In A's 10-20 B joins from 13 on; alone A has x for 3 s, although y covers 7 s of the turn.
    joined = turns(("A", 0, 10), ("B", 13, 20), ("A", 10, 20), ("A", 30, 40))
    assert label_switches(joined, turns(("x", 0, 13), ("y", 13, 20), ("x", 30, 40))) == 0


def test_turns_of_one_speaker_that_touch_are_one() -> None:
    reference = turns(("A", 0, 5), ("A", 5, 10), ("A", 8, 12))
    assert label_switches(reference, turns(("x", 0, 5), ("y", 5, 12))) == 0
    assert label_switches(turns(("A", 0, 5), ("A", 5.5, 12)), turns(("x", 0, 5), ("y", 5, 12))) == 1


LONG_PAUSE = turns(("A", 0, 10), ("B", 10, 20), ("C", 20, 25), ("A", 325, 330), ("B", 330, 340), ("D", 340, 350))
BEFORE = turns(("x", 0, 10), ("y", 10, 20), ("z", 20, 25))


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([("x", 325, 330), ("y", 330, 340), ("w", 340, 350)], (2, 2)),  # C does not come back, D was not there
        ([("x", 325, 330), ("new", 330, 340)], (1, 2)),
        ([("y", 325, 330), ("x", 330, 340)], (0, 2)),
        ([("x", 325, 340)], (0, 2)),  # one label for both is nobody's
        ([("x", 325, 327), ("new", 327, 330), ("y", 330, 340)], (1, 2)),  # A is new for 3 of 5 s
        ([], (0, 2)),
    ],
)
def test_who_is_recognised_after_a_pause(after: list[tuple[str, float, float]], expected: tuple[int, int]) -> None:
    hypothesis = [*BEFORE, *turns(*after)]
    assert reidentified(LONG_PAUSE, hypothesis, 300) == expected
    assert reidentified(LONG_PAUSE, hypothesis, 300.5) == (0, 0)  # the pause is 300 s long


def test_everything_between_two_pauses_counts() -> None:
    reference = turns(("A", 0, 10), ("A", 100, 110), ("A", 120, 140), ("A", 300, 310))
    hypothesis = turns(("x", 0, 10), ("x", 100, 110), ("y", 120, 140), ("y", 300, 310))
    # Three parts: x; y for 20 of 30 s; y.
    assert reidentified(reference, hypothesis, 60) == (1, 2)
    assert reidentified(reference, hypothesis, 100) == (0, 1)
    assert reidentified(reference, hypothesis, 5) == (2, 3)


def test_somebody_missed_before_the_pause_cannot_be_recognised() -> None:
    reference = turns(("A", 0, 10), ("A", 400, 410))
    assert reidentified(reference, turns(("x", 400, 410)), 300) == (0, 1)
    assert reidentified(reference, [], 300) == (0, 1)
    assert reidentified([], [], 300) == (0, 0)


def test_scores_add_up_and_know_their_hours() -> None:
    after = turns(("x", 325, 330), ("new", 330, 340))
    score = label_score(LONG_PAUSE, [*BEFORE, *after], 1800.0, 300)
    assert score == LabelScore(1800.0, 1, 2, 1)
    assert score.switches_per_hour == 2.0
    assert score + score == LabelScore(3600.0, 2, 4, 2)
    assert (score + score).switches_per_hour == 2.0
    assert LabelScore().switches_per_hour is None


def on_a_grid(reference: list[Turn], hypothesis: list[Turn], num_seconds: int) -> int:
    """Switches counted second by second."""
    count = 0
    for who in {turn.speaker for turn in reference}:
        last, own = (
            None,
            [any(t.speaker == who and t.start <= s < t.end for t in reference) for s in range(num_seconds)],
        )
        votes: dict[str, int] = {}
        for s in range(num_seconds + 1):
            if s < num_seconds and own[s]:
                if not any(t.speaker != who and t.start <= s < t.end for t in reference):
                    for label in {t.speaker for t in hypothesis if t.start <= s < t.end}:
                        votes[label] = votes.get(label, 0) + 1
            elif votes:
                label = min(votes, key=lambda x: (-votes[x], x))
                count += last not in (None, label)
                last, votes = label, {}
    return count


def test_against_a_count_second_by_second() -> None:
    generator = random.Random(1)

    def some(labels: str, number: int) -> list[Turn]:
        starts = [generator.randrange(190) for _ in range(number)]
        return [Turn(s, s + generator.randrange(1, 10), generator.choice(labels)) for s in starts]

    counts = []
    for _ in range(30):
        reference, hypothesis = some("ABC", 30), some("xyz", 40)
        counts.append(label_switches(reference, hypothesis))
        assert counts[-1] == on_a_grid(reference, hypothesis, 200)
    assert sum(counts) > 100
