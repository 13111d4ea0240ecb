"""Many recordings through one model at once: what a stream would say of each, and what is seen inside.

Recordings of any length lie side by side, padded with frames that are not valid. The encoder takes whole recordings in
one big step, a few rows at a time; the memory goes through the frames of all of them together, which is where a single
stream spends its time. By the contract of the package the turns are those of `Stream`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from diarnorm.fbank import fbank_offline
from diarnorm.robustness.probes import watching
from diarnorm.stream import Diarizer
from diarnorm.timebase import FRAME_SAMPLES, HOP_SAMPLES, MELS_PER_FRAME, frames_covering
from diarnorm.training.develop import turns_of
from diarnorm.turns import Turn

ENCODER_FRAMES = 6000
"""Most frames in one call of the encoder, about: what its layers write stays small."""


@dataclass(frozen=True)
class Sheet:
    """Log-mel frames of several recordings, zeros after the end of each, and their lengths in samples."""

    mel: Float[Tensor, "recordings mel_frames 80"]
    num_samples: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """One model on one recording of F frames in N chunks.

    Attributes:
        turns: as `Stream` gives them.
        activity: of every slot, `[F, slots]`.
        embedding: unit norm, `[F, embedding]`.
        powers: mean square of the residual stream after each block, `[blocks, F]`.
        attention: see `probes.Seen`, `[blocks, N, window]`; None unless asked for.
        chunk: frames of a chunk.
    """

    turns: tuple[Turn, ...]
    activity: Float[np.ndarray, "frames slots"]
    embedding: Float[np.ndarray, "frames embedding"]
    powers: Float[np.ndarray, "blocks frames"]
    attention: Float[np.ndarray, "blocks chunks window"] | None
    chunk: int


@torch.inference_mode()
def make_sheet(recordings: Sequence[Float[np.ndarray, " samples"]]) -> Sheet:
    """Log-mel frames of samples in [-1, 1] at 16 kHz; they do not depend on the model, and are made once for all."""
    lengths = tuple(len(samples) for samples in recordings)
    padded = torch.zeros(len(recordings), frames_covering(max(lengths)) * FRAME_SAMPLES)
    for row, samples in zip(padded, recordings, strict=True):
        row[: len(samples)] = torch.tensor(samples)
    return Sheet(fbank_offline(padded), lengths)


@torch.inference_mode()
def run(
    diarizer: Diarizer,
    sheet: Sheet,
    *,
    chunk: int | None = None,
    num_slots: int | None = None,
    attention: bool = False,
) -> list[Trace]:
    """What a model makes of each recording, in chunks of `chunk` frames and with `num_slots` slots (None: its own)."""
    model, device = diarizer.model, torch.device(diarizer.device)
    chunk = diarizer.checkpoint.chunk if chunk is None else chunk
    frames = -(-sheet.mel.shape[1] // (MELS_PER_FRAME * chunk)) * chunk
    mel = F.pad(sheet.mel, (0, 0, 0, frames * MELS_PER_FRAME - sheet.mel.shape[1])).to(device)
    hops = torch.tensor(sheet.num_samples, device=device)[:, None] // HOP_SAMPLES
    heard = torch.arange(frames * MELS_PER_FRAME, device=device) < hops
    valid = torch.arange(frames, device=device) * MELS_PER_FRAME < hops
    normalised, _ = model.frontend(mel, None, heard)
    outputs, powers, weights = [], [], []
    rows = max(1, ENCODER_FRAMES // max(1, frames))
    for some, some_valid in zip(normalised.split(rows), valid.split(rows), strict=True):
        with watching(model.encoder, attention=attention) as seen:
            outputs.append(model.encoder(some, None, some_valid, chunk=chunk)[0])
        powers.append(torch.stack(seen.powers, dim=1).cpu())
        if attention:
            weights.append(torch.stack([each.unflatten(0, (len(some), -1)) for each in seen.attention], dim=1).cpu())
    h = torch.cat(outputs)
    start = model.memory.init_state(len(h), num_slots)
    output, _ = model.memory(h, start, valid)
    arrays = [each.cpu().numpy() for each in (output.activity, output.count, model.memory.embedding(h))]
    looks = [torch.cat(powers).numpy(), torch.cat(weights).numpy() if attention else None]
    return [_trace(diarizer, row, length, chunk, arrays, looks) for row, length in enumerate(sheet.num_samples)]


def _trace(
    diarizer: Diarizer,
    row: int,
    num_samples: int,
    chunk: int,
    arrays: Sequence[np.ndarray],
    looks: Sequence[np.ndarray | None],
) -> Trace:
    """One recording's part of everything, without its padding."""
    inside = frames_covering(num_samples // HOP_SAMPLES * HOP_SAMPLES)
    activity, count, embedding = (each[row, :inside].copy() for each in arrays)
    powers, weights = looks
    assert powers is not None
    kept = None if weights is None else weights[row, :, : -(-inside // chunk)].copy()
    turns = turns_of(activity, count, diarizer.turn_config, num_samples)
    return Trace(tuple(turns), activity, embedding, powers[row, :, :inside].copy(), kept, chunk)
