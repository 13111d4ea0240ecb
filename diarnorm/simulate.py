"""Simulated conversations: plans (`diarnorm.planner`) rendered to samples and labels, batched.

Tracks are put together by copying; rooms, gain curves, noise colours and the microphone are then one filter
each, applied in blocks (overlap-save) where a track is not silent. All randomness is in the plan and in one
fixed stretch of noise, so samples agree across devices to rounding.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from diarnorm.conversation import CLIP, SPEECH, WHITE, Plan
from diarnorm.filters import CURVE_SAMPLES, ROOM_SAMPLES, channel_filters, track_filters, white_noise
from diarnorm.planner import PlanStatistics, SimulatorConfig, plan_conversation, plan_statistics
from diarnorm.speech import Speech
from diarnorm.timebase import FRAME_SAMPLES, HOP_SAMPLES, SAMPLE_RATE, frames_to_samples

__all__ = [
    "Mixture",
    "PlanStatistics",
    "SimulatorConfig",
    "active_level",
    "plan_conversation",
    "plan_statistics",
    "render",
    "render_tracks",
]

BLOCK_SAMPLES = 32_768
"""Length of one Fourier transform."""
LEAD_SAMPLES = ROOM_SAMPLES + 2 * CURVE_SAMPLES
"""Part of a block that overlaps with the one before."""
STEP_SAMPLES = BLOCK_SAMPLES - LEAD_SAMPLES
"""Samples that one block yields."""
BEFORE_SAMPLES = LEAD_SAMPLES - CURVE_SAMPLES
"""Zeros before a track: the overlap, less the delay of two gain curves, which is so taken out again."""
GROUP_SAMPLES = 16_000_000
"""Samples of tracks handled at once, to bound memory."""
FULL_SCALE = 32_768


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
    groups = [_render_group(plans[a:b], activity[a:b], speech, clips) for a, b in _groups(plans)]
    return Mixture(torch.cat(groups), activity, speaker_class.to(device), source.to(device))


def labels(plans: Sequence[Plan], num_slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Activity [B, T, K], speaker class [B, K] (-1: nobody), source [B, T] (-1: none or several)."""
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
    """Dry tracks of all plans, one below the other: speakers, then noises, of each; zeros before and after.

    Raises:
        ValueError: a plan uses clips and none are given.
    """
    num_samples = plans[0].num_samples
    tracks = np.zeros((sum(plan.num_rows for plan in plans), before + num_samples + after), dtype=np.float32)
    first = 0
    for plan in plans:
        if clips is None and (plan.pieces.bank == CLIP).any():
            raise ValueError("a plan uses noise clips; pass those it was drawn from as clips=")
        for row, bank, start, offset, length, fade_in, fade_out, _, gain in zip(*plan.pieces, strict=True):
            samples, scale = _bank(int(bank), speech, clips)
            piece = samples[offset : offset + length] * np.float32(gain * scale)
            if fade_in:
                piece[:fade_in] *= _ramp(int(fade_in))
            if fade_out:
                piece[length - fade_out :] *= _ramp(int(fade_out))[::-1]
            tracks[first + row, before + start : before + start + length] += piece
        first += plan.num_rows
    return tracks


def _bank(bank: int, speech: Speech, clips: Speech | None) -> tuple[np.ndarray, float]:
    """Samples of a bank, and what scales them to full scale 1."""
    if bank == WHITE:
        return white_noise(), 1.0
    source = speech if bank == SPEECH or clips is None else clips
    return source.samples, 1 / FULL_SCALE


@functools.lru_cache(maxsize=64)
def _ramp(length: int) -> Float32[np.ndarray, " samples"]:
    return np.square(np.sin(np.arange(length) * (np.pi / 2 / length))).astype(np.float32)


def _render_group(
    plans: Sequence[Plan], activity: Tensor, speech: Speech, clips: Speech | None
) -> Float32[Tensor, "batch samples"]:
    """Samples of some plans: tracks, filters, sum, channel."""
    device, num_samples = activity.device, plans[0].num_samples
    num_blocks = -(-num_samples // STEP_SAMPLES)
    after = num_blocks * STEP_SAMPLES + CURVE_SAMPLES - num_samples
    dry = render_tracks(plans, speech, clips, before=BEFORE_SAMPLES, after=after)
    blocks = torch.from_numpy(dry).to(device).unfold(1, BLOCK_SAMPLES, STEP_SAMPLES)
    filters = track_filters(plans, BLOCK_SAMPLES, device)
    bins = BLOCK_SAMPLES // 2 + 1
    spectrum = torch.zeros(len(plans), num_blocks, bins, dtype=torch.complex64, device=device)
    for conversation, row, start, end in _sounding_blocks(plans, num_blocks):
        part = torch.fft.rfft(blocks[row, start:end])
        spectrum[conversation, start:end].addcmul_(part, filters[row])
    spectrum *= channel_filters(plans, BLOCK_SAMPLES, device)[:, None]
    mixed = torch.fft.irfft(spectrum, BLOCK_SAMPLES)[..., LEAD_SAMPLES:]
    return _channel(mixed.reshape(len(plans), -1)[:, :num_samples].contiguous(), plans, activity)


def _sounding_blocks(plans: Sequence[Plan], num_blocks: int) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of blocks with sound in them: (conversation, row of all, first block, end block)."""
    first = 0
    for conversation, plan in enumerate(plans):
        start = plan.pieces.start + BEFORE_SAMPLES
        low = np.maximum(start - BLOCK_SAMPLES + STEP_SAMPLES, 0) // STEP_SAMPLES
        high = np.minimum((start + plan.pieces.length - 1) // STEP_SAMPLES + 1, num_blocks)
        edges = np.zeros((plan.num_rows, num_blocks + 1), dtype=np.int64)
        np.add.at(edges, (plan.pieces.row, low), 1)
        np.add.at(edges, (plan.pieces.row, high), -1)
        sounding = np.cumsum(edges, axis=1) > 0
        changes = np.diff(sounding.astype(np.int8), axis=1, prepend=0)
        starts, ends = np.argwhere(changes > 0), np.argwhere(changes < 0)
        for (row, begin), (_, end) in zip(starts, ends, strict=True):
            yield conversation, first + int(row), int(begin), int(end)
        first += plan.num_rows


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
            samples[i] *= _swing_gain(channel.swing_samples, channel.swing_db, samples.shape[1]).to(samples.device)
        if channel.dc != 0:
            samples[i] += float(channel.dc)
        if np.isfinite(channel.clip_above_rms_db):
            limit = float(10 ** ((channel.level_db + channel.clip_above_rms_db) / 20))
            samples[i].clamp_(-limit, limit)
        if channel.mu_law:
            samples[i] = _mu_law(samples[i])
    return samples.mul_(FULL_SCALE).round_().clamp_(-FULL_SCALE, FULL_SCALE - 1).div_(FULL_SCALE)


def active_level(
    samples: Float32[Tensor, "batch samples"], activity: Float32[Tensor, "batch frames slots"]
) -> Float32[Tensor, " batch"]:
    """RMS over frames in which somebody speaks; over all frames where nobody ever does; never 0."""
    num_frames = activity.shape[1]
    frames = samples[:, : frames_to_samples(num_frames)].reshape(len(samples), num_frames, FRAME_SAMPLES)
    power = torch.linalg.vector_norm(frames, dim=-1).square() / FRAME_SAMPLES
    speech = (activity > 0.5).any(-1)
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
