"""Simulated conversations: plans (`simulation.planner`) rendered to samples and labels, batched, on any device.

Tracks are put together by copying; rooms, gain curves, noise colours and the microphone are then one filter each,
applied in blocks (overlap-save) where a track is not silent. All randomness is in the plan and in one fixed stretch of
noise, so samples agree across devices to rounding (the codes of a companded channel may differ by one step, rarely).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Complex, Float, Float32, Int64
from torch import Tensor

from diarnorm.simulation.channel import add_hum, apply_channel
from diarnorm.simulation.conversation import ROOM_SAMPLES, Plan
from diarnorm.simulation.filters import CURVE_SAMPLES, channel_filters, track_filters
from diarnorm.simulation.planner import SimulatorConfig, plan_conversation
from diarnorm.simulation.speech import Speech
from diarnorm.simulation.tracks import PieceSamples, cut_out, dry_track
from diarnorm.timebase import FRAME_SAMPLES, frames_to_samples

__all__ = ["Mixture", "SimulatorConfig", "active_level", "plan_conversation", "render", "render_parts"]

BLOCK_SAMPLES = 32_768
"""Length of one Fourier transform."""
LEAD_SAMPLES = ROOM_SAMPLES + 2 * CURVE_SAMPLES
"""Part of a block that overlaps with the one before."""
STEP_SAMPLES = BLOCK_SAMPLES - LEAD_SAMPLES
"""Samples that one block yields: a whole number of frames."""
BEFORE_SAMPLES = LEAD_SAMPLES - CURVE_SAMPLES
"""A block begins this long before what it yields: the overlap, less the delay of two gain curves, which is so taken
out again."""
PART_BLOCKS = 48
"""Blocks that `render_parts` holds at a time (a minute)."""


class Mixture(NamedTuple):
    """A batch of conversations with their labels; T = N // 1280 frames, K speaker slots by first activity."""

    samples: Float[Tensor, "batch samples"]
    activity: Float32[Tensor, "batch frames slots"]
    speaker_class: Int64[Tensor, "batch slots"]
    source: Int64[Tensor, "batch frames"]


class Filters(NamedTuple):
    """Spectra of one plan's tracks, room and gain curve, and of its channel."""

    tracks: Complex[Tensor, "rows bins"]
    channel: Complex[Tensor, " bins"]


def render(
    plans: Sequence[Plan],
    speech: Speech,
    *,
    clips: Speech | None = None,
    num_slots: int | None = None,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Mixture:
    """Render plans of equal length.

    Args:
        plans: conversations of the same number of samples, made from `speech` and `clips`.
        speech: the speech they were drawn from.
        clips: the noise clips they were drawn from.
        num_slots: speaker slots of the labels; the largest number of speakers of the plans when None.
        device: where the samples are computed and where the result lives.
        dtype: of the samples; float64 shows what rounding does.

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
    device = torch.device(device)
    num_samples, num_blocks = lengths[0], -(-lengths[0] // STEP_SAMPLES)
    activity, speaker_class, source = (part.to(device) for part in labels(plans, slots))
    pieces = cut_out(plans, speech, clips, (0, num_samples), device)
    samples = torch.empty(len(plans), num_samples, device=device, dtype=dtype)
    for row, plan, own, filters in zip(samples, plans, pieces, _filters(plans, device, dtype), strict=True):
        row.copy_(_mix(plan, own, filters, 0, num_blocks)[:num_samples])
        add_hum(row, plan.channel)
    for row, plan, level in zip(samples, plans, active_level(samples, activity), strict=True):
        apply_channel(row, plan.channel, level)
    return Mixture(samples, activity, speaker_class, source)


def render_parts(
    plan: Plan, speech: Speech, *, clips: Speech | None = None, device: str | torch.device = "cpu"
) -> Iterator[Float32[Tensor, " samples"]]:
    """The samples that `render` gives, in parts of about a minute: memory does not grow with the length.

    Every part is made twice, first to measure the level.
    """
    device = torch.device(device)
    filters = _filters([plan], device, torch.float32)[0]
    weight = _level_weight(torch.from_numpy(plan.activity()).to(device)[None])[0]
    power = torch.zeros((), dtype=torch.float64, device=device)
    for first, samples in _mixed_parts(plan, speech, clips, filters, device):
        frames = _frame_power(samples[None])[0]
        power += (frames * weight[first // FRAME_SAMPLES :][: len(frames)]).sum()
    level = _level(power, weight.sum()).float()
    for first, samples in _mixed_parts(plan, speech, clips, filters, device):
        apply_channel(samples, plan.channel, level, first)
        yield samples


def _mixed_parts(
    plan: Plan, speech: Speech, clips: Speech | None, filters: Filters, device: torch.device
) -> Iterator[tuple[int, Float32[Tensor, " samples"]]]:
    """First sample of each part, and the part before its level is set."""
    num_blocks = -(-plan.num_samples // STEP_SAMPLES)
    for block in range(0, num_blocks, PART_BLOCKS):
        end_block = min(block + PART_BLOCKS, num_blocks)
        window = (block * STEP_SAMPLES - BEFORE_SAMPLES, end_block * STEP_SAMPLES + LEAD_SAMPLES)
        pieces = cut_out([plan], speech, clips, window, device)[0]
        first = block * STEP_SAMPLES
        samples = _mix(plan, pieces, filters, block, end_block)[: plan.num_samples - first]
        add_hum(samples, plan.channel, first)
        yield first, samples


def labels(plans: Sequence[Plan], num_slots: int) -> tuple[Tensor, Tensor, Tensor]:
    """Activity [B, T, K], speaker class [B, K] (-1: nobody), source [B, T] (-1: none or several)."""
    activity = torch.zeros(len(plans), plans[0].num_frames, num_slots)
    speaker_class = torch.full((len(plans), num_slots), -1, dtype=torch.int64)
    for i, plan in enumerate(plans):
        activity[i, :, : plan.num_speakers] = torch.from_numpy(plan.activity())
        speaker_class[i, : plan.num_speakers] = torch.from_numpy(plan.speaker_class)
    return activity, speaker_class, torch.from_numpy(np.stack([plan.source() for plan in plans]))


def _filters(plans: Sequence[Plan], device: torch.device, dtype: torch.dtype) -> list[Filters]:
    tracks = track_filters(plans, BLOCK_SAMPLES, device, dtype).split([plan.num_rows for plan in plans])
    return [Filters(*pair) for pair in zip(tracks, channel_filters(plans, BLOCK_SAMPLES, device, dtype), strict=True)]


def _mix(
    plan: Plan, pieces: PieceSamples, filters: Filters, first_block: int, end_block: int
) -> Float[Tensor, " samples"]:
    """Sum of all tracks through their filters and that of the channel, from one block to another."""
    spectrum = torch.zeros(end_block - first_block, BLOCK_SAMPLES // 2 + 1).to(filters.tracks)
    dtype = filters.tracks.real.dtype
    start = first_block * STEP_SAMPLES - BEFORE_SAMPLES
    for row, begin, end in _sounding_blocks(plan, pieces, first_block, end_block):
        window = (start + begin * STEP_SAMPLES, start + end * STEP_SAMPLES + LEAD_SAMPLES)
        track = dry_track(plan, row, pieces, window, spectrum.device, dtype)
        part = torch.fft.rfft(track.unfold(0, BLOCK_SAMPLES, STEP_SAMPLES))
        spectrum[begin:end].addcmul_(part, filters.tracks[row])
    spectrum *= filters.channel
    return torch.fft.irfft(spectrum, BLOCK_SAMPLES)[:, LEAD_SAMPLES:].reshape(-1)


def _sounding_blocks(
    plan: Plan, pieces: PieceSamples, first_block: int, end_block: int
) -> Iterator[tuple[int, int, int]]:
    """Stretches of blocks with sound in them: (row, first block, end block), counted from `first_block`."""
    numbers = np.fromiter(pieces, dtype=np.int64, count=len(pieces))
    num_blocks = end_block - first_block
    start = plan.pieces.start[numbers] + BEFORE_SAMPLES
    low = np.maximum(start - BLOCK_SAMPLES + STEP_SAMPLES, 0) // STEP_SAMPLES - first_block
    high = (start + plan.pieces.length[numbers] - 1) // STEP_SAMPLES + 1 - first_block
    edges = np.zeros((plan.num_rows, num_blocks + 1), dtype=np.int64)
    np.add.at(edges, (plan.pieces.row[numbers], np.clip(low, 0, num_blocks)), 1)
    np.add.at(edges, (plan.pieces.row[numbers], np.clip(high, 0, num_blocks)), -1)
    sounding = np.cumsum(edges, axis=1) > 0
    changes = np.diff(sounding.astype(np.int8), axis=1, prepend=0)
    starts, ends = np.argwhere(changes > 0), np.argwhere(changes < 0)
    for (row, begin), (_, end) in zip(starts.tolist(), ends.tolist(), strict=True):
        yield row, begin, end


def active_level(
    samples: Float[Tensor, "batch samples"], activity: Float32[Tensor, "batch frames slots"]
) -> Float[Tensor, " batch"]:
    """RMS over frames in which somebody speaks; over all frames where nobody ever does; never 0."""
    weight = _level_weight(activity).to(samples.dtype)
    return _level((_frame_power(samples) * weight).sum(1), weight.sum(1))


def _level(power: Tensor, weight: Tensor) -> Tensor:
    return (power / weight).sqrt().clamp_min(1e-6)


def _level_weight(activity: Float32[Tensor, "batch frames slots"]) -> Float32[Tensor, "batch frames"]:
    speech = (activity > 0.5).any(-1)
    return torch.where(speech.any(1, keepdim=True), speech, torch.ones_like(speech)).float()


def _frame_power(samples: Float[Tensor, "batch samples"]) -> Float[Tensor, "batch frames"]:
    num_frames = samples.shape[1] // FRAME_SAMPLES
    frames = samples[:, : frames_to_samples(num_frames)].reshape(len(samples), num_frames, FRAME_SAMPLES)
    return torch.linalg.vector_norm(frames, dim=-1).square() / FRAME_SAMPLES
