"""A run that goes on: its checkpoint, read back and held against what is asked for now."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from diarnorm.checkpoint import from_plain
from diarnorm.model import ModelConfig
from diarnorm.training.config import RunConfig
from diarnorm.training.warmstart import differences

LATER_KEYS = {"skips", "ancestor", "speakers"}
"""What checkpoints of version 0.1.0 do not hold."""


def read_run(path: Path, config: RunConfig, speakers: Sequence[str], num_classes: int) -> dict[str, Any] | None:
    """The state of a run that was kept at `path`, on the CPU; None for one that is new.

    Args:
        path: of the checkpoint, which need not exist.
        config: what is asked for now.
        speakers: names of the training speakers, as there are now.
        num_classes: their voices.

    Raises:
        ValueError: it is of an older diarnorm, or of a run with another model, seed, optimiser or other speakers.
    """
    if not path.exists():
        return None
    saved = torch.load(path, weights_only=True, map_location="cpu")
    if LATER_KEYS - saved.keys():
        raise ValueError(
            f"{path} was written by an older diarnorm: remove its folder to start anew, "
            "or start another run from its model with train.init_from"
        )
    changed = _changed_settings(json.loads(saved["config"]), config)
    where = "data.speech" if config.data.recordings.train is None else "data.speech or data.recordings.train"
    if saved["heads"]["classes"].shape[0] != num_classes:
        changed.append(f"{where} now has {num_classes} voices")
    elif saved["speakers"] != speakers:
        changed.append(f"{where} now has other speakers")
    if changed:
        raise ValueError(
            f"{path} is of another run ({', '.join(changed)}): "
            "remove its folder to start anew, or choose another with hydra.run.dir=FOLDER"
        )
    return saved


def _changed_settings(there: dict[str, Any], config: RunConfig) -> list[str]:
    """What of the model and of the optimisation must not change within a run, and has."""
    here = json.loads(json.dumps(asdict(config)))["train"]
    model = from_plain(ModelConfig, there["model"])  # keys that are newer than the run have their defaults
    changed = differences(asdict(model), asdict(config.model))
    for key in ("seed", "optimizer", *(["init_from"] if config.train.init_from is not None else [])):
        if here[key] != there["train"].get(key):
            changed.append(f"train.{key}={here[key]} was {there['train'].get(key)}")
    return changed
