"""Stored batches are the simulated ones, made once, and never mixed up with others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from diarnorm.simulation.acoustics import RoomConfig
from diarnorm.simulation.planner import SimulatorConfig
from diarnorm.simulation.rooms import load_rooms
from diarnorm.simulation.speech import Speech
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.training.batches import CurriculumStage, SimulatedBatches
from diarnorm.training.store import StoredBatches, fingerprint
from tests.voices import load_tree

STAGES = (CurriculumStage(0, crop_s=2.0, batch_size=2, max_speakers=2, speaker_probabilities=(0.5, 0.5)),)


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> SimulatedBatches:
    speech = load_tree(tmp_path_factory.mktemp("speech"), num_speakers=3, num_utterances=2)
    return SimulatedBatches(speech, seed=1, num_steps=4, stages=STAGES)


def no_simulator(self: SimulatedBatches, step: int) -> dict[str, torch.Tensor]:
    raise AssertionError(f"batch {step} made again")


def test_items_are_the_simulated_ones_and_made_once(
    batches: SimulatedBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [batches[step] for step in range(3)]
    first = [StoredBatches(batches, tmp_path)[step] for step in range(3)]
    monkeypatch.setattr(SimulatedBatches, "__getitem__", no_simulator)
    stored = StoredBatches(batches, tmp_path)
    assert len(stored) == 4
    for step in range(3):
        for found in (first[step], stored[step]):
            assert found.keys() == expected[step].keys()
            for name, values in expected[step].items():
                assert torch.equal(found[name], values)
                assert found[name].dtype == values.dtype
    with pytest.raises(AssertionError, match="batch 3 made again"):
        stored[3]


def test_no_unfinished_file_is_ever_read(
    batches: SimulatedBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(tensors: dict, path: Path) -> None:
        path.write_bytes(b"half of a file")
        raise KeyboardInterrupt

    stored = StoredBatches(batches, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("diarnorm.training.store.save_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stored[0]
    assert torch.equal(stored[0]["mel"], batches[0]["mel"])


@pytest.mark.parametrize(
    "change",
    [
        lambda speech: SimulatedBatches(speech, seed=2, num_steps=4, stages=STAGES),
        lambda speech: SimulatedBatches(speech, seed=1, num_steps=4, stages=(replace(STAGES[0], batch_size=3),)),
        lambda speech: SimulatedBatches(
            speech, seed=1, num_steps=4, stages=STAGES, simulator=SimulatorConfig(close_gap_s=0.1)
        ),
        lambda speech: SimulatedBatches(speech, seed=1, num_steps=4, stages=STAGES, clips=speech),
        lambda speech: SimulatedBatches(
            replace(speech, cache=speech.cache.parent / "other"), seed=1, num_steps=4, stages=STAGES
        ),
        lambda speech: SimulatedBatches(
            replace(speech, speaker_gender=("F", "M", "F")), seed=1, num_steps=4, stages=STAGES
        ),
        lambda speech: SimulatedBatches(
            replace(speech, same_person=(("s0", "s1"),)), seed=1, num_steps=4, stages=STAGES
        ),
        lambda speech: SimulatedBatches(speech, seed=1, num_steps=4, stages=STAGES, share=(1, 2)),
    ],
)
def test_other_batches_have_another_folder(
    batches: SimulatedBatches, change: Callable[[Speech], SimulatedBatches]
) -> None:
    assert fingerprint(change(batches.speech)) != fingerprint(batches)


def test_other_rooms_of_the_same_name_are_others(batches: SimulatedBatches, tmp_path: Path) -> None:
    def named(content: float, name: str = "room.wav") -> str:
        soundfile.write(tmp_path / name, np.array([1.0, content, 0.0, 0.1]), SAMPLE_RATE)
        load_rooms.cache_clear()
        simulator = SimulatorConfig(rooms=RoomConfig(measured=(str(tmp_path / name),)))
        return fingerprint(SimulatedBatches(batches.speech, seed=1, num_steps=4, stages=STAGES, simulator=simulator))

    first, other, again = named(0.25), named(0.5), named(0.25)
    assert first == again != other
    assert named(0.25, "moved.wav") == first


def test_a_longer_run_shares_its_beginning(batches: SimulatedBatches) -> None:
    longer = SimulatedBatches(batches.speech, seed=1, num_steps=40, stages=STAGES)
    assert fingerprint(longer) == fingerprint(batches)
