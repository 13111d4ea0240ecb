"""Claim 5: what a level, a DC offset and an offset of the features do to a norm, behind each front end.

In log-mel a gain of the waveform is a constant added to all bins (4.605 per 20 dB): what RMSNorm would level as a
factor arrives as the offset that it lets pass and that LayerNorm takes out. So norms are looked at behind each front
end, lest one get credit for the other. DC is taken out by Kaldi's filter bank, window by window, before any norm.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torchaudio.compliance import kaldi

from diarnorm.checkpoint import load_checkpoint
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, average, exactly, number
from diarnorm.claims.voices import sample_speech
from diarnorm.fbank import INT16_SCALE, fbank_offline
from diarnorm.frontend import FRONT_ENDS, FrontEnd, FrontEndConfig
from diarnorm.norms import make_norm
from diarnorm.resources import find_model
from diarnorm.timebase import FRAME_SAMPLES, HOP_SAMPLES, MELS_PER_FRAME, NUM_MELS, SAMPLE_RATE, WINDOW_SAMPLES

GAINS_DB = (-40.0, -30.0, -20.0, -10.0, 0.0, 10.0, 20.0)
DC = 0.1
"""Of full scale."""
OFFSET = 1.0
"""Added to all features, in units of their spread."""
FACTOR = 10.0
SETTLED_S = 15.0
"""How long a running mean (time constant 10 s) has to settle before it is looked at."""
NORMS = ("rms", "layer", "none")
MELS_PER_S = SAMPLE_RATE // HOP_SAMPLES
PLAIN = "log-mel"
"""No front end at all."""
Features = Callable[[Tensor], Tensor]


@torch.no_grad()
def levels() -> Evidence:
    """Relative change of each norm's output, behind each front end, over speech frames."""
    speech = torch.from_numpy(sample_speech().samples)[None]
    speech = speech[:, : speech.shape[1] - speech.shape[1] % FRAME_SAMPLES]
    mel, kept = fbank_offline(speech), _without_dc_removal(speech)
    spoken = _spoken_frames(mel.shape[1])
    ends: dict[str, Features] = {kind: front_end(kind) for kind in (PLAIN, *FRONT_ENDS)}
    changes = {f"{gain:g} dB": (mel, fbank_offline(speech * 10 ** (gain / 20))) for gain in GAINS_DB}
    changes["DC, taken out"] = mel, fbank_offline(speech + DC)
    changes["DC, kept"] = kept, _without_dc_removal(speech + DC)
    found = {
        (end, norm, change): _change(norm, features(before)[0][spoken], features(after)[0][spoken])
        for end, features in ends.items()
        for norm in NORMS
        for change, (before, after) in changes.items()
    }
    offset, factor = _on_features(ends["none"](mel)[0][spoken])
    difference = float((kept - mel)[:, 2:].abs().median())
    measures = (*_measures(found, offset, factor), exactly("filter_bank_difference", difference))
    return Evidence(
        "levels",
        measures,
        _tables(ends, found, offset, factor),
        _plots(ends, found),
        (
            f"Speech frames of a sample recording from {SETTLED_S:g} s on; the level differs from the start. The front "
            "ends have mean and spread of the shipped model. Intervals are Student's, over seconds of speech.",
            f"DC is {DC:g} of full scale; the offset is {OFFSET:g} on features of unit spread, the factor {FACTOR:g}.",
            "`none` is the front end with the training data's mean and spread; log-mel has none at all.",
        ),
    )


def _measures(
    found: dict[tuple[str, str, str], Measure], offset: dict[str, Measure], factor: dict[str, Measure]
) -> tuple[Measure, ...]:
    """The changes that are asked about, by the names of the criteria."""
    named = {
        "rms_factor": factor["rms"],
        "rms_gain": found["none", "rms", "-20 dB"],
        "rms_gain_frame": found["frame", "rms", "-20 dB"],
        "rms_gain_ema": found["ema", "rms", "-20 dB"],
        "rms_offset": offset["rms"],
        "layer_offset": offset["layer"],
        "rms_dc": found[PLAIN, "rms", "DC, taken out"],
        "rms_dc_kept": found[PLAIN, "rms", "DC, kept"],
        "rms_gain_plain": found[PLAIN, "rms", "-20 dB"],
        "layer_gain_plain": found[PLAIN, "layer", "-20 dB"],
        "layer_dc_kept": found[PLAIN, "layer", "DC, kept"],
    }
    return tuple(replace(measure, name=name) for name, measure in named.items())


def front_end(kind: str) -> Features:
    """A front end with the shipped model's mean and spread; the input itself for `log-mel`."""
    if kind == PLAIN:
        return lambda mel: mel
    module = FrontEnd(FrontEndConfig(kind))
    module.load_state_dict(load_checkpoint(find_model()).model.frontend.state_dict())
    return lambda mel: module(mel)[0]


def _spoken_frames(num_frames: int) -> Tensor:
    """Mask of the mel frames in which someone speaks, once running means have settled."""
    at = torch.arange(num_frames) * (HOP_SAMPLES / SAMPLE_RATE)
    spoken = torch.zeros(num_frames, dtype=torch.bool)
    for turn in sample_speech().turns:
        spoken |= (at >= turn.start) & (at < turn.end)
    return spoken & (at >= SETTLED_S)


def _without_dc_removal(samples: Tensor) -> Tensor:
    """Kaldi's log-mel frames by torchaudio, from the signal with 240 zeros in front, as `diarnorm.fbank` has them, but
    with the mean of each window left in."""
    padded = torch.cat([torch.zeros(1, WINDOW_SAMPLES - HOP_SAMPLES), samples], dim=1) * INT16_SCALE
    mel = kaldi.fbank(
        padded,
        num_mel_bins=NUM_MELS,
        dither=0.0,
        window_type="povey",
        sample_frequency=SAMPLE_RATE,
        remove_dc_offset=False,
    )
    return mel[None, : mel.shape[0] - mel.shape[0] % MELS_PER_FRAME]


def _change(norm: str, before: Tensor, after: Tensor) -> Measure:
    """Relative change of the norm's output in %, with its interval over seconds of speech."""
    layer = make_norm(norm, NUM_MELS)
    y, changed = layer(before), layer(after)
    size = float(y.square().mean().sqrt())
    per_second = [
        100 * float((b - a).square().mean().sqrt()) / size
        for a, b in zip(y.split(MELS_PER_S), changed.split(MELS_PER_S), strict=True)
    ]
    return average(norm, per_second)


def _on_features(features: Tensor) -> tuple[dict[str, Measure], dict[str, Measure]]:
    """Change by an offset and by a factor on features of mean 0 and spread 1."""
    x = (features - features.mean()) / features.std()
    offset = {norm: _change(norm, x, x + OFFSET) for norm in NORMS}
    return offset, {norm: _change(norm, x, x * FACTOR) for norm in NORMS}


def _tables(
    ends: dict[str, Features],
    found: dict[tuple[str, str, str], Measure],
    offset: dict[str, Measure],
    factor: dict[str, Measure],
) -> tuple[Table, ...]:
    columns = ("-40 dB", "-20 dB", "20 dB", "DC, taken out", "DC, kept")
    return (
        Table(
            "Change of a norm's output, % of its size, behind each front end",
            ("front end, norm", *columns),
            tuple(
                (f"{end}, {norm}", *(number(found[end, norm, change].value) for change in columns))
                for end in ends
                for norm in NORMS
            ),
        ),
        Table(
            "The same by changes of the features themselves",
            ("norm", f"offset {OFFSET:g}", f"factor {FACTOR:g}"),
            tuple((norm, number(offset[norm].value), number(factor[norm].value)) for norm in NORMS),
        ),
    )


def _plots(ends: dict[str, Features], found: dict[tuple[str, str, str], Measure]) -> tuple[Plot, ...]:
    def line(label: str, end: str, norm: str) -> Series:
        return Series.of(label, GAINS_DB, [found[end, norm, f"{gain:g} dB"] for gain in GAINS_DB])

    by_norm = tuple(line(norm, PLAIN, norm) for norm in NORMS)
    by_end = tuple(line(end, end, "rms") for end in ends)
    return (
        Plot("Level on plain log-mel, by norm", "gain of the waveform, dB", "change of the output, %", by_norm),
        Plot("Level with RMSNorm, by front end", "gain of the waveform, dB", "change of the output, %", by_end),
    )
