"""Models as files: safetensors, with everything that is not a tensor as JSON in the metadata.

A file names the norm it was trained with. Loading it for another norm is an error, never a partial load.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from diarnorm.memory import MemoryConfig
from diarnorm.model import Model, ModelConfig
from diarnorm.modelfile import FORMAT, METADATA_KEY, as_json, check_norm, read_header
from diarnorm.turns import TurnConfig

T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """A model and what is known about it."""

    model: Model
    turns: TurnConfig = field(default_factory=TurnConfig)
    chunk: int = 12
    """Frames per chunk unless the user asks otherwise."""
    chunks: tuple[int, ...] = (6, 12, 25)
    """Chunk sizes the model was trained with."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Record of the training: data, hours, seed, commit, figures."""

    def under(self, memory: MemoryConfig, turns: TurnConfig) -> "Checkpoint":
        """The same weights under other rules of the memory and of turns."""
        model = Model(replace(self.model.config, memory=memory))
        model.load_state_dict(self.model.state_dict())
        return replace(self, model=model.eval(), turns=turns)


def save_checkpoint(path: str | Path, checkpoint: Checkpoint, *, dtype: torch.dtype = torch.float16) -> None:
    """Write a model; floating-point tensors are stored as `dtype`, those that would overflow as they are."""
    facts = {
        "format": FORMAT,
        "norm": checkpoint.model.config.encoder.norm,
        "model": as_json(asdict(checkpoint.model.config)),
        "turns": asdict(checkpoint.turns),
        "chunk": checkpoint.chunk,
        "chunks": list(checkpoint.chunks),
        "training": as_json(checkpoint.training),
    }
    tensors = {name: _stored(value, dtype) for name, value in checkpoint.model.state_dict().items()}
    save_file(tensors, str(path), metadata={METADATA_KEY: json.dumps(facts, allow_nan=False)})


def load_checkpoint(path: str | Path, *, norm: str | None = None) -> Checkpoint:
    """Read a model, in evaluation mode on the CPU. Warns where running statistics of a BatchNorm were never updated.

    Raises:
        ValueError: no such file, not a diarnorm model, one with fields that this version does not know, or trained with
            another norm than the `norm` asked for.
    """
    facts, tensors = _read(Path(path))
    check_norm(path, facts, norm)
    try:
        config, turns = from_plain(ModelConfig, facts["model"]), from_plain(TurnConfig, facts["turns"])
    except ValueError as error:
        raise ValueError(f"{path} does not fit this version of diarnorm: {error}") from error
    model = Model(config)
    wanted = model.state_dict()
    missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or extra:
        raise ValueError(f"{path} does not fit its own configuration: missing {missing[:3]}, unexpected {extra[:3]}")
    resized = [name for name, like in wanted.items() if tensors[name].shape != like.shape]
    if resized:
        raise ValueError(f"{path} does not fit its own configuration: other sizes than it says in {resized[:3]}")
    model.load_state_dict({name: tensors[name].to(like.dtype) for name, like in wanted.items()})
    untrained = [name for name, value in tensors.items() if name.endswith("num_batches_tracked") and not value]
    if untrained:
        norm_name = untrained[0].removesuffix(".num_batches_tracked")
        message = f"{path}: the running statistics of BatchNorm {norm_name} were never updated, results mean little"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return Checkpoint(model.eval(), turns, facts["chunk"], tuple(facts["chunks"]), facts["training"])


def _stored(value: Tensor, dtype: torch.dtype) -> Tensor:
    narrow = value.to(dtype) if value.is_floating_point() else value
    return (narrow if torch.equal(narrow.isfinite(), value.isfinite()) else value).contiguous()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    facts = read_header(path).facts
    with safe_open(str(path), framework="pt") as file:
        return facts, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def from_plain(cls: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from plain dicts and lists, as `asdict` and JSON make them; `inf` and `nan` are numbers, too.

    Raises:
        ValueError: a field that the dataclass does not have.
    """
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]  # pyright: ignore[reportArgumentType]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}: known are {', '.join(known)}")
    return cls(**{name: _convert(hints[name], value) for name, value in values.items()})


def _convert(hint: Any, value: Any) -> Any:
    if is_dataclass(hint) and isinstance(value, Mapping):
        return from_plain(hint, value)  # pyright: ignore[reportArgumentType]
    if isinstance(value, list):
        item_hints = get_args(hint) or (Any,)
        return tuple(_convert(item_hints[0], item) for item in value)
    if hint is float and value in ("inf", "-inf", "nan"):
        return float(value)
    return value
