"""Dry tracks of a conversation: pieces cut from their banks, scaled, faded and laid on the track, on any device.

Samples travel to the device together, as the 16-bit integers they are kept as.
"""

import functools
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32, Shaped
from torch import Tensor

from diarnorm.simulation.conversation import CLIP, SPEECH, WHITE, Plan
from diarnorm.simulation.filters import white_noise
from diarnorm.simulation.speech import Speech

FULL_SCALE = 32_768

PieceSamples = dict[int, Shaped[Tensor, " _"]]
"""Samples of pieces of a plan by their numbers: int16, or white noise."""


def cut_out(
    plans: Sequence[Plan],
    speech: Speech,
    clips: Speech | None,
    window: tuple[int, int],
    device: torch.device,
) -> list[PieceSamples]:
    """For each plan the samples of all pieces that are heard within `window` (start, end in samples).

    Raises:
        ValueError: a plan uses clips and none are given.
    """
    heard = [
        np.flatnonzero((plan.pieces.start < window[1]) & (plan.pieces.start + plan.pieces.length > window[0])).tolist()
        for plan in plans
    ]
    stored = [
        _stored(plan, number, speech, clips)
        for plan, numbers in zip(plans, heard, strict=True)
        for number in numbers
        if plan.pieces.bank[number] != WHITE
    ]
    together = np.concatenate(stored) if stored else np.zeros(0, dtype=np.int16)
    parts = iter(torch.from_numpy(together).to(device).split([len(part) for part in stored]) if stored else ())
    white = _white_noise(device)
    out: list[PieceSamples] = []
    for plan, numbers in zip(plans, heard, strict=True):
        bank, offset, length = plan.pieces.bank, plan.pieces.offset, plan.pieces.length
        out.append({i: white[offset[i] : offset[i] + length[i]] if bank[i] == WHITE else next(parts) for i in numbers})
    return out


def _stored(plan: Plan, number: int, speech: Speech, clips: Speech | None) -> np.ndarray:
    bank, offset, length = (
        int(column[number]) for column in (plan.pieces.bank, plan.pieces.offset, plan.pieces.length)
    )
    if bank == CLIP and clips is None:
        raise ValueError("a plan uses noise clips; pass those it was drawn from as clips=")
    source = speech if bank == SPEECH or clips is None else clips
    return source.samples[offset : offset + length]


def dry_track(
    plan: Plan,
    row: int,
    samples: PieceSamples,
    window: tuple[int, int],
    device: torch.device,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, " track"]:
    """One track within `window`, which may begin before the conversation and end after it."""
    track = torch.zeros(window[1] - window[0], device=device, dtype=dtype)
    pieces = plan.pieces
    for number, part in samples.items():
        at = int(pieces.start[number]) - window[0]
        low, high = max(at, 0), min(at + len(part), len(track))
        if pieces.row[number] != row or high <= low:
            continue
        scale = 1.0 if pieces.bank[number] == WHITE else 1 / FULL_SCALE
        faded = part.to(dtype) * float(pieces.gain[number] * np.float32(scale))
        fade_in, fade_out = int(pieces.fade_in[number]), int(pieces.fade_out[number])
        if fade_in:
            faded[:fade_in] *= _ramp(fade_in, device, dtype)
        if fade_out:
            faded[len(faded) - fade_out :] *= _ramp(fade_out, device, dtype).flip(0)
        track[low:high] += faded[low - at : high - at]
    return track


@functools.lru_cache(maxsize=64)
def _ramp(length: int, device: torch.device, dtype: torch.dtype) -> Float[Tensor, " samples"]:
    ramp = np.square(np.sin(np.arange(length) * (np.pi / 2 / length)))
    return torch.from_numpy(ramp).to(device, dtype)


@functools.lru_cache(maxsize=2)
def _white_noise(device: torch.device) -> Float32[Tensor, " samples"]:
    return torch.from_numpy(white_noise().copy()).to(device)
