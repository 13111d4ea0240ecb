"""Embeddings of a larger speaker embedder as targets in training.

A few hundred training speakers teach an embedding little about voices it has never heard. An embedder trained on
thousands knows more, and gives every utterance a target. It is needed in training only.
"""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float16
from torch import Tensor
from torch.nn import functional as F

from diarnorm.speech import Speech


def load_teacher(folder: str | Path, speech: Speech) -> Float16[Tensor, "sources dim"]:
    """Unit-norm embeddings per source (`utterance * num_factors + factor`); rows of zeros where there is none.

    `folder` holds `train.npz` for the voices as recorded and, where wanted, `train_0.9.npz` and the like per speed
    factor, each with `path` (file names) and `embedding` `[utterances, dim]`.

    Raises:
        ValueError: no such file in the folder.
    """
    index = {Path(path).name: number for number, path in enumerate(speech.paths)}
    table: Tensor | None = None
    for factor, (p, q) in enumerate(speech.speed_factors):
        file = Path(folder) / ("train.npz" if p == q else f"train_{p / q:g}.npz")
        if not file.exists():
            continue
        with np.load(file) as stored:
            embedding = F.normalize(torch.from_numpy(stored["embedding"].astype(np.float32)), dim=-1)
            sources = [index[Path(str(path)).name] * speech.num_factors + factor for path in stored["path"]]
        if table is None:
            table = torch.zeros(speech.num_utterances * speech.num_factors, embedding.shape[1], dtype=torch.float16)
        table[sources] = embedding.half()
    if table is None:
        raise ValueError(f"{folder} holds no teacher embeddings: expected train.npz with path and embedding")
    return table
