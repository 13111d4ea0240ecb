"""Speech that every experiment can have: a sample recording, at 16 kHz, with its reference."""

from functools import cache
from typing import NamedTuple

import numpy as np
import soundfile
from jaxtyping import Float32

from diarnorm.resources import cache_dir, samples_dir
from diarnorm.rttm import read_rttm
from diarnorm.simulation.speech import Speech, load_speech
from diarnorm.simulation.synthetic import speech_source
from diarnorm.turns import Turn

RECORDING = "meeting"


class SpeechSample(NamedTuple):
    """Mono samples at 16 kHz and who speaks when."""

    samples: Float32[np.ndarray, " samples"]
    turns: list[Turn]


@cache
def sample_speech() -> SpeechSample:
    """A minute of a meeting among synthetic voices."""
    samples, _ = soundfile.read(samples_dir() / f"{RECORDING}.flac", dtype="float32")
    return SpeechSample(samples, read_rttm(samples_dir() / f"{RECORDING}.rttm")[RECORDING])


def find_speech(source: str) -> Speech:
    """Voices of held-out speakers: of a manifest or a tree of speakers, its part `dev` where it has one, or
    `synthetic`."""
    return load_speech(speech_source(source, cache_dir()), split="dev", cache_dir=cache_dir())
