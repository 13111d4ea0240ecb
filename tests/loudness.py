"""A model that hears loudness: random weights, and a memory set by hand so that one speaker talks while it is loud.

Tests of what comes after the model need turns at known times without a trained model. The encoder is random; a least-
squares line through its outputs tells loud frames from silent ones; the memory's decoder is set so that this line alone
decides. The first loud second gives birth to the one speaker, who talks in every loud frame.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from diarnorm.checkpoint import Checkpoint, save_checkpoint
from diarnorm.conformer import EncoderConfig
from diarnorm.frontend import FrontEndConfig
from diarnorm.memory import MemoryConfig, SlotDecoder
from diarnorm.model import Model, ModelConfig
from diarnorm.timebase import FRAME_SAMPLES, SAMPLE_RATE
from diarnorm.turns import TurnConfig

CHUNK = 12
CONFIG = ModelConfig(
    frontend=FrontEndConfig(kind="none"),
    encoder=EncoderConfig(dim=32, num_blocks=1, num_heads=2, left_context=12, norm="rms"),
    # The newcomer's token stays half awake beside a known speaker, who is therefore exclusive by less than a half.
    memory=MemoryConfig(
        dim=32, embedding_dim=16, num_layers=1, num_slots=4, floor=0.3, birth=0.5, confirm_frames=5.0, drop_frames=25
    ),
)
# In silence it is at 0.46 still, so anybody is.
TURNS = TurnConfig(onset=0.5, offset=0.5, min_on_frames=2, min_off_frames=6, pad_frames=1, hold_frames=50)


def noise_bursts(bursts: list[tuple[float, float]], duration_s: float, rate: int = SAMPLE_RATE) -> np.ndarray:
    """Float64 samples: noise of -20 dBFS in the bursts (start, end in seconds), -80 dBFS elsewhere."""
    noise = np.random.default_rng(0).standard_normal(round(duration_s * rate))
    gain = np.full(len(noise), 1e-4)
    for start, end in bursts:
        gain[round(start * rate) : round(end * rate)] = 0.1
    return np.clip(gain * noise, -0.99, 0.99)


def save_loudness_model(path: Path, *, speaks_always: bool = False) -> Path:
    """Save the model; with `speaks_always` silence is taken for speech, too."""
    torch.manual_seed(0)
    model = Model(CONFIG).eval()
    with torch.no_grad():
        line, offset = _loudness_line(model)
        _set_memory(model, line, offset, always=speaks_always)
    training = {"hours": 0.0, "data": "none: set by hand"}
    save_checkpoint(path, Checkpoint(model, TURNS, CHUNK, (6, CHUNK), training), dtype=torch.float32)
    return path


def _loudness_line(model: Model) -> tuple[torch.Tensor, float]:
    """Direction and offset in the encoder's output: about 1 in loud frames, -1 in silent ones."""
    bursts = [(2.0 * i + 1.0, 2.0 * i + 2.0) for i in range(4)]
    samples = noise_bursts(bursts, 120 * FRAME_SAMPLES / SAMPLE_RATE)
    heard: list[torch.Tensor] = []
    hook = model.memory.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0][0]))
    model(torch.from_numpy(samples).float()[None], chunk=CHUNK)
    hook.remove()
    h = heard[0].double()
    power = samples.reshape(-1, FRAME_SAMPLES).std(axis=1)
    target = torch.from_numpy(np.where(power > 0.01, 1.0, -1.0))
    padded = torch.cat([h, torch.ones(len(h), 1, dtype=h.dtype)], dim=1)
    solution = torch.linalg.lstsq(padded, target[:, None], driver="gelsd").solution[:, 0]
    assert ((padded @ solution).sign() == target).double().mean() > 0.98
    return solution[:-1].float(), float(solution[-1])


def _set_memory(model: Model, line: torch.Tensor, offset: float, *, always: bool) -> None:
    """Activity from the line alone: sure for a known speaker, barely above a half for a newcomer."""
    decoder, dim = model.memory.decoder, CONFIG.memory.dim
    assert isinstance(decoder, SlotDecoder)
    assert isinstance(decoder.from_frame, nn.Linear)
    for name, parameter in decoder.named_parameters():
        parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
    verdict, other = torch.zeros(dim), torch.zeros(dim)
    verdict[0], verdict[1], other[2], other[3] = 1.0, -1.0, 1.0, -1.0
    if not always:
        decoder.from_frame.weight.copy_(100 * verdict[:, None] * line)
    decoder.from_frame.bias.copy_(100 * verdict * (1.0 if always else offset))
    decoder.newcomer.copy_(5000 * other)
    decoder.head.weight.copy_(verdict[None])
