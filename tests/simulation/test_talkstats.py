"""Counting conversations: against a mask of every millisecond, and by hand."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from diarnorm.simulation.planner import plan_conversation
from diarnorm.simulation.talkstats import count_talk, frame_power, read_talks, talk_statistics
from diarnorm.turns import Turn
from tests.voices import imagined_speech

BY_HAND = [
    Turn(1.0, 3.0, "a"),
    Turn(3.5, 4.0, "a"),  # after a pause of 0.5
    Turn(5.0, 8.0, "b"),  # after a gap of 1.0
    Turn(6.0, 6.5, "c"),  # within it
    Turn(7.0, 9.0, "a"),
    Turn(11.0, 12.0, "a"),  # a pause of 2.0: a spoke last
]


def test_by_hand() -> None:
    talk = count_talk(BY_HAND, [(0.0, 20.0)])
    assert talk.speech_s == pytest.approx(7.5)
    assert talk.overlap_s == pytest.approx(1.5)
    assert talk.num_speakers == 3
    assert talk.dominance == pytest.approx(5.5 / 9)
    assert talk.turns_s == pytest.approx([2, 0.5, 3, 0.5, 2, 1])
    assert talk.pauses_s == pytest.approx([0.5, 2.0])
    assert talk.gaps_s == pytest.approx([1.0])
    assert talk.overlaps_s == pytest.approx([0.5, 1.0])
    cropped = count_talk(BY_HAND, [(2.0, 5.5), (8.5, 20.0)])
    assert cropped.duration_s == 15.0
    assert cropped.turns_s == pytest.approx([1, 0.5, 0.5, 0.5, 1])
    assert cropped.gaps_s == pytest.approx([1.0])
    assert cropped.pauses_s == pytest.approx([0.5, 2.0])


TURNS = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60), st.sampled_from("abc")), max_size=12)


@given(TURNS, st.integers(0, 100), st.integers(1, 400))
def test_as_a_mask_says(drawn: list[tuple[int, int, str]], start: int, length: int) -> None:
    turns = [Turn(at / 100, (at + n) / 100, who) for at, n, who in drawn]
    mask = np.zeros((3, 600), dtype=bool)
    for at, n, who in drawn:
        mask["abc".index(who), at : at + n] = True
    mask = mask[:, start : start + length]
    talk = count_talk(turns, [(start / 100, (start + length) / 100)])
    assert talk.speech_s == pytest.approx(mask.any(0).sum() / 100)
    assert talk.overlap_s == pytest.approx((mask.sum(0) > 1).sum() / 100)
    assert talk.num_speakers == mask.any(1).sum()
    assert sum(talk.turns_s) == pytest.approx(mask.sum() / 100)
    spoken = np.flatnonzero(mask.any(0))
    silent = np.diff(spoken) - 1
    assert sorted(talk.pauses_s + talk.gaps_s) == pytest.approx(sorted(silent[silent > 0] / 100))
    if mask.any():
        assert talk.dominance == pytest.approx(mask.sum(1).max() / mask.sum())


def test_plans_and_their_turns_agree() -> None:
    for seed in range(5):
        plan = plan_conversation(imagined_speech(), seed=seed, duration_s=20, num_speakers=3)
        talk = count_talk(plan.turns(), [(0.0, 20.0)])
        mask = np.zeros((plan.num_speakers, plan.num_samples), dtype=bool)
        for slot, start, end in plan.segments:
            mask[slot, start:end] = True
        assert talk.speech_s == pytest.approx(mask.any(0).sum() / 16_000, abs=1e-6)
        assert talk.overlap_s == pytest.approx((mask.sum(0) > 1).sum() / 16_000, abs=1e-6)


def test_levels_are_of_whole_frames_with_and_without_speech() -> None:
    samples = np.full(16_000 * 4, 0.001, dtype=np.float32)
    samples[16_000:32_000] = 0.1
    talk = count_talk([Turn(1.0, 2.0, "a")], [(0.0, 4.0)], frame_power(samples))
    assert talk.level_db == pytest.approx(-20, abs=0.01)
    assert talk.quiet_level_db == pytest.approx(-60, abs=0.01)
    assert count_talk([], [(0.0, 4.0)], frame_power(samples)).level_db is None
    assert count_talk([Turn(0.0, 4.0, "a")], [(0.0, 4.0)], frame_power(samples)).quiet_level_db is None


def test_a_set_is_pooled_over_its_time() -> None:
    found = talk_statistics([count_talk(BY_HAND, [(0.0, 20.0)]), count_talk([Turn(0.0, 10.0, "x")], [(0.0, 10.0)])])
    assert found.num_conversations == 2
    assert found.speech_share == pytest.approx(17.5 / 30)
    assert found.overlap_share == pytest.approx(1.5 / 17.5)
    assert found.turns_per_minute == pytest.approx(14)
    assert found.num_speakers == [0, 1, 0, 1]
    assert found.dominance_quantiles == pytest.approx([0.611] * 5)
    assert found.turn_quantiles_s[2] == pytest.approx(2.0)
    assert found.level_quantiles_db == []
    with pytest.raises(ValueError, match="no conversations to count"):
        talk_statistics([])


def test_references_are_read_with_the_audio_beside_them(tmp_path: Path) -> None:
    (tmp_path / "r1.rttm").write_text(
        "SPEAKER r1 1 1.0 2.0 <NA> <NA> a <NA> <NA>\nSPEAKER r1 1 4.0 1.0 <NA> <NA> b <NA> <NA>\n"
    )
    (tmp_path / "r2.rttm").write_text("SPEAKER r2 1 0.0 3.0 <NA> <NA> a <NA> <NA>\n")
    soundfile.write(tmp_path / "r1.flac", np.full(8 * 22_050, 0.1), 22_050)
    first, second = read_talks(tmp_path)
    assert first.duration_s == pytest.approx(8.0)
    assert first.level_db == pytest.approx(-20, abs=0.1)
    assert first.gaps_s == [1.0]
    assert (second.duration_s, second.level_db) == (3.0, None)
    (tmp_path / "all.uem").write_text("r1 1 0.0 4.5\nr2 1 0 2\n")
    first, second = read_talks(tmp_path, tmp_path / "all.uem")
    assert (first.duration_s, first.turns_s) == (4.5, [2.0, 0.5])
    (tmp_path / "one.uem").write_text("r1 1 0.0 4.5\n")
    with pytest.raises(ValueError, match=r"one\.uem says nothing about r2"):
        read_talks(tmp_path, tmp_path / "one.uem")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no RTTM files with recordings in them"):
        read_talks(tmp_path / "empty")
