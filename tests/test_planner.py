"""Plans: seeded, frozen, and like conversations."""

import numpy as np
import pytest

from diarnorm.planner import SimulatorConfig, plan_conversation, plan_statistics
from diarnorm.turntaking import TurnTakingConfig
from tests.voices import imagined_speech

SPEECH = imagined_speech()
GOLDEN = ["6d760af85cbc", "4449d4225e2d", "b08349d59c3b"]


def test_same_seed_same_plan_and_another_seed_another() -> None:
    plan = plan_conversation(SPEECH, seed=[1, 2], duration_s=20)
    assert plan.digest() == plan_conversation(SPEECH, seed=[1, 2], duration_s=20).digest()
    assert plan.digest() != plan_conversation(SPEECH, seed=[1, 3], duration_s=20).digest()


def test_plans_have_not_changed() -> None:
    """Data of a run that is resumed, or of models compared, must not change unnoticed."""
    digests = [plan_conversation(SPEECH, seed=seed, duration_s=20).digest()[:12] for seed in range(3)]
    assert digests == GOLDEN


def test_conversations_are_like_conversations() -> None:
    plans = [plan_conversation(SPEECH, seed=[7, i], duration_s=30, num_speakers=3) for i in range(200)]
    found = plan_statistics(plans)
    assert 0.05 < found.overlap_share < 0.15
    assert found.overlap_quantiles[-1] > 0.2
    assert 0.65 < found.speech_share < 0.9
    assert 1.0 < found.turn_quantiles_s[2] < 3.0
    assert found.pause_quantiles_s[-1] > 2.0
    low, high = SimulatorConfig().channel.level_db
    assert low < found.level_quantiles_db[0] < found.level_quantiles_db[-1] < high
    assert sum(found.num_speakers) == 200
    assert found.num_speakers[3] > 140  # some stay silent


def test_statistics_agree_with_a_conversation_counted_by_hand() -> None:
    plan = plan_conversation(SPEECH, seed=3, duration_s=20, num_speakers=2)
    found = plan_statistics([plan])
    mask = np.zeros((2, plan.num_samples), dtype=bool)
    for slot, start, end in plan.segments:
        mask[slot, start:end] = True
    anybody = mask.any(0)
    assert found.speech_share == pytest.approx(anybody.mean(), abs=0.02)
    assert found.overlap_share == pytest.approx(mask.all(0).sum() / anybody.sum(), abs=0.02)
    spoken = np.flatnonzero(anybody)
    gaps = np.diff(spoken) - 1
    assert found.pause_quantiles_s[2] == pytest.approx(np.median(gaps[gaps > 0]) / 16_000, abs=1e-3)


def test_without_interruptions_and_backchannels_nobody_overlaps() -> None:
    config = SimulatorConfig(turns=TurnTakingConfig(transitions=(0.5, 0.5, 0, 0), transition_concentration=1e4))
    plans = [plan_conversation(SPEECH, config, i, duration_s=30, num_speakers=3) for i in range(20)]
    assert plan_statistics(plans).overlap_share < 0.005


def test_speakers_differ_and_share_a_source_or_gender_when_told_to() -> None:
    one_source = SimulatorConfig(same_source_probability=1.0, same_gender_probability=0.0)
    one_gender = SimulatorConfig(same_source_probability=0.0, same_gender_probability=1.0)
    sources, genders, mixed = [], [], []
    for seed in range(30):
        plan = plan_conversation(SPEECH, one_source, seed, duration_s=20, num_speakers=4)
        assert len(set(plan.speaker)) == plan.num_speakers
        sources.append(len(set(SPEECH.speaker_source[plan.speaker])))
        plan = plan_conversation(SPEECH, one_gender, seed, duration_s=20, num_speakers=4)
        genders.append(len({SPEECH.speaker_gender[i] for i in plan.speaker}))
        mixed.append(len(set(SPEECH.speaker_source[plan.speaker])))
    assert set(sources) == {1}
    assert set(genders) == {1}
    assert max(mixed) == 2


def test_a_voice_at_another_speed_is_another_class() -> None:
    plan = plan_conversation(SPEECH, SimulatorConfig(speed_probability=1.0), 5, num_speakers=4)
    np.testing.assert_array_equal(plan.speaker_class, plan.speaker * 3 + plan.factor)
    assert len(set(plan.factor)) > 1
    natural = plan_conversation(SPEECH, SimulatorConfig(speed_probability=0.0), 5, num_speakers=4)
    assert set(natural.factor) == {1}


def test_padding_widens_the_reference() -> None:
    plain = plan_conversation(SPEECH, SimulatorConfig(close_gap_s=0.0), 4)
    closed = plan_conversation(SPEECH, SimulatorConfig(close_gap_s=0.5), 4)
    padded = plan_conversation(SPEECH, SimulatorConfig(close_gap_s=0.5, pad_s=0.1), 4)
    shares = [plan.activity().sum() for plan in (plain, closed, padded)]
    assert shares == sorted(shares)
    assert len(set(shares)) == 3
    np.testing.assert_array_equal(plain.pieces.start, padded.pieces.start)  # the same conversation


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_speakers": 9}, "num_speakers is 9; the speech allows 1 to 8"),
        ({"num_speakers": 0}, "num_speakers is 0"),
        ({"duration_s": 0.05}, r"at least one frame of 0\.08 s"),
    ],
)
def test_impossible_requests_are_named(kwargs: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan_conversation(SPEECH, **kwargs)
