"""Insertions move samples, turns and events together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diarnorm.robustness import sound as subject
from diarnorm.robustness.sound import Sound, insert, merge_stretches, spoken, spread
from diarnorm.turns import Turn

RATE = 16_000


def labels(sound: Sound, names: tuple[str, ...]) -> np.ndarray:
    """[samples, names] who speaks."""
    own = [spoken(len(sound.samples), [turn for turn in sound.turns if turn.speaker == name]) for name in names]
    return np.stack(own, axis=1)


def check_insertion(sound: Sound, places: list[int], filling: np.ndarray) -> Sound:
    """Against `np.insert` on samples and on labels of each sample."""
    at = np.repeat(places, len(filling))
    out = insert(sound, places, filling)
    np.testing.assert_array_equal(out.samples, np.insert(sound.samples, at, np.tile(filling, len(places))))
    expected = np.insert(labels(sound, ("a", "b")), at, False, axis=0)  # nobody speaks in what was put in
    np.testing.assert_array_equal(labels(out, ("a", "b")), expected)
    marked = np.insert(spoken(len(sound.samples), [Turn(*e, "") for e in sound.events]), at, True)
    np.testing.assert_array_equal(spoken(len(out.samples), [Turn(*e, "") for e in out.events]), marked)
    return out


def example() -> Sound:
    samples = np.arange(4 * RATE, dtype=np.float32)
    turns = (Turn(0.5, 1.5, "a"), Turn(1.0, 3.0, "b"), Turn(3.0, 4.0, "a"))
    return Sound(samples, turns, events=((0.25, 1.25),))


@given(
    places=st.lists(st.integers(0, 4 * RATE), min_size=1, max_size=4, unique=True).map(sorted),
    length=st.integers(1, RATE),
)
def test_insertions_are_those_of_numpy(places: list[int], length: int) -> None:
    check_insertion(example(), places, np.full(length, -1.0))


def test_a_turn_is_cut_in_two_and_its_speech_stays() -> None:
    out = check_insertion(example(), [2 * RATE, 3 * RATE], np.zeros(RATE))
    expected = [(0.5, 1.5, "a"), (1.0, 2.0, "b"), (3.0, 4.0, "b"), (5.0, 6.0, "a")]
    assert [(turn.start, turn.end, turn.speaker) for turn in out.turns] == expected
    assert out.inserted == ((2.0, 3.0), (4.0, 5.0))
    assert out.events == ((0.25, 1.25), (2.0, 3.0), (4.0, 5.0))
    again = check_insertion(out, [round(2.5 * RATE)], np.zeros(RATE))
    assert again.inserted == ((2.0, 4.0), (5.0, 6.0))


@pytest.mark.parametrize("shift", [(0.0, 0.0), (-1.0, -1.0)], ids=["kept", "backwards"])
def test_a_wrong_shift_is_noticed(shift: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    right = subject._around

    def wrong(stretch: tuple[float, float], at_s: float, length_s: float) -> list[tuple[float, float]]:
        if stretch[0] >= at_s:
            return [(stretch[0] + shift[0] * length_s, stretch[1] + shift[1] * length_s)]
        return right(stretch, at_s, length_s)

    monkeypatch.setattr(subject, "_around", wrong)
    with pytest.raises(AssertionError):
        check_insertion(example(), [2 * RATE], np.zeros(RATE))


def test_stretches_are_joined() -> None:
    assert merge_stretches([(3.0, 4.0), (0.0, 1.0), (1.0, 2.0), (3.5, 3.75)]) == ((0.0, 2.0), (3.0, 4.0))
    assert merge_stretches([]) == ()


@given(lengths=st.lists(st.integers(1, 900), max_size=9), num_samples=st.integers(0, 10_000), seed=st.integers(0, 99))
def test_places_lie_in_parts_of_their_own(lengths: list[int], num_samples: int, seed: int) -> None:
    places = spread(num_samples, lengths, np.random.default_rng(seed))
    part = num_samples / max(1, len(lengths))
    for number, ((start, end), length) in enumerate(zip(places, lengths, strict=True)):
        assert int(part * number) <= start
        assert end <= num_samples
        assert end - start == length or end == num_samples
        if length <= part:
            assert end <= part * (number + 1) + 1
