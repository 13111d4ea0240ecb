"""A conversation of two synthetic voices that tests damage."""

from functools import cache

import numpy as np

from diarnorm.robustness.sound import Sound
from diarnorm.simulation.activity import runs_of
from diarnorm.simulation.synthetic import voice
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE
from diarnorm.turns import Turn

DURATION_S = 12.0


@cache
def talk() -> Sound:
    """12 s at 16 kHz: a voice of 200 Hz and one of 310 Hz, with overlap and pauses; nobody can write to it."""
    samples, turns = np.zeros(round(DURATION_S * SAMPLE_RATE), dtype=np.float32), []
    for name, pitch_hz, begin in (("anna", 200, 0.0), ("ben", 310, 5.0)):
        own, speech = voice(pitch_hz, 7.0, seed=round(pitch_hz))
        first = round(begin * SAMPLE_RATE)
        samples[first : first + len(own)] += own
        hops = runs_of(speech) * HOP_SAMPLES / SAMPLE_RATE + begin
        turns += [Turn(float(start), float(end), name) for start, end in hops]
    samples.setflags(write=False)
    return Sound(samples, tuple(sorted(turns)))


def flat(duration_s: float, value: float = 0.125, turns: tuple[Turn, ...] = ()) -> Sound:
    """The same value all the time: what a gain makes of it is the gain."""
    return Sound(np.full(round(duration_s * SAMPLE_RATE), value, dtype=np.float32), turns)


def gain_db(damaged: Sound, clean: Sound) -> np.ndarray:
    """Gain of each sample in dB."""
    return 20 * np.log10(damaged.samples.astype(np.float64) / clean.samples)


def rms_db(samples: np.ndarray) -> float:
    """Level in dB, 0 being the RMS of 1."""
    return float(10 * np.log10(np.square(samples.astype(np.float64)).mean()))
