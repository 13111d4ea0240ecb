"""What the raw input looks like: level, offset, clipping, damaged samples, and how much of the band is used.

Measured before any resampling, gain or normalisation, on running sums in float64, so an hour costs no more
memory than a second.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np
from jaxtyping import Float32

from diarnorm.timebase import SAMPLE_RATE

MAX_ABS = 1e6
"""Samples beyond this (or not finite) are damage: replaced by 0. Far above int16 counts held in floats."""
FULL_SCALE = 32767 / 32768
"""From here on a sample is at the rail: the largest positive int16."""
SILENCE_DBFS = -200.0
"""Level of digital silence: the floor of every level, so that no number here is infinite."""
QUIET_DBFS = -60.0
"""Below this level the input is called very quiet."""
MIX_LOSS_DB = 20.0
"""A down-mix that loses more than this against its channels is reported: they cancel."""
DC_SHARE = 0.01
"""An offset above this share of full scale is reported."""
CLIPPED_SHARE = 0.001
"""A share of samples at the rails above this is reported."""
LEVEL_S = 0.1
"""Shorter inputs are not judged by their level or offset."""
NARROW_HZ = 6000.0
"""An input of 16 kHz or more whose energy ends below this frequency is called narrow-band."""


@dataclass(frozen=True)
class SignalReport:
    """Measurements of the raw input so far; 0 dBFS is a full-scale square wave.

    Attributes:
        sample_rate: of the input, Hz.
        num_samples: samples per channel at that rate.
        num_bad: sample values that were not finite or beyond 1e6, replaced by 0.
        first_bad_s: time of the first of them.
        peak: largest magnitude, full scale 1.
        clipped_share: share of sample values at or beyond full scale.
        dc: mean of the mono signal, full scale 1.
        level_dbfs: RMS of the mono signal about its mean.
        mix_loss_db: level lost by averaging the channels; 0 for one channel.
        bandwidth_hz: where the energy ends: all but 1e-6 of it lies below (None: too short or silent).
    """

    sample_rate: int
    num_samples: int
    num_bad: int
    first_bad_s: float | None
    peak: float
    clipped_share: float
    dc: float
    level_dbfs: float
    mix_loss_db: float
    bandwidth_hz: float | None

    def notices(self) -> list[str]:
        """What a user should know, one line each; empty for an ordinary input."""
        notes = []
        if self.first_bad_s is not None:
            notes.append(
                f"samples not finite or beyond {MAX_ABS:.0e}: {self.num_bad} replaced by 0, "
                f"the first at {self.first_bad_s:.3f} s"
            )
        if self.mix_loss_db > MIX_LOSS_DB:
            notes.append(
                f"the mean of the channels is {self.mix_loss_db:.0f} dB below them: they cancel "
                "(anti-phase); choose one channel"
            )
        if self.clipped_share > CLIPPED_SHARE:
            kind = "clipped" if self.peak <= 1 else f"peak {self.peak:.3g}"
            notes.append(f"{kind}: {100 * self.clipped_share:.1f} % of the samples at or beyond full scale")
        if self.num_samples >= LEVEL_S * self.sample_rate:
            notes += self._level_notices()
        return notes

    def _level_notices(self) -> list[str]:
        notes = []
        if abs(self.dc) > DC_SHARE:
            notes.append(f"DC offset {100 * self.dc:+.1f} % of full scale")
        if self.level_dbfs <= SILENCE_DBFS:
            notes.append("digital silence: all samples are equal")
        elif self.level_dbfs < QUIET_DBFS:
            notes.append(f"very quiet: level {self.level_dbfs:.0f} dBFS")
        elif self.sample_rate >= SAMPLE_RATE and self.bandwidth_hz and self.bandwidth_hz < NARROW_HZ:
            notes.append(bandwidth_notice(self.bandwidth_hz))
        return notes


def bandwidth_notice(bandwidth_hz: float) -> str:
    """The notice for narrow-band input, in steps of 0.5 kHz.

    >>> bandwidth_notice(3828.1)
    'effective bandwidth 4 kHz'
    """
    return f"effective bandwidth {ceil(bandwidth_hz / 500) / 2:g} kHz"


class SignalMeter:
    """Running sums over blocks of raw samples; `report()` at any time."""

    def __init__(self, sample_rate: int):
        self.num_samples = 0
        self._rate = sample_rate
        self._num_values = 0
        self._num_bad = 0
        self._first_bad_s: float | None = None
        self._num_clipped = 0
        self._peak = 0.0
        self._channels = _Moments()
        self._mono = _Moments()
        self._bandwidth = BandwidthMeter()

    def clean(self, block: Float32[np.ndarray, "samples channels"]) -> Float32[np.ndarray, "samples channels"]:
        """Count rails and damage of the next block; returns it with damaged samples set to 0."""
        with np.errstate(invalid="ignore"):
            magnitude = np.abs(block)
            bad = ~(magnitude <= MAX_ABS)
        if bad.any():
            if self._first_bad_s is None:
                self._first_bad_s = (self.num_samples + int(bad.any(axis=1).argmax())) / self._rate
            self._num_bad += int(bad.sum())
            block, magnitude = np.where(bad, 0, block), np.where(bad, 0, magnitude)
        self._num_clipped += int((magnitude >= FULL_SCALE).sum())
        self._num_values += block.size
        self._peak = max(self._peak, float(magnitude.max(initial=0)))
        self.num_samples += len(block)
        return block

    def add(self, block: Float32[np.ndarray, "samples channels"], mono: Float32[np.ndarray, " samples"]) -> None:
        """Add a cleaned block and its down-mix to the levels."""
        self._channels.add(block)
        self._mono.add(mono[:, None])

    def add_resampled(self, mono: Float32[np.ndarray, " samples"]) -> None:
        """Add samples at 16 kHz to the measurement of the bandwidth."""
        self._bandwidth.add(mono)

    def report(self) -> SignalReport:
        """The measurements so far."""
        floor = 10 ** (SILENCE_DBFS / 10)
        mono_power = max(floor, float(self._mono.variance().mean()))
        channel_power = max(floor, float(self._channels.variance().mean()))
        return SignalReport(
            sample_rate=self._rate,
            num_samples=self.num_samples,
            num_bad=self._num_bad,
            first_bad_s=self._first_bad_s,
            peak=self._peak,
            clipped_share=self._num_clipped / max(1, self._num_values),
            dc=float(self._mono.mean().mean()),
            level_dbfs=10 * np.log10(mono_power).item(),
            mix_loss_db=10 * np.log10(channel_power / mono_power).item(),
            bandwidth_hz=self._bandwidth.bandwidth_hz(),
        )


class _Moments:
    """Mean and variance of each channel from running sums about the first sample."""

    def __init__(self) -> None:
        self._count = 0
        self._origin = self._sum = self._squares = np.zeros(1)

    def add(self, block: Float32[np.ndarray, "samples channels"]) -> None:
        if len(block) == 0:
            return
        if self._count == 0:
            self._origin = block[0].astype(np.float64)
        centred = block - self._origin
        self._count += len(block)
        self._sum = self._sum + centred.sum(axis=0)
        self._squares = self._squares + np.square(centred).sum(axis=0)

    def mean(self) -> np.ndarray:
        return self._origin + self._sum / max(1, self._count)

    def variance(self) -> np.ndarray:
        count = max(1, self._count)
        return np.maximum(0.0, self._squares / count - np.square(self._sum / count))


class BandwidthMeter:
    """Highest frequency that carries energy, from one short spectrum every quarter of a second at 16 kHz."""

    WINDOW = 1024
    STRIDE = 4096
    LOWEST_BIN = 8
    """125 Hz: hum and offset do not count."""
    REST = 1e-6
    """Share of the energy that may lie above the bandwidth (-60 dB)."""

    def __init__(self) -> None:
        self._taper = np.hanning(self.WINDOW)
        self._power = np.zeros(self.WINDOW // 2 + 1)
        self._pending = np.zeros(0, np.float32)

    def add(self, samples: Float32[np.ndarray, " samples"]) -> None:
        """Add samples at 16 kHz; spectra lie on a fixed grid, whatever the blocks are."""
        pending = np.concatenate([self._pending, samples])
        while len(pending) >= self.STRIDE:
            spectrum = np.fft.rfft(pending[: self.WINDOW] * self._taper)
            self._power += spectrum.real**2 + spectrum.imag**2
            pending = pending[self.STRIDE :]
        self._pending = pending

    def bandwidth_hz(self) -> float | None:
        """Upper edge of the occupied band; None before a quarter of a second or in silence."""
        above = np.cumsum(self._power[: self.LOWEST_BIN - 1 : -1])[::-1]
        if above[0] <= 0:
            return None
        highest = self.LOWEST_BIN + int(np.flatnonzero(above >= self.REST * above[0])[-1])
        return highest * SAMPLE_RATE / self.WINDOW
