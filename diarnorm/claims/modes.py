"""Claim 7, the model: DER of a trained model whose BatchNorms use the batch's statistics, against the running ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diarnorm.checks import check_range
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, number
from diarnorm.claims.quality import pooled_der
from diarnorm.claims.trained import find_networks
from diarnorm.claims.voices import find_speech
from diarnorm.evaluation.families import summed
from diarnorm.evaluation.hypotheses import Candidate, load_diarizer
from diarnorm.evaluation.scores import Components, bootstrap_difference
from diarnorm.evaluation.scoring import score
from diarnorm.model import Model
from diarnorm.stream import Diarizer
from diarnorm.timebase import FRAME_MS, MELS_PER_FRAME
from diarnorm.training.batchgap import copy_in_mode, has_batch_norm
from diarnorm.training.develop import CHUNK, DevelopmentSet, turns_of

EVAL, ALL, ALONE, CHUNKS = "eval mode", "train mode, all together", "train mode, one recording", "train mode, one chunk"
MODES = (EVAL, ALL, ALONE, CHUNKS)


@dataclass(frozen=True)
class ModesConfig:
    """Models with BatchNorm, and what they are run on: conversations of voices of `speech`, simulated."""

    models: Any = ""
    speech: str = "synthetic"
    """A manifest, a tree of speakers, or `synthetic`; the part for development where it has one."""
    conversations: int = 24
    duration_s: float = 40.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("conversations", self.conversations, low=2)
        check_range("duration_s", self.duration_s, low=2)


def batchnorm_modes(config: ModesConfig) -> Evidence:
    """DER in each mode, averaged over the models; the measure is of a whole recording at once.

    Raises:
        ValueError: no model, one without BatchNorm, or settings that do not fit.
    """
    if not config.models:
        raise ValueError("no model to run: give models=[PATH,...], trained with norm=batch or conv_norm=batch")
    candidates = find_networks(config.models)
    diarizers = {each.name: _load(each) for each in candidates}
    conversations = DevelopmentSet.simulated(
        find_speech(config.speech), config.conversations, config.duration_s, seed=config.seed
    )
    found = {
        (each.name, mode): errors(conversations, diarizers[each.name], mode, each.settings.max_speakers)
        for each in candidates
        for mode in MODES
    }
    together = {mode: summed([found[name, mode] for name in diarizers]) for mode in MODES}
    differences = {mode: der_difference("der_of_train_mode", together[mode], together[EVAL]) for mode in MODES}
    rows = tuple((name, *(f"{number(100 * pooled_der(found[name, mode]))} %" for mode in MODES)) for name in diarizers)
    return Evidence(
        "batchnorm_modes",
        (differences[ALONE],),
        (Table("DER", ("model", *MODES), rows),),
        (_plot([differences[mode] for mode in MODES]),),
        (
            f"{config.conversations} simulated conversations of {config.duration_s:g} s. All together is a batch of "
            f"all frames; one chunk is {CHUNK} frames. Running statistics stay. Thresholds are the model's own, unless "
            "others are asked for. Seconds of errors are summed over the models, conversation by conversation; "
            "intervals by bootstrap over conversations.",
        ),
    )


def _load(candidate: Candidate) -> Diarizer:
    """A model with what is asked of it.

    Raises:
        ValueError: it has no BatchNorm, or chunks are asked for.
    """
    name, chunk_ms = candidate.name, candidate.settings.chunk_ms
    if chunk_ms is not None:
        raise ValueError(
            f"{name} asks for chunk_ms={chunk_ms}, but chunks are {CHUNK * FRAME_MS} ms here: leave it out"
        )
    diarizer = load_diarizer(candidate.path, candidate.settings)
    if not has_batch_norm(diarizer.model):
        raise ValueError(f"{name} has no BatchNorm: give models trained with norm=batch or conv_norm=batch")
    return diarizer


def _plot(differences: list[Measure]) -> Plot:
    return Plot(
        "DER less that of eval mode",
        "0: eval; train mode with 1: all, 2: one recording, 3: one chunk",
        "points of DER",
        (Series.of("difference", range(len(MODES)), differences),),
    )


@torch.no_grad()
def errors(
    conversations: DevelopmentSet, diarizer: Diarizer, mode: str, max_speakers: int | None = None
) -> list[Components]:
    """Error components of each conversation, with its BatchNorms in this mode."""
    model = copy_in_mode(diarizer.model, train_mode=mode != EVAL)
    h = encode(model, conversations.mel.float(), mode)
    output = model.memory(h, model.memory.init_state(len(h), max_speakers))[0]
    activity, count = output.activity.numpy(), output.count.numpy()
    hypothesis = {
        uri: turns_of(activity[i], count[i], diarizer.turn_config) for i, uri in enumerate(conversations.reference)
    }
    return score(conversations.reference, hypothesis).errors


def encode(model: Model, mel: Tensor, mode: str) -> Tensor:
    """Encoder output, with as many frames in a batch as the mode says."""
    frames, _ = model.frontend(mel)
    if mode in (EVAL, ALL):
        return model.encoder(frames, chunk=CHUNK)[0]
    if mode == ALONE:
        return torch.cat([model.encoder(row, chunk=CHUNK)[0] for row in frames.split(1)])
    rows = []
    for row in frames.split(1):
        outputs, state = [], None
        for piece in row.split(CHUNK * MELS_PER_FRAME, dim=1):
            h, state = model.encoder(piece, state, chunk=CHUNK)
            outputs.append(h)
        rows.append(torch.cat(outputs, dim=1))
    return torch.cat(rows)


def der_difference(name: str, files: Sequence[Components], base: Sequence[Components]) -> Measure:
    """DER of `files` less that of `base`, conversation by conversation the same, in points; interval by bootstrap."""
    value = pooled_der(files) - pooled_der(base)
    low, high = bootstrap_difference(files, base) or (-math.inf, math.inf)
    return Measure(name, value, low, high).scaled(100)
