"""Voices made of harmonics, to try everything without a corpus. No model learns to diarize people from them."""

import os
import shutil
from pathlib import Path

import numpy as np
import soundfile
from jaxtyping import Bool, Float32

from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE

SYNTHETIC = "synthetic"
"""The word that stands for these voices where a corpus could be named."""


def voice(
    pitch_hz: float, duration_s: float, seed: int, *, noise: float = 1e-3
) -> tuple[Float32[np.ndarray, " samples"], Bool[np.ndarray, " hops"]]:
    """Samples, and where speech is per 10 ms: words of 0.3-0.9 s with pauses of 0.2-0.5 s, over faint noise."""
    rng = np.random.default_rng(seed)
    num_hops = round(duration_s * SAMPLE_RATE / HOP_SAMPLES)
    speech = np.zeros(num_hops, dtype=bool)
    at = 10
    while at < num_hops - 40:
        length = int(rng.integers(30, 90))
        speech[at : min(at + length, num_hops - 10)] = True
        at += length + int(rng.integers(20, 50))
    time = np.arange(num_hops * HOP_SAMPLES) / SAMPLE_RATE
    tone = sum(np.sin(2 * np.pi * pitch_hz * k * time + k) / k for k in range(1, 16))
    tone = tone * (1 + 0.3 * rng.standard_normal(len(time)))
    samples = 0.05 * tone * np.repeat(speech, HOP_SAMPLES) + noise * rng.standard_normal(len(time))
    return samples.astype(np.float32), speech


def write_tree(
    folder: Path,
    num_speakers: int = 6,
    num_utterances: int = 3,
    duration_s: float = 4.0,
    *,
    noise: float = 1e-3,
    first_speaker: int = 0,
) -> Path:
    """A tree of wav files, one folder per speaker; speaker `i` has a pitch of 90 + 25 i Hz."""
    for speaker in range(first_speaker, first_speaker + num_speakers):
        (folder / f"s{speaker}").mkdir(parents=True, exist_ok=True)
        for number in range(num_utterances):
            samples, _ = voice(90 + 25 * speaker, duration_s, 100 * speaker + number, noise=noise)
            soundfile.write(folder / f"s{speaker}" / f"{number}.wav", samples, SAMPLE_RATE, subtype="PCM_16")
    return folder


def speech_source(given: str | os.PathLike, cache: Path) -> Path:
    """The corpus that is named, or, for the word `synthetic`, voices in `cache`, made where they are not there yet."""
    return make_corpus(cache / SYNTHETIC) if given == SYNTHETIC else Path(given).expanduser()


def make_corpus(folder: Path) -> Path:
    """Eight speakers under `train`, four others under `dev`; what is there already stays. Returns `folder`."""
    for split, first, num_speakers in (("train", 0, 8), ("dev", 8, 4)):
        if not (folder / split).exists():
            partial = folder / f"{split}.{os.getpid()}"
            write_tree(partial, num_speakers, first_speaker=first)
            try:
                partial.rename(folder / split)
            except OSError:  # another process was faster
                shutil.rmtree(partial)
    return folder
