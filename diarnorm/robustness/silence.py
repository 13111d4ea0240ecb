"""Silence put in: digital zeros, the last bit of a converter, mains hum. References are shifted with the speech.

What goes in the middle, or between, goes to the quietest 10 ms within a second of there, as between two words.
"""

import numpy as np
from jaxtyping import Float, Float32

from diarnorm.robustness.sound import Corruption, OnSamples, Sound, insert
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE, seconds_to_samples

GAP_EVERY_S = 10.0
"""Gaps are at most this far apart."""
REACH_S = 1.0
HUM_PEAK = 0.02
"""Of the fundamental, about -37 dBFS."""
HUM_FALL = 0.6
"""Each of the harmonics has this share of the one below."""
NUM_HARMONICS = 5
LSB = 1 / 32_768


def start(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Zeros in front."""
    return insert(sound, [0], np.zeros(seconds_to_samples(severity)))


def middle(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Zeros in the middle."""
    return _in_the_middle(sound, np.zeros(seconds_to_samples(severity)))


def end(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Zeros behind."""
    return insert(sound, [len(sound.samples)], np.zeros(seconds_to_samples(severity)))


def gaps(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Zeros again and again."""
    num_gaps = max(1, int(sound.duration_s / GAP_EVERY_S))
    targets = [len(sound.samples) * number // (num_gaps + 1) for number in range(1, num_gaps + 1)]
    places = sorted({quiet_place(sound.samples, target) for target in targets})
    return insert(sound, places, np.zeros(seconds_to_samples(severity)))


def lsb(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """The last of 16 bits in the middle: -1, 0 and 1 at random."""
    return _in_the_middle(sound, LSB * rng.integers(-1, 2, seconds_to_samples(severity)))


def hum_alone(hz: int) -> OnSamples:
    """Mains hum in the middle, and nothing else."""

    def apply(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
        return _in_the_middle(sound, HUM_PEAK * hum(hz, seconds_to_samples(severity)))

    return apply


def hum(hz: int, num_samples: int) -> Float[np.ndarray, " samples"]:
    """A mains tone of amplitude 1 with its harmonics."""
    phase = 2 * np.pi * hz / SAMPLE_RATE * np.arange(num_samples)
    return sum((HUM_FALL**k * np.sin((k + 1) * phase) for k in range(NUM_HARMONICS)), start=np.zeros(num_samples))


def quiet_place(samples: Float32[np.ndarray, " samples"], target: int) -> int:
    """The start of the quietest 10 ms within a second of `target`, the nearest of several."""
    reach = seconds_to_samples(REACH_S)
    first = max(0, target - reach)
    part = np.nan_to_num(samples[first : target + reach], posinf=0, neginf=0).astype(np.float64)
    hops = part[: len(part) // HOP_SAMPLES * HOP_SAMPLES].reshape(-1, HOP_SAMPLES)
    if not len(hops):
        return target
    power = np.square(hops).mean(axis=1)
    places = first + HOP_SAMPLES * np.arange(len(hops))
    quietest = places[power == power.min()]
    return int(quietest[np.abs(quietest - target).argmin()])


def _in_the_middle(sound: Sound, filling: Float[np.ndarray, " inserted"]) -> Sound:
    return insert(sound, [quiet_place(sound.samples, len(sound.samples) // 2)], filling)


def _putting_in(name: str, meaning: str, severities: tuple[float, float, float], apply: OnSamples) -> Corruption:
    return Corruption(f"silence.{name}", "s", meaning, severities, (0.001, 3600.0), apply, puts_in=True)


CORRUPTIONS = (
    _putting_in("start", "X s of digital zeros put in front", (1.0, 10.0, 30.0), start),
    _putting_in("middle", "X s of digital zeros put in the middle", (1.0, 10.0, 30.0), middle),
    _putting_in("end", "X s of digital zeros put behind", (1.0, 10.0, 30.0), end),
    _putting_in("gaps", "X s of digital zeros put in about every 10 s", (0.5, 2.0, 10.0), gaps),
    _putting_in("lsb", "X s of noise in the last of 16 bits put in the middle", (1.0, 10.0, 30.0), lsb),
    _putting_in("hum_50", "X s of mains hum of 50 Hz put in the middle", (1.0, 10.0, 30.0), hum_alone(50)),
    _putting_in("hum_60", "X s of mains hum of 60 Hz put in the middle", (1.0, 10.0, 30.0), hum_alone(60)),
)
