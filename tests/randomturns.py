"""Turns on whole milliseconds within three seconds, for tests of properties, and who speaks in each millisecond."""

import numpy as np
from hypothesis import strategies as st

from diarnorm.turns import Turn

LENGTH_MS = 3000


def some_turns(labels: str) -> st.SearchStrategy[list[Turn]]:
    """Up to eight turns of these speakers, in any order, also of one speaker over another's or their own."""
    times = st.tuples(st.integers(0, LENGTH_MS - 10), st.integers(5, 900))
    turn = st.builds(
        lambda t, label: Turn(t[0] / 1000, min(t[0] + t[1], LENGTH_MS) / 1000, label),
        times,
        st.sampled_from(labels),
    )
    return st.lists(turn, max_size=8)


def on_milliseconds(turns: list[Turn], labels: str) -> np.ndarray:
    """Ones where a speaker (row) talks in a millisecond (column)."""
    active = np.zeros((len(labels), LENGTH_MS), dtype=int)
    for turn in turns:
        active[labels.index(turn.speaker), round(turn.start * 1000) : round(turn.end * 1000)] = 1
    return active
