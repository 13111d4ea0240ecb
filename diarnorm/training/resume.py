"""A run that goes on: its checkpoint, read back and held against what is asked for now, and what of that is new."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from diarnorm.checkpoint import from_plain
from diarnorm.model import ModelConfig
from diarnorm.modelfile import as_json
from diarnorm.training.batches import CurriculumStage
from diarnorm.training.config import RunConfig
from diarnorm.training.warmstart import differences

LATER_KEYS = {"skips", "ancestor", "speakers"}
"""What checkpoints of version 0.1.0 do not hold."""
WITHOUT_INFLUENCE = {"data": ("cache_dir", "store"), "train": ("device", "threads", "workers")}
"""Settings of a run that change how it is done, not what comes out."""


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


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run as plain JSON values, without those that do not change what comes out."""
    return {
        part: {key: value for key, value in own.items() if key not in WITHOUT_INFLUENCE.get(part, ())}
        for part, own in as_json(settings).items()
    }


def new_settings(there: Mapping[str, Any], config: RunConfig, step: int) -> list[dict[str, Any]]:
    """Each decisive setting that `config` gives another value than those of a run that goes on from `step`, as `step`,
    `key`, `was` and `is`.

    A key that is newer than the run had its default; `train.init_from` has done its work.
    """
    stages = [asdict(CurriculumStage()) | stage for stage in there["data"]["stages"]]
    there = {**there, "data": {**there["data"], "stages": stages}}
    was, now, default = (_flat(decisive(each)) for each in (there, asdict(config), asdict(RunConfig())))
    return [
        {"step": step, "key": key, "was": was.get(key, default.get(key)), "is": now.get(key)}
        for key in dict.fromkeys([*now, *was])
        if key != "train.init_from" and was.get(key, default.get(key)) != now.get(key)
    ]


def as_words(changes: Sequence[Mapping[str, Any]]) -> str:
    """`KEY=VALUE was VALUE` for each."""
    return ", ".join(f"{each['key']}={each['is']} was {each['was']}" for each in changes)


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Values by their whole keys, `data.stages[0].crop_s`; lists of plain values are values."""
    if isinstance(value, dict):
        items = [(f"{key}.{name}" if key else name, each) for name, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        items = [(f"{key}[{number}]", each) for number, each in enumerate(value)]
    else:
        return {key: value}
    return {name: found for path, each in items for name, found in _flat(each, path).items()}
