"""Measured rooms: impulse responses from files, their direct sound put at the first sample.

References of simulated conversations say when the sound of a voice reaches the microphone; an impulse response that
starts with the time of flight, or with silence, would move the sound and not the labels.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr
from jaxtyping import Float32

from diarnorm.manifest import audio_files
from diarnorm.simulation.conversation import ROOM_SAMPLES, db_to_ratio
from diarnorm.timebase import SAMPLE_RATE

ONSET_DB = 20.0
"""The direct sound begins where the response first comes this close to its peak (ISO 3382-1)."""
FADE_SHARE = 0.1
"""Part at the end over which a response that is too long fades out."""


class MeasuredRooms(NamedTuple):
    """Impulse responses of unit energy, one per channel of each file, in the order of the places and their paths."""

    names: tuple[str, ...]
    responses: Float32[np.ndarray, "rooms samples"]


@functools.lru_cache(maxsize=4)
def load_rooms(places: tuple[str, ...]) -> MeasuredRooms:
    """Impulse responses from files, and from all audio files in folders; each is read once in a process.

    Raises:
        ValueError: a place that does not exist or has no audio, a file that cannot be decoded or is silent.
    """
    names, responses = [], []
    for path in (path for place in places for path in _files(Path(place))):
        for channel, response in enumerate(_read(path)):
            names.append(f"{path.stem}:{channel}")
            responses.append(align(response, str(path)))
    stacked = np.stack(responses)
    stacked.setflags(write=False)
    return MeasuredRooms(tuple(names), stacked)


def _files(place: Path) -> Sequence[Path]:
    if place.is_file():
        return [place]
    paths = audio_files(place) if place.is_dir() else []
    if not paths:
        what = "has no audio files" if place.is_dir() else "does not exist"
        raise ValueError(f"{place} {what}; give a file or a folder of impulse responses")
    return paths


def _read(path: Path) -> Float32[np.ndarray, "channels samples"]:
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError) as error:
        raise ValueError(f"{path} cannot be decoded ({error}); convert it to WAV or FLAC, or remove it") from error
    resampled = samples if rate == SAMPLE_RATE else soxr.resample(samples, rate, SAMPLE_RATE)
    return np.ascontiguousarray(resampled.T)


def align(response: Float32[np.ndarray, " samples"], name: str) -> Float32[np.ndarray, " room_samples"]:
    """A response from its direct sound on, cut or padded to `ROOM_SAMPLES`, at unit energy.

    Raises:
        ValueError: it is silent.
    """
    peak = np.abs(response).max(initial=0.0)
    if not (np.isfinite(peak) and peak > 0):
        raise ValueError(f"{name} is no impulse response: it is silent or not finite; remove it")
    onset = int(np.argmax(np.abs(response) >= peak * db_to_ratio(-ONSET_DB)))
    kept = response[onset : onset + ROOM_SAMPLES].astype(np.float64)
    if len(response) - onset > ROOM_SAMPLES:
        fade = round(FADE_SHARE * ROOM_SAMPLES)
        kept[-fade:] *= np.square(np.cos(np.arange(fade) * (np.pi / 2 / fade)))
    out = np.zeros(ROOM_SAMPLES, dtype=np.float32)
    out[: len(kept)] = kept / np.sqrt(np.square(kept).sum())
    return out
