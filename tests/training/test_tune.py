"""The tuner: never worse than where it started, right where the answer is known, and without side effects."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diarnorm.checkpoint import Checkpoint
from diarnorm.model import Model
from diarnorm.simulation.speech import load_speech
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.tune import MEMORY_GRID, TURN_GRID, Trial, Tuner
from diarnorm.turns import Turn, TurnConfig
from tests.tiny import make_checkpoint, make_model, script, scripted_memory

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def development(corpus: Path) -> DevelopmentSet:
    speech = load_speech(corpus, split="dev", cache_dir=corpus.parent)
    return DevelopmentSet.simulated(speech, 2, 5.0)


class WorstTuner(Tuner):
    """Takes whatever is worse."""

    def run(self, rounds: int = 2) -> Trial:
        for memory, turns in self._neighbours():
            trial = self._try(memory, turns)
            if trial.der > self.best.der:
                self.best = trial
        return self.best


def assert_not_worse(tuner: Tuner) -> None:
    start = tuner.best
    best = tuner.run(rounds=1)
    assert best.der <= start.der
    assert tuner._try(best.memory, best.turns).figures == best.figures


def test_the_best_setting_is_not_worse_than_the_start(development: DevelopmentSet) -> None:
    checkpoint = make_checkpoint(talkative=True)
    own = checkpoint.model.memory.config
    tuner = Tuner(checkpoint, development)
    start = tuner.best
    assert start.turns == replace(checkpoint.turns, confirm_frames=own.confirm_frames)
    assert_not_worse(tuner)
    assert checkpoint.model.memory.config == own  # only the tuner tried others


def test_a_tuner_that_takes_the_worst_is_found(development: DevelopmentSet) -> None:
    with pytest.raises(AssertionError):
        assert_not_worse(WorstTuner(make_checkpoint(talkative=True), development))


class ScriptedSet(DevelopmentSet):
    """One recording of 10 s with two speakers: 0.95 at first, 0.42 later, 0.2 where they are silent."""

    REFERENCE = (Turn(0.8, 3.2, "a"), Turn(4.0, 7.2, "b"), Turn(7.6, 9.6, "a"))

    def encode(self, model: Model) -> Tensor:
        activity = torch.full((1, 125, 3), 0.2)
        for start, end, slot in ((10, 40, 0), (50, 90, 1), (95, 120, 0)):
            activity[0, start:end, slot] = 0.42
        for start, slot in ((10, 0), (50, 1)):
            activity[0, start : start + 12, slot] = 0.95
        activity[0, :, 2] = 0.01
        embedding = torch.zeros(1, 125, 2)
        embedding[..., 0] = 1.0
        return script(activity, embedding)


def scripted(turns: TurnConfig) -> tuple[Checkpoint, DevelopmentSet]:
    model = make_model()
    model.memory = scripted_memory(2, birth=0.5, confirm_frames=5.0, drop_frames=25)
    model.config = replace(model.config, memory=model.memory.config)
    mel = torch.zeros(1, 8 * 125, 80, dtype=torch.float16)
    return Checkpoint(model, turns), ScriptedSet(mel, {"one": list(ScriptedSet.REFERENCE)})


def test_a_threshold_that_can_be_worked_out_is_found() -> None:
    checkpoint, development = scripted(
        TurnConfig(onset=0.5, offset=0.5, min_on_frames=1, min_off_frames=2, pad_frames=0)
    )
    tuner = Tuner(checkpoint, development)
    # heard: 12 of 30, 12 of 40 and none of 25 frames
    assert tuner.best.figures["miss"] == pytest.approx(100 * (95 - 24) / 95)
    best = tuner.run()
    assert best.der == pytest.approx(0.0, abs=1e-6)
    assert 0.2 < best.turns.offset <= best.turns.onset <= 0.42


def test_neighbours_differ_in_one_parameter_and_stay_legal() -> None:
    checkpoint, development = scripted(TurnConfig())
    tuner = Tuner(checkpoint, development)
    settings = list(tuner._neighbours())
    for memory, turns in settings:
        different = [name for name in MEMORY_GRID if getattr(memory, name) != getattr(tuner.best.memory, name)]
        different += [name for name in TURN_GRID if getattr(turns, name) != getattr(tuner.best.turns, name)]
        flipped = turns.undivided != tuner.best.turns.undivided
        assert len(different) <= 1 or set(different) == {"onset", "offset"}
        assert not flipped or set(different) <= {"onset", "offset"}
        assert turns.offset <= turns.onset
    tried = {name: {getattr(memory, name) for memory, _ in settings} for name in MEMORY_GRID}
    assert all(set(values) <= tried[name] for name, values in MEMORY_GRID.items())
    tried = {name: {getattr(turns, name) for _, turns in settings} for name in TURN_GRID}
    assert all(set(TURN_GRID[name]) <= tried[name] for name in ("onset", "offset", "min_on_frames"))
    assert max(tried["pad_frames"]) == 2  # two frames of padding need a gap of four, the default has six
