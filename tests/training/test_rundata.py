"""What a run reads: batches in steps, shared between processes, and held-out batches for fewer speakers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from diarnorm.simulation.planner import SimulatorConfig
from diarnorm.simulation.speech import load_speech
from diarnorm.simulation.synthetic import write_tree
from diarnorm.simulation.warps import Warp
from diarnorm.training.batches import CurriculumStage, SimulatedBatches
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.rundata import RunData, check_processes
from tests.tiny_run import STAGES, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_rows_of_all_processes_are_those_of_one(corpus: Path) -> None:
    speech = load_speech(corpus, split="train", cache_dir=corpus.parent)
    stages = (CurriculumStage(0, 2.0, 4, 2, (0.3, 0.7)),)
    whole = SimulatedBatches(speech, seed=7, num_steps=2, stages=stages)[1]
    shares = [SimulatedBatches(speech, seed=7, num_steps=2, stages=stages, share=(i, 2))[1] for i in range(2)]
    for name, value in whole.items():
        joined = torch.cat([share[name] for share in shares])
        if name == "mel":  # log-mel of about 10 in half precision: samples agree, but not in their last bits
            torch.testing.assert_close(joined, value, rtol=0, atol=0.02)
        else:
            assert torch.equal(joined, value), name


def test_steps_of_several_batches_hold_the_batches_in_order(corpus: Path) -> None:
    """Stages change between steps, and each batch of a step is another."""
    config = tiny_run(corpus, accumulate=2, num_steps=5)
    steps = list(RunData(config).steps(0))
    assert [[batch.mel.shape[0] for batch in step] for step in steps] == [[2, 2]] * 3 + [[1, 1]] * 2
    seen = [batch for step in steps for batch in step]
    speech = load_speech(corpus, split="train", cache_dir=corpus.parent)
    stages = [replace(stage, from_step=2 * stage.from_step) for stage in STAGES]
    alone = SimulatedBatches(speech, seed=0, num_steps=10, stages=stages)
    for number, batch in enumerate(seen):
        assert torch.equal(batch.mel, alone[number]["mel"])
    assert len({float(batch.mel.float().sum()) for batch in seen}) == 10
    later = list(RunData(config).steps(3))
    assert [torch.equal(a.mel, b.mel) for a, b in zip(later[0], steps[3], strict=True)] == [True, True]
    assert len(later) == 2


def test_stored_batches_are_made_once_and_shared(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_run(corpus, num_steps=2)
    stored = replace(config, data=replace(config.data, store=str(tmp_path)))
    plain = [batch.mel for step in RunData(config).steps(0) for batch in step]
    first = [batch.mel for step in RunData(stored).steps(0) for batch in step]
    monkeypatch.setattr(SimulatedBatches, "__getitem__", None)
    again = [batch.mel for step in RunData(stored).steps(0) for batch in step]
    assert len(plain) == 2
    for a, b, c in zip(plain, first, again, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def test_warps_are_further_voices_of_training_speakers_alone(corpus: Path) -> None:
    config = tiny_run(corpus, num_steps=30)
    warped = RunData(replace(config, data=replace(config.data, warps=(Warp(pitch=1.25), Warp(tract=0.85)))))
    plain = RunData(config)
    assert warped.speech is not None
    assert warped.dev_speech is not None
    assert warped.num_classes == plain.num_classes + 2 * len(plain.speakers)
    assert not warped.dev_speech.warps
    classes = torch.cat([warped.batches[i]["speaker_class"].flatten() for i in range(30)])
    heard = set((classes[classes >= 0] % warped.speech.num_factors).tolist())
    assert heard == set(range(7)), "five speeds and two warps"


def test_held_out_batches_have_no_more_speakers_than_there_are(corpus: Path) -> None:
    crowd = CurriculumStage(2, 3.0, 2, 6, (0.0, 0.0, 0.0, 0.0, 0.5, 0.5))
    config = tiny_run(corpus, stages=(STAGES[0], crowd), num_slots=6)
    batches = RunData(config).held_out_batches()
    assert len(batches) == 16
    counts = [(batch.speaker_class >= 0).sum(dim=1) for batch in batches]
    assert 1 <= max(int(count.max()) for count in counts) <= 4  # there are four in dev
    again = RunData(replace(config, train=replace(config.train, seed=5))).held_out_batches()
    assert all(torch.equal(a.mel, b.mel) for a, b in zip(batches, again, strict=True))


def test_who_may_be_one_person_counts_once(corpus: Path) -> None:
    """Nobody is missed in the middle of a training, or on the way to it: the four of dev are three people."""
    crowd = CurriculumStage(0, 3.0, 2, 8, (0.0,) * 7 + (1.0,))
    config = tiny_run(corpus, stages=(crowd,), num_slots=8, dev_conversations=8)
    pairs = replace(config.data, simulator=SimulatorConfig(same_person=("s0/s1", "s8/s9")))
    with pytest.raises(ValueError, match=r"asks for 8 speakers in a conversation, .* has 7 with speech to train on"):
        RunData(replace(config, data=pairs))
    data = RunData(
        replace(config, data=replace(pairs, stages=(replace(crowd, speaker_probabilities=(0.0,) * 6 + (1,)),)))
    )
    conversations = data.development()
    assert isinstance(conversations, DevelopmentSet)
    assert len(conversations.reference) == 8
    assert [len(data.batches[number]["mel"]) for number in range(6)] == [2] * 6  # of seven speakers each
    assert max(int((batch.speaker_class >= 0).sum(dim=1).max()) for batch in data.held_out_batches()) <= 3


def test_a_dev_split_in_which_nobody_speaks_is_refused(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree" / "train", num_speakers=3, num_utterances=1, duration_s=2.0).parent
    (tree / "dev" / "anna").mkdir(parents=True)
    soundfile.write(tree / "dev" / "anna" / "silence.wav", np.zeros(16_000), 16_000)
    with pytest.raises(ValueError, match=r"nobody speaks in the utterances of .*tree, data.dev_split=dev: add some"):
        RunData(tiny_run(tree))


@pytest.mark.parametrize(("batch_size", "expected"), [(1, 32), (5, 7), (8, 4)])
def test_held_out_batches_are_of_enough_conversations_whatever_their_size(
    corpus: Path, batch_size: int, expected: int
) -> None:
    config = tiny_run(corpus, stages=(CurriculumStage(0, 1.0, batch_size, 2, (0.5, 0.5)),))
    sizes = [len(batch.mel) for batch in RunData(config).held_out_batches()]
    assert sizes == [batch_size] * expected


@pytest.mark.parametrize(("workers", "expected"), [(0, "cuda"), (1, "cpu")])
def test_without_workers_the_device_makes_its_own_batches(corpus: Path, workers: int, expected: str) -> None:
    """But not those that the front end is set by: they are the same wherever a run is trained."""
    config = tiny_run(corpus, workers=workers, device="cuda")
    data = RunData(config)
    assert isinstance(data.batches.simulated, SimulatedBatches)
    assert data.batches.simulated.device == expected
    here = RunData(replace(config, train=replace(config.train, device="cpu", workers=0)))
    assert isinstance(here.batches.simulated, SimulatedBatches)
    assert here.batches.simulated.device == "cpu"
    assert torch.equal(data.first_mel(), here.first_mel())


def test_batches_are_shared_evenly_or_not_at_all() -> None:
    stages = (CurriculumStage(batch_size=8), CurriculumStage(from_step=5, batch_size=6))
    check_processes(stages, 1)
    check_processes(stages, 2)
    with pytest.raises(ValueError, match=r"data.stages\[1\].batch_size=6 cannot be shared by 4 processes: give a mult"):
        check_processes(stages, 4)


def test_a_share_of_the_tuning_set_is_of_the_simulators_defaults(corpus: Path) -> None:
    config = tiny_run(corpus, tune_conversations=3)
    quiet = replace(config.data.simulator, channel=replace(config.data.simulator.channel, level_db=(-70.0, -65.0)))
    hard = replace(config, data=replace(config.data, simulator=quiet))
    half = replace(hard, train=replace(hard.train, tune_default_share=2 / 3))
    sets = [RunData(each).tuning_set() for each in (config, hard, half)]
    default, own, mixed = (each for each in sets if isinstance(each, DevelopmentSet))
    assert [len(each.reference) for each in (default, own, mixed)] == [3, 3, 3]
    assert not torch.equal(default.mel, own.mel)
    assert torch.equal(mixed.mel, torch.cat([default.mel[:2], own.mel[:1]]))
    turns = [list(each.reference.values()) for each in (default, own, mixed)]
    assert turns[2] == turns[0][:2] + turns[1][:1]
