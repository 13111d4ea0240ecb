"""The whole model: samples to activity of every slot, one value of state, whole chunks at a time."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from diarnorm.conformer import Encoder, EncoderConfig, EncoderState
from diarnorm.fbank import Fbank, FbankState
from diarnorm.frontend import FrontEnd, FrontEndConfig, FrontEndState
from diarnorm.memory import MemoryConfig, MemoryOutput, MemoryState
from diarnorm.outputs import make_memory
from diarnorm.timebase import FRAME_SAMPLES, HOP_SAMPLES, MELS_PER_FRAME


@dataclass(frozen=True)
class ModelConfig:
    """Everything that defines a checkpoint's architecture."""

    frontend: FrontEndConfig = field(default_factory=FrontEndConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)


class ModelState(NamedTuple):
    """State of every stage with memory."""

    fbank: FbankState
    frontend: FrontEndState
    encoder: EncoderState
    memory: MemoryState


class Model(nn.Module):
    """fbank, front-end normaliser, encoder, speaker memory."""

    def __init__(self, config: ModelConfig | None = None) -> None:
        super().__init__()
        self.config = config if config is not None else ModelConfig()
        self.fbank = Fbank()
        self.frontend = FrontEnd(self.config.frontend)
        self.encoder = Encoder(self.config.encoder)
        self.memory = make_memory(self.config.encoder.dim, self.config.memory)
        self.speech_head = nn.Linear(self.config.encoder.dim, 3)
        """Nobody, one, several speak: supervises the encoder in training."""

    def init_state(self, batch_size: int, num_slots: int | None = None) -> ModelState:
        """The start of a recording."""
        return ModelState(
            self.fbank.init_state(batch_size),
            self.frontend.init_state(batch_size),
            self.encoder.init_state(batch_size),
            self.memory.init_state(batch_size, num_slots),
        )

    def forward(
        self,
        samples: Float[Tensor, "batch samples"],
        state: ModelState | None = None,
        num_valid: Int[Tensor, " batch"] | None = None,
        *,
        chunk: int,
    ) -> tuple[MemoryOutput, ModelState]:
        """Activity for whole chunks of `chunk` frames of samples in [-1, 1] at 16 kHz.

        `num_valid` says how many samples of each row belong to the recording (all, when None): mel frames beyond that
        are the front end's neutral value, frames without a mel frame of the recording are invalid.

        Raises:
            ValueError: the samples are not a whole number of chunks.
        """
        batch, num_samples = samples.shape
        if num_samples % self.chunk_samples(chunk):
            raise ValueError(
                f"the model takes whole chunks of {chunk} frames ({self.chunk_samples(chunk)} samples), got "
                f"{num_samples} samples: pad them and say with num_valid how many belong to the recording"
            )
        state = self.init_state(batch) if state is None else state
        if num_valid is None:
            num_valid = torch.full((batch,), num_samples, device=samples.device)
        heard = torch.arange(num_samples // HOP_SAMPLES, device=samples.device) < (num_valid // HOP_SAMPLES)[:, None]
        valid = heard.unflatten(1, (-1, MELS_PER_FRAME)).any(dim=2)
        inside = torch.arange(num_samples, device=samples.device) < num_valid[:, None]
        mel, fbank_state = self.fbank(torch.where(inside, samples, 0.0), state.fbank)
        mel, frontend_state = self.frontend(mel, state.frontend, heard)
        h, encoder_state = self.encoder(mel, state.encoder, valid, chunk=chunk)
        output, memory_state = self.memory(h, state.memory, valid)
        return output, ModelState(fbank_state, frontend_state, encoder_state, memory_state)

    @staticmethod
    def chunk_samples(chunk: int) -> int:
        """Samples of one chunk."""
        return chunk * FRAME_SAMPLES
