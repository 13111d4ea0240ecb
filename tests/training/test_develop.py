"""The development set: always the same, perfect answers score like the grid, and mistakes cost what they should."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diarnorm.checkpoint import Checkpoint
from diarnorm.evaluation.scoring import score
from diarnorm.memory import MemoryOutput
from diarnorm.simulation.speech import Speech, load_speech
from diarnorm.simulation.synthetic import write_tree
from diarnorm.stream import Diarizer
from diarnorm.timebase import frames_to_seconds
from diarnorm.training.develop import CHUNK, DevelopmentSet, turns_of
from diarnorm.turns import TurnConfig
from tests.tiny import make_model

AS_IT_IS = TurnConfig(min_on_frames=1, min_off_frames=0, pad_frames=0, confirm_frames=1)
"""Rules that turn every active frame into part of a turn, and nothing else."""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def speech(corpus: Path) -> Speech:
    return load_speech(corpus, split="dev", cache_dir=corpus.parent)


@pytest.fixture(scope="module")
def development(speech: Speech) -> DevelopmentSet:
    return DevelopmentSet.simulated(speech, 4, 12.0)


def true_activity(development: DevelopmentSet, num_slots: int = 6) -> Tensor:
    """The reference in whole frames, every edge moved to the nearest; slots in order of first activity."""
    activity = torch.zeros(len(development.reference), development.mel.shape[1] // 8, num_slots)
    for recording, turns in enumerate(development.reference.values()):
        slots = {name: slot for slot, name in enumerate(dict.fromkeys(turn.speaker for turn in turns))}
        for turn in turns:
            activity[recording, round(turn.start / 0.08) : round(turn.end / 0.08), slots[turn.speaker]] = 1.0
    return activity


def as_output(activity: Tensor) -> MemoryOutput:
    """What a memory would say that collects every active frame."""
    return MemoryOutput(activity, activity.cumsum(dim=1), activity, torch.zeros(activity.shape[:2]))


def test_the_set_depends_on_its_seed_alone(speech: Speech, development: DevelopmentSet) -> None:
    torch.rand(3)
    again = DevelopmentSet.simulated(speech, 4, 12.0)
    assert torch.equal(again.mel, development.mel)
    assert again.reference == development.reference
    other = DevelopmentSet.simulated(speech, 4, 12.0, seed=1)
    assert not torch.equal(other.mel, development.mel)
    assert other.reference != development.reference
    longer = DevelopmentSet.simulated(speech, 5, 12.0)
    assert list(longer.reference.items())[:4] == list(development.reference.items())


def test_recordings_are_whole_chunks_and_references_end_with_them(development: DevelopmentSet) -> None:
    num_frames = development.mel.shape[1] // 8
    assert development.mel.shape == (4, 8 * 144, 80)
    assert num_frames % CHUNK == 0
    end = frames_to_seconds(num_frames)
    assert end == pytest.approx(11.52)
    turns = [turn for recording in development.reference.values() for turn in recording]
    assert all(0 <= turn.start < turn.end <= end for turn in turns)
    assert max(turn.end for turn in turns) > end - 0.2  # some are cut
    speakers = [len({turn.speaker for turn in recording}) for recording in development.reference.values()]
    assert all(1 <= found <= asked for found, asked in zip(speakers, (1, 2, 2, 3), strict=True))
    assert max(speakers) >= 2


def test_a_perfect_memory_scores_like_the_grid(development: DevelopmentSet) -> None:
    """That is, the reference on the grid of frames, over the same regions."""
    activity = true_activity(development)
    figures = development.score(as_output(activity), AS_IT_IS)
    counts = activity.cumsum(dim=1).numpy()
    found = {uri: turns_of(activity[i].numpy(), counts[i], AS_IT_IS) for i, uri in enumerate(development.reference)}
    grid = score(development.reference, found).grid
    assert figures["der"] == pytest.approx(100 * grid.error_s / grid.speech_s, abs=1e-6)
    assert figures["der"] < 4.0
    assert figures["confusion"] < 0.1
    assert figures["count_error"] == 0
    assert figures["births_found"] == 100
    assert figures["phantoms"] == 0
    assert figures["merged"] > figures["der"] + 10
    assert figures["der"] == pytest.approx(figures["miss"] + figures["false_alarm"] + figures["confusion"])


def in_other_slots(activity: Tensor) -> Tensor:
    return activity.flip(-1)


def one_frame_late(activity: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(activity[:, :1]), activity[:, :-1]], dim=1)


def in_one_slot(activity: Tensor) -> Tensor:
    return torch.cat([activity.amax(dim=-1, keepdim=True), torch.zeros_like(activity[..., 1:])], dim=-1)


def silent(activity: Tensor) -> Tensor:
    return torch.zeros_like(activity)


def with_a_phantom(activity: Tensor) -> Tensor:
    activity = activity.clone()
    activity[:, :2, -1] = 1.0
    return activity


def test_which_slot_is_whose_does_not_matter(development: DevelopmentSet) -> None:
    activity = true_activity(development)
    perfect = development.score(as_output(activity), AS_IT_IS)
    assert development.score(as_output(in_other_slots(activity)), AS_IT_IS) == pytest.approx(perfect)


@pytest.mark.parametrize(
    ("spoil", "figure", "at_least"),
    [
        (one_frame_late, "der", 5.0),
        (in_one_slot, "confusion", 10.0),
        (in_one_slot, "count_error", 0.5),
        (silent, "miss", 95.0),
        (with_a_phantom, "phantoms", 1.0),
        (with_a_phantom, "false_alarm", 1.0),
    ],
)
def test_mistakes_cost(
    development: DevelopmentSet, spoil: Callable[[Tensor], Tensor], figure: str, at_least: float
) -> None:
    activity = true_activity(development)
    perfect = development.score(as_output(activity), AS_IT_IS)[figure]
    assert development.score(as_output(spoil(activity)), AS_IT_IS)[figure] >= perfect + at_least


def test_one_slot_for_all_is_the_merged_output(development: DevelopmentSet) -> None:
    activity = true_activity(development)
    merged = development.score(as_output(in_one_slot(activity)), AS_IT_IS)
    assert merged["der"] == pytest.approx(merged["merged"])
    assert merged["merged"] == pytest.approx(development.score(as_output(activity), AS_IT_IS)["merged"], abs=0.01)


def test_a_model_is_scored_by_its_own_run(development: DevelopmentSet) -> None:
    model = make_model(talkative=True)
    figures = development.evaluate(model)
    assert figures == development.evaluate(model)
    with torch.no_grad():
        mel = model.frontend(development.mel.float())[0]
        output, _ = model.memory(model.encoder(mel, chunk=CHUNK)[0])
    assert figures == development.score(output, TurnConfig(confirm_frames=model.config.memory.confirm_frames))
    assert figures["false_alarm"] + figures["confusion"] > 0  # it talks
    assert figures != development.evaluate(model, AS_IT_IS)


def test_a_model_is_scored_under_the_rules_it_is_used_with(development: DevelopmentSet) -> None:
    """Who is confirmed late by the memory is so in turns; what is said is the memory's."""
    model = make_model(talkative=True)
    late = replace(model.config.memory, confirm_frames=40.0)
    model.config, model.memory.config = replace(model.config, memory=late), late
    figures = development.evaluate(model)
    output = development.remember(model, development.encode(model))
    assert figures == development.score(output, Diarizer(Checkpoint(model)).turn_config)
    assert figures != development.score(output, TurnConfig())


def test_a_few_speakers_are_enough_and_silence_is_not(corpus: Path, tmp_path: Path, speech: Speech) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=2, num_utterances=1, duration_s=2.0)
    few = load_speech(tree, cache_dir=tmp_path)
    references = DevelopmentSet.simulated(few, 6, 5.0).reference.values()
    assert max(len({turn.speaker for turn in turns}) for turns in references) == 2
    with pytest.raises(ValueError, match=r"nobody speaks in 1 conversation\(s\) of 1.0 s: make more"):
        DevelopmentSet.simulated(speech, 1, 1.0, seed=first_silent_seed(speech))


def first_silent_seed(speech: Speech) -> int:
    """The first seed with a conversation of one second in which nobody speaks for long enough to count."""
    from diarnorm.simulation.planner import SimulatorConfig, plan_conversation

    config = SimulatorConfig(speed_probability=0.0)
    for seed in range(1000):
        turns = plan_conversation(speech, config, [seed, 0], duration_s=1.0, num_speakers=1).turns()
        if not any(turn.start < 0.96 for turn in turns):
            return seed
    raise AssertionError("someone always speaks")
