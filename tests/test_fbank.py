"""Log-mel frames against two Kaldi implementations and a float64 one; blocking, level, offset, silence."""

import math
from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np
import pytest
import soundfile
import torch
import torchaudio.compliance.kaldi as torchaudio_kaldi
from hypothesis import given, settings
from torch import Tensor

from diarnorm.fbank import BLOCK_SAMPLES, LOG_FLOOR, Fbank, FbankState, fbank_offline
from diarnorm.resources import samples_dir
from diarnorm.timebase import FRAME_SAMPLES
from tests.tiny import in_steps, whole_chunks
from tests.wavbytes import speechlike

NUM_FRAMES = 2 * BLOCK_SAMPLES // FRAME_SAMPLES + 7
KALDI_TOLERANCE = 1e-3
LSB_NOISE = 4.0
"""Mean log-mel of noise of one int16 step. Below it, beside a loud voice in another bin, float32 rounding of
the Fourier transform shows, and the two Kaldi implementations differ from one another by more than that."""


def speech(num_frames: int = NUM_FRAMES, seed: int = 0) -> Tensor:
    """Speech-like samples on the int16 grid, so that small offsets and powers of two add exactly."""
    samples = np.round(speechlike(num_frames * FRAME_SAMPLES, seed=seed) * 32768) / 32768
    return torch.from_numpy(samples.astype(np.float32))[None]


def by_torchaudio(samples: Tensor) -> Tensor:
    """Mel frames `[mel_frames, 80]` of int16-scaled samples `[1, n]`."""
    return torchaudio_kaldi.fbank(samples, num_mel_bins=80, dither=0.0, sample_frequency=16_000)


def by_kaldi_native(samples: Tensor) -> Tensor:
    """The same from kaldi-native-fbank."""
    options = knf.FbankOptions()
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = 80
    online = knf.OnlineFbank(options)
    online.accept_waveform(16_000, samples[0].tolist())
    online.input_finished()
    return torch.from_numpy(np.stack([online.get_frame(i) for i in range(online.num_frames_ready)]))


def by_the_book(samples: Tensor) -> Tensor:
    """The same in float64, bin by bin from the definition."""
    x = samples[0].double().numpy()
    n = np.arange(400)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * n / 399)) ** 0.85
    low_mel, high_mel = (1127 * math.log(1 + hz / 700) for hz in (20, 8000))
    edges = np.linspace(low_mel, high_mel, 82)
    mel = 1127 * np.log(1 + np.arange(256) * 16_000 / 512 / 700)
    frames = []
    for start in range(0, len(x) - 399, 160):
        piece = x[start : start + 400] - x[start : start + 400].mean()
        piece = np.append(piece[0] * (1 - 0.97), piece[1:] - 0.97 * piece[:-1]) * window
        power = np.abs(np.fft.rfft(piece, 512)[:256]) ** 2
        energy = [
            sum(
                p * min((m - low) / (centre - low), (high - m) / (high - centre))
                for p, m in zip(power, mel, strict=True)
                if low < m < high
            )
            for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False)
        ]
        frames.append(np.log(np.maximum(energy, 2.0**-23)))
    return torch.from_numpy(np.array(frames))


def with_context(samples: Tensor) -> Tensor:
    """240 zeros in front, on the int16 scale: what Kaldi must be given."""
    return torch.cat([torch.zeros(1, 240), samples], dim=1) * 32768


def assert_close_to_kaldi(mel: Tensor, samples: Tensor) -> None:
    for reference in (by_torchaudio(with_context(samples)), by_kaldi_native(with_context(samples))):
        assert reference.shape == mel.shape[1:]
        heard = reference >= LSB_NOISE
        assert heard.float().mean() > 0.5
        assert (mel[0] - reference)[heard].abs().max() < KALDI_TOLERANCE


def test_equals_kaldi_on_a_speechlike_signal() -> None:
    samples = speech()
    mel, _ = Fbank()(samples)
    assert mel.shape == (1, samples.shape[1] // 160, 80)
    assert_close_to_kaldi(mel, samples)


@pytest.mark.parametrize("path", sorted(samples_dir().glob("*.flac")), ids=lambda path: path.stem)
def test_equals_kaldi_on_recordings(path: Path) -> None:
    samples = torch.from_numpy(soundfile.read(path, dtype="float32", frames=30 * 16_000)[0])[None]
    if not samples.any():
        pytest.skip("digital silence")
    samples = samples[:, : samples.shape[1] // FRAME_SAMPLES * FRAME_SAMPLES]
    assert_close_to_kaldi(fbank_offline(samples), samples)


def test_equals_the_definition_in_float64() -> None:
    samples = speech(5)
    mel, _ = Fbank()(samples)
    assert (mel[0] - by_the_book(with_context(samples))).abs().max() < 2e-4


@pytest.mark.parametrize("shift", [1, 160], ids=["one sample", "one hop"])
def test_parity_notices_a_shift(shift: int) -> None:
    samples = speech(10)
    mel, _ = Fbank()(samples.roll(shift, dims=1))
    with pytest.raises(AssertionError):
        assert_close_to_kaldi(mel, samples)


def assert_exact_under_blocking(fbank: Fbank, sizes: list[int]) -> None:
    samples = torch.cat([speech(), speech(seed=1)])
    whole, last = fbank(samples)
    pieces, state = in_steps(fbank, None, samples, [size * FRAME_SAMPLES for size in sizes])
    assert torch.equal(torch.cat(pieces, dim=1), whole)
    assert torch.equal(state.samples, last.samples)  # pyright: ignore[reportAttributeAccessIssue]


@settings(max_examples=15)
@given(whole_chunks(NUM_FRAMES))
def test_exact_under_any_blocking(sizes: list[int]) -> None:
    assert_exact_under_blocking(Fbank(), sizes)


def test_frame_by_frame_is_exact() -> None:
    assert_exact_under_blocking(Fbank(), [1] * NUM_FRAMES)


class Forgetful(Fbank):
    """Mutant: every call starts from silence."""

    def forward(self, samples: Tensor, state: FbankState | None = None) -> tuple[Tensor, FbankState]:
        return super().forward(samples)


class LateState(Fbank):
    """Mutant: the state is one sample late."""

    def forward(self, samples: Tensor, state: FbankState | None = None) -> tuple[Tensor, FbankState]:
        mel, state = super().forward(samples, state)
        return mel, FbankState(state.samples.roll(1, dims=1))


@pytest.mark.parametrize("mutant", [Forgetful, LateState])
def test_blocking_check_notices_a_wrong_state(mutant: type[Fbank]) -> None:
    with pytest.raises(AssertionError):
        assert_exact_under_blocking(mutant(), [10, NUM_FRAMES - 10])


def test_row_in_a_batch_is_the_row_alone() -> None:
    rows = torch.cat([speech(30, seed) for seed in range(7)])
    together, _ = Fbank()(rows)
    for row, mel in zip(rows.split(1), together.split(1), strict=True):
        assert torch.equal(Fbank()(row)[0], mel)


def test_state_is_the_last_240_samples_and_nothing_more() -> None:
    samples = speech(3)
    _, state = Fbank()(samples)
    assert torch.equal(state.samples, samples[:, -240:] * 32768)
    assert state.samples.untyped_storage().nbytes() == 240 * 4


def test_no_samples_change_nothing() -> None:
    _, state = Fbank()(speech(1))
    mel, after = Fbank()(torch.zeros(1, 0), state)
    assert mel.shape == (1, 0, 80)
    assert torch.equal(after.samples, state.samples)


@pytest.mark.parametrize("gain_db", [-40, -20, -6, -0.72, 0.72, 6, 20])
def test_gain_shifts_every_bin_by_twice_its_logarithm(gain_db: float) -> None:
    gain = 10 ** (gain_db / 20)
    samples = speech(20)
    shift = Fbank()(samples * gain)[0] - Fbank()(samples)[0]
    assert (shift - 2 * math.log(gain)).abs().max() < 1e-3


def test_samples_beyond_full_scale_are_kept() -> None:
    samples = speech(10) * 64
    assert samples.abs().max() > 6
    shift = Fbank()(samples)[0] - Fbank()(samples / 64)[0]
    assert (shift - 2 * math.log(64)).abs().max() < 1e-4


def test_samples_are_scaled_to_int16_before_the_floor() -> None:
    samples = speech(10)
    mel, unscaled = Fbank()(samples)[0], by_torchaudio(with_context(samples) / 32768)
    heard = unscaled > LOG_FLOOR + 3
    assert ((mel[0] - unscaled)[heard] - 2 * math.log(32768)).abs().max() < 2e-3


def test_digital_silence_is_the_logarithm_of_float_epsilon() -> None:
    mel, _ = Fbank()(torch.zeros(1, 3 * FRAME_SAMPLES))
    assert torch.equal(mel, torch.full_like(mel, math.log(2.0**-23)))
    assert pytest.approx(-15.9424, abs=1e-4) == LOG_FLOOR


@pytest.mark.parametrize("offset", [-0.5, 0.001, 0.1, 0.5])
def test_offset_is_gone_after_two_mel_frames(offset: float) -> None:
    samples = speech(20)
    change = (Fbank()(samples + offset)[0] - Fbank()(samples)[0]).abs()
    assert change[:, 2:].max() < 1e-3
    assert change[:, :2].max() > 0.1  # the step at the onset is heard


def test_not_a_number_stays_in_the_windows_it_lies_in() -> None:
    samples = speech(20)
    damaged = samples.clone()
    damaged[0, 5000] = torch.nan
    clean, mel = Fbank()(samples)[0], Fbank()(damaged)[0]
    touched = mel.isnan().any(dim=-1)[0].nonzero()[:, 0].tolist()
    assert touched == [i for i in range(160) if 160 * i - 240 <= 5000 < 160 * i + 160]
    assert torch.equal(mel[~mel.isnan()], clean[~mel.isnan()])


def test_offline_leaves_out_a_partial_frame() -> None:
    samples = speech(4)
    assert torch.equal(fbank_offline(samples[:, :-1]), Fbank()(samples[:, : 3 * FRAME_SAMPLES])[0])


def test_partial_frames_are_refused() -> None:
    with pytest.raises(ValueError, match=r"whole frames of 1280 samples, got 1281"):
        Fbank()(torch.zeros(1, 1281))


def test_nothing_in_it_is_saved_or_trained() -> None:
    assert not list(Fbank().parameters())
    assert not Fbank().state_dict()
