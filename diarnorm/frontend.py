"""Front-end normaliser: log-mel frames to what the encoder sees. The same for every norm under comparison.

`none`   fixed mean and scale of the training data;
`ema`    causal running mean of each bin, seeded with the training mean, fast at first and slow later;
`frame`  mean over the bins of each mel frame (removes any gain at once, hides the level);
`pcen`   per-channel energy normalisation (Y. Wang et al., "Trainable frontend", 2017), fixed parameters.

All clamp log-mel values from below at `floor`, because digital silence (-15.94 after Kaldi) lies 20 nats under the
softest signal that 16 bits can carry (about 4.0): after the clamp the step between the two is at most 5 nats in the
mean over the bins, 10 in any bin. Frames of digital silence do not move the running mean. Speech like the training
data comes out at about zero mean and unit variance, but for `pcen`, whose output is a compressed energy, 0 where there
is none. Zero is the neutral value that stands for "nothing known" beyond the end of a recording.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from diarnorm.timebase import MELS_PER_FRAME, NUM_MELS

FRONT_ENDS = ("none", "ema", "frame", "pcen")


@dataclass(frozen=True)
class FrontEndConfig:
    """Front-end normaliser: `kind`, and the time constants of the running mean."""

    kind: str = "ema"
    floor: float = 0.0
    """Lowest log-mel value, in nats on the int16 scale."""
    seed_frames: float = 12.0
    """Weight of the training mean at the start, in frames of 80 ms."""
    memory_frames: float = 125.0
    """Time constant of the running mean, in frames of 80 ms (10 s)."""

    def __post_init__(self) -> None:
        if self.kind not in FRONT_ENDS:
            raise ValueError(f"frontend={self.kind!r} is not known: choose one of {', '.join(FRONT_ENDS)}")


class FrontEndState(NamedTuple):
    """Running mean of each bin (log-mel for `ema`, energy for `pcen`) and its weight in frames."""

    mean: Float[Tensor, "batch 80"]
    weight: Float[Tensor, "batch 1"]


class FrontEnd(nn.Module):
    """Normalises mel frames, a whole frame (8 mel frames) at a time."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: FrontEndConfig | None = None) -> None:
        super().__init__()
        self.config = config if config is not None else FrontEndConfig()
        self.register_buffer("mean", torch.full((NUM_MELS,), 10.0))
        self.register_buffer("scale", torch.full((NUM_MELS,), 0.3))

    def init_state(self, batch_size: int) -> FrontEndState:
        """The training mean."""
        weight = self.mean.new_full((batch_size, 1), self.config.seed_frames)
        start = self.mean.exp() if self.config.kind == "pcen" else self.mean
        return FrontEndState(start.expand(batch_size, -1).clone(), weight)

    def forward(
        self,
        mel: Float[Tensor, "batch mel_frames 80"],
        state: FrontEndState | None = None,
        valid: Bool[Tensor, "batch mel_frames"] | None = None,
    ) -> tuple[Float[Tensor, "batch mel_frames 80"], FrontEndState]:
        """Normalised mel frames; those that are not `valid` become 0, the neutral value, and do not move the state."""
        state = self.init_state(mel.shape[0]) if state is None else state
        if valid is not None:
            mel = torch.where(valid[..., None], mel, self.config.floor)
        kinds = {"none": self._none, "ema": self._ema, "frame": self._frame, "pcen": self._pcen}
        normalised, state = kinds[self.config.kind](mel.clamp(min=self.config.floor), state)
        if valid is not None:
            normalised = torch.where(valid[..., None], normalised, 0.0)
        return normalised, state

    def _none(self, mel: Tensor, state: FrontEndState) -> tuple[Tensor, FrontEndState]:
        return (mel - self.mean) * self.scale, state

    def _frame(self, mel: Tensor, state: FrontEndState) -> tuple[Tensor, FrontEndState]:
        shape = self.mean - self.mean.mean()
        return (mel - mel.mean(dim=-1, keepdim=True) - shape) * self.scale, state

    def _ema(self, mel: Tensor, state: FrontEndState) -> tuple[Tensor, FrontEndState]:
        means, state = self._running_mean(mel, state)
        return (mel - means) * self.scale, state

    def _pcen(self, mel: Tensor, state: FrontEndState) -> tuple[Tensor, FrontEndState]:
        energy = mel.exp()
        means, state = self._running_mean(energy, state)
        gain, bias, power = 0.98, 2.0, 0.5
        levelled = energy * (means + 1.0).pow(-gain)
        return (levelled + bias).pow(power) - bias**power, state

    def _running_mean(self, values: Tensor, state: FrontEndState) -> tuple[Tensor, FrontEndState]:
        """Running mean at every mel frame: one update per frame, from its mel frames that are not digital silence."""
        heard = (values > self._silence()).any(dim=-1, keepdim=True).float()
        frames = (values * heard).unflatten(1, (-1, MELS_PER_FRAME)).sum(dim=2)
        shares = heard.unflatten(1, (-1, MELS_PER_FRAME)).sum(dim=2)
        mean, weight = state
        means = []
        for frame, share in zip(frames.unbind(1), shares.unbind(1), strict=True):
            weight = (weight + share / MELS_PER_FRAME).clamp(max=self.config.memory_frames)
            mean = mean + (frame - share * mean) / (MELS_PER_FRAME * weight)
            means.append(mean)
        if not means:
            return values, state
        stacked = torch.stack(means, dim=1).repeat_interleave(MELS_PER_FRAME, dim=1)
        return stacked, FrontEndState(mean, weight)

    def _silence(self) -> float:
        floor = torch.tensor(self.config.floor)
        return float(floor.exp() if self.config.kind == "pcen" else floor)

    @torch.no_grad()
    def calibrate(self, mel: Float[Tensor, "batch mel_frames 80"]) -> None:
        """Set the fixed mean and scale from mel frames of the training data."""
        rows = mel.float().clamp(min=self.config.floor).reshape(-1, NUM_MELS)
        self.mean.copy_(rows.mean(dim=0))
        self.scale.copy_(1.0 / rows.std(dim=0).clamp(min=0.5))
