"""Blocks of any rate, length and number of channels become mono float32 at 16 kHz.

The stages in order: one channel is chosen if asked for, damaged samples become 0, the channels are averaged,
the resampler runs. Mono at 16 kHz passes bit-exact. The output does not depend on how the input is cut.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import ceil

import numpy as np
import soxr
from jaxtyping import Float32, Int16

from diarnorm.audio.meter import SignalMeter, SignalReport, bandwidth_notice
from diarnorm.timebase import SAMPLE_RATE

MIN_RATE_HZ = 4_000
MAX_RATE_HZ = 768_000
MAX_CHANNELS = 64
QUALITY = "HQ"
"""soxr's 20-bit setting: flat to 0.91 of the lower Nyquist frequency, images and aliases below -120 dB."""
PIECE_VALUES = 65_536
"""A longer block is worked off in pieces of this many values, so that temporaries stay small."""

Block = (
    Float32[np.ndarray, " samples"]
    | Float32[np.ndarray, "samples channels"]
    | Int16[np.ndarray, " samples"]
    | Int16[np.ndarray, "samples channels"]
)


def check_rate(sample_rate: int) -> None:
    """Refuse sample rates that no recording of speech has.

    Raises:
        ValueError: not a whole number from 4000 to 768000 Hz.
    """
    if not isinstance(sample_rate, int | np.integer) or not MIN_RATE_HZ <= sample_rate <= MAX_RATE_HZ:
        raise ValueError(
            f"sample rate {sample_rate} Hz; a whole number from {MIN_RATE_HZ} to {MAX_RATE_HZ} Hz is needed"
        )


def check_channels(num_channels: int) -> None:
    """Refuse numbers of channels that no recording has.

    Raises:
        ValueError: not from 1 to 64.
    """
    if not 1 <= num_channels <= MAX_CHANNELS:
        raise ValueError(f"{num_channels} channels; 1 to {MAX_CHANNELS} are possible")


class Mono16k:
    """Down-mix and resampler of one stream.

    Args:
        sample_rate: of the blocks, 4000 to 768000 Hz.
        channel: which channel to take, from 0; None averages all.

    Attributes:
        delay_samples: samples at 16 kHz by which the output lags the input at most; 0 at 16 kHz.
        warnings: what a user should know; complete after `finish`.

    Raises:
        ValueError: an impossible rate or channel.
    """

    def __init__(self, sample_rate: int, channel: int | None = None):
        check_rate(sample_rate)
        if channel is not None and (not isinstance(channel, int | np.integer) or channel < 0):
            raise ValueError(f"channel {channel!r}; channels are whole numbers, counted from 0")
        self.warnings: list[str] = []
        self._rate = int(sample_rate)
        self._channel = channel
        self._num_channels: int | None = None
        self._num_out = 0
        self._finished = False
        self._meter = SignalMeter(self._rate)
        self._resampler = None if self._rate == SAMPLE_RATE else _make_resampler(self._rate)
        self.delay_samples = 0 if self._resampler is None else resampler_delay(self._rate)
        if self._resampler is not None:
            self.warnings.append(_resampling_notice(self._rate))

    @property
    def report(self) -> SignalReport:
        """Level, offset, clipping, damage and bandwidth of the raw input so far."""
        return self._meter.report()

    def push(self, block: Block) -> Float32[np.ndarray, " samples_16k"]:
        """The samples at 16 kHz that are ready after this block (any length, 0 included).

        Raises:
            ValueError: another type or shape, another number of channels than before, no such channel, or
                the stream is finished.
        """
        if self._finished:
            raise ValueError("the stream is finished; start a new one for more samples")
        samples = self._checked(block)
        return _joined([self._push_piece(piece) for piece in _pieces(samples)])

    def finish(self) -> Float32[np.ndarray, " samples_16k"]:
        """The samples still inside the resampler; the total is then round(n * 16000 / sample_rate).

        Raises:
            ValueError: called twice.
        """
        if self._finished:
            raise ValueError("the stream is finished already")
        self._finished = True
        rest = np.zeros(0, np.float32)
        if self._resampler is not None and self._meter.num_samples > 0:
            rest = self._resampler.resample_chunk(rest, last=True)
            missing = round(Fraction(self._meter.num_samples * SAMPLE_RATE, self._rate)) - self._num_out
            rest = np.pad(rest[:missing], (0, max(0, missing - len(rest))))
        self._meter.add_resampled(rest)
        self.warnings += self.report.notices()
        return rest

    def _checked(self, block: Block) -> Float32[np.ndarray, "samples channels"]:
        """The block as float32 of two dimensions."""
        given = np.asarray(block)
        if given.dtype not in (np.float32, np.int16):
            raise ValueError(f"block of {given.dtype}; float32 in [-1, 1] or int16 is needed{_conversion(given.dtype)}")
        if given.ndim not in (1, 2):
            raise ValueError(f"block of shape {given.shape}; [n] or [n, channels] is needed")
        samples = given[:, None] if given.ndim == 1 else given
        if len(samples) > 0:
            self._check_channels(samples)
        return samples / np.float32(32768) if given.dtype == np.int16 else samples

    def _check_channels(self, samples: np.ndarray) -> None:
        num_channels = samples.shape[1]
        if num_channels > MAX_CHANNELS >= len(samples):
            raise ValueError(f"block of shape {samples.shape}; [n, channels] is needed: block.T")
        check_channels(num_channels)
        if self._num_channels not in (None, num_channels):
            raise ValueError(f"block of {num_channels} channels after blocks of {self._num_channels}")
        if self._channel is not None and self._channel >= num_channels:
            choice = f"{num_channels}: choose 0 to {num_channels - 1}" if num_channels > 1 else "only channel 0"
            raise ValueError(f"channel {self._channel} asked for, the input has {choice}")
        self._num_channels = num_channels

    def _push_piece(self, block: Float32[np.ndarray, "samples channels"]) -> Float32[np.ndarray, " samples_16k"]:
        if self._channel is not None:
            block = block[:, self._channel : self._channel + 1]
        block = self._meter.clean(block)
        mono = mix_down(block)
        self._meter.add(block, mono)
        if self._resampler is not None:
            mono = self._resampler.resample_chunk(mono)
        self._meter.add_resampled(mono)
        self._num_out += len(mono)
        return mono


def _conversion(dtype: np.dtype) -> str:
    """Advice for a block of another type: none where nobody can know what the values mean.

    >>> _conversion(np.dtype("int32"))
    ": (np.asarray(block) / 2147483648).astype('float32')"
    """
    if dtype.kind == "f":
        return ": np.asarray(block, 'float32')"
    if dtype.kind == "i":
        return f": (np.asarray(block) / {2 ** (8 * dtype.itemsize - 1)}).astype('float32')"
    return ""


def mix_down(block: Float32[np.ndarray, "samples channels"]) -> Float32[np.ndarray, " samples"]:
    """Mean of the channels, summed in float64 in their order; one channel is copied."""
    if block.shape[1] == 1:
        return block[:, 0].copy()
    total = np.zeros(len(block))
    for channel in block.T:
        total += channel
    return (total / block.shape[1]).astype(np.float32)


@lru_cache(maxsize=32)
def resampler_delay(sample_rate: int) -> int:
    """Most samples at 16 kHz by which the resampler lags its input, measured on a second of silence."""
    resampler = _make_resampler(sample_rate)
    step = np.zeros(sample_rate // 1000, np.float32)
    num_out, lag = 0, 0.0
    for count in range(1, 1001):
        num_out += len(resampler.resample_chunk(step))
        lag = max(lag, count * len(step) * SAMPLE_RATE / sample_rate - num_out)
    return ceil(lag + len(step) * SAMPLE_RATE / sample_rate)


def _make_resampler(sample_rate: int) -> soxr.ResampleStream:
    return soxr.ResampleStream(sample_rate, SAMPLE_RATE, 1, dtype="float32", quality=QUALITY)


def _resampling_notice(sample_rate: int) -> str:
    notice = f"resampled {sample_rate} -> {SAMPLE_RATE} Hz"
    if sample_rate < SAMPLE_RATE:
        notice += f"; {bandwidth_notice(sample_rate / 2)}"
    return notice


def _pieces(
    samples: Float32[np.ndarray, "samples channels"],
) -> Iterator[Float32[np.ndarray, "samples channels"]]:
    length = max(1, PIECE_VALUES // samples.shape[1])
    for start in range(0, len(samples), length):
        yield samples[start : start + length]


def _joined(pieces: list[Float32[np.ndarray, " _"]]) -> Float32[np.ndarray, " samples_16k"]:
    return pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, np.float32), *pieces])
