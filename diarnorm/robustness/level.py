"""Active speech level: the level of speech without its pauses, after ITU-T P.56 (method B).

The envelope of the samples passes thresholds 6 dB apart, with 0.2 s of hangover; the level is that of the power in the
time above the threshold that lies 15.9 dB below the level itself. Two things differ from the letter: thresholds hang
from the peak of the envelope and not from full scale, so that a gain moves the level by exactly as much; and what is
below 50 Hz is taken out first, so that an offset is no speech.
"""

import numpy as np
from jaxtyping import Float32
from scipy.signal import butter, lfilter, sosfilt

from diarnorm.simulation.activity import runs_of
from diarnorm.timebase import SAMPLE_RATE, seconds_to_samples

TIME_CONSTANT_S, HANGOVER_S = 0.03, 0.2
MARGIN_DB = 15.9
NUM_THRESHOLDS = 16
LOW_HZ = 50.0
USUAL_DB = -26.0
"""Level of speech in dBFS that ITU-T's tests use: what stands for the level of a recording that is silent."""
FLOOR = 1e-9
"""An envelope that stays below this is silence."""


def active_speech_level(samples: Float32[np.ndarray, " samples"]) -> float | None:
    """Level in dB, 0 being the RMS of 1; None for silence. Samples that are not finite count as zeros."""
    if not len(samples):
        return None
    finite = np.nan_to_num(samples, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float64)
    speech = sosfilt(butter(2, LOW_HZ, "highpass", fs=SAMPLE_RATE, output="sos"), finite)
    g = np.exp(-1 / (SAMPLE_RATE * TIME_CONSTANT_S))
    envelope = np.asarray(lfilter([(1 - g) ** 2], [1, -2 * g, g * g], np.abs(speech)))
    peak = envelope.max(initial=0.0)
    if peak < FLOOR:
        return None
    thresholds = peak * 0.5 ** np.arange(NUM_THRESHOLDS, 0, -1)
    active = np.array([_active_samples(envelope >= threshold) for threshold in thresholds])
    level_db = 10 * np.log10(np.square(speech).sum() / active)
    return _crossing(level_db, level_db - 20 * np.log10(thresholds) - MARGIN_DB)


def speech_rms(samples: Float32[np.ndarray, " samples"]) -> float:
    """The active speech level as an RMS; of silence -26 dBFS, so that there is something to refer to."""
    level_db = active_speech_level(samples)
    return float(10 ** ((USUAL_DB if level_db is None else level_db) / 20))


def _active_samples(above: np.ndarray) -> int:
    """Samples above the threshold or within the hangover behind one that was."""
    runs = runs_of(above)
    pauses = np.diff(np.append(runs.reshape(-1)[1:], len(above)))[::2]
    return int((runs[:, 1] - runs[:, 0]).sum() + np.minimum(pauses, seconds_to_samples(HANGOVER_S)).sum())


def _crossing(level_db: np.ndarray, distance_db: np.ndarray) -> float:
    """The level where its distance from the threshold, which falls as thresholds rise, is 0; straight in between."""
    below = np.flatnonzero(distance_db <= 0)
    last = int(below[0]) if len(below) else len(level_db) - 1
    if last == 0 or not len(below):
        return float(level_db[last])
    share = distance_db[last - 1] / (distance_db[last - 1] - distance_db[last])
    return float(level_db[last - 1] + share * (level_db[last] - level_db[last - 1]))
