"""References of plans against a mask of every sample."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diarnorm.simulation.conversation import SPEECH, Piece, Plan, close_gaps, collect_pieces
from diarnorm.simulation.planner import plan_conversation
from diarnorm.timebase import FRAME_SAMPLES, SAMPLE_RATE
from tests.voices import imagined_speech


def sample_mask(plan: Plan) -> np.ndarray:
    """Bool [speakers, samples]: who is active, by the turns in seconds."""
    mask = np.zeros((plan.num_speakers, plan.num_samples), dtype=bool)
    for turn in plan.turns():
        slot = plan.names.index(turn.speaker)
        mask[slot, round(turn.start * SAMPLE_RATE) : round(turn.end * SAMPLE_RATE)] = True
    return mask


def test_activity_is_the_share_of_each_frame_covered_by_turns() -> None:
    speech = imagined_speech()
    for seed in range(10):
        plan = plan_conversation(speech, seed=seed, duration_s=12, num_speakers=3)
        mask = sample_mask(plan).reshape(plan.num_speakers, -1, FRAME_SAMPLES)
        np.testing.assert_allclose(plan.activity(), mask.mean(2).T, atol=1e-6)


def test_speakers_are_in_order_of_their_first_activity() -> None:
    speech = imagined_speech()
    for seed in range(10):
        plan = plan_conversation(speech, seed=seed, duration_s=20, num_speakers=4)
        first = [row.argmax() for row in sample_mask(plan)]
        assert first == sorted(first)


def test_source_names_the_utterance_of_the_only_speaker() -> None:
    speech = imagined_speech()
    known = 0
    for seed in range(10):
        plan = plan_conversation(speech, seed=seed, duration_s=20, num_speakers=3)
        activity, source = plan.activity(), plan.source()
        several = (activity > 0).sum(1) != 1
        assert (source[several] == -1).all()
        utterance, factor = source // speech.num_factors, source % speech.num_factors
        for frame in np.flatnonzero(source >= 0):
            slot = activity[frame].argmax()
            assert speech.speaker[utterance[frame]] == plan.speaker[slot]
            assert factor[frame] == plan.factor[slot]
        known += (source >= 0).sum() / max(1, (~several).sum())
    assert known / 10 > 0.8


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-30, 120), st.integers(1, 20)), max_size=8),
    st.integers(0, 12),
    st.integers(0, 4),
)
def test_gaps_are_closed_as_a_mask_says(runs: list[tuple[int, int, int]], gap: int, pad: int) -> None:
    segments = close_gaps(
        [(slot, start, start + length) for slot, start, length in runs],
        100,
        gap / SAMPLE_RATE,
        pad / SAMPLE_RATE,
    )
    assert segments[:, 1].tolist() == sorted(segments[:, 1])
    for slot in (0, 1):
        mask = np.zeros(300, dtype=bool)  # sample -100 is index 0
        for other, start, length in runs:
            if other == slot:
                mask[100 + start - pad : 100 + start + length + pad] = True
        silent = np.flatnonzero(np.diff(np.concatenate([[0], ~mask, [0]]).astype(int))).reshape(-1, 2)
        for start, end in silent[1:-1]:
            if end - start < gap:
                mask[start:end] = True
        found = np.zeros(100, dtype=bool)
        for _, start, end in segments[segments[:, 0] == slot]:
            found[start:end] = True
        np.testing.assert_array_equal(found, mask[100:200])


def test_pieces_are_cut_to_the_conversation() -> None:
    inside = Piece(0, SPEECH, 10, 500, 20, 4, 6, 7, 1.0)
    early = Piece(1, SPEECH, -15, 100, 20, 4, 30, 8, 0.5)
    late = Piece(2, SPEECH, 95, 100, 20, 4, 6, 9, 2.0)
    pieces = collect_pieces([inside, early, late, Piece(0, SPEECH, 200, 0, 5, 0, 0, 1, 1.0)], 100)
    assert pieces.start.tolist() == [10, 0, 95]
    assert pieces.offset.tolist() == [500, 115, 100]
    assert pieces.length.tolist() == [20, 5, 5]
    assert pieces.fade_in.tolist() == [4, 0, 4]
    assert pieces.fade_out.tolist() == [6, 5, 0]
    assert collect_pieces([], 100).start.shape == (0,)
