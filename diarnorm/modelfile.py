"""What a model file says about itself, read without torch: names, shapes, and the JSON in its metadata.

A safetensors file is 8 bytes (the length of the header, little-endian), the header in JSON, and the values of the
tensors one after another (https://github.com/huggingface/safetensors).
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = 1
"""Version of the metadata that `save_checkpoint` writes."""
METADATA_KEY = "diarnorm"
MAX_HEADER_BYTES = 100_000_000
"""safetensors' own limit."""


@dataclass(frozen=True)
class ModelHeader:
    """Header of a model file.

    Attributes:
        facts: configuration, norm, chunk sizes, thresholds and training record, as plain JSON values.
        shapes: shape of every tensor by name.
        dtypes: safetensors' names of the types that occur, such as F16, sorted.
        num_bytes: size of the file.
    """

    facts: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    dtypes: tuple[str, ...]
    num_bytes: int

    @property
    def num_values(self) -> int:
        """Values in all tensors."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def as_json(value: Any) -> Any:
    """The same plain values with `inf`, `-inf` and `nan` as words: JSON has no numbers for them.

    >>> as_json({"cap_frames": math.inf, "chunks": (6, 12)})
    {'cap_frames': 'inf', 'chunks': [6, 12]}
    """
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_header(path: str | Path) -> ModelHeader:
    """Read the header of a model file.

    Raises:
        ValueError: no such file, not a whole safetensors file, or not a model of this version.
    """
    header, num_bytes = _read_json(Path(path))
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or METADATA_KEY not in metadata:
        raise ValueError(f"{path} is a safetensors file, but not a diarnorm model")
    facts = json.loads(metadata[METADATA_KEY])
    if facts["format"] != FORMAT:
        raise ValueError(f"{path} has format {facts['format']}, this version reads {FORMAT}: update diarnorm")
    shapes = {name: tuple(tensor["shape"]) for name, tensor in header.items()}
    dtypes = tuple(sorted({tensor["dtype"] for tensor in header.values()}))
    return ModelHeader(facts, shapes, dtypes, num_bytes)


def check_norm(path: str | Path, facts: dict[str, Any], norm: str | None) -> None:
    """Refuse a model that was trained with another norm than the `norm` asked for (any, when None).

    Raises:
        ValueError: naming both.
    """
    if norm is not None and norm != facts["norm"]:
        raise ValueError(
            f"{path} was trained with norm={facts['norm']}, not norm={norm}: a norm cannot be swapped under "
            f"trained weights; ask for norm={facts['norm']}, train one with norm={norm}, or convert the model"
        )


def _read_json(path: Path) -> tuple[dict[str, Any], int]:
    """The header as it stands, and the size of the file."""
    try:
        num_bytes = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
            text = file.read(length) if length <= min(num_bytes, MAX_HEADER_BYTES) else b""
        header = json.loads(text)
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
    except FileNotFoundError as error:
        raise ValueError(f"{path}: no such file") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise ValueError(f"{path} is not a model: it is no safetensors file") from error
    whole = 8 + length + max(ends, default=0)
    if num_bytes != whole:
        raise ValueError(f"{path} is damaged: {num_bytes} bytes, its header tells of {whole}")
    return header, num_bytes
