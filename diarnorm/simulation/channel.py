"""From the microphone to 16 bits: hum, level, swings, DC, clipping and companding of a stretch of samples, in place.

All of it is a function of the position in the conversation, so a long one can be done in parts.
"""

from itertools import zip_longest

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from diarnorm.simulation.conversation import A_LAW, MU_LAW, Channel, db_to_ratio
from diarnorm.simulation.tracks import FULL_SCALE
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE

A = 87.6
"""Of A-law companding (ITU-T G.711)."""


def add_hum(samples: Float[Tensor, " samples"], channel: Channel, first: int = 0) -> None:
    """Mains hum with its harmonics; `first` is the position of the first sample, here and below."""
    if not channel.hum_gain.any():
        return
    period = SAMPLE_RATE // 10  # a whole number of cycles of 50 and of 60 Hz
    harmonics = np.arange(1, len(channel.hum_gain) + 1)
    phase = 2 * np.pi * int(channel.hum_hz) / SAMPLE_RATE * (first + np.arange(period))[:, None] * harmonics
    cycle = torch.from_numpy(np.sin(phase) @ channel.hum_gain).to(samples)
    hum = cycle.repeat(-(-len(samples) // period))[: len(samples)]
    edges = np.clip(channel.hum_switches - first, 0, len(samples))
    for off, on in zip_longest(edges[::2], edges[1::2], fillvalue=len(samples)):
        hum[off:on] = 0
    samples += hum


def apply_channel(samples: Float[Tensor, " samples"], channel: Channel, level: Tensor, first: int = 0) -> None:
    """Everything after the hum; `level` is the RMS of active speech before, a tensor of no dimension, and `first` a
    multiple of a hop."""
    target = float(db_to_ratio(channel.level_db))
    samples *= target / level
    if len(channel.swing_samples):
        samples *= swing_gain(channel, len(samples), first).to(samples)
    if channel.dc != 0:
        samples += float(channel.dc)
    if np.isfinite(channel.clip_above_rms_db):
        limit = float(db_to_ratio(channel.level_db + channel.clip_above_rms_db))
        samples.clamp_(-limit, limit)
    if channel.companding == MU_LAW:
        samples.copy_(mu_law(samples))
    elif channel.companding == A_LAW:
        samples.copy_(a_law(samples))
    samples.mul_(FULL_SCALE).round_().clamp_(-FULL_SCALE, FULL_SCALE - 1).div_(FULL_SCALE)


def swing_gain(channel: Channel, num_samples: int, first: int) -> Float[Tensor, " samples"]:
    """Gain that jumps at the given samples, over one hop each."""
    hops = first // HOP_SAMPLES + np.arange(num_samples // HOP_SAMPLES + 2)
    which = np.searchsorted(channel.swing_samples, hops * HOP_SAMPLES, side="right")
    gain = db_to_ratio(np.concatenate([[0.0], channel.swing_db])[which])
    steps = np.diff(gain)[:, None] * (np.arange(HOP_SAMPLES) / HOP_SAMPLES) + gain[:-1, None]
    return torch.from_numpy(steps.reshape(-1)[:num_samples])


def mu_law(samples: Float[Tensor, " samples"], bits: int = 8) -> Float[Tensor, " samples"]:
    """Mu-law of so many bits, and back."""
    scale, codes = float(np.log1p(255)), 2 ** (bits - 1) - 1
    code = torch.log1p(255 * samples.abs().clamp_max(1)) / scale * samples.sign()
    code = torch.round(code * codes) / codes
    return torch.expm1(code.abs() * scale) / 255 * code.sign()


def a_law(samples: Float[Tensor, " samples"]) -> Float[Tensor, " samples"]:
    """8-bit A-law and back."""
    scale = float(1 + np.log(A))
    size = samples.abs().clamp_max(1) * A
    code = torch.where(size < 1, size, 1 + torch.log(size.clamp_min(1))) / scale
    code = torch.round(code * 127) / 127 * scale
    return torch.where(code < 1, code, torch.exp(code - 1)) / A * samples.sign()
