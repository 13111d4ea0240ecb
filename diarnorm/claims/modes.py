"""Claim 7, the model: DER of a trained model whose BatchNorms use the batch's statistics, against the running ones."""

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diarnorm.checkpoint import load_checkpoint
from diarnorm.checks import check_range
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, number
from diarnorm.claims.voices import find_speech
from diarnorm.evaluation.hypotheses import Settings, find_candidates
from diarnorm.evaluation.scores import Components, bootstrap_difference
from diarnorm.evaluation.scoring import score
from diarnorm.model import Model
from diarnorm.norms import BatchNorm
from diarnorm.training.batchgap import has_batch_norm
from diarnorm.training.develop import CHUNK, DevelopmentSet, turns_of
from diarnorm.turns import TurnConfig

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


def batchnorm_modes(config: ModesConfig, folder: Path) -> Evidence:
    """DER in each mode, over all models; the measure is of a whole recording at once.

    Raises:
        ValueError: no model, or one without BatchNorm.
    """
    if not config.models:
        raise ValueError("no model to run: give models=[PATH,...], trained with norm=batch or conv_norm=batch")
    candidates = find_candidates(config.models, Path.cwd(), Settings())
    checkpoints = {each.name: load_checkpoint(each.path) for each in candidates}
    for name, checkpoint in checkpoints.items():
        if not has_batch_norm(checkpoint.model):
            raise ValueError(f"{name} has no BatchNorm: give models trained with norm=batch or conv_norm=batch")
    conversations = DevelopmentSet.simulated(
        find_speech(config.speech), config.conversations, config.duration_s, seed=config.seed
    )
    found = {
        (name, mode): errors(conversations, in_mode(checkpoint.model, mode), mode, checkpoint.turns)
        for name, checkpoint in checkpoints.items()
        for mode in MODES
    }
    pooled = {mode: [one for name in checkpoints for one in found[name, mode]] for mode in MODES}
    differences = {mode: _difference(pooled[mode], pooled[EVAL]) for mode in MODES}
    rows = tuple((name, *(f"{number(100 * _der(found[name, mode]))} %" for mode in MODES)) for name in checkpoints)
    x = tuple(float(at) for at in range(len(MODES)))
    line = [differences[mode] for mode in MODES]
    columns = (tuple(getattr(each, key) for each in line) for key in ("value", "low", "high"))
    return Evidence(
        "batchnorm_modes",
        (differences[ALONE],),
        (Table("DER", ("model", *MODES), rows),),
        (
            Plot(
                "DER less that of eval mode",
                "0: eval; train mode with 1: all, 2: one recording, 3: one chunk",
                "points of DER",
                (Series("difference", x, *columns),),
            ),
        ),
        (
            f"{config.conversations} simulated conversations of {config.duration_s:g} s. All together is a batch of "
            f"all frames; one chunk is {CHUNK} frames. Running statistics stay. Thresholds are the model's own.",
        ),
    )


def in_mode(model: Model, mode: str) -> Model:
    """A copy whose BatchNorms are in train mode unless `mode` says otherwise, the rest in eval mode."""
    model = deepcopy(model).eval()
    for module in model.modules():
        if isinstance(module, BatchNorm):
            module.train(mode != EVAL)
    return model


@torch.no_grad()
def errors(conversations: DevelopmentSet, model: Model, mode: str, turns: TurnConfig) -> list[Components]:
    """Error components of each conversation."""
    output = model.memory(encode(model, conversations.mel.float(), mode))[0]
    activity, count = output.activity.numpy(), output.count.numpy()
    hypothesis = {uri: turns_of(activity[i], count[i], turns) for i, uri in enumerate(conversations.reference)}
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
        for piece in row.split(CHUNK * 8, dim=1):
            h, state = model.encoder(piece, state, chunk=CHUNK)
            outputs.append(h)
        rows.append(torch.cat(outputs, dim=1))
    return torch.cat(rows)


def _der(files: list[Components]) -> float:
    return sum(files, Components()).der or 0.0


def _difference(files: list[Components], base: list[Components]) -> Measure:
    value = _der(files) - _der(base)
    low, high = bootstrap_difference(files, base) or (value, value)
    return Measure("der_of_train_mode", 100 * value, 100 * low, 100 * high)
