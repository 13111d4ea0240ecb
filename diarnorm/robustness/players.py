"""Corrupted sounds to listen to: an excerpt of a recording as MP3, small enough to lie in a page, for any browser."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import soundfile
from jaxtyping import Float32

from diarnorm.evaluation.recordings import Recording
from diarnorm.robustness.conditions import Condition
from diarnorm.robustness.corruption import Sound
from diarnorm.robustness.measures import speech_in
from diarnorm.robustness.runner import Item, changed, samples_of
from diarnorm.timebase import SAMPLE_RATE, seconds_to_samples

LEAD_S = 1.0
"""What is heard before the first change."""


@dataclass(frozen=True)
class Player:
    """A sound by name, as a data URI."""

    name: str
    uri: str


def players_of(recording: Recording, conditions: Sequence[Condition], length_s: float, seed: int) -> list[Player]:
    """An excerpt of the recording as it is, and under each condition: around the first change where there is one, else
    where most is said.

    Raises:
        ValueError: the recording cannot be read.
    """
    found, item = [], Item(recording)
    (samples,) = samples_of((item,))
    for condition in conditions:
        heard = changed(item, samples, condition, seed)
        start_s = max(0.0, heard.sound.events[0][0] - LEAD_S) if heard.sound.events else _fullest(heard.sound, length_s)
        first = seconds_to_samples(start_s)
        found.append(Player(condition.name, mp3_uri(heard.samples[first : first + seconds_to_samples(length_s)])))
    return found


def _fullest(sound: Sound, length_s: float) -> float:
    """Where the most speech lies within `length_s`, to the second."""
    starts = np.arange(0.0, max(0.0, sound.duration_s - length_s) + 1e-6, 1.0)
    return max(starts.tolist(), key=lambda start: speech_in(sound.turns, [(start, start + length_s)]))


def mp3_uri(samples: Float32[np.ndarray, " samples"]) -> str:
    """Samples at 16 kHz, clipped at full scale, as a data URI that browsers play."""
    memory = io.BytesIO()
    soundfile.write(memory, np.clip(samples, -1.0, 1.0), SAMPLE_RATE, format="MP3")
    return f"data:audio/mpeg;base64,{base64.b64encode(memory.getvalue()).decode('ascii')}"
