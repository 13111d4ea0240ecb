"""The whole model: samples to activity; one step against chunks, padding, silence, size of state and weights."""

import math

import pytest
import torch
from torch import Tensor

from diarnorm.frontend import FRONT_ENDS
from diarnorm.memory import MemoryOutput
from diarnorm.model import Model, ModelState
from diarnorm.norms import NORMS
from diarnorm.timebase import FRAME_SAMPLES
from tests.tiny import ENCODER, MEMORY, REACH_FRAMES, make_model, tensors_of, two_voices

CHUNK = 4
CHUNK_SAMPLES = CHUNK * FRAME_SAMPLES


def samples(num_chunks: int = 12) -> Tensor:
    """Two voices, `[1, num_chunks * 4 frames]`."""
    return torch.from_numpy(two_voices())[None, : num_chunks * CHUNK_SAMPLES]


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


def assert_chunks_equal_one_step(model: Model, keep=lambda state: state) -> None:
    """Activity, counts and state chunk by chunk are those of one step over the recording."""
    x = samples()
    whole, last = model(x, chunk=CHUNK)
    state, outputs = None, []
    for piece in x.split(CHUNK_SAMPLES, dim=1):
        output, state = model(piece, state, chunk=CHUNK)
        state = keep(state)
        outputs.append(output)
    assert whole.activity.max() > 0.5
    for name in MemoryOutput._fields:
        close(torch.cat([getattr(o, name) for o in outputs], dim=1), getattr(whole, name), 1e-4)
    for a, b in zip(tensors_of(state), tensors_of(last), strict=True):
        assert a.stride() == torch.empty(a.shape).stride()
        close(a, b, 1e-3)


@pytest.mark.parametrize("norm", NORMS)
@torch.inference_mode()
def test_chunks_equal_one_step(norm: str) -> None:
    assert_chunks_equal_one_step(make_model(norm, talkative=True))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@torch.inference_mode()
def test_chunks_equal_one_step_for_every_front_end(frontend: str) -> None:
    assert_chunks_equal_one_step(make_model(frontend=frontend, talkative=True))


@pytest.mark.parametrize("stage", ModelState._fields)
@torch.inference_mode()
def test_check_notices_a_stage_that_forgets(stage: str) -> None:
    model = make_model(talkative=True)
    fresh = model.init_state(1)
    with pytest.raises(AssertionError):
        assert_chunks_equal_one_step(model, keep=lambda state: state._replace(**{stage: getattr(fresh, stage)}))


@pytest.mark.parametrize("content", [0.5, 1e3, math.nan])
@pytest.mark.parametrize("num_valid", [0, 1, 159, 160, 5000, CHUNK_SAMPLES, 2 * CHUNK_SAMPLES - 1])
@torch.inference_mode()
def test_samples_beyond_the_end_are_inert(content: float, num_valid: int) -> None:
    model, x = make_model(talkative=True), samples(2)
    inside = torch.arange(x.shape[1]) < num_valid
    silent, _ = model(torch.where(inside, x, 0.0), None, torch.tensor([num_valid]), chunk=CHUNK)
    filled, _ = model(torch.where(inside, x, content), None, torch.tensor([num_valid]), chunk=CHUNK)
    for found, expected in zip(filled, silent, strict=True):
        assert torch.equal(found, expected)
    num_frames = math.ceil(num_valid // 160 / 8)
    assert not silent.activity[:, num_frames:].any()
    assert (silent.activity[:, :num_frames].amax(dim=-1) > 0).all()


@torch.inference_mode()
def test_rows_of_different_lengths_are_the_rows_alone() -> None:
    model = make_model(talkative=True)
    x, lengths = samples(3).expand(4, -1), torch.tensor([3 * CHUNK_SAMPLES, 20_000, 300, 0])
    together, _ = model(x, None, lengths, chunk=CHUNK)
    for row in range(4):
        alone, _ = model(x[row : row + 1], None, lengths[row : row + 1], chunk=CHUNK)
        for found, expected in zip(alone, together, strict=True):
            close(found[0], expected[row])


@torch.inference_mode()
def test_the_end_is_told_from_silence() -> None:
    model, x = make_model(talkative=True), samples(2)
    ended, _ = model(x, None, torch.tensor([CHUNK_SAMPLES + 1000]), chunk=CHUNK)
    silent, _ = model(torch.where(torch.arange(x.shape[1]) < CHUNK_SAMPLES + 1000, x, 0.0), chunk=CHUNK)
    assert (ended.activity[:, CHUNK : CHUNK + 1] - silent.activity[:, CHUNK : CHUNK + 1]).abs().max() > 1e-3


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@torch.inference_mode()
def test_silence_in_front_is_forgotten_by_the_encoder(frontend: str) -> None:
    model, x = make_model(frontend=frontend), samples(10)
    late = torch.cat([torch.zeros(1, 30 * CHUNK_SAMPLES), x], dim=1)

    def encoded(audio: Tensor) -> Tensor:
        mel, _ = model.frontend(model.fbank(audio)[0])
        return model.encoder(mel, chunk=CHUNK)[0][:, -10 * CHUNK + REACH_FRAMES + CHUNK :]

    assert encoded(x).shape[1] >= 12
    close(encoded(late), encoded(x))


@torch.inference_mode()
def test_runs_are_identical() -> None:
    model = make_model(talkative=True)
    first, second = (model(samples(4), chunk=CHUNK)[0] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not any(module.training for module in model.modules())


def test_default_model_keeps_to_its_budget() -> None:
    model = Model()
    assert sum(p.numel() for p in model.parameters()) <= 3_000_000
    state = tensors_of(model.init_state(1, 8))
    assert sum(t.numel() * t.element_size() for t in state) <= 2_000_000


@pytest.mark.parametrize("num_samples", [CHUNK_SAMPLES - 1, FRAME_SAMPLES, 160, CHUNK_SAMPLES + FRAME_SAMPLES])
def test_parts_of_chunks_are_refused(num_samples: int) -> None:
    message = f"whole chunks of 4 frames .5120 samples., got {num_samples} samples: pad them and say with num_valid"
    with pytest.raises(ValueError, match=message):
        make_model()(torch.zeros(1, num_samples), chunk=CHUNK)


def test_number_of_slots_is_asked_for() -> None:
    model = make_model()
    assert model.init_state(2).memory.count.shape == (2, MEMORY.num_slots + 1)
    output, _ = model(samples(1), model.init_state(1, 7), chunk=CHUNK)
    assert output.activity.shape == (1, CHUNK, 7)


def test_norm_reaches_the_encoder_and_the_memory_keeps_its_own() -> None:
    for norm in NORMS:
        model = make_model(norm)
        assert isinstance(model.encoder.final_norm, NORMS[norm])
        assert isinstance(model.memory.decoder.norm, torch.nn.LayerNorm)
    assert make_model().config.encoder == ENCODER


def test_chunk_samples() -> None:
    assert Model.chunk_samples(12) == 12 * 1280


def test_partial_chunks_are_refused() -> None:
    with pytest.raises(ValueError, match="whole chunks of 4 frames"):
        make_model()(torch.zeros(1, 6 * FRAME_SAMPLES), chunk=CHUNK)
