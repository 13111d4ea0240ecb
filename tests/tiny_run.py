"""Training runs that take a second: a tiny model, short conversations of synthetic voices, two stages, rollouts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from diarnorm.conformer import EncoderConfig
from diarnorm.memory import MemoryConfig
from diarnorm.model import ModelConfig
from diarnorm.training.batches import CurriculumStage
from diarnorm.training.config import DataConfig, RunConfig, TrainConfig
from diarnorm.training.lossconfig import LossConfig

ENCODER = EncoderConfig(dim=16, num_blocks=1, num_heads=2, ff_factor=2, kernel_size=3, left_context=6)
MEMORY = MemoryConfig(embedding_dim=8, dim=16, num_layers=1, num_heads=2, num_slots=3)
STAGES = (
    CurriculumStage(0, crop_s=2.0, batch_size=2, max_speakers=2, speaker_probabilities=(0.3, 0.7)),
    CurriculumStage(3, crop_s=3.0, batch_size=1, max_speakers=3, speaker_probabilities=(0.2, 0.4, 0.4)),
)
TRAIN = TrainConfig(
    num_steps=6,
    warmup_steps=2,
    chunks=(4, 6),
    eval_every=3,
    checkpoint_every=2,
    dev_conversations=2,
    dev_duration_s=3.0,
    tune_rounds=0,
    tune_conversations=2,
    tune_duration_s=3.0,
    workers=0,
)


def tiny_run(
    corpus: Path,
    norm: str = "rms",
    stages: tuple[CurriculumStage, ...] = STAGES,
    *,
    num_slots: int = 3,
    dropout: float = 0.1,
    loss: LossConfig | None = None,
    **changes: Any,
) -> RunConfig:
    """A run of six steps on the voices in `corpus`, with changes to its `TrainConfig`."""
    encoder = replace(ENCODER, norm=norm, dropout=dropout)
    memory = replace(MEMORY, num_slots=num_slots, dropout=dropout)
    data = DataConfig(speech=str(corpus), cache_dir=str(corpus.parent), stages=stages)
    model = ModelConfig(encoder=encoder, memory=memory)
    return RunConfig(model, LossConfig() if loss is None else loss, data, replace(TRAIN, **changes))


def tensors_in(value: Any, path: str = "") -> dict[str, torch.Tensor]:
    """Tensors in nested containers, by where they stand."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return {name: tensor for key, item in items for name, tensor in tensors_in(item, f"{path}/{key}").items()}


def saved_tensors(run_dir: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a run's checkpoint."""
    return tensors_in(torch.load(run_dir / "last.pt", weights_only=True))


def differing(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    """Names of tensors that are not the same, bit for bit."""
    return sorted(a.keys() ^ b.keys()) + [
        name for name in sorted(a.keys() & b.keys()) if not torch.equal(a[name], b[name])
    ]
