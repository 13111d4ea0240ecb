"""Weights of the losses, and how often the memory is made to wait."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LossConfig:
    """Weights of the losses and the statistics of delayed births."""

    speech: float = 0.5
    """Nobody / one / several speak, from the encoder alone."""
    phantom: float = 0.3
    """Slots that belong to no speaker, or twice to one."""
    newcomer: float = 1.0
    """The newcomer's token, where any slot has 1."""
    speaker: float = 0.1
    """Classification of training speakers from the embedding."""
    teacher: float = 1.0
    """Cosine distance to the teacher's embedding, where there is one."""
    margin: float = 0.1
    scale: float = 20.0
    contrastive: float = 0.0
    """Frames of one voice must be more alike than those of others in the batch; 0 draws and computes nothing."""
    temperature: float = 0.1
    contrastive_frames: int = 512
    """Frames of one batch that are compared, drawn anew each time."""
    no_delay: float = 0.33
    """Share of speakers who enter the memory at once."""
    delay_frames: float = 15.0
    """Mean of the exponential delay of the others, in frames of exclusive speech."""
    seed_frames: float = 4.0
    """Frames taken from the reference before own decisions take over."""
    decoded: float = 0.5
    """Share of the frames whose slots are decoded for the gradient, drawn anew each time: neighbours teach the same."""
