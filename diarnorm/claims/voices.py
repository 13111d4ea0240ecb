"""Speech that every experiment can have: a sample recording, at 16 kHz, with its reference."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
from jaxtyping import Float32

from diarnorm.commands.train import SYNTHETIC
from diarnorm.resources import samples_dir
from diarnorm.rttm import read_rttm
from diarnorm.simulation.speech import Speech, load_speech
from diarnorm.simulation.synthetic import make_corpus
from diarnorm.training.rundata import default_cache_dir
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
    cache_dir = default_cache_dir()
    path = make_corpus(cache_dir / "synthetic") if source == SYNTHETIC else Path(source).expanduser()
    return load_speech(path, split="dev", cache_dir=cache_dir)
