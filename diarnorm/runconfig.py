"""Configuration of a training run. Defaults live here; recipes say only what differs."""

import math
from dataclasses import dataclass, field

from diarnorm.data import CurriculumStage
from diarnorm.losses import LossConfig
from diarnorm.model import ModelConfig
from diarnorm.norms import NORMS
from diarnorm.planner import SimulatorConfig


@dataclass(frozen=True)
class DataConfig:
    """Where speech, noise clips and teacher embeddings lie, and how conversations are made of them.

    Relative paths mean the folder in which the command was typed.
    """

    speech: str = "data/utterances.tsv"
    """A manifest (.tsv), or a tree with one folder per speaker (under `train/` and `dev/` where it has splits)."""
    train_split: str | None = "train"
    dev_split: str | None = "dev"
    clips: str | None = None
    """A tree of noise recordings."""
    teacher: str | None = None
    """A folder of teacher embeddings, see `diarnorm.teacher`."""
    cache_dir: str | None = None
    """Decoded speech; by default `~/.cache/diarnorm`."""
    stages: tuple[CurriculumStage, ...] = (CurriculumStage(),)
    simulator: SimulatorConfig = field(default_factory=SimulatorConfig)


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation, evaluation and record of a run."""

    seed: int = 0
    num_steps: int = 3000
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    final_share: float = 0.02
    """Learning rate at the end, as a share of the highest."""
    weight_decay: float = 0.01
    clip: float = 2.0
    ema_decay: float = 0.998
    chunks: tuple[int, ...] = (12, 12, 6, 25)
    """Chunk sizes in frames, drawn per step."""
    rollout_from: float = 0.4
    """Share of the run after which the memory is trained on its own rollouts, too."""
    rollout_share: float = 0.5
    eval_every: int = 100
    checkpoint_every: int = 50
    dev_conversations: int = 24
    dev_duration_s: float = 40.0
    threads: int = 1
    workers: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class RunConfig:
    """A whole run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        check_range("model.encoder.eps", self.model.encoder.eps, low=0.0)
        check_range("train.learning_rate", self.train.learning_rate, low=0.0)
        check_range("train.num_steps", self.train.num_steps, low=0)
        for key, norm in (("norm", self.model.encoder.norm), ("conv_norm", self.model.encoder.conv_norm)):
            if norm not in NORMS and not (key == "conv_norm" and norm is None):
                raise ValueError(f"{key}={norm} is not known: choose one of {', '.join(NORMS)}")


def check_range(key: str, value: float, *, low: float) -> None:
    """Refuse a number that is not finite and above `low`.

    Raises:
        ValueError: with the key and the value.
    """
    if not (math.isfinite(value) and value > low):
        raise ValueError(f"{key}={value} is out of range: give a number above {low:g}")
