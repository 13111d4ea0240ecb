"""Samples lost or spoilt on the way: packets that did not arrive, numbers that are none."""

import numpy as np

from diarnorm.robustness.sound import Corruption, OnSamples, Sound, in_seconds, spread, with_samples
from diarnorm.timebase import SAMPLE_RATE

DROPOUT_S = (0.02, 0.06)
SPOILT_SAMPLES = (1, 160)


def dropouts(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Stretches of 20 to 60 ms become zeros."""
    lengths = (SAMPLE_RATE * rng.uniform(*DROPOUT_S, _number(sound, severity))).astype(int)
    places = spread(len(sound.samples), lengths.tolist(), rng)
    samples = sound.samples.copy()
    for start, end in places:
        samples[start:end] = 0
    return with_samples(sound, samples, in_seconds(places))


def spoil(value: float) -> OnSamples:
    """Stretches of 1 to 160 samples become `value`, or its negative."""

    def apply(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
        low, high = np.log(SPOILT_SAMPLES)
        lengths = np.exp(rng.uniform(low, high, _number(sound, severity))).round().astype(int)
        places = spread(len(sound.samples), lengths.tolist(), rng)
        samples = sound.samples.copy()
        for (start, end), sign in zip(places, rng.choice([-1, 1], len(places)), strict=True):
            samples[start:end] = sign * value
        return with_samples(sound, samples, in_seconds(places))

    return apply


def _number(sound: Sound, per_minute: float) -> int:
    return max(1, round(per_minute * sound.duration_s / 60))


LIMITS = (0.01, 600.0)
CORRUPTIONS = (
    Corruption(
        "damage.dropouts", "per min", "X times a minute 20 to 60 ms become zeros", (6, 30, 120), LIMITS, dropouts
    ),
    Corruption(
        "damage.nan", "per min", "X times a minute 1 to 160 samples become NaN", (2, 10, 60), LIMITS, spoil(np.nan)
    ),
    Corruption(
        "damage.inf", "per min", "X times a minute 1 to 160 samples become infinite", (2, 10, 60), LIMITS, spoil(np.inf)
    ),
)
