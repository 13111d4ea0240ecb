"""Filters of the simulator as spectra (rooms, gain curves, microphones), and the white noise behind them."""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Complex, Float, Float32, Int64
from torch import Tensor

from diarnorm.simulation.conversation import (
    ROOM_SAMPLES,
    WHITE_SAMPLES,
    Plan,
    Rooms,
    db_to_ratio,
    knot_frequencies_hz,
)
from diarnorm.simulation.rooms import load_rooms
from diarnorm.timebase import SAMPLE_RATE

CURVE_SAMPLES = 512
"""Length of the linear-phase filter of a gain curve, whose delay is half of that."""
CROSSOVER_HZ, CROSSOVER_WIDTH_HZ = 2000.0, 400.0
"""Above this the reverberant tail decays faster."""
FASTER = 1.6
"""By this."""
ONSET_S = 0.01
"""The tail builds up over about this."""
TAP_SHARE = 0.4
"""Size of an early reflection, relative to the tail."""
STOP_DB = 60.0
"""Attenuation outside the band of a telephone line."""
DECAY = float(np.log(1000.0))
"""Reverberation time is the time to fall by 60 dB."""


@functools.lru_cache(maxsize=1)
def white_noise() -> Float32[np.ndarray, " samples"]:
    """The one stretch of white noise that noises and rooms are cut from; RMS 1."""
    rng = np.random.Generator(np.random.PCG64(0))
    noise = rng.standard_normal(WHITE_SAMPLES, dtype=np.float32)
    noise.setflags(write=False)
    return noise


def track_filters(
    plans: Sequence[Plan], fft_samples: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> Complex[Tensor, "rows bins"]:
    """What each track of each plan goes through before the sum: room, then gain curve; delay `CURVE_SAMPLES
    // 2`.

    The gain curve of a noise is scaled to leave the power of white noise as it is.
    """
    made_up = zip(*(plan.rooms[: len(Rooms._fields) - 1] for plan in plans), strict=True)
    columns = (torch.from_numpy(np.concatenate(column)).to(device) for column in made_up)
    rt60_s, direct, tail, offset, taps, tap_gain, eq_db = (x.to(dtype) if x.is_floating_point() else x for x in columns)
    if not len(rt60_s):  # nobody speaks in any of them, and there is no noise: MKL transforms no empty batch
        return torch.empty(0, fft_samples // 2 + 1, dtype=dtype.to_complex(), device=device)
    reverberant = tails(rt60_s, offset, taps, tap_gain, fft_samples)
    _put_measured(reverberant, plans, fft_samples)
    room = torch.addcmul(direct[:, None].to(reverberant.dtype), reverberant, tail[:, None])
    gain = _knots_to_bins(eq_db)
    is_noise = np.concatenate([np.arange(plan.num_rows) >= plan.num_speakers for plan in plans])
    unit = gain / gain.square().mean(1, keepdim=True).sqrt()
    gain = torch.where(torch.from_numpy(is_noise).to(device)[:, None], unit, gain)
    return room * _linear_phase(gain, fft_samples)


def _put_measured(reverberant: Complex[Tensor, "rows bins"], plans: Sequence[Plan], fft_samples: int) -> None:
    """Put the spectra of measured rooms where plans have them."""
    first = 0
    for plan in plans:
        if plan.rooms.measured is not None:
            rows = np.flatnonzero(plan.rooms.measured >= 0)
            responses = load_rooms(plan.room_places).responses[plan.rooms.measured[rows]]
            spectrum = torch.fft.rfft(torch.from_numpy(responses).to(reverberant.real), fft_samples)
            reverberant[first + torch.from_numpy(rows).to(reverberant.device)] = spectrum
        first += plan.num_rows


def tails(
    rt60_s: Float[Tensor, " rows"],
    offset: Int64[Tensor, " rows"],
    taps: Int64[Tensor, "rows taps"],
    tap_gain: Float[Tensor, "rows taps"],
    fft_samples: int,
) -> Complex[Tensor, "rows bins"]:
    """Spectra of early reflections and decaying noise, at unit energy; high frequencies decay faster."""
    device = rt60_s.device
    time = torch.arange(ROOM_SAMPLES, device=device)
    start = offset.cpu()[:, None] + torch.arange(ROOM_SAMPLES)
    white = torch.from_numpy(white_noise()[start.numpy()]).to(rt60_s)
    exponent = -DECAY / SAMPLE_RATE * time / rt60_s[:, None]
    low = white * (exponent.exp() * (1 - torch.exp(-time / (ONSET_S * SAMPLE_RATE))))
    high = low * torch.exp((FASTER - 1) * exponent)
    low.scatter_add_(1, taps, tap_gain * TAP_SHARE * torch.linalg.vector_norm(low, dim=1, keepdim=True))
    hz = torch.linspace(0, SAMPLE_RATE / 2, fft_samples // 2 + 1, device=device, dtype=rt60_s.dtype)
    share = torch.sigmoid((hz - CROSSOVER_HZ) / CROSSOVER_WIDTH_HZ)
    low_spectrum = torch.fft.rfft(low, fft_samples)
    spectrum = torch.lerp(low_spectrum, torch.fft.rfft(high, fft_samples), share.to(low_spectrum.dtype))
    rms = torch.linalg.vector_norm(torch.view_as_real(spectrum), dim=(1, 2)) / (fft_samples // 2 + 1) ** 0.5
    return spectrum / rms[:, None]


def channel_filters(
    plans: Sequence[Plan], fft_samples: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> Complex[Tensor, "batch bins"]:
    """Microphone and band limit of each conversation; delay `CURVE_SAMPLES // 2`."""
    eq_db = torch.from_numpy(np.stack([plan.channel.eq_db for plan in plans])).to(device, dtype)
    band = torch.from_numpy(np.stack([plan.channel.band_hz for plan in plans])).to(device)
    hz = torch.linspace(0, SAMPLE_RATE / 2, CURVE_SAMPLES // 2 + 1, device=device)
    outside = (hz < band[:, :1]) | (hz > band[:, 1:])
    gain = _knots_to_bins(eq_db) * torch.where(outside, db_to_ratio(-STOP_DB), 1.0)
    return _linear_phase(gain, fft_samples)


def _knots_to_bins(knots_db: Float[Tensor, "rows knots"]) -> Float[Tensor, "rows coarse"]:
    """Gain at the frequencies of a transform of `CURVE_SAMPLES`; straight in dB between knots."""
    return 10 ** (knots_db @ _interpolation().to(knots_db) / 20)


@functools.lru_cache(maxsize=1)
def _interpolation() -> Float[Tensor, "knots coarse"]:
    knots = knot_frequencies_hz()
    hz = np.linspace(0, SAMPLE_RATE / 2, CURVE_SAMPLES // 2 + 1)
    return torch.from_numpy(np.stack([np.interp(hz, knots, one) for one in np.eye(len(knots))]))


def _linear_phase(gain: Float[Tensor, "rows coarse"], fft_samples: int) -> Complex[Tensor, "rows bins"]:
    """Spectrum of the linear-phase filter with this gain, delayed by `CURVE_SAMPLES // 2`."""
    taps = torch.fft.irfft(torch.complex(gain, torch.zeros_like(gain)), CURVE_SAMPLES).roll(CURVE_SAMPLES // 2, 1)
    return torch.fft.rfft(taps * torch.hann_window(CURVE_SAMPLES, device=gain.device, dtype=gain.dtype), fft_samples)
