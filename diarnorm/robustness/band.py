"""What a telephone leaves: part of the band, few bits."""

import numpy as np
import soxr

from diarnorm.robustness.sound import Corruption, Sound, with_samples
from diarnorm.timebase import SAMPLE_RATE


def limit(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Resampled to twice the upper frequency and back: the band of a narrower recording."""
    narrow = soxr.resample(sound.samples, SAMPLE_RATE, 2 * severity)
    wide = soxr.resample(narrow, 2 * severity, SAMPLE_RATE)[: len(sound.samples)]
    return with_samples(sound, np.pad(wide, (0, len(sound.samples) - len(wide))))


def mu_law(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Mu-law (ITU-T G.711 with 8 bits) and back; what is beyond full scale is clipped."""
    import torch  # only here, so that a list of corruptions is there at once

    from diarnorm.simulation import channel

    if severity != round(severity):
        raise ValueError(f"band.mu_law={severity:g} is no number of bits: give {int(severity)} or {int(severity) + 1}")
    return with_samples(sound, channel.mu_law(torch.from_numpy(sound.samples.copy()), round(severity)).numpy())


CORRUPTIONS = (
    Corruption(
        "band.limit",
        "Hz",
        "nothing above X Hz",
        (6000, 4000, 2000),
        (200, SAMPLE_RATE / 2),
        limit,
        neutral=SAMPLE_RATE / 2,
        needs_finite=True,
    ),
    Corruption(
        "band.mu_law",
        "bits",
        "companded to X bits by mu-law, and back",
        (8, 6, 4),
        (2, 12),
        mu_law,
        neutral=np.inf,
        needs_finite=True,
    ),
)
