"""Claim 6: how much attention a loud burst takes, and what it does to the turns around it, in trained models.

The share of attention on the frames of bursts is compared with that on the same frames of the recording as it was: a
pull of 1 is no change. Bursts are those of `diarnorm.robustness`, at a level over that of the speech.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from diarnorm.checkpoint import Checkpoint, load_checkpoint
from diarnorm.checks import check_range
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, average, number
from diarnorm.evaluation.hypotheses import Candidate, Settings, find_candidates
from diarnorm.evaluation.recordings import Recording, parse_source, read_set
from diarnorm.evaluation.scores import Components
from diarnorm.evaluation.scoring import score
from diarnorm.fbank import fbank_offline
from diarnorm.resources import samples_dir
from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.sound import Sound
from diarnorm.stream import Diarizer
from diarnorm.timebase import SAMPLE_RATE, frames_to_seconds, seconds_to_samples
from diarnorm.training.crops import read_part

HEADLINE_DB = 20.0
AROUND_S = 2.0
"""Before and after a burst, where its DER is looked at."""


@dataclass(frozen=True)
class BurstConfig:
    """Trained models, and the recordings that bursts are put into."""

    models: Any = ""
    recordings: str = ""
    """A folder of recordings with RTTM beside each; the sample recordings unless given."""
    burst: str = "slam"
    """`plosive`, `click` or `slam`."""
    levels_db: tuple[float, ...] = (0.0, 10.0, 20.0, 30.0)
    longest_s: float = 60.0
    """Of each recording, so much is used."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("longest_s", self.longest_s, low=5)
        for level in self.levels_db:
            parse([f"burst.{self.burst}={level}"])
        if HEADLINE_DB not in self.levels_db:
            raise ValueError(
                f"levels_db={list(self.levels_db)} lacks {HEADLINE_DB:g}, which the verdict is about: add it"
            )


@dataclass(frozen=True)
class Effect:
    """What bursts of one level do to one model on one recording."""

    pull: float
    by_layer: tuple[float, ...]
    clean: Components
    """Errors around the places of the bursts, without them."""
    burst: Components


class AttentionShares(TorchFunctionMode):
    """While it is on, keeps how much of each attention layer's weight falls on marked frames.

    `marked` are frames; only queries count that have a marked frame among their keys.
    """

    def __init__(self, marked: Bool[Tensor, " frames"], left_context: int, chunk: int) -> None:
        super().__init__()
        padded = torch.cat([torch.zeros(left_context, dtype=torch.bool), marked])
        self.windows: Bool[Tensor, "chunks window"] = padded.unfold(0, left_context + chunk, chunk)
        self.shares: list[float] = []

    def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self.shares.append(self._share(args[0], args[1], kwargs["attn_mask"]))
        return func(*args, **kwargs)

    def _share(
        self,
        q: Float[Tensor, "chunks heads queries head_dim"],
        k: Float[Tensor, "chunks heads window head_dim"],
        bias: Float[Tensor, "chunks 1 queries window"],
    ) -> float:
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias, dim=-1)
        seen = self.windows.any(dim=-1)
        on_marked = torch.where(self.windows[:, None, None], weights, 0.0).sum(dim=-1)
        return float(on_marked[seen].mean())


def bursts(config: BurstConfig, folder: Path) -> Evidence:
    """Pull of each level for each model, and DER around bursts.

    Raises:
        ValueError: no models, or recordings that cannot be read.
    """
    if not config.models:
        raise ValueError("no models to compare: give models=[PATH,...], trained with different norms")
    candidates = find_candidates(config.models, Path.cwd(), Settings())
    source = config.recordings or str(samples_dir())
    recordings = read_set("recordings", parse_source("recordings", source, "recordings"), Path.cwd()).recordings
    recordings = tuple(each for each in recordings if each.reference)
    found: dict[tuple[str, float], list[Effect]] = {}
    norms: dict[str, str] = {}
    for candidate in candidates:
        checkpoint = load_checkpoint(candidate.path)
        norms[candidate.name] = checkpoint.model.config.encoder.norm
        for level in config.levels_db:
            found[candidate.name, level] = [effect(checkpoint, each, config, level) for each in recordings]
    return evidence_of(candidates, norms, found, config)


def effect(checkpoint: Checkpoint, recording: Recording, config: BurstConfig, level_db: float) -> Effect:
    """One model, one recording, one level."""
    assert recording.audio is not None
    assert recording.duration_s is not None
    length = seconds_to_samples(min(recording.duration_s, config.longest_s))
    end_s = length / SAMPLE_RATE
    turns = tuple(replace(t, end=min(t.end, end_s)) for t in recording.reference if t.start < end_s)
    sound = Sound(read_part(recording.audio, 0, length), turns)
    loud = corrupt(sound, parse([f"burst.{config.burst}={level_db}"]), config.seed)
    clean, burst = (_shares(checkpoint, each.samples, loud) for each in (sound, loud))
    around = [(max(0.0, start - AROUND_S), min(end_s, end + AROUND_S)) for start, end in loud.events]
    errors = [_errors(checkpoint, each.samples, sound, around) for each in (sound, loud)]
    return Effect(mean(burst) / mean(clean), tuple(b / c for b, c in zip(burst, clean, strict=True)), *errors)


@torch.no_grad()
def _shares(checkpoint: Checkpoint, samples: np.ndarray, loud: Sound) -> list[float]:
    """Share of the attention on the frames of bursts, by layer."""
    model, chunk = checkpoint.model, checkpoint.chunk
    chunk_samples = model.chunk_samples(chunk)
    whole = torch.from_numpy(samples[: len(samples) // chunk_samples * chunk_samples])[None]
    mel, _ = model.frontend(fbank_offline(whole))
    frames = mel.shape[1] // 8
    starts = torch.tensor([frames_to_seconds(at) for at in range(frames)])
    marked = torch.zeros(frames, dtype=torch.bool)
    for start, end in loud.events:
        marked |= (starts + frames_to_seconds(1) > start) & (starts < end)
    with AttentionShares(marked, model.config.encoder.left_context, chunk) as recorder:
        model.encoder(mel, chunk=chunk)
    return recorder.shares


def _errors(checkpoint: Checkpoint, samples: np.ndarray, sound: Sound, around: list[tuple[float, float]]) -> Components:
    stream = Diarizer(checkpoint).stream()
    turns = [*stream.push(samples), *stream.finish()]
    return score({"x": list(sound.turns)}, {"x": turns}, {"x": around}).pooled


def evidence_of(
    candidates: tuple[Candidate, ...],
    norms: dict[str, str],
    found: dict[tuple[str, float], list[Effect]],
    config: BurstConfig,
) -> Evidence:
    """Pull by norm over models and recordings."""
    names = {norm: [each.name for each in candidates if norms[each.name] == norm] for norm in norms.values()}

    def pull(norm: str, level: float) -> Measure:
        return average(f"pull_{norm}", [e.pull for name in names[norm] for e in found[name, level]])

    lines = []
    for norm in names:
        points = [pull(norm, level) for level in config.levels_db]
        columns = (tuple(getattr(p, key) for p in points) for key in ("value", "low", "high"))
        lines.append(Series(norm, config.levels_db, *columns))
    rows = tuple(_row(norms[name], name, level, effects) for (name, level), effects in found.items())
    layers = tuple(
        (
            f"{name} ({norms[name]})",
            *(number(mean(values)) for values in zip(*(e.by_layer for e in found[name, HEADLINE_DB]), strict=True)),
        )
        for name in norms
    )
    depth = max(len(row) for row in layers) - 1
    layers = tuple((*row, *("-",) * (depth + 1 - len(row))) for row in layers)
    return Evidence(
        "bursts",
        tuple(pull(norm, HEADLINE_DB) for norm in names),
        (
            Table("Bursts", ("model (norm), level", "pull", "DER around, without", "with"), rows),
            Table(f"Pull at +{HEADLINE_DB:g} dB by block", ("model", *(str(at + 1) for at in range(depth))), layers),
        ),
        (
            Plot(
                "Attention on a burst",
                "level of the burst over the speech, dB",
                "pull (1: as without)",
                tuple(lines),
                lines=(1.0,),
            ),
        ),
        (
            f"Bursts of the kind {config.burst}, one in each 5 s. Pull is the share of attention on their frames over "
            f"that on the same frames without them. DER within {AROUND_S:g} s of a burst. Intervals by bootstrap over "
            "models and recordings.",
        ),
    )


def _row(norm: str, name: str, level: float, effects: list[Effect]) -> tuple[str, ...]:
    clean, burst = (sum((getattr(e, key) for e in effects), Components()) for key in ("clean", "burst"))
    ders = ("-" if part.der is None else f"{100 * part.der:.1f} %" for part in (clean, burst))
    return (f"{name} ({norm}), +{level:g} dB", number(mean(e.pull for e in effects)), *ders)
