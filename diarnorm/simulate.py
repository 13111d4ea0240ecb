"""Simulated conversations: plans (`diarnorm.conversation`) rendered to samples and labels, batched.

Tracks are put together by copying, then rooms, gain curves, noise colours and the microphone are applied as one
filter each in blocks of the overlap-save method; silent blocks are skipped. All randomness is in the plan: white
noise and reverberant tails are cut from one fixed stretch of noise, so samples agree across devices to rounding.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Complex64, Float32, Int64
from torch import Tensor

from diarnorm.conversation import (
    CLIP,
    SPEECH,
    WHITE_SAMPLES,
    Plan,
    SimulatorConfig,
    close_gaps,
    knot_frequencies_hz,
    plan_conversation,
)
from diarnorm.speech import Speech
from diarnorm.timebase import FRAME_SAMPLES, HOP_SAMPLES, SAMPLE_RATE

__all__ = ["Mixture", "Plan", "SimulatorConfig", "close_gaps", "plan_conversation", "render", "render_tracks"]

BLOCK_SAMPLES = 32_768
"""Length of one Fourier transform."""
ROOM_SAMPLES = 11_264
"""Longest impulse response of a room (0.7 s)."""
CURVE_SAMPLES = 512
"""Length of the linear-phase filter of a gain curve; its delay of half that is taken out again."""
LEAD_SAMPLES = ROOM_SAMPLES + 2 * CURVE_SAMPLES
"""Part of a block that overlaps with the one before."""
STEP_SAMPLES = BLOCK_SAMPLES - LEAD_SAMPLES
"""Samples that one block yields."""
CROSSOVER_HZ = 2000.0
"""Above this the reverberant tail decays faster."""
GROUP_SAMPLES = 16_000_000
"""Samples of tracks handled at once, to bound memory."""


class Mixture(NamedTuple):
    """A batch of conversations with their labels; T = N // 1280 frames, K speaker slots by first activity."""

    samples: Float32[Tensor, "batch samples"]
    activity: Float32[Tensor, "batch frames slots"]
    speaker_class: Int64[Tensor, "batch slots"]
    source: Int64[Tensor, "batch frames"]


def render(
    plans: Sequence[Plan],
    speech: Speech,
    *,
    clips: Speech | None = None,
    num_slots: int | None = None,
    device: str | torch.device = "cpu",
) -> Mixture:
    """Render plans of equal length.

    Args:
        plans: conversations of the same number of samples, made from `speech` and `clips`.
        speech: the speech they were drawn from.
        clips: the noise clips they were drawn from.
        num_slots: speaker slots of the labels; the largest number of speakers of the plans when None.
        device: where the samples are computed and where the result lives.

    Raises:
        ValueError: no plans, different lengths, or more speakers than slots.
    """
    lengths = sorted({plan.num_samples for plan in plans})
    if len(lengths) != 1:
        raise ValueError(f"plans have lengths {lengths} (samples); render those of one length together")
    needed = max(plan.num_speakers for plan in plans)
    slots = needed if num_slots is None else num_slots
    if slots < needed:
        raise ValueError(f"num_slots is {slots}, a plan has {needed} speakers; give at least {needed}")
    activity, speaker_class, source = labels(plans, slots)
    activity = activity.to(device)
    samples = torch.cat(
        [
            _render_group(plans[a:b], activity[a:b], speech, clips, torch.device(device))
            for a, b in _groups(plans)
        ]
    )
    return Mixture(samples, activity, speaker_class.to(device), source.to(device))


def labels(plans: Sequence[Plan], num_slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Activity [B, T, K], speaker class [B, K] (-1: nobody) and source [B, T] (-1: none or several) of plans."""
    activity = torch.zeros(len(plans), plans[0].num_frames, num_slots)
    speaker_class = torch.full((len(plans), num_slots), -1, dtype=torch.int64)
    for i, plan in enumerate(plans):
        activity[i, :, : plan.num_speakers] = torch.from_numpy(plan.activity())
        speaker_class[i, : plan.num_speakers] = torch.from_numpy(plan.speaker_class)
    return activity, speaker_class, torch.from_numpy(np.stack([plan.source() for plan in plans]))


def _groups(plans: Sequence[Plan]) -> list[tuple[int, int]]:
    """Ranges of plans whose tracks together fit into `GROUP_SAMPLES`; at least one plan each."""
    groups, start, total = [], 0, 0
    for i, plan in enumerate(plans):
        size = plan.num_rows * plan.num_samples
        if i > start and total + size > GROUP_SAMPLES:
            groups.append((start, i))
            start, total = i, 0
        total += size
    return [*groups, (start, len(plans))]


def render_tracks(
    plans: Sequence[Plan], speech: Speech, clips: Speech | None = None, *, before: int = 0, after: int = 0
) -> Float32[np.ndarray, "rows samples"]:
    """Dry tracks of all plans, one below the other: speakers, then noises, of each; zeros before and after."""
    num_samples = plans[0].num_samples
    tracks = np.zeros((sum(plan.num_rows for plan in plans), before + num_samples + after), dtype=np.float32)
    banks = {SPEECH: speech.samples, CLIP: None if clips is None else clips.samples}
    first = 0
    for plan in plans:
        for row, bank, start, offset, length, fade_in, fade_out, _, gain in zip(*plan.pieces, strict=True):
            samples = banks.get(int(bank), _WHITE)
            if samples is None:
                raise ValueError("a plan uses noise clips; pass the clips it was drawn from as clips=")
            scale = gain if samples is _WHITE else gain / 32768
            piece = samples[offset : offset + length] * np.float32(scale)
            if fade_in:
                piece[:fade_in] *= _ramp(int(fade_in))
            if fade_out:
                piece[length - fade_out :] *= _ramp(int(fade_out))[::-1]
            tracks[first + row, before + start : before + start + length] += piece
        first += plan.num_rows
    return tracks


@functools.lru_cache(maxsize=64)
def _ramp(length: int) -> Float32[np.ndarray, " samples"]:
    return np.square(np.sin(np.arange(length) * (np.pi / 2 / length))).astype(np.float32)


_WHITE = np.random.Generator(np.random.PCG64(0)).standard_normal(WHITE_SAMPLES, dtype=np.float32)


def _render_group(
    plans: Sequence[Plan], activity: Tensor, speech: Speech, clips: Speech | None, device: torch.device
) -> Float32[Tensor, "batch samples"]:
    """Samples of some plans: tracks, filters, sum, channel."""
    num_samples = plans[0].num_samples
    num_blocks = -(-num_samples // STEP_SAMPLES)
    before = LEAD_SAMPLES - CURVE_SAMPLES
    after = num_blocks * STEP_SAMPLES + CURVE_SAMPLES - num_samples
    tracks = torch.from_numpy(render_tracks(plans, speech, clips, before=before, after=after)).to(device)
    spectrum = torch.zeros(
        len(plans) * num_blocks, BLOCK_SAMPLES // 2 + 1, dtype=torch.complex64, device=device
    )
    blocks = tracks.unfold(1, BLOCK_SAMPLES, STEP_SAMPLES)
    row_filters = _row_filters(plans, device)
    for row, block, target in _passes(plans, num_blocks, before):
        index = torch.from_numpy(row).to(device)
        part = torch.fft.rfft(blocks[index, torch.from_numpy(block).to(device)])
        part *= row_filters[index]
        spectrum[torch.from_numpy(target).to(device)] += part
    spectrum = spectrum.view(len(plans), num_blocks, -1) * _channel_filters(plans, device)[:, None]
    mixed = torch.fft.irfft(spectrum, BLOCK_SAMPLES)[..., LEAD_SAMPLES:]
    return _channel(mixed.reshape(len(plans), -1)[:, :num_samples].contiguous(), plans, activity)


def _passes(
    plans: Sequence[Plan], num_blocks: int, before: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Blocks with sound in them as (row, block, target), in rounds that hit every target once at most."""
    rows = np.concatenate([[0], np.cumsum([plan.num_rows for plan in plans])])
    filled = np.zeros((rows[-1], num_blocks + 1), dtype=np.int64)
    for plan, first in zip(plans, rows, strict=False):
        low = np.maximum(plan.pieces.start + before - BLOCK_SAMPLES + STEP_SAMPLES, 0) // STEP_SAMPLES
        high = np.minimum(
            (plan.pieces.start + plan.pieces.length + before - 1) // STEP_SAMPLES + 1, num_blocks
        )
        np.add.at(filled, (first + plan.pieces.row, low), 1)
        np.add.at(filled, (first + plan.pieces.row, high), -1)
    active = np.cumsum(filled, axis=1)[:, :num_blocks] > 0
    conversation = np.repeat(np.arange(len(plans)), np.diff(rows))
    row, block = np.nonzero(active)
    target = conversation[row] * num_blocks + block
    order = np.argsort(target, kind="stable")
    row, block, target = row[order], block[order], target[order]
    rank = np.arange(len(target)) - np.searchsorted(target, target)
    return [tuple(x[rank == r] for x in (row, block, target)) for r in range(int(rank.max(initial=-1)) + 1)]


def _row_filters(plans: Sequence[Plan], device: torch.device) -> Complex64[Tensor, "rows bins"]:
    """Spectrum of what each track goes through before the sum: room and gain curve."""
    rt60_s, direct, tail, offset, taps, tap_gain, eq_db = (
        torch.from_numpy(np.concatenate(column)).to(device)
        for column in zip(*(p.rooms for p in plans), strict=True)
    )
    time_s = torch.arange(ROOM_SAMPLES, device=device) / SAMPLE_RATE
    onset = 1 - torch.exp(-time_s / 0.01)
    white = _white(device)[offset[:, None] + torch.arange(ROOM_SAMPLES, device=device)]
    decay = torch.exp(-6.908 * time_s / rt60_s[:, None]) * onset
    low = white * decay
    low.scatter_add_(1, taps, tap_gain * low.square().sum(1, keepdim=True).sqrt() * 0.4)
    high = white * decay * torch.exp(-6.908 * 0.6 * time_s / rt60_s[:, None])
    spectrum = torch.fft.rfft(torch.stack([low, high]), BLOCK_SAMPLES)
    hz = torch.linspace(0, SAMPLE_RATE / 2, BLOCK_SAMPLES // 2 + 1, device=device)
    share = torch.sigmoid((hz - CROSSOVER_HZ) / 400)
    reverberant = spectrum[0] * (1 - share) + spectrum[1] * share
    power = reverberant.real.square() + reverberant.imag.square()
    room = direct[:, None] + reverberant * (tail[:, None] / power.mean(1, keepdim=True).sqrt())
    curve = _knots_to_bins(eq_db)
    gain = 10 ** (curve / 20)
    num_speakers = [plan.num_speakers for plan in plans]
    noise = np.concatenate([np.arange(p.num_rows) >= n for p, n in zip(plans, num_speakers, strict=True)])
    unit = gain / gain.square().mean(1, keepdim=True).sqrt()
    gain = torch.where(torch.from_numpy(noise).to(device)[:, None], unit, gain)
    return room * _linear_phase(gain)


def _channel_filters(plans: Sequence[Plan], device: torch.device) -> Complex64[Tensor, "batch bins"]:
    """Spectrum of the microphone and the band limit of each conversation."""
    eq_db = torch.from_numpy(np.stack([plan.channel.eq_db for plan in plans])).to(device)
    band = torch.from_numpy(np.stack([plan.channel.band_hz for plan in plans])).to(device)
    curve = _knots_to_bins(eq_db)
    hz = torch.linspace(0, SAMPLE_RATE / 2, curve.shape[1], device=device)
    outside = (hz < band[:, :1]) | (hz > band[:, 1:])
    return _linear_phase(10 ** ((curve - 60.0 * outside) / 20))


def _knots_to_bins(knots_db: Float32[Tensor, "rows knots"]) -> Float32[Tensor, "rows bins"]:
    """Gain curves at the frequencies of a transform of `CURVE_SAMPLES`, straight between knots."""
    return knots_db @ _interpolation().to(knots_db.device)


@functools.lru_cache(maxsize=1)
def _interpolation() -> Float32[Tensor, "knots bins"]:
    knots = knot_frequencies_hz()
    hz = np.linspace(0, SAMPLE_RATE / 2, CURVE_SAMPLES // 2 + 1)
    return torch.from_numpy(np.stack([np.interp(hz, knots, one) for one in np.eye(len(knots))])).float()


def _linear_phase(gain: Float32[Tensor, "rows coarse"]) -> Complex64[Tensor, "rows bins"]:
    """Spectrum of the linear-phase filter with the given gain, delayed by `CURVE_SAMPLES // 2`."""
    taps = torch.fft.irfft(gain.to(torch.complex64), CURVE_SAMPLES).roll(CURVE_SAMPLES // 2, 1)
    window = torch.hann_window(CURVE_SAMPLES, device=gain.device)
    return torch.fft.rfft(taps * window, BLOCK_SAMPLES)


@functools.lru_cache(maxsize=4)
def _white(device: torch.device) -> Float32[Tensor, " samples"]:
    return torch.from_numpy(_WHITE).to(device)


def _channel(
    samples: Float32[Tensor, "batch samples"],
    plans: Sequence[Plan],
    activity: Float32[Tensor, "batch frames slots"],
) -> Float32[Tensor, "batch samples"]:
    """Hum, level, swings, DC, clipping, mu-law, 16 bits; in place."""
    channels = [plan.channel for plan in plans]
    for i, channel in enumerate(channels):
        if channel.hum_gain.any():
            _add_hum(samples[i], channel.hum_gain, int(channel.hum_hz))
    level_db = torch.from_numpy(np.stack([channel.level_db for channel in channels])).to(samples.device)
    target = 10 ** (level_db / 20)
    samples *= (target / active_level(samples, activity))[:, None]
    for i, channel in enumerate(channels):
        if len(channel.swing_samples):
            samples[i] *= _swing_gain(channel.swing_samples, channel.swing_db, samples.shape[1]).to(
                samples.device
            )
        if channel.dc != 0:
            samples[i] += float(channel.dc)
        if np.isfinite(channel.clip_above_rms_db):
            limit = float(10 ** ((channel.level_db + channel.clip_above_rms_db) / 20))
            samples[i].clamp_(-limit, limit)
        if channel.mu_law:
            samples[i] = _mu_law(samples[i])
    return samples.mul_(32768).round_().clamp_(-32768, 32767).div_(32768)


def active_level(
    samples: Float32[Tensor, "batch samples"], activity: Float32[Tensor, "batch frames slots"]
) -> Float32[Tensor, " batch"]:
    """RMS over frames in which somebody speaks; over all frames where nobody ever does; never 0."""
    num_frames = activity.shape[1]
    frames = samples[:, : num_frames * FRAME_SAMPLES].reshape(len(samples), num_frames, FRAME_SAMPLES)
    power = torch.linalg.vector_norm(frames, dim=-1).square() / FRAME_SAMPLES
    speech = activity.amax(-1) > 0.5
    weight = torch.where(speech.any(1, keepdim=True), speech, torch.ones_like(speech)).float()
    return ((power * weight).sum(1) / weight.sum(1)).sqrt().clamp_min(1e-6)


def _add_hum(samples: Float32[Tensor, " samples"], gain: np.ndarray, hum_hz: int) -> None:
    period = SAMPLE_RATE // 10  # a whole number of cycles of 50 and of 60 Hz
    phase = 2 * np.pi * hum_hz / SAMPLE_RATE * np.arange(period)[:, None] * np.arange(1, len(gain) + 1)
    cycle = torch.from_numpy((np.sin(phase) @ gain).astype(np.float32)).to(samples.device)
    samples += cycle.repeat(-(-len(samples) // period))[: len(samples)]


def _swing_gain(times: np.ndarray, swing_db: np.ndarray, num_samples: int) -> Float32[Tensor, " samples"]:
    """Gain that jumps at the given samples, over one hop each."""
    num_hops = num_samples // HOP_SAMPLES + 2
    which = np.searchsorted(times, np.arange(num_hops) * HOP_SAMPLES, side="right")
    gain = 10 ** (np.concatenate([[0.0], swing_db])[which] / 20)
    steps = np.diff(gain)[:, None] * (np.arange(HOP_SAMPLES) / HOP_SAMPLES) + gain[:-1, None]
    return torch.from_numpy(steps.reshape(-1)[:num_samples].astype(np.float32))


def _mu_law(samples: Float32[Tensor, " samples"]) -> Float32[Tensor, " samples"]:
    """8-bit mu-law and back."""
    scale = float(np.log1p(255))
    code = torch.log1p(255 * samples.abs().clamp_max(1)) / scale * samples.sign()
    code = torch.round(code * 127) / 127
    return torch.expm1(code.abs() * scale) / 255 * code.sign()
