"""Loud events: a breath on the microphone, a click, a door. One in each 5 s, at a level that refers to the speech."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from scipy.signal import butter, sosfilt

from diarnorm.robustness.level import speech_rms
from diarnorm.robustness.sound import Corruption, OnSamples, Sound, in_seconds, spread, with_samples
from diarnorm.timebase import SAMPLE_RATE, seconds_to_samples

EVERY_S = 5.0
Shape = Callable[[np.random.Generator], Float64[np.ndarray, " burst"]]


def plosive(rng: np.random.Generator) -> Float64[np.ndarray, " burst"]:
    """80 ms of air on the membrane: a wave that falls from 120 to 30 Hz and dies away."""
    time = np.arange(seconds_to_samples(0.08)) / SAMPLE_RATE
    phase = 2 * np.pi * (30 * time + 90 * 0.03 * (1 - np.exp(-time / 0.03)) * rng.uniform(0.8, 1.2))
    return np.sin(phase) * np.exp(-time / 0.03) * np.minimum(1, (0.08 - time) / 0.01)


def click(rng: np.random.Generator) -> Float64[np.ndarray, " burst"]:
    """2 ms of noise that is gone at once."""
    time = np.arange(seconds_to_samples(0.002)) / SAMPLE_RATE
    return rng.standard_normal(len(time)) * np.exp(-time / 0.0004)


def slam(rng: np.random.Generator) -> Float64[np.ndarray, " burst"]:
    """400 ms: a thud of 70 Hz, and dull noise that dies away in the room."""
    time = np.arange(seconds_to_samples(0.4)) / SAMPLE_RATE
    noise = sosfilt(butter(2, 1000, fs=SAMPLE_RATE, output="sos"), rng.standard_normal(len(time)))
    thud = np.sin(2 * np.pi * 70 * time) * np.exp(-time / 0.05)
    return (
        (noise * np.exp(-time / 0.06) + 0.5 * thud) * np.minimum(1, time / 0.002) * np.minimum(1, (0.4 - time) / 0.01)
    )


def add(shape: Shape) -> OnSamples:
    """Bursts of this shape, `severity` dB above the active speech level in RMS over their length."""

    def apply(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
        bursts = [shape(rng) for _ in range(max(1, int(sound.duration_s / EVERY_S)))]
        places = spread(len(sound.samples), [len(burst) for burst in bursts], rng)
        rms = speech_rms(sound.samples) * 10 ** (severity / 20)
        samples = sound.samples.astype(np.float64)
        for (start, end), burst in zip(places, bursts, strict=True):
            samples[start:end] += (rms / np.sqrt(np.square(burst).mean()) * burst)[: end - start]
        return with_samples(sound, samples, in_seconds(places))

    return apply


def _burst(name: str, what: str, shape: Shape) -> Corruption:
    meaning = f"{what}, one in each 5 s, RMS over its length X dB above the active speech level"
    return Corruption(f"burst.{name}", "dB", meaning, (0, 15, 30), (-60, 60), add(shape), neutral=-np.inf)


CORRUPTIONS = (
    _burst("plosive", "plosives of 80 ms below 120 Hz", plosive),
    _burst("click", "clicks of 2 ms", click),
    _burst("slam", "doors slammed, 400 ms", slam),
)
