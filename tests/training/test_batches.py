"""Batches are functions of seed and step, follow the curriculum, and hold features of their samples."""

import dataclasses
import pickle

import pytest
import torch

from diarnorm.fbank import fbank_offline
from diarnorm.simulation.render import render
from diarnorm.simulation.speech import Speech
from diarnorm.training.batches import CurriculumStage, SimulatedBatches, fixed_set
from tests.voices import load_tree

STAGES = (
    CurriculumStage(0, crop_s=4.0, batch_size=3, max_speakers=2, speaker_probabilities=(0.5, 0.5)),
    CurriculumStage(10, crop_s=8.0, batch_size=2, max_speakers=4, speaker_probabilities=(0, 0, 0.5, 0.5)),
)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    return load_tree(tmp_path_factory.mktemp("speech"), num_speakers=6, num_utterances=2)


def batches_of(speech: Speech, seed: int = 1) -> SimulatedBatches:
    return SimulatedBatches(speech, seed=seed, num_steps=20, stages=STAGES)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_a_batch_depends_on_seed_and_step_alone(speech: Speech) -> None:
    batches = batches_of(speech)
    first = batches[5]
    _ = batches[6], torch.rand(3)
    assert same(first, batches[5])
    assert same(first, batches_of(speech)[5])
    assert same(first, pickle.loads(pickle.dumps(batches))[5])
    assert not same(first, batches[6])
    assert not same(first, batches_of(speech, seed=2)[5])


def test_stages_set_lengths_sizes_and_speakers(speech: Speech) -> None:
    batches = batches_of(speech)
    assert len(batches) == 20
    for step, (size, frames, slots) in {
        0: (3, 50, 2),
        9: (3, 50, 2),
        10: (2, 100, 4),
        19: (2, 100, 4),
    }.items():
        item = batches[step]
        assert item["mel"].shape == (size, 8 * frames, 80)
        assert item["mel"].dtype == torch.float16
        assert item["activity"].shape == (size, frames, slots)
        assert item["speaker_class"].shape == (size, slots)
        assert item["source"].shape == (size, frames)
        assert all(torch.isfinite(value).all() for value in item.values())
        absent = item["speaker_class"] < 0
        assert not item["activity"].amax(1)[absent].any()
        assert (item["activity"].amax(1)[~absent] > 0).all()
    assert max(plan.num_speakers for plan in batches.plans(0)) <= 2
    assert max(plan.num_speakers for step in range(10, 15) for plan in batches.plans(step)) > 2


def test_features_are_those_of_the_samples(speech: Speech) -> None:
    batches = batches_of(speech)
    samples = render(batches.plans(3), speech).samples
    torch.testing.assert_close(batches[3]["mel"], fbank_offline(samples).half(), atol=0, rtol=0)


def test_classes_of_a_batch_are_voices_of_the_speech(speech: Speech) -> None:
    classes = torch.cat([batches_of(speech)[step]["speaker_class"].reshape(-1) for step in range(10)])
    assert classes.max() < speech.num_classes
    assert len(classes.unique()) > 6


def test_fixed_sets_are_fixed_and_hold_their_reference(speech: Speech) -> None:
    first = fixed_set(speech, 3, seed=4, duration_s=5.0, num_speakers=(1, 2, 3))
    again = fixed_set(speech, 3, seed=4, duration_s=5.0, num_speakers=(1, 2, 3))
    assert torch.equal(first.samples, again.samples)
    assert first.turns == again.turns
    assert first.samples.shape == (3, 4 * 16_000 + 15_360)  # whole frames of 80 ms
    for i, (plan, turns) in enumerate(zip(first.plans, first.turns, strict=True)):
        assert 1 <= plan.num_speakers <= i + 1
        assert turns
        assert {turn.speaker for turn in turns} == set(plan.names)
        assert turns[-1].end <= 5.0
    assert not torch.equal(first.samples, fixed_set(speech, 3, seed=5, duration_s=5.0).samples)


def test_bad_curricula_and_steps_are_named(speech: Speech) -> None:
    late = dataclasses.replace(STAGES[0], from_step=3)
    for stages in ((late,), (STAGES[0], STAGES[0]), ()):
        with pytest.raises(ValueError, match="the first must start at 0"):
            SimulatedBatches(speech, seed=1, num_steps=5, stages=stages)
    with pytest.raises(ValueError, match="has 2 entries, max_speakers is 1"):
        CurriculumStage(max_speakers=1, speaker_probabilities=(0.5, 0.5))
    with pytest.raises(IndexError, match="step 20 of 20"):
        _ = batches_of(speech)[20]
