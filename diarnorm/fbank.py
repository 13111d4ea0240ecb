"""Log-mel filter bank after Kaldi's definition, exact under any blocking.

25 ms windows every 10 ms, mean of each window removed, pre-emphasis 0.97, Povey window, 512-point power spectrum,
80 triangular filters between 20 Hz and 8 kHz on Kaldi's mel scale, natural logarithm floored at float32 epsilon,
no dither. Samples in [-1, 1] are scaled to the int16 range first, explicitly, because Kaldi's features are defined on
that scale.

The state is the last 240 samples (zeros at the start of a recording), so `samples // 160` mel frames come out, and they
equal Kaldi's (`snip_edges=True`) on the signal with 240 zeros in front. Mel frames are computed in groups of 8:
a matrix product of one row differs from a product of eight in the last bit, and groups of one size do not.

Source: D. Povey et al., "The Kaldi speech recognition toolkit", 2011 (feature-window.cc, mel-computations.cc).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diarnorm.timebase import FRAME_SAMPLES, HOP_SAMPLES, MELS_PER_FRAME, NUM_MELS, SAMPLE_RATE, WINDOW_SAMPLES

FFT_SIZE = 512
CONTEXT_SAMPLES = WINDOW_SAMPLES - HOP_SAMPLES
BLOCK_SAMPLES = 25 * FRAME_SAMPLES
"""Audio per inner step of a long call: its windows stay in the cache, five times faster than all at once."""
INT16_SCALE = 32768.0
PREEMPHASIS = 0.97
LOW_HZ = 20.0
EPSILON = torch.finfo(torch.float32).eps
LOG_FLOOR = math.log(EPSILON)
"""Value of every bin on digital silence, about -15.94."""


class FbankState(NamedTuple):
    """The last 240 samples seen, on the int16 scale."""

    samples: Float[Tensor, "batch 240"]


def povey_window(length: int = WINDOW_SAMPLES) -> Float[Tensor, " length"]:
    """Symmetric Hann window to the power 0.85."""
    return torch.hann_window(length, periodic=False, dtype=torch.float64).pow(0.85).float()


def mel_filters() -> Float[Tensor, "bins mels"]:
    """Kaldi's triangular filters `[257, 80]`: triangles on the mel scale, unit height."""

    def to_mel(hz: Tensor) -> Tensor:
        return 1127.0 * torch.log1p(hz / 700.0)

    low, high = to_mel(torch.tensor([LOW_HZ, SAMPLE_RATE / 2], dtype=torch.float64))
    edges = torch.linspace(float(low), float(high), NUM_MELS + 2, dtype=torch.float64)
    bins = to_mel(torch.arange(FFT_SIZE // 2 + 1, dtype=torch.float64) * SAMPLE_RATE / FFT_SIZE)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    filters = torch.minimum(rising, falling).clamp(min=0.0)
    filters[-1] = 0.0  # Kaldi leaves the Nyquist bin out
    return filters.float()


class Fbank(nn.Module):
    """Samples to log-mel frames, whole frames of 1280 samples at a time."""

    window: Tensor
    filters: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", povey_window(), persistent=False)
        self.register_buffer("filters", mel_filters(), persistent=False)

    def init_state(self, batch_size: int) -> FbankState:
        """Zeros in front of the recording."""
        return FbankState(self.window.new_zeros(batch_size, CONTEXT_SAMPLES))

    def forward(
        self, samples: Float[Tensor, "batch samples"], state: FbankState | None = None
    ) -> tuple[Float[Tensor, "batch mel_frames 80"], FbankState]:
        """Mel frames of `samples` in [-1, 1]; their number is a multiple of 1280.

        Raises ValueError when the number of samples is not a whole number of frames.
        """
        batch_size, num_samples = samples.shape
        if num_samples % FRAME_SAMPLES:
            raise ValueError(f"fbank takes whole frames of {FRAME_SAMPLES} samples, got {num_samples}: pad or re-block")
        if state is None:
            state = self.init_state(batch_size)
        padded = torch.cat([state.samples, samples * INT16_SCALE], dim=1)
        mel = samples.new_empty(batch_size, num_samples // HOP_SAMPLES, NUM_MELS)
        for start in range(0, num_samples, BLOCK_SAMPLES):
            block = padded[:, start : start + BLOCK_SAMPLES + CONTEXT_SAMPLES]
            first = start // HOP_SAMPLES
            mel[:, first : first + BLOCK_SAMPLES // HOP_SAMPLES] = self._log_mel(block)
        tail = padded[:, padded.shape[1] - CONTEXT_SAMPLES :]
        return mel, FbankState(tail.clone(memory_format=torch.contiguous_format))

    def _log_mel(self, padded: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch mel_frames 80"]:
        windows = padded.unfold(1, WINDOW_SAMPLES, HOP_SAMPLES)
        windows = windows - windows.mean(dim=-1, keepdim=True)
        previous = torch.cat([windows[..., :1], windows[..., :-1]], dim=-1)
        spectrum = torch.fft.rfft((windows - PREEMPHASIS * previous) * self.window, n=FFT_SIZE)
        power = spectrum.real.square() + spectrum.imag.square()
        groups = power.reshape(-1, MELS_PER_FRAME, FFT_SIZE // 2 + 1)
        energy = torch.bmm(groups, self.filters.expand(groups.shape[0], -1, -1))
        return energy.clamp(min=EPSILON).log().reshape(padded.shape[0], -1, NUM_MELS)


def fbank_offline(samples: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch mel_frames 80"]:
    """Mel frames of whole recordings `[batch, samples]` from a fresh state; a last partial frame is left out."""
    whole = samples.shape[1] - samples.shape[1] % FRAME_SAMPLES
    mel, _ = Fbank().to(samples.device)(samples[:, :whole])
    return mel
