"""A memory that is told the reference: it says what training's parallel decoding says with the same memory."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from diarnorm.checkpoint import Checkpoint, save_checkpoint
from diarnorm.evaluation.hypotheses import Candidate, Settings, diarize, find_candidates
from diarnorm.evaluation.oracle import ToldMemory, alone, told
from diarnorm.evaluation.scoring import score
from diarnorm.files import file_sha256
from diarnorm.memory import SpeakerMemory
from diarnorm.model import Model, ModelConfig
from diarnorm.resources import model_path, samples_dir
from diarnorm.rttm import read_rttm
from diarnorm.stream import Diarizer
from diarnorm.training.losses import decode
from diarnorm.turns import Turn
from tests.evalset import save_set
from tests.tiny import ENCODER, MEMORY

pytestmark = pytest.mark.usefixtures("one_thread")
DIM = 32
ORACLE = Settings(oracle_memory=True)


def make_memory() -> SpeakerMemory:
    torch.manual_seed(4)
    return SpeakerMemory(DIM, MEMORY).eval()


def some_speech(num_frames: int, num_speakers: int) -> Tensor:
    """Weights `[frames, speakers]` of speakers who take turns of six frames, in this order at first."""
    owner = (torch.arange(num_frames) // 6) % (num_speakers + 1)
    return torch.nn.functional.one_hot(owner, num_speakers + 1)[:, :num_speakers].float()


def activity_of(memory: SpeakerMemory, h: Tensor, step: int) -> Tensor:
    """Activity `[frames, slots]` of frames given a few at a time."""
    outputs, state = [], memory.init_state(1)
    with torch.no_grad():
        for part in h.split(step, dim=1):
            output, state = memory(part, state)
            outputs.append(output.activity[0])
    return torch.cat(outputs)


@pytest.mark.parametrize("step", [1, 7, 80])
@pytest.mark.parametrize("num_speakers", [1, 3, 6])  # the memory itself has four slots
def test_it_decodes_as_training_does(step: int, num_speakers: int) -> None:
    """Known speakers in their slots and the newcomer in the first free one, after the told frames, too."""
    memory, weight = make_memory(), some_speech(50, num_speakers)
    h = torch.randn(1, 80, DIM, generator=torch.Generator().manual_seed(1))
    activity = activity_of(ToldMemory(memory, weight), h, step)
    padded = torch.nn.functional.pad(weight, (0, 0, 0, 30))
    with torch.no_grad():
        expected = decode(memory, h, padded[None])[0].sigmoid()
    known = padded.cumsum(dim=0) - padded > 0
    slots = torch.arange(80), known.sum(dim=1)
    torch.testing.assert_close(
        torch.where(known, activity[:, :num_speakers], 0), torch.where(known, expected[:, :-1], 0)
    )
    has_free = slots[1] < activity.shape[1]
    torch.testing.assert_close(activity[slots[0][has_free], slots[1][has_free]], expected[has_free, -1])


def test_what_is_told_matters_and_own_decisions_do_not() -> None:
    memory, h = make_memory(), torch.randn(1, 80, DIM, generator=torch.Generator().manual_seed(1))
    weight = some_speech(80, 3)
    one, other = (activity_of(ToldMemory(memory, each), h, 80) for each in (weight, weight.flip(1)))
    assert not torch.allclose(one, other, atol=1e-3)
    output, state = ToldMemory(memory, weight)(h)
    assert output.weight[0, :, :3].equal(weight)
    assert state.count[0, :4].tolist() == [*weight.sum(dim=0).tolist(), 0.0]


@pytest.mark.parametrize("num_slots", [1, 2, 3, 7])  # three are told, the memory itself has four slots
def test_a_stream_may_have_fewer_slots_or_more(num_slots: int) -> None:
    """Slots are told in order, as far as they go; who has none enters nothing, and leaves the others alone."""
    memory, weight = make_memory(), some_speech(80, 3)
    h = torch.randn(1, 80, DIM, generator=torch.Generator().manual_seed(1))
    oracle = ToldMemory(memory, weight)
    output, state = oracle(h, oracle.init_state(1, num_slots))
    given = min(num_slots, 3)
    assert output.weight.shape == output.activity.shape == (1, 80, num_slots)
    assert output.weight[0, :, :given].equal(weight[:, :given])
    assert not output.weight[0, :, given:].any()
    assert state.count[0].tolist() == [*weight.sum(dim=0).tolist()[:given], *[0.0] * (num_slots + 1 - given)]
    known = weight[:, :given]
    expected = decode(memory, h, known[None])[0].sigmoid()
    heard = known.cumsum(dim=0) - known > 0
    torch.testing.assert_close(
        torch.where(heard, output.activity[0, :, :given], 0), torch.where(heard, expected[:, :-1], 0)
    )


@pytest.mark.parametrize("max_speakers", [2, 12])
def test_an_oracle_may_be_asked_for_some_speakers_at_most(tmp_path: Path, max_speakers: int) -> None:
    reference = read_rttm(samples_dir() / "meeting.rttm")["meeting"]
    found = diarize_sample(replace(ORACLE, max_speakers=max_speakers), tmp_path, reference)
    assert len({turn.speaker for turn in found}) == min(max_speakers, len({turn.speaker for turn in reference}))


def test_speakers_are_in_the_order_in_which_they_are_heard_alone() -> None:
    turns = [Turn(1.0, 2.0, "a"), Turn(0.0, 1.5, "c"), Turn(1.2, 1.4, "b"), Turn(3.0, 3.08, "b")]
    weight = alone(turns)
    frames = [(weight[:, slot].nonzero()[:, 0] * 0.08).tolist() for slot in range(3)]
    assert weight.shape == (39, 3)
    assert (frames[0][0], frames[0][-1]) == pytest.approx((0.0, 0.88))  # c, until a joins
    assert (frames[1][0], frames[1][-1]) == pytest.approx((1.52, 1.92))  # a
    assert frames[2] == pytest.approx([2.96])  # b: from 3.0, the middle of this frame
    assert alone([]).shape == (0, 0)
    assert alone([Turn(0.0, 1.0, "a"), Turn(0.0, 1.0, "b")]).shape == (13, 0)


def diarize_sample(settings: Settings, folder: Path, reference: Sequence[Turn]) -> tuple[Turn, ...]:
    path = model_path("rms")
    candidate = Candidate("rms", path, file_sha256(path), settings)
    return diarize(candidate, samples_dir() / "meeting.flac", folder / "meeting.rttm", reference).turns


def test_a_real_model_knows_everybody_who_is_told(tmp_path: Path) -> None:
    """Nobody is too many or missing, whoever they are called; the model that is not told errs more."""
    reference = read_rttm(samples_dir() / "meeting.rttm")["meeting"]
    own = diarize_sample(Settings(), tmp_path / "own", reference)
    oracle = diarize_sample(ORACLE, tmp_path / "oracle", reference)
    assert len({turn.speaker for turn in oracle}) == len({turn.speaker for turn in reference})
    confusion = {
        name: score({"meeting": reference}, {"meeting": list(turns)}).pooled.confusion_s
        for name, turns in (("own", own), ("oracle", oracle))
    }
    assert confusion["oracle"] < 0.03 * sum(turn.duration for turn in reference)
    assert confusion["oracle"] <= confusion["own"]
    renamed = [replace(turn, speaker=f"{turn.speaker[::-1]}?") for turn in reference]
    assert diarize_sample(ORACLE, tmp_path / "renamed", renamed) == oracle


def test_hypotheses_depend_on_what_was_told(tmp_path: Path, loudness_model: Path) -> None:
    """The same file is made again for another reference, and kept for the same; without oracle nothing is told."""
    audio = save_set(tmp_path, ["a_one"]) / "a_one.wav"
    candidate = Candidate("loudness", loudness_model, file_sha256(loudness_model), ORACLE)
    rttm = tmp_path / "out" / "a_one.rttm"
    times = []
    for end in (2.0, 2.0, 1.5):
        diarize(candidate, audio, rttm, [Turn(1.0, end, "a")])
        times.append(rttm.stat().st_ino)
    assert times[0] == times[1] != times[2]
    plain = replace(candidate, settings=Settings())
    assert diarize(plain, audio, rttm, [Turn(1.0, 2.0, "a")]) == diarize(plain, audio, rttm)


def test_the_model_itself_stays_as_it_is(loudness_model: Path) -> None:
    diarizer = Diarizer.from_pretrained(loudness_model)
    memory = diarizer.model.memory
    copy = told(diarizer, [Turn(0.0, 1.0, "a")])
    assert isinstance(copy.model.memory, ToldMemory)
    assert diarizer.model.memory is memory
    assert not isinstance(memory, ToldMemory)


def test_an_oracle_is_asked_for_by_one_model(tmp_path: Path, loudness_model: Path) -> None:
    os.link(loudness_model, tmp_path / "m.safetensors")
    given = {"own": "m.safetensors", "told": {"path": "m.safetensors", "oracle_memory": True}}
    own, oracle = find_candidates(given, tmp_path, Settings())
    assert (own.settings, oracle.settings) == (Settings(), ORACLE)


def test_without_a_memory_nothing_can_be_told(tmp_path: Path) -> None:
    model = Model(ModelConfig(encoder=ENCODER, memory=replace(MEMORY, kind="none")))
    save_checkpoint(tmp_path / "m.safetensors", Checkpoint(model.eval()))
    with pytest.raises(ValueError, match="x has no memory: leave out oracle_memory"):
        find_candidates({"x": {"path": "m.safetensors", "oracle_memory": True}}, tmp_path, Settings())
