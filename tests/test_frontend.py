"""Front-end normaliser against plain recursions in float64; blocking, padding, level, silence."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from diarnorm.fbank import fbank_offline
from diarnorm.frontend import FRONT_ENDS, FrontEnd, FrontEndConfig, FrontEndState
from tests.tiny import in_steps, noise, tensors_of, whole_chunks
from tests.wavbytes import speechlike

NUM_FRAMES = 30
SILENCE = -15.9424
MEAN_CLIFF, BIN_CLIFF = 5.0, 10.0
"""Documented step from digital silence to noise of one int16 step, in nats: mean over bins, and any bin."""


def make_front_end(kind: str, cls: type[FrontEnd] = FrontEnd, **changes: float) -> FrontEnd:
    """One whose training data had another mean and scale in every bin."""
    front_end = cls(FrontEndConfig(kind, **changes))
    front_end.mean.copy_(torch.linspace(12, 7, 80))
    front_end.scale.copy_(torch.linspace(0.25, 0.5, 80))
    return front_end


def mel_frames(num_frames: int = NUM_FRAMES, batch: int = 2) -> Tensor:
    """Log-mel `[batch, 8 * num_frames, 80]` around 9, some of it digital silence or under the floor."""
    mel = 9 + 3 * noise(batch, 8 * num_frames, 80)
    mel[0, 3:11] = mel[:, -12:-4] = SILENCE
    return mel


def by_recursion(front_end: FrontEnd, mel: np.ndarray) -> np.ndarray:
    """One row in float64, one frame after another."""
    kind, c = front_end.config.kind, front_end.config
    mean, scale = front_end.mean.double().numpy(), front_end.scale.double().numpy()
    x = np.maximum(mel.astype(np.float64), c.floor)
    if kind == "none":
        return (x - mean) * scale
    if kind == "frame":
        return (x - x.mean(axis=1, keepdims=True) - (mean - mean.mean())) * scale
    running, weight, out = np.exp(mean) if kind == "pcen" else mean, c.seed_frames, []
    for frame in x.reshape(-1, 8, 80):
        heard = [np.exp(m) if kind == "pcen" else m for m in frame if (m > c.floor).any()]
        if heard:
            weight = min(weight + len(heard) / 8, c.memory_frames)
            running = running + len(heard) / 8 * (np.mean(heard, axis=0) - running) / weight
        if kind == "ema":
            out.append((frame - running) * scale)
        else:
            out.append(np.sqrt(np.exp(frame) / (1 + running) ** 0.98 + 2) - np.sqrt(2))
    return np.concatenate(out)


@pytest.mark.parametrize("kind", FRONT_ENDS)
def test_equals_the_recursion(kind: str) -> None:
    front_end, mel = make_front_end(kind, memory_frames=20.0), mel_frames()
    y, _ = front_end(mel)
    for row, expected in zip(y, mel, strict=True):
        np.testing.assert_allclose(row, by_recursion(front_end, expected.numpy()), rtol=1e-4, atol=1e-4)


def assert_exact_under_blocking(front_end: FrontEnd, sizes: list[int]) -> None:
    mel = mel_frames()
    whole, last = front_end(mel)
    pieces, state = in_steps(front_end, None, mel, [8 * size for size in sizes])
    assert torch.equal(torch.cat(pieces, dim=1), whole)
    for a, b in zip(tensors_of(state), tensors_of(last), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", FRONT_ENDS)
@settings(max_examples=10)
@given(sizes=whole_chunks(NUM_FRAMES))
def test_exact_under_any_blocking(kind: str, sizes: list[int]) -> None:
    assert_exact_under_blocking(make_front_end(kind), sizes)


def assert_padding_is_inert(front_end: FrontEnd, padding: float) -> None:
    """Frames that are not valid give 0, change no other output, and do not move the state."""
    mel = mel_frames(6)
    clean, last = front_end(mel)
    padded = torch.cat([mel, torch.full((2, 16, 80), padding)], dim=1)
    valid = (torch.arange(64) < 48).expand(2, -1)
    y, state = front_end(padded, None, valid)
    assert torch.equal(y[:, :48], clean)
    assert not y[:, 48:].any()
    for a, b in zip(tensors_of(state), tensors_of(last), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", FRONT_ENDS)
@pytest.mark.parametrize("padding", [0.0, 1e3, SILENCE, torch.nan])
def test_padding_is_inert(kind: str, padding: float) -> None:
    assert_padding_is_inert(make_front_end(kind), padding)


@pytest.mark.parametrize("kind", ["ema", "pcen"])
def test_a_partly_valid_frame_counts_by_its_valid_mel_frames(kind: str) -> None:
    front_end, mel = make_front_end(kind), mel_frames(1, batch=1)
    valid = (torch.arange(8) < 5)[None]
    y, _ = front_end(mel, None, valid)
    silent = torch.where(valid[..., None], mel, SILENCE)[0].numpy()
    np.testing.assert_allclose(y[0, :5], by_recursion(front_end, silent)[:5], rtol=1e-4, atol=1e-4)
    assert not y[:, 5:].any()


def test_frame_is_blind_to_gain() -> None:
    front_end, mel = make_front_end("frame"), 9 + noise(1, 80, 80)
    for shift in (-4.605, 4.605):
        assert (front_end(mel + shift)[0] - front_end(mel)[0]).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["none", "ema", "pcen"])
def test_the_others_notice_gain_at_first(kind: str) -> None:
    front_end, mel = make_front_end(kind), 9 + noise(1, 80, 80)
    change = (front_end(mel + 4.605)[0] - front_end(mel)[0]).abs()
    assert change[:, :8].mean() > 0.3


@pytest.mark.parametrize(("kind", "rest"), [("none", 1.0), ("ema", 0.01)])
def test_running_mean_forgets_gain(kind: str, rest: float) -> None:
    front_end, mel = make_front_end(kind), 9 + noise(1, 8 * 1000, 80)
    change = (front_end(mel + 2.0)[0] - front_end(mel)[0]) / front_end.scale / 2.0
    assert change[:, -800:].mean() == pytest.approx(rest, abs=0.01)


def test_cliff_between_digital_silence_and_the_softest_noise_is_bounded() -> None:
    steps = torch.randint(0, 2, (1, 50 * 1280)) * 2.0 - 1.0
    noise, zeros = fbank_offline(steps / 32768), fbank_offline(torch.zeros_like(steps))
    assert (noise - zeros).mean() > 20  # without the floor
    front_end = make_front_end("none")
    front_end.scale.fill_(1.0)
    cliff = front_end(noise)[0] - front_end(zeros)[0]
    assert cliff.mean() < MEAN_CLIFF
    assert cliff.abs().max() < BIN_CLIFF


def assert_silence_is_not_learnt(front_end: FrontEnd) -> None:
    _, before = front_end(mel_frames())
    _, after = front_end(torch.full((2, 8 * 500, 80), SILENCE), before)
    for a, b in zip(tensors_of(before), tensors_of(after), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", FRONT_ENDS)
def test_digital_silence_does_not_move_the_running_mean(kind: str) -> None:
    assert_silence_is_not_learnt(make_front_end(kind))


@pytest.mark.parametrize("kind", ["ema", "pcen"])
def test_audible_frames_move_the_running_mean(kind: str) -> None:
    front_end = make_front_end(kind)
    _, before = front_end(mel_frames())
    _, after = front_end(torch.full((2, 8, 80), 4.0), before)
    assert (after.mean - before.mean).abs().min() > 0


@pytest.mark.parametrize("kind", FRONT_ENDS)
def test_silence_before_speech_changes_nothing(kind: str) -> None:
    samples = torch.from_numpy(speechlike(20 * 1280).astype(np.float32))[None]
    late = torch.cat([torch.zeros(1, 30 * 1280), samples], dim=1)
    front_end = make_front_end(kind)
    assert torch.equal(front_end(fbank_offline(late))[0][:, 240:], front_end(fbank_offline(samples))[0])


class Forgetful(FrontEnd):
    """Mutant: every call starts afresh."""

    def forward(
        self, mel: Tensor, state: FrontEndState | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, FrontEndState]:
        return super().forward(mel, None, valid)


class Careless(FrontEnd):
    """Mutant: `valid` is ignored."""

    def forward(
        self, mel: Tensor, state: FrontEndState | None = None, valid: Tensor | None = None
    ) -> tuple[Tensor, FrontEndState]:
        return super().forward(mel, state)


class LearnsSilence(FrontEnd):
    """Mutant: digital silence counts as heard."""

    def _silence(self) -> float:
        return -torch.inf


def test_checks_notice_the_mutants() -> None:
    with pytest.raises(AssertionError):
        assert_exact_under_blocking(make_front_end("ema", Forgetful), [10, 20])
    with pytest.raises(AssertionError):
        assert_padding_is_inert(make_front_end("ema", Careless), 1e3)
    with pytest.raises(AssertionError):
        assert_silence_is_not_learnt(make_front_end("ema", LearnsSilence))


def test_calibration_gives_zero_mean_and_unit_variance() -> None:
    mel = 9 + torch.linspace(0.6, 3, 80) * noise(4, 400, 80) + torch.linspace(-3, 3, 80)
    front_end = make_front_end("none")
    front_end.calibrate(mel)
    y = front_end(mel.clamp(min=0.0))[0].flatten(0, 1)
    torch.testing.assert_close(y.mean(dim=0), torch.zeros(80), rtol=0, atol=1e-4)
    torch.testing.assert_close(y.std(dim=0), torch.ones(80), rtol=1e-3, atol=0)


def test_unknown_kind_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"frontend='cmvn' is not known: choose one of none, ema, frame"):
        FrontEndConfig("cmvn")
