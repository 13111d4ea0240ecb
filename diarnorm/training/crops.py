"""Crops of recordings: the samples of a stretch at 16 kHz, read from the file in part, and who speaks in it.

All times are whole samples at 16 kHz. What is scored of a recording, one stretch after another, is its *scored time*;
crops are cut from that, so a crop may go on in the next stretch, and nothing outside is ever heard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import soxr
from jaxtyping import Float32, Int64

from diarnorm.audio.meter import MAX_ABS
from diarnorm.audio.mono import QUALITY, mix_down
from diarnorm.simulation.conversation import close_gaps, frame_shares
from diarnorm.timebase import SAMPLE_RATE, samples_to_frames, seconds_to_samples
from diarnorm.turns import Turn

MARGIN_SAMPLES = SAMPLE_RATE // 10
"""Read on both sides of a stretch, so that the resampler's edges are outside."""


class CropLabels(NamedTuple):
    """Speakers of a crop by first activity, as numbers of labels, and the share of each frame in which each speaks."""

    speakers: Int64[np.ndarray, " speakers"]
    activity: Float32[np.ndarray, "frames speakers"]


@dataclass(frozen=True)
class CropSource:
    """One recording to cut crops from.

    Attributes:
        name: of the recording.
        audio: its file.
        spans: stretches that are scored (start, end), in order, apart from one another.
        turns: label number, start and end of each turn, by start; turns of one label are apart.
    """

    name: str
    audio: Path
    spans: Int64[np.ndarray, "spans 2"]
    turns: Int64[np.ndarray, "turns 3"]

    @property
    def num_samples(self) -> int:
        """Length of the scored time."""
        return int((self.spans[:, 1] - self.spans[:, 0]).sum())

    def stretches(self, first: int, num_samples: int) -> Int64[np.ndarray, "stretches 3"]:
        """Where scored time `[first, first + num_samples)` lies: start and end in the file, start in the crop."""
        ends = np.cumsum(self.spans[:, 1] - self.spans[:, 0])
        starts = ends - (self.spans[:, 1] - self.spans[:, 0])
        low, high = np.maximum(starts, first), np.minimum(ends, first + num_samples)
        shift = self.spans[:, 0] - starts
        return np.stack([low + shift, high + shift, low - first], axis=1)[high > low]

    def samples(self, first: int, num_samples: int) -> Float32[np.ndarray, " samples"]:
        """Samples of a crop that starts at `first` of the scored time; zeros after its end.

        Raises:
            ValueError: the file cannot be read, or has become shorter.
        """
        out = np.zeros(num_samples, dtype=np.float32)
        for start, end, at in self.stretches(first, num_samples).tolist():
            out[at : at + end - start] = read_part(self.audio, start, end - start)
        return out

    def heard(self, first: int, num_samples: int) -> Int64[np.ndarray, "turns 3"]:
        """Turns in a crop: label number, start and end in the crop, by start; one that goes on across a cut is two."""
        moved = [
            np.stack([self.turns[:, 0], *(np.clip(self.turns[:, 1:], start, end) - start + at).T], axis=1)
            for start, end, at in self.stretches(first, num_samples).tolist()
        ]
        heard = np.concatenate([np.zeros((0, 3), dtype=np.int64), *moved])
        heard = heard[heard[:, 2] > heard[:, 1]]
        return heard[np.lexsort((heard[:, 0], heard[:, 1]))]

    @property
    def num_speakers(self) -> int:
        """Speakers heard in the scored time."""
        return len(np.unique(self.heard(0, self.num_samples)[:, 0]))

    def labels(self, first: int, num_samples: int) -> CropLabels:
        """Who speaks in a crop; where several begin at once, the lower number comes first."""
        heard = self.heard(first, num_samples)
        speakers, order = np.unique(heard[:, 0], return_index=True)
        speakers = speakers[np.argsort(order)]
        shares = [frame_shares(heard[heard[:, 0] == speaker, 1:], num_samples) for speaker in speakers]
        num_frames = samples_to_frames(num_samples)
        return CropLabels(speakers, np.array(shares, dtype=np.float32).reshape(len(shares), num_frames).T)


def as_spans(region: Sequence[tuple[float, float]] | None, num_samples: int) -> Int64[np.ndarray, "spans 2"]:
    """A scored region in seconds, all of the recording when None, as samples: in order, joined where parts touch."""
    region = [(0.0, num_samples / SAMPLE_RATE)] if region is None else region
    runs = [(0, seconds_to_samples(start), seconds_to_samples(end)) for start, end in region]
    return close_gaps(runs, num_samples, 0.0, 0.0)[:, 1:]


def as_turns(turns: Sequence[Turn], numbers: dict[str, int], num_samples: int) -> Int64[np.ndarray, "turns 3"]:
    """Turns in seconds as label number, start, end in samples; those of one label that touch or overlap are one."""
    runs = [(numbers[t.speaker], seconds_to_samples(t.start), seconds_to_samples(t.end)) for t in turns]
    return close_gaps(runs, num_samples, 0.0, 0.0)


def read_part(path: Path, first: int, num_samples: int) -> Float32[np.ndarray, " samples"]:
    """Samples `[first, first + num_samples)` at 16 kHz of a file of any rate, mono; only that part is decoded.

    They are those of the whole file resampled at once. Damaged samples are 0, as they are when a file is diarized.

    Raises:
        ValueError: the file cannot be decoded there, or ends before.
    """
    try:
        with soundfile.SoundFile(path) as file:
            block, begin, rate = _read_around(file, first, num_samples)
    except (soundfile.LibsndfileError, OSError) as error:
        raise ValueError(f"{path} cannot be decoded ({error}); convert it to WAV or FLAC, or remove it") from error
    mono = mix_down(np.where(np.abs(block) <= MAX_ABS, block, np.float32(0)))
    mono = mono if rate == SAMPLE_RATE else soxr.resample(mono, rate, SAMPLE_RATE, quality=QUALITY)
    part = mono[first - begin :][:num_samples]
    if len(part) < num_samples - 1:  # resampled, the last sample of a file may be missing
        ends_s, wanted_s = (samples / SAMPLE_RATE for samples in (begin + len(mono), first + num_samples))
        raise ValueError(
            f"{path} ends at {ends_s:.3f} s, before the {wanted_s:.3f} s that its header promises: mend it"
        )
    return np.pad(part, (0, num_samples - len(part)))


def _read_around(
    file: soundfile.SoundFile, first: int, num_samples: int
) -> tuple[Float32[np.ndarray, "samples channels"], int, int]:
    """The part with a margin, the position of its first sample at 16 kHz, and the file's rate.

    It starts where samples of both rates coincide, so resampled ones lie where those of the whole file would.
    """
    rate = file.samplerate
    common = gcd(rate, SAMPLE_RATE)
    step, step_16k = rate // common, SAMPLE_RATE // common
    margin = 0 if rate == SAMPLE_RATE else -(-MARGIN_SAMPLES // step_16k)
    begin = max(0, first // step_16k - margin)
    end = -(-(first + num_samples) // step_16k) + margin
    file.seek(min(begin * step, file.frames))
    return file.read((end - begin) * step, dtype="float32", always_2d=True), begin * step_16k, rate
