"""Embeddings of a larger speaker embedder as targets in training.

A few hundred training speakers teach an embedding little about voices it has never heard. An embedder trained on
thousands knows more, and gives every utterance a target. It is needed in training only.
"""

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Float16, Float32, Int64
from torch import Tensor
from torch.nn import functional as F

from diarnorm.simulation.speech import Speech

UNKNOWN, AMBIGUOUS = -1, -2


def load_teacher(folder: str | Path, speech: Speech) -> Float16[Tensor, "sources dim"]:
    """Unit-norm embeddings per source (`utterance * num_factors + factor`); rows of zeros where there is none.

    `folder` holds `train.npz` for the voices as recorded and, where wanted, `train_0.9.npz` and the like per speed
    factor, `train_p1.15.npz` and the like per warp, each with `path` and `embedding` `[utterances, dim]`. A path is the
    utterance's own or the end of it, as much as tells it from the others; rows for files that are not in `speech` are
    left out.

    Raises:
        ValueError: no such file in the folder, one that holds no embeddings or those of another size, none of its
            paths is known, or one fits several utterances.
    """
    index = _by_ending(speech.paths)
    table: Tensor | None = None
    for factor in range(speech.num_factors):
        suffix = speech.voice_suffix(factor).removeprefix("x")
        file = Path(folder) / (f"train_{suffix}.npz" if suffix else "train.npz")
        if not file.exists():
            continue
        paths, given = _read(file)
        embedding = F.normalize(torch.from_numpy(given), dim=-1)
        numbers = _find(paths, index, file)
        known = numbers != UNKNOWN
        if table is None:
            table = torch.zeros(speech.num_utterances * speech.num_factors, embedding.shape[1], dtype=torch.float16)
        if table.shape[1] != embedding.shape[1]:
            raise ValueError(f"{file}: embeddings have {embedding.shape[1]} dimensions, those before {table.shape[1]}")
        table[numbers[known] * speech.num_factors + factor] = embedding[known].half()
    if table is None:
        raise ValueError(f"{folder} holds no teacher embeddings: expected train.npz with path and embedding")
    return table


def _read(file: Path) -> tuple[list[str], Float32[np.ndarray, "rows dim"]]:
    """Paths and embeddings as they are stored."""
    wanted = f"store path [utterances] and embedding [utterances, dim] by np.savez({file.name!r}, ...)"
    try:
        with np.load(file) as stored:
            paths, embedding = [str(path) for path in stored["path"]], stored["embedding"].astype(np.float32)
    except (OSError, KeyError, TypeError, ValueError, BadZipFile) as error:
        raise ValueError(f"{file} holds no embeddings ({' '.join(str(error).split())}): {wanted}") from error
    if embedding.shape[:-1] != (len(paths),):
        raise ValueError(f"{file} has {len(paths)} paths and embeddings of shape {list(embedding.shape)}: {wanted}")
    if not np.isfinite(embedding).all():
        first = paths[int(np.argmin(np.isfinite(embedding).all(axis=1)))]
        raise ValueError(f"{file}: the embedding of {first} is not finite, leave it out")
    return paths, embedding


def _by_ending(paths: Sequence[str]) -> dict[tuple[str, ...], int]:
    """Number of the utterance by every ending of its path; AMBIGUOUS where several share one."""
    index: dict[tuple[str, ...], int] = {}
    for number, path in enumerate(paths):
        parts = Path(path).parts
        for start in range(len(parts)):
            ending = parts[start:]
            index[ending] = number if ending not in index else AMBIGUOUS
    return index


def _find(paths: Sequence[str], index: dict[tuple[str, ...], int], file: Path) -> Int64[Tensor, " rows"]:
    """Number of the utterance of each path, UNKNOWN where there is none.

    As few leading folders as possible are left away, from all paths alike.
    """
    parts = [Path(path).parts for path in paths]
    for start in range(max(map(len, parts), default=0)):
        numbers = [index.get(part[start:], UNKNOWN) for part in parts]
        if AMBIGUOUS in numbers:
            path = paths[numbers.index(AMBIGUOUS)]
            raise ValueError(f"{file}: several utterances are called {path}: give more of their paths")
        if max(numbers) != UNKNOWN:
            return torch.tensor(numbers)
    raise ValueError(f"{file} has none of the utterances of this run: its paths must be theirs, or end alike")
