"""Offsets: a microphone that is not calibrated, one that jumps, one that drifts."""

import numpy as np

from diarnorm.robustness.sound import Corruption, Sound, in_seconds, with_samples
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE

DRIFT_HZ = 0.1


def offset(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """The same number added to every sample."""
    return with_samples(sound, sound.samples + np.float32(severity))


def step(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """An offset that sets in somewhere in the middle third and stays; the 10 ms from there on are the event."""
    num_samples = len(sound.samples)
    at = int(num_samples * rng.uniform(1 / 3, 2 / 3))
    added = np.float32(severity) * (np.arange(num_samples) >= at)
    return with_samples(sound, sound.samples + added, in_seconds([(at, min(at + HOP_SAMPLES, num_samples))]))


def drift(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """An offset that goes up and down, a sine of 0.1 Hz."""
    phase = 2 * np.pi * (DRIFT_HZ / SAMPLE_RATE * np.arange(len(sound.samples)) + rng.random())
    return with_samples(sound, sound.samples + severity * np.sin(phase))


UNIT, SEVERITIES, LIMITS = "of full scale", (0.001, 0.01, 0.1), (-1.0, 1.0)
CORRUPTIONS = (
    Corruption("dc.offset", UNIT, "X added to every sample", SEVERITIES, LIMITS, offset),
    Corruption("dc.step", UNIT, "X added from somewhere in the middle third on", SEVERITIES, LIMITS, step),
    Corruption("dc.drift", UNIT, "an offset between +X and -X, a sine of 0.1 Hz", SEVERITIES, LIMITS, drift),
)
