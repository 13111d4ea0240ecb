"""Plans: seeded, frozen, and like conversations."""

import dataclasses

import numpy as np
import pytest

from diarnorm.simulation.acoustics import ChannelConfig, RoomConfig
from diarnorm.simulation.conversation import SPEECH as SPEECH_BANK
from diarnorm.simulation.conversation import Plan, aside
from diarnorm.simulation.noises import NoiseConfig
from diarnorm.simulation.planner import SimulatorConfig, persons, plan_conversation
from diarnorm.simulation.talkstats import TalkStatistics, count_talk, talk_statistics
from diarnorm.simulation.turntaking import Silence, TurnTakingConfig
from tests.voices import imagined_speech

SPEECH = imagined_speech()
GOLDEN = ["6d760af85cbc", "4449d4225e2d", "b08349d59c3b"]


def statistics_of(plans: list[Plan]) -> TalkStatistics:
    return talk_statistics([count_talk(plan.turns(), [(0.0, plan.num_samples / 16_000)]) for plan in plans])


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
    found = statistics_of(plans)
    assert 0.05 < found.overlap_share < 0.15
    assert found.overlap_quantiles[-1] > 0.2
    assert 0.65 < found.speech_share < 0.9
    assert 1.0 < found.turn_quantiles_s[2] < 3.0
    assert found.gap_quantiles_s[-1] > 2.0
    low, high = SimulatorConfig().channel.level_db
    assert all(low < float(plan.channel.level_db) < high for plan in plans)
    assert sum(found.num_speakers) == 200
    assert found.num_speakers[3] > 140  # some stay silent


def test_statistics_agree_with_a_conversation_counted_by_hand() -> None:
    plan = plan_conversation(SPEECH, seed=3, duration_s=20, num_speakers=2)
    found = statistics_of([plan])
    mask = np.zeros((2, plan.num_samples), dtype=bool)
    for slot, start, end in plan.segments:
        mask[slot, start:end] = True
    anybody = mask.any(0)
    assert found.speech_share == pytest.approx(anybody.mean(), abs=0.02)
    assert found.overlap_share == pytest.approx(mask.all(0).sum() / anybody.sum(), abs=0.02)


def test_without_interruptions_and_backchannels_nobody_overlaps() -> None:
    config = SimulatorConfig(turns=TurnTakingConfig(transitions=(0.5, 0.5, 0, 0), transition_concentration=1e4))
    plans = [plan_conversation(SPEECH, config, i, duration_s=30, num_speakers=3) for i in range(20)]
    assert statistics_of(plans).overlap_share < 0.005


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


def test_additions_that_are_not_drawn_leave_the_plan_as_it_was() -> None:
    """Every addition has a generator of its own: configured but not met, it moves no other draw."""
    config = SimulatorConfig(
        same_person=("s0/s1", "nobody/s2"),
        noise=NoiseConfig(background_probability=1e-12),
        channel=ChannelConfig(drift_probability=1e-12, a_law_probability=1e-12, hum_switch_probability=1e-12),
        turns=TurnTakingConfig(silences=(Silence(1000.0, 5.0),)),
    )
    pairs = 0
    for seed in range(12):
        plain, added = (plan_conversation(SPEECH, c, seed, duration_s=20) for c in (None, config))
        met = {0, 1} <= set(plain.speaker)
        pairs += met
        if not met:
            assert added.digest() == plain.digest()
    assert pairs < 10
    assert SimulatorConfig().rooms == RoomConfig(measured=())


def test_speakers_who_may_be_one_person_never_meet() -> None:
    config = SimulatorConfig(same_person=("s0/s4", "s4/s2", "s1/s3"), same_source_probability=0.7)
    person = persons(SPEECH, config.same_person)
    assert len({person[i] for i in (0, 2, 4)}) == 1
    assert len(np.unique(person)) == 5
    heard = set()
    for seed in range(80):
        plan = plan_conversation(SPEECH, config, seed, duration_s=8, num_speakers=2 + seed % 3)
        assert len(set(person[plan.speaker])) == plan.num_speakers
        heard |= set(plan.speaker)
    assert heard == set(range(8))
    met = [set(plan_conversation(SPEECH, seed=seed, duration_s=8, num_speakers=4).speaker) for seed in range(80)]
    assert any({0, 4} <= speakers for speakers in met)  # they do without the pairs
    in_manifest = dataclasses.replace(SPEECH, same_person=(("s0", "s4"),))
    for seed in range(80):
        assert not {0, 4} <= set(plan_conversation(in_manifest, seed=seed, duration_s=8, num_speakers=4).speaker)
    with pytest.raises(ValueError, match="num_speakers is 6; the speech allows 1 to 5"):
        plan_conversation(SPEECH, config, num_speakers=6)


def test_nobody_speaks_in_a_silence_and_somebody_right_after() -> None:
    silences = (Silence(40.0, 20.0), Silence(10.0, 5.0))
    config = SimulatorConfig(turns=TurnTakingConfig(silences=silences), pad_s=0.0, close_gap_s=0.0)
    last_ends = []
    for seed in range(20):
        plan = plan_conversation(SPEECH, config, seed, duration_s=80, num_speakers=3)
        turns = plan.turns()
        for start, end in ((40.0, 60.0), (10.0, 15.0)):
            assert all(turn.end <= start or turn.start >= end for turn in turns)
            spoken = plan.pieces.row < plan.num_speakers
            first, length = plan.pieces.start[spoken] / 16_000, plan.pieces.length[spoken] / 16_000
            assert ((first + length <= start) | (first >= end)).all()
        assert min(turn.start for turn in turns if turn.start >= 60.0) < 60.5
        last_ends.append(max((turn.end for turn in turns if turn.start < 40.0), default=0.0))
    assert np.median(last_ends) > 35.0  # until then they talk


def test_background_talk_is_of_others_with_pauses_and_not_in_the_reference() -> None:
    config = SimulatorConfig(same_person=("s0/s1",), noise=NoiseConfig(quiet_probability=0, background_probability=1.0))
    for seed in range(20):
        plain = plan_conversation(SPEECH, SimulatorConfig(noise=NoiseConfig(quiet_probability=0)), seed, num_speakers=2)
        plan = plan_conversation(SPEECH, config, seed, num_speakers=2)
        rows = plan.pieces.row >= plan.num_speakers
        own = rows & (plan.pieces.bank == SPEECH_BANK) & (plan.pieces.row == plan.num_rows - 1)
        assert own.any()
        copy = np.searchsorted(SPEECH.offset.T.reshape(-1), plan.pieces.offset[own], side="right") - 1
        talking = set(SPEECH.speaker[copy // SPEECH.num_factors].tolist())
        person = persons(SPEECH, config.same_person)
        assert not set(person[list(talking)]) & set(person[plan.speaker])
        if plan.speaker.tolist() == plain.speaker.tolist():
            np.testing.assert_array_equal(plan.segments, plain.segments)


def test_generators_for_additions_need_pcg64() -> None:
    with pytest.raises(ValueError, match="plans are drawn by PCG64, got MT19937"):
        aside(np.random.Generator(np.random.MT19937(0)), 1)


def test_senseless_configurations_are_named() -> None:
    for pair in ("anna", "anna/", "a/b/c"):
        with pytest.raises(ValueError, match="give two speakers' names with a / between them"):
            SimulatorConfig(same_person=(pair,))
    with pytest.raises(ValueError, match=r"a silence has length_s=-1.0; give seconds, 0 or more"):
        Silence(3.0, -1.0)
    with pytest.raises(ValueError, match="matches no folder of the noise clips"):
        plan_conversation(SPEECH, SimulatorConfig(noise=NoiseConfig(quiet_probability=0, people=("laugh*",))))
