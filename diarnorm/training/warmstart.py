"""A new run from the weights of another: what `train.init_from` names, whether it fits, and where it came from."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from diarnorm.checkpoint import from_plain, load_checkpoint
from diarnorm.model import ModelConfig
from diarnorm.modelfile import check_norm, read_header

UNFINISHED, FINISHED = "ema.safetensors", "model.safetensors"
"""Averaged weights of a run that goes on, and the model that it ends with."""
FREE = {"dropout", "left_context", "num_slots", "cap_frames", "floor", "birth", "confirm_frames", "drop_frames"}
"""Keys of `ModelConfig` that may differ: the weights of a model with a memory do not depend on them."""


@dataclass(frozen=True)
class Ancestor:
    """The weights that a run started from; part of its record.

    Attributes:
        file: name of the file.
        sha256: of the file, in hex.
        steps: of the run that it is from.
        hours_heard: of that run.
        total_hours: with those of its ancestors.
    """

    file: str
    sha256: str
    steps: int
    hours_heard: float
    total_hours: float


def find_weights(source: str | Path) -> Path:
    """The file that `train.init_from` means: the file itself, or in a run's folder the newest weights.

    Raises:
        ValueError: there is none.
    """
    path = Path(source)
    if not path.is_dir():
        return path
    for name in (UNFINISHED, FINISHED):
        if (path / name).exists():
            return path / name
    raise ValueError(f"train.init_from={path} holds neither {UNFINISHED} nor {FINISHED}: give a run's folder or a file")


def find_ancestor(source: str | Path, config: ModelConfig) -> Ancestor:
    """What a run with `config` would start from.

    Raises:
        ValueError: no model there, or one of another architecture, with the keys that differ.
    """
    path = find_weights(source)
    facts = read_header(path).facts
    check_norm(path, facts, config.encoder.norm)
    there, here = asdict(from_plain(ModelConfig, facts["model"])), asdict(config)
    changed = differences(there, here, FREE if config.memory.kind != "none" else FREE - {"num_slots"})
    if changed:
        raise ValueError(f"train.init_from={path} is of another architecture: {', '.join(changed)}; set them as there")
    record = facts["training"]
    hours = record.get("hours_heard", 0.0)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Ancestor(path.name, sha256, record.get("steps", 0), hours, record.get("total_hours", hours))


def differences(there: Mapping[str, Any], here: Mapping[str, Any], free: Collection[str] = ()) -> list[str]:
    """`model.PART.KEY=VALUE was VALUE` for each key of both model configurations that differs and is not `free` to."""
    return [
        f"model.{part}.{key}={value} was {there[part][key]}"
        for part, values in here.items()
        for key, value in values.items()
        if key not in free and part in there and key in there[part] and there[part][key] != value
    ]


def first_weights(source: str | Path) -> dict[str, Tensor]:
    """The state dict to start from, in float32 on the CPU.

    Raises:
        ValueError: see `load_checkpoint`.
    """
    return load_checkpoint(find_weights(source)).model.state_dict()
