"""Further voices from one voice: pitch and vocal tract are changed, words and tempo stay.

Pitch: the samples are stretched in time by WSOLA (W. Verhelst and M. Roelands, 1993) and resampled back to their
length, which moves pitch and formants together. Vocal tract: in each frame of a short-time Fourier transform the
spectral envelope (the low end of the cepstrum) is read off at other frequencies, and the spectrum is scaled by the
ratio of the two envelopes; the harmonics stay where they are. The second step also puts back the formants that the
first has moved, so that the two are independent.
"""

from dataclasses import dataclass

import numpy as np
import soxr
import torch
from jaxtyping import Float32

from diarnorm.timebase import SAMPLE_RATE

LIMITS = (0.5, 2.0)
"""Least and greatest factor."""
HOP_SAMPLES, REACH_SAMPLES = 256, 160
"""WSOLA: distance of two windows of twice that length, and how far a window may move to fit the one before."""
FFT_SAMPLES, FFT_HOP_SAMPLES = 512, 128
"""Short-time Fourier transform."""
LIFTER_S = 0.0018
"""The cepstrum below this is the envelope; the pitch period of any voice is longer."""
MAX_GAIN = 10.0
"""No frequency is scaled by more than this, or by less than its inverse."""


@dataclass(frozen=True)
class Warp:
    """A further voice: `pitch` times as high, spoken through a vocal tract `tract` times as long.

    Raises:
        ValueError: a factor out of range, or none that changes anything.
    """

    pitch: float = 1.0
    tract: float = 1.0

    def __post_init__(self) -> None:
        low, high = LIMITS
        for name in ("pitch", "tract"):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"warp {name}={value} is out of range: give a factor from {low:g} to {high:g}")
        if self.pitch == self.tract == 1.0:
            raise ValueError("a warp with pitch=1 and tract=1 is the voice itself: change one of them, or leave it out")

    @property
    def name(self) -> str:
        """Short and telling: `p1.15`, `t0.9`, `p1.15t0.9`."""
        parts = [(letter, value) for letter, value in (("p", self.pitch), ("t", self.tract)) if value != 1.0]
        return "".join(f"{letter}{value:g}" for letter, value in parts)


def warp_voice(samples: Float32[np.ndarray, " samples"], warp: Warp) -> Float32[np.ndarray, " samples"]:
    """The same words in another voice, sample for sample at the same time."""
    if not len(samples):
        return samples
    out = samples
    if warp.pitch != 1.0:
        higher = soxr.resample(stretch(samples, warp.pitch), warp.pitch, 1.0)
        out = np.zeros_like(samples)
        kept = min(len(out), len(higher))
        out[:kept] = higher[:kept]
    scale = 1.0 / (warp.tract * warp.pitch)
    return out if abs(scale - 1.0) < 1e-9 else move_formants(out, scale)


def stretch(samples: Float32[np.ndarray, " samples"], ratio: float) -> Float32[np.ndarray, " stretched"]:
    """`ratio` times as long at the same pitch: windows are laid `ratio` times as far apart, each moved to where it
    continues the one before best."""
    window_samples, num_out = 2 * HOP_SAMPLES, round(len(samples) * ratio)
    window = np.hanning(window_samples + 1)[:-1].astype(np.float32)
    margin = REACH_SAMPLES + window_samples
    padded = np.pad(samples, (margin, margin + 2 * window_samples))
    energy = np.concatenate([[0.0], np.cumsum(np.square(padded, dtype=np.float64))])
    out = np.zeros(num_out + 3 * window_samples, dtype=np.float32)
    at = 0
    for number in range(num_out // HOP_SAMPLES + 2):
        target = margin + round(number * HOP_SAMPLES / ratio) - HOP_SAMPLES  # centres, not starts, correspond
        first = min(max(target - REACH_SAMPLES, 0), len(padded) - window_samples - 2 * REACH_SAMPLES)
        if number == 0:
            at = first + REACH_SAMPLES
        else:
            wanted = padded[at + HOP_SAMPLES : at + HOP_SAMPLES + window_samples]
            region = padded[first : first + 2 * REACH_SAMPLES + window_samples]
            starts = first + np.arange(2 * REACH_SAMPLES + 1)
            loudness = np.sqrt(energy[starts + window_samples] - energy[starts] + 1e-9)
            at = first + int(np.argmax(np.correlate(region, wanted, "valid") / loudness))
        begin = number * HOP_SAMPLES
        out[begin : begin + window_samples] += padded[at : at + window_samples] * window
    return out[HOP_SAMPLES : HOP_SAMPLES + num_out]


def move_formants(samples: Float32[np.ndarray, " samples"], scale: float) -> Float32[np.ndarray, " samples"]:
    """The same harmonics under a spectral envelope whose peaks lie at `scale` times their frequency."""
    window = torch.hann_window(FFT_SAMPLES)
    spectrum = torch.stft(
        torch.from_numpy(samples), FFT_SAMPLES, FFT_HOP_SAMPLES, window=window, pad_mode="constant", return_complex=True
    ).T
    cepstrum = torch.fft.irfft(torch.log(spectrum.abs() + 1e-6), FFT_SAMPLES)
    low = round(LIFTER_S * SAMPLE_RATE)
    cepstrum[:, low : FFT_SAMPLES - low + 1] = 0
    envelope = torch.fft.rfft(cepstrum, FFT_SAMPLES).real
    bins = FFT_SAMPLES // 2 + 1
    source = (torch.arange(bins) / scale).clamp(max=bins - 1)
    below = source.long().clamp(max=bins - 2)
    moved = torch.lerp(envelope[:, below], envelope[:, below + 1], source - below)
    gain = torch.exp(moved - envelope).clamp(1 / MAX_GAIN, MAX_GAIN)
    out = torch.istft((spectrum * gain).T, FFT_SAMPLES, FFT_HOP_SAMPLES, window=window, length=len(samples))
    return out.numpy()
