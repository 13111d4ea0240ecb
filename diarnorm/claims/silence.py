"""Claim 4: silence through the layer, the features and the shipped model, forward and backward.

Three kinds of silence differ: zeros in front of a norm, digital zeros in the sound (whose log-mel frames are not zero
but the floor, -15.94 in every bin), and the last bit of a converter (+-1 LSB).
"""

import math

import numpy as np
import torch
from torch import Tensor

from diarnorm.checkpoint import Checkpoint, load_checkpoint
from diarnorm.claims.evidence import Evidence, Plot, Series, Table, exactly, number
from diarnorm.claims.levels import PLAIN, front_end
from diarnorm.claims.voices import sample_speech
from diarnorm.fbank import LOG_FLOOR, fbank_offline
from diarnorm.frontend import FRONT_ENDS
from diarnorm.model import Model
from diarnorm.norms import EPS, make_norm
from diarnorm.resources import find_model
from diarnorm.robustness.measures import speech_in
from diarnorm.stream import Diarizer
from diarnorm.timebase import FRAME_SAMPLES, MELS_PER_FRAME, NUM_MELS, SAMPLE_RATE

EPSILONS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SILENCE_S, SPEECH_S = 10, 20
CLOSING_S = 1.0
"""After speech this is left to the rules that close a turn, and does not count."""
LSB = 1 / 32768


def silence(seed: int = 0) -> Evidence:
    """Everything about silence, with the shipped model."""
    speech = sample_speech().samples[: SPEECH_S * SAMPLE_RATE]
    checkpoint = load_checkpoint(find_model())
    gains = {
        (norm, dtype, eps): _zero_row(norm, DTYPES[dtype], eps)
        for norm in ("rms", "layer")
        for dtype in DTYPES
        for eps in EPSILONS
    }
    floor = torch.full((1, NUM_MELS), LOG_FLOOR)
    floor_outputs = {
        norm: float(make_norm(norm, NUM_MELS)(floor).detach().abs().max()) for norm in ("rms", "layer", "none")
    }
    quiet = {"digital zeros": _zeros(), "+-1 LSB": _last_bit(seed)}
    heard = {name: _hear(checkpoint, samples, speech) for name, samples in quiet.items()}
    gradient = {name: _gradient_size(checkpoint, samples) for name, samples in quiet.items()}
    of_speech = _gradient_size(checkpoint, torch.from_numpy(speech)[None])
    steps = {kind: _step(kind, quiet["digital zeros"], quiet["+-1 LSB"]) for kind in (PLAIN, *FRONT_ENDS)}
    measures = (
        exactly("zero_not_finite", sum(not finite for finite, _ in gains.values())),
        exactly("zero_gradient_gain", gains["rms", "float32", EPS][1]),
        exactly("floor_output", floor_outputs["rms"]),
        exactly("model_not_finite", sum(each.not_finite for each in heard.values())),
        exactly("false_alarm", max(each.percent for each in heard.values())),
        exactly("model_gradient_gain", max(gradient.values()) / of_speech),
    )
    return Evidence(
        "silence",
        measures,
        _tables(gains, floor_outputs, heard, gradient, of_speech, steps),
        _plots(gains),
        (
            f"The model is the shipped one; silence of {SILENCE_S} s alone, and after {SPEECH_S} s of speech, "
            f"where the first {CLOSING_S:g} s does not count.",
            "The gradient's gain on zeros is 1/sqrt(eps), for LayerNorm as for RMSNorm: eps limits it, no more.",
        ),
    )


class _Heard:
    """What a model makes of silence, alone and after speech."""

    def __init__(self, percent: float, not_finite: int) -> None:
        self.percent, self.not_finite = percent, not_finite


def _zero_row(norm: str, dtype: torch.dtype, eps: float) -> tuple[bool, float]:
    """Whether the output for zeros is finite, and by how much their gradient is multiplied (its largest number)."""
    layer = make_norm(norm, NUM_MELS, eps)
    x = torch.zeros(1, NUM_MELS, dtype=dtype, requires_grad=True)
    y = layer(x)
    dy = torch.where(torch.arange(NUM_MELS) % 2 == 0, 1.0, -1.0).to(dtype)[None]  # of mean 0, which LayerNorm keeps
    (dx,) = torch.autograd.grad(y, x, dy)
    return bool(y.isfinite().all()), float(dx.float().abs().nan_to_num(math.inf, math.inf).max())


def _zeros() -> Tensor:
    return torch.zeros(1, SILENCE_S * SAMPLE_RATE)


def _last_bit(seed: int) -> Tensor:
    signs = torch.randint(-1, 2, (1, SILENCE_S * SAMPLE_RATE), generator=torch.Generator().manual_seed(seed))
    return signs * LSB


@torch.no_grad()
def _hear(checkpoint: Checkpoint, silent: Tensor, speech: np.ndarray) -> _Heard:
    """Share of silence in which someone is said to speak, in %, the larger of two cases; and what is not finite."""
    samples = silent[0].numpy()
    diarizer = Diarizer(checkpoint)
    share = max(
        _spoken_share(diarizer, samples, 0.0),
        _spoken_share(diarizer, np.concatenate([speech, samples]), len(speech) / SAMPLE_RATE + CLOSING_S),
    )
    output, _ = checkpoint.model(_whole_chunks(checkpoint, silent), chunk=checkpoint.chunk)
    return _Heard(100 * share, int((~output.activity.isfinite()).sum()))


def _whole_chunks(checkpoint: Checkpoint, samples: Tensor) -> Tensor:
    """Samples up to the end of the last whole chunk."""
    chunk_samples = Model.chunk_samples(checkpoint.chunk)
    return samples[:, : samples.shape[1] // chunk_samples * chunk_samples]


def _spoken_share(diarizer: Diarizer, samples: np.ndarray, from_s: float) -> float:
    """Share of the time from `from_s` to the end in which somebody is said to speak, one or several."""
    stream = diarizer.stream()
    turns = [*stream.push(samples), *stream.finish()]
    end_s = len(samples) / SAMPLE_RATE
    return speech_in(turns, [(from_s, end_s)]) / (end_s - from_s)


def _gradient_size(checkpoint: Checkpoint, samples: Tensor) -> float:
    """Size of the gradient of the encoder's output with respect to the log-mel frames, for a fixed random direction."""
    model = checkpoint.model
    mel, _ = model.frontend(fbank_offline(_whole_chunks(checkpoint, samples)))
    mel = mel.detach().requires_grad_()
    h, _ = model.encoder(mel, chunk=checkpoint.chunk)
    direction = torch.randn(h.shape, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(h, mel, direction)
    return float(gradient.square().mean().sqrt())


@torch.no_grad()
def _step(kind: str, zeros: Tensor, last_bit: Tensor) -> float:
    """Mean step between the features of zeros and those of the last bit, once the onset is over."""
    features, end = front_end(kind), SAMPLE_RATE - SAMPLE_RATE % FRAME_SAMPLES
    frames = [features(fbank_offline(samples[:, :end]))[:, MELS_PER_FRAME:] for samples in (zeros, last_bit)]
    return float((frames[1] - frames[0]).mean().abs())


def _tables(
    gains: dict[tuple[str, str, float], tuple[bool, float]],
    floor_outputs: dict[str, float],
    heard: dict[str, _Heard],
    gradient: dict[str, float],
    of_speech: float,
    steps: dict[str, float],
) -> tuple[Table, ...]:
    names = [(norm, dtype) for norm in ("rms", "layer") for dtype in DTYPES]
    return (
        Table(
            "Gain of the gradient through a row of zeros",
            ("norm, dtype", *(f"eps {eps:g}" for eps in EPSILONS)),
            tuple((f"{n}, {d}", *(number(gains[n, d, eps][1]) for eps in EPSILONS)) for n, d in names),
        ),
        Table(
            f"A silent log-mel frame ({LOG_FLOOR:.2f} in every bin): size of the norm's output",
            ("norm", "output"),
            tuple((norm, number(value)) for norm, value in floor_outputs.items()),
        ),
        Table(
            "Step from digital zeros to the last bit, mean over the bins",
            ("features", "step"),
            tuple((kind if kind == PLAIN else f"front end {kind}", number(value)) for kind, value in steps.items()),
        ),
        Table(
            "The shipped model on silence",
            ("silence", "heard as speech", "gradient over that on speech"),
            tuple(
                (name, f"{number(each.percent)} %", number(gradient[name] / of_speech)) for name, each in heard.items()
            ),
        ),
    )


def _plots(gains: dict[tuple[str, str, float], tuple[bool, float]]) -> tuple[Plot, ...]:
    def finite(dtype: str) -> list[tuple[float, float]]:
        pairs = [(eps, gains["rms", dtype, eps][1]) for eps in reversed(EPSILONS)]
        return [(eps, gain) for eps, gain in pairs if math.isfinite(gain)]

    series = tuple(Series(dtype, *(tuple(values) for values in zip(*finite(dtype), strict=True))) for dtype in DTYPES)
    law = Series("1/sqrt(eps)", tuple(reversed(EPSILONS)), tuple(1 / math.sqrt(eps) for eps in reversed(EPSILONS)))
    return (
        Plot(
            "Gradient through a row of zeros (RMSNorm)",
            "eps",
            "gain; none where it overflows",
            (law, *series),
            log_x=True,
            log_y=True,
        ),
    )
