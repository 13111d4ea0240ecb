"""Configuration of a training run. Defaults live here; recipes say only what differs."""

from dataclasses import asdict, dataclass, field

from diarnorm.checks import check_choice, check_interval, check_range
from diarnorm.model import ModelConfig
from diarnorm.norms import NORMS
from diarnorm.simulation.planner import SimulatorConfig
from diarnorm.simulation.warps import Warp
from diarnorm.timebase import frames_to_seconds
from diarnorm.training.batches import CurriculumStage, check_starts
from diarnorm.training.corpus import CORPUS, DROP, RECORDING, REFUSE, RecordingsConfig
from diarnorm.training.lossconfig import LossConfig

OPTIMIZERS = ("adamw", "muon")
PRECISIONS = ("fp32", "bf16")
OF_THE_MEMORY = ("phantom", "newcomer", "no_delay", "delay_frames", "seed_frames", "decoded")
"""Keys of `loss` that mean nothing without a memory."""


@dataclass(frozen=True)
class DataConfig:
    """Where speech, noise clips and teacher embeddings lie, and how conversations are made of them.

    Relative paths mean the folder in which the command was typed.
    """

    speech: str | None = "data/utterances.tsv"
    """A manifest (.tsv), or a tree with one folder per speaker (under `train/` and `dev/` where it has splits). None:
    nothing is simulated, all there is are recordings."""
    warps: tuple[Warp, ...] = ()
    """Further voices of every training speaker, beside those at other speeds: `[{pitch: 1.2, tract: 0.9}]`."""
    train_split: str | None = "train"
    dev_split: str | None = "dev"
    clips: str | None = None
    """A tree of noise recordings."""
    teacher: str | None = None
    """A folder of teacher embeddings, see `diarnorm.training.teacher`."""
    cache_dir: str | None = None
    """Decoded speech; by default `~/.cache/diarnorm`."""
    store: str | None = None
    """A folder in which simulated batches are kept for other runs that ask for the same ones."""
    recordings: RecordingsConfig = field(default_factory=RecordingsConfig)
    recorded_share: float = 0.5
    """Share of the batches that are crops of `recordings.train`, where there are any; the others are simulated."""
    stages: tuple[CurriculumStage, ...] = (CurriculumStage(),)
    simulator: SimulatorConfig = field(default_factory=SimulatorConfig)


@dataclass(frozen=True)
class TrainConfig:
    """Optimisation, evaluation and record of a run."""

    seed: int = 0
    init_from: str | None = None
    """A model file, or the folder of another run, whose weights a new run starts from; optimiser and heads are new."""
    num_steps: int = 3000
    accumulate: int = 1
    """Batches per step: their gradient is that of one batch of so many times the conversations, in less memory."""
    optimizer: str = "adamw"
    """`adamw`, or `muon` for the hidden matrices and AdamW for the rest."""
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    decay_from: float = 0.0
    """Share of the run until which the learning rate stays at its highest."""
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
    tune_rounds: int = 1
    """Passes of the tuner over all thresholds at the end; 0 leaves them as they are."""
    tune_conversations: int = 40
    tune_duration_s: float = 60.0
    tune_default_share: float = 0.0
    """Share of the conversations for tuning that are of the simulator's defaults, not as those of the training are."""
    threads: int = 1
    workers: int = 1
    """Processes that make batches beside the training, on the CPU; 0 makes them in its own, on its device."""
    device: str = "cpu"
    precision: str = "fp32"
    """`bf16` computes forward passes and losses in mixed precision; weights, optimiser and average stay float32."""


@dataclass(frozen=True)
class RunConfig:
    """A whole run. Values out of range are refused with their key, before anything is read.

    Raises ValueError for the first of them.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        self._check_model()
        self._check_loss()
        self._check_train()
        self._check_data()
        if self.model.memory.kind == "none":
            self._check_without_memory()

    def _check_model(self) -> None:
        encoder, memory = self.model.encoder, self.model.memory
        for key, norm in (("norm", encoder.norm), ("conv_norm", encoder.conv_norm)):
            if norm is not None:  # conv_norm may be: it follows norm then
                check_choice(key, norm, list(NORMS))
        check_range("model.encoder.eps", encoder.eps, above=0)
        for name in ("dim", "num_blocks", "num_heads", "ff_factor", "kernel_size"):
            check_range(f"model.encoder.{name}", getattr(encoder, name), low=1)
        check_range("model.encoder.left_context", encoder.left_context, low=0)
        for name in ("embedding_dim", "dim", "num_layers", "num_heads", "ff_factor", "num_slots"):
            check_range(f"model.memory.{name}", getattr(memory, name), low=1)
        if memory.dim % memory.num_heads:
            raise ValueError(f"model.memory.dim={memory.dim} must be a multiple of its num_heads={memory.num_heads}")
        for part, config in (("encoder", encoder), ("memory", memory)):
            check_range(f"model.{part}.dropout", config.dropout, low=0, high=1)

    def _check_loss(self) -> None:
        for name, value in asdict(self.loss).items():
            if name in ("scale", "delay_frames", "temperature"):
                check_range(f"loss.{name}", value, above=0)
            elif isinstance(value, int | float):
                check_range(f"loss.{name}", value, low=0)
        check_range("loss.no_delay", self.loss.no_delay, low=0, high=1)
        check_range("loss.decoded", self.loss.decoded, above=0, high=1)
        check_range("loss.contrastive_frames", self.loss.contrastive_frames, low=2)

    def _check_train(self) -> None:
        t = self.train
        check_choice("train.optimizer", t.optimizer, OPTIMIZERS)
        check_choice("train.precision", t.precision, PRECISIONS)
        for name in ("learning_rate", "clip"):
            check_range(f"train.{name}", getattr(t, name), above=0)
        for name in (
            "num_steps",
            "accumulate",
            "eval_every",
            "checkpoint_every",
            "dev_conversations",
            "tune_conversations",
            "threads",
        ):
            check_range(f"train.{name}", getattr(t, name), low=1)
        for name in ("seed", "warmup_steps", "weight_decay", "tune_rounds", "workers", "rollout_from"):
            check_range(f"train.{name}", getattr(t, name), low=0)
        for name in ("decay_from", "final_share", "ema_decay", "rollout_share", "tune_default_share"):
            check_range(f"train.{name}", getattr(t, name), low=0, high=1)
        if not t.chunks:
            raise ValueError("train.chunks is empty: give at least one number of frames")
        for chunk in t.chunks:
            check_range("train.chunks", chunk, low=1)

    def _check_data(self) -> None:
        if self.data.speech == "":
            raise ValueError("data.speech is empty: give a .tsv manifest or a tree with one folder per speaker")
        longest_s = frames_to_seconds(max(self.train.chunks))
        why = f", the largest of train.chunks={list(self.train.chunks)}"
        for number, stage in enumerate(self.data.stages):
            key = f"data.stages[{number}]"
            check_range(f"{key}.batch_size", stage.batch_size, low=1)
            check_range(f"{key}.crop_s", stage.crop_s, low=longest_s, why=why)
            if not stage.speaker_probabilities or min(stage.speaker_probabilities) < 0:
                raise ValueError(
                    f"{key}.speaker_probabilities={stage.speaker_probabilities}: give one or more, from 0 on"
                )
            check_range(f"the sum of {key}.speaker_probabilities", sum(stage.speaker_probabilities), above=0)
            if most_speakers(stage) > self.model.memory.num_slots:
                raise ValueError(
                    f"{key}.speaker_probabilities asks for {most_speakers(stage)} speakers in a conversation, "
                    f"model.memory.num_slots={self.model.memory.num_slots}: shorten it, or give more slots"
                )
        check_starts("data.stages", self.data.stages)
        for name in ("dev_duration_s", "tune_duration_s"):
            check_range(f"train.{name}", getattr(self.train, name), low=1)
        self._check_recordings()

    def _check_recordings(self) -> None:
        d, r, key = self.data, self.data.recordings, "data.recordings"
        check_range("data.recorded_share", d.recorded_share, low=0, high=1)
        check_choice(f"{key}.labels", r.labels, (CORPUS, RECORDING))
        check_choice(f"{key}.crowded", r.crowded, (REFUSE, DROP))
        check_range(f"{key}.noise_probability", r.noise_probability, low=0, high=1)
        check_range(f"{key}.dev_duration_s", r.dev_duration_s, low=1)
        for name in ("gain_db", "noise_snr_db"):
            check_interval(f"{key}.{name}", getattr(r, name), unit="dB")
        if r.noise_probability > 0 and d.clips is None:
            raise ValueError(f"{key}.noise_probability={r.noise_probability} needs noise: give a folder as data.clips")
        if r.tune and r.dev is None:
            raise ValueError(f"{key}.tune=true needs recordings to tune on: give them as {key}.dev")
        if d.speech is not None:
            return
        for name in ("train", "dev"):
            if getattr(r, name) is None:
                raise ValueError(f"data.speech=null leaves nothing to simulate: give recordings as {key}.{name}")
        if d.teacher is not None:
            raise ValueError("data.teacher needs the utterances it is about: give data.speech, or leave it out")
        if self.train.tune_rounds and not r.tune:
            raise ValueError(
                f"data.speech=null leaves only recordings to tune thresholds on: say {key}.tune=true, or "
                "train.tune_rounds=0 to leave them as they are"
            )

    def _check_without_memory(self) -> None:
        for name in OF_THE_MEMORY:
            value, default = getattr(self.loss, name), getattr(LossConfig(), name)
            if value != default:
                raise ValueError(
                    f"loss.{name}={value} is for a speaker memory, and model.memory.kind=none has none: leave it out"
                )
        for number, stage in enumerate(self.data.stages):
            why = f", data.stages[{number}].max_speakers, since model.memory.kind=none has an output for each speaker"
            check_range("model.memory.num_slots", self.model.memory.num_slots, low=stage.max_speakers, why=why)


def most_speakers(stage: CurriculumStage) -> int:
    """The largest number of speakers that a conversation of the stage may have."""
    return max(count for count, share in enumerate(stage.speaker_probabilities, start=1) if share > 0)
