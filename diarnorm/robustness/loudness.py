"""Loudness that is not what it was: gains, steps, tremolo, fades, one speaker far from the microphone.

Gains act on floating-point samples, which may go beyond full scale; only `loudness.gain_int16` rounds and clips. Gain
curves are made in dB, and jumps take 10 ms, so that none of them clicks.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float64
from scipy.ndimage import uniform_filter1d

from diarnorm.robustness.sound import Corruption, Sound, Stretch, in_seconds, spoken, with_samples
from diarnorm.simulation.activity import runs_of
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE, seconds_to_samples

STEP_S = 2.0
TREMOLO_HZ = 1.0
FADE_S = (0.2, 6.0)
"""Shortest and longest fade."""
HOLD_S = (0.5, 3.0)
"""Between two fades."""
FADE_UP = 0.25
"""Fades go up by this share of what they go down by at most: -24 to +6 dB."""
SHORTEST_STEP_S = 0.1
"""Steps at turns that would follow closer than this are left out."""
INT16_SCALE = 32_768


def gain(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """All of it louder or quieter."""
    return with_samples(sound, sound.samples * np.float32(10 ** (severity / 20)))


def gain_int16(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """The same, then rounded to 16 bits and clipped, as a sound card does."""
    counts = np.round(sound.samples.astype(np.float64) * (10 ** (severity / 20) * INT16_SCALE))
    return with_samples(sound, np.clip(counts, -INT16_SCALE, INT16_SCALE - 1) / INT16_SCALE)


def swing(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Up and down in turns, a step every 2 s."""
    step = seconds_to_samples(STEP_S)
    return _stepping(sound, range(step, len(sound.samples), step), severity, rng)


def turns(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """Up and down in turns, a step where a turn of the reference starts."""
    starts: list[float] = []
    for start in sorted({turn.start for turn in sound.turns}):
        if not starts or start - starts[-1] >= SHORTEST_STEP_S:
            starts.append(start)
    return _stepping(sound, [seconds_to_samples(start) for start in starts], severity, rng)


def tremolo(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """The gain in dB is a sine of 1 Hz."""
    phase = 2 * np.pi * (TREMOLO_HZ / SAMPLE_RATE * np.arange(len(sound.samples)) + rng.random())
    return _scaled(sound, severity * np.sin(phase))


def fades(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """The gain goes to one level after the other, straight in dB."""
    times_s, levels = [0.0], [0.0]
    while times_s[-1] < sound.duration_s:
        held_s = rng.uniform(*HOLD_S)
        fade_s = float(np.exp(rng.uniform(*np.log(FADE_S))))
        times_s += [times_s[-1] + held_s, times_s[-1] + held_s + fade_s]
        levels += [levels[-1], rng.uniform(-1.0, FADE_UP)]
    at = np.array(times_s) * SAMPLE_RATE
    return _scaled(sound, severity * np.interp(np.arange(len(sound.samples)), at, levels))


def speaker(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """One speaker quieter than the others, wherever nobody else speaks."""
    names = sorted({turn.speaker for turn in sound.turns})
    chosen = names[int(rng.integers(len(names)))]
    own, others = (
        spoken(len(sound.samples), [turn for turn in sound.turns if (turn.speaker == chosen) == is_own])
        for is_own in (True, False)
    )
    alone = own & ~others
    return _scaled(sound, _smooth(np.where(alone, -severity, 0.0)), in_seconds(runs_of(alone).tolist()))


def _stepping(sound: Sound, at: Sequence[int], severity: float, rng: np.random.Generator) -> Sound:
    """Gain of `severity` dB and as much down in turns, a step at each of these samples; the slopes are the events.

    At the first sample nothing jumps.
    """
    length, half = len(sound.samples), HOP_SAMPLES // 2
    number = np.searchsorted(at, np.arange(length), side="right") + rng.integers(2)
    slopes = [(max(0, place - half), min(length, place + half)) for place in at if 0 < place < length]
    return _scaled(sound, _smooth(np.where(number % 2, severity, -severity)), in_seconds(slopes))


def _smooth(level_db: Float64[np.ndarray, " samples"]) -> Float64[np.ndarray, " samples"]:
    """Steps become slopes of 10 ms."""
    return uniform_filter1d(level_db.astype(np.float64), HOP_SAMPLES, mode="nearest")


def _scaled(sound: Sound, gain_db: Float64[np.ndarray, " samples"], events: Iterable[Stretch] = ()) -> Sound:
    return with_samples(sound, sound.samples * 10 ** (gain_db / 20), events)


WIDE, NARROW = (-80.0, 60.0), (0.0, 60.0)
CORRUPTIONS = (
    Corruption("loudness.gain", "dB", "all of it louder or quieter, in floating point", (-10, -20, -40), WIDE, gain),
    Corruption(
        "loudness.gain_int16",
        "dB",
        "all of it louder or quieter, in 16-bit samples that clip",
        (6, 12, 20),
        WIDE,
        gain_int16,
    ),
    Corruption("loudness.swing", "dB", "gain of +X and -X dB, changing every 2 s", (6, 12, 20), NARROW, swing),
    Corruption(
        "loudness.turns",
        "dB",
        "gain of +X and -X dB, changing where turns of the reference start",
        (6, 12, 20),
        NARROW,
        turns,
        needs_turns=True,
    ),
    Corruption("loudness.tremolo", "dB", "gain between +X and -X dB, a sine of 1 Hz", (3, 6, 12), NARROW, tremolo),
    Corruption(
        "loudness.fades",
        "dB",
        "fades of 0.2 to 6 s to levels from -X to +X/4 dB, all the time",
        (6, 12, 24),
        NARROW,
        fades,
    ),
    Corruption(
        "loudness.speaker",
        "dB",
        "one speaker of the reference X dB down, where nobody else speaks",
        (6, 12, 20),
        WIDE,
        speaker,
        needs_turns=True,
    ),
)
