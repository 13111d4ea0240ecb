"""Samples, frames and seconds: the one place where time is converted, in integers.

One frame is 1280 samples at 16 kHz (80 ms) and holds 8 mel frames of 160 samples (10 ms). Inside the package
time is a whole number of samples or frames; seconds appear only in turns and reports, each made by one
division, so nothing drifts however long a recording is.
"""

from numbers import Integral

SAMPLE_RATE = 16_000
"""Samples per second of everything behind the resampler."""
WINDOW_SAMPLES = 400
"""Length of the analysis window (25 ms)."""
HOP_SAMPLES = 160
"""Distance of two mel frames (10 ms)."""
MELS_PER_FRAME = 8
"""Mel frames stacked into one frame."""
FRAME_SAMPLES = HOP_SAMPLES * MELS_PER_FRAME
"""Length of one frame (80 ms)."""
FRAME_MS = 1000 * FRAME_SAMPLES // SAMPLE_RATE
"""The same in milliseconds."""
NUM_MELS = 80
"""Mel bins."""


def frames_to_samples(num_frames: int) -> int:
    """Samples at 16 kHz that `num_frames` frames span."""
    return num_frames * FRAME_SAMPLES


def samples_to_frames(num_samples: int) -> int:
    """Whole frames contained in `num_samples` samples at 16 kHz."""
    return num_samples // FRAME_SAMPLES


def frames_covering(num_samples: int) -> int:
    """Fewest frames that cover `num_samples` samples at 16 kHz."""
    return -(-num_samples // FRAME_SAMPLES)


def samples_to_seconds(num_samples: int, rate: int = SAMPLE_RATE) -> float:
    """Seconds that `num_samples` samples last at `rate` Hz."""
    return num_samples / rate


def frames_to_seconds(num_frames: int) -> float:
    """Seconds from the start of a recording to the start of frame `num_frames`."""
    return samples_to_seconds(frames_to_samples(num_frames))


def seconds_to_samples(seconds: float, rate: int = SAMPLE_RATE) -> int:
    """Nearest whole sample at `rate` Hz."""
    return round(seconds * rate)


def seconds_to_frames(seconds: float) -> int:
    """Nearest whole frame."""
    return round(seconds * SAMPLE_RATE / FRAME_SAMPLES)


def chunk_frames(chunk_ms: int) -> int:
    """Frames of a chunk of `chunk_ms`.

    Raises:
        ValueError: not a whole, positive multiple of 80 ms.
    """
    if not isinstance(chunk_ms, Integral):
        raise ValueError(f"chunk_ms={chunk_ms!r} is not a whole number of milliseconds")
    if chunk_ms <= 0 or chunk_ms % FRAME_MS:
        low = max(1, chunk_ms // FRAME_MS) * FRAME_MS
        raise ValueError(f"chunk_ms={chunk_ms} is not a multiple of {FRAME_MS} ms: give {low} or {low + FRAME_MS}")
    return chunk_ms // FRAME_MS
