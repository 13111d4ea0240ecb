"""Noise all the time, at a signal-to-noise ratio: active speech level to the RMS of the noise."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.signal import lfilter

from diarnorm.robustness.level import speech_rms
from diarnorm.robustness.silence import hum
from diarnorm.robustness.sound import Corruption, OnSamples, Sound, with_samples

NUM_VOICES = 8
PINK_B = (0.049922035, -0.095993537, 0.050612699, -0.004408786)
PINK_A = (1.0, -2.494956002, 2.017265875, -0.522189400)
"""White noise to -3 dB per octave; J. O. Smith, "Spectral Audio Signal Processing", 2011, example of 1/f noise."""

Noise = Callable[[Sound, np.random.Generator], Float[np.ndarray, " samples"]]


def white(sound: Sound, rng: np.random.Generator) -> Float[np.ndarray, " samples"]:
    """The same power at all frequencies."""
    return rng.standard_normal(len(sound.samples))


def pink(sound: Sound, rng: np.random.Generator) -> Float[np.ndarray, " samples"]:
    """The same power in all octaves."""
    return np.asarray(lfilter(PINK_B, PINK_A, rng.standard_normal(len(sound.samples))))


def babble(sound: Sound, rng: np.random.Generator) -> Float[np.ndarray, " samples"]:
    """Many voices at once: the recording itself, backwards and from eight places on."""
    backwards = sound.samples[::-1].astype(np.float64)
    shifts = (len(backwards) * rng.random(NUM_VOICES)).astype(int)
    return sum((np.roll(backwards, shift) for shift in shifts), start=np.zeros(len(backwards)))


def mains(hz: int) -> Noise:
    """Hum of the mains with its harmonics."""

    def make(sound: Sound, rng: np.random.Generator) -> Float[np.ndarray, " samples"]:
        return hum(hz, len(sound.samples))

    return make


def add(noise: Noise) -> OnSamples:
    """This noise, `severity` dB below the active speech level; none where it is silent itself."""

    def apply(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
        added = noise(sound, rng)
        rms = np.sqrt(np.square(added).mean()) if len(added) else 0.0
        if rms == 0:
            return sound
        scale = speech_rms(sound.samples) / 10 ** (severity / 20) / rms
        return with_samples(sound, sound.samples + scale * added)

    return apply


def _noise(name: str, what: str, noise: Noise, *, needs_finite: bool = False) -> Corruption:
    meaning = f"{what}, X dB below the active speech level"
    function = add(noise)
    return Corruption(
        f"noise.{name}", "dB SNR", meaning, (20, 10, 0), (-40, 100), function, neutral=np.inf, needs_finite=needs_finite
    )


CORRUPTIONS = (
    _noise("white", "white noise", white),
    _noise("pink", "pink noise", pink),
    _noise("babble", "eight voices at once, made of the recording backwards", babble, needs_finite=True),
    _noise("hum_50", "mains hum of 50 Hz", mains(50)),
    _noise("hum_60", "mains hum of 60 Hz", mains(60)),
)
