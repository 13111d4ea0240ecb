"""Noises of a simulated conversation: hiss, clips, babble, clicks, what people do beside speaking, and people who are
not part of it. None of it is in the reference.
"""

from dataclasses import dataclass
from fnmatch import fnmatch
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from diarnorm.checks import check_interval
from diarnorm.simulation.conversation import (
    CLIP,
    NUM_KNOTS,
    SPEECH,
    WHITE,
    WHITE_SAMPLES,
    Piece,
    aside,
    db_to_ratio,
    knot_frequencies_hz,
)
from diarnorm.simulation.limits import KEY, check_numbers
from diarnorm.simulation.speech import Speech
from diarnorm.timebase import samples_to_seconds, seconds_to_samples

CLIP_FADE_SAMPLES = 800
BURST_LOG10_S = (-3.0, 2.0)
"""Between the fade of a burst, 16 samples, and the white noise that bursts are cut from."""
FLAT = np.zeros(NUM_KNOTS)
"""The gain curve of noises that come as they are."""
PEOPLE, BACKGROUND = 1, 2
"""Which generator each addition has; see `conversation.aside`."""


@dataclass(frozen=True)
class NoiseConfig:
    """Kinds of noise, each there or not; ratios are those of active speech to the noise where it sounds.

    `people` are names of clip folders, `*` and `?` allowed: sounds that people make beside speaking (sneezes, laughter,
    crying), single and each at a level of its own. `background_probability` is that of people who are not part of the
    conversation talking at some distance, `background_voices` of them, with pauses. Neither is in the reference.

    Raises:
        ValueError: a value out of range, by its key.
    """

    quiet_probability: float = 0.08
    coloured_probability: float = 0.85
    clip_probability: float = 0.3
    babble_probability: float = 0.2
    burst_probability: float = 0.25
    snr_db: tuple[float, float] = (5.0, 50.0)
    clip_snr_db: tuple[float, float] = (3.0, 45.0)
    babble_snr_db: tuple[float, float] = (10.0, 40.0)
    burst_snr_db: tuple[float, float] = (-5.0, 45.0)
    bursts_per_s: float = 0.25
    burst_log10_s: tuple[float, float] = (-2.3, -0.5)
    tilt_db_per_octave: tuple[float, float] = (-8.0, 2.0)
    people: tuple[str, ...] = ()
    people_probability: float = 0.3
    people_snr_db: tuple[float, float] = (-5.0, 25.0)
    people_interval_s: float = 10.0
    background_probability: float = 0.0
    background_snr_db: tuple[float, float] = (18.0, 35.0)
    background_voices: tuple[int, int] = (1, 3)
    background_pause_s: float = 1.5

    def __post_init__(self) -> None:
        check_numbers("noise", self, positive=("background_voices",))
        low, high = BURST_LOG10_S
        check_interval(f"{KEY}.noise.burst_log10_s", self.burst_log10_s, low=low, high=high)


class NoiseTrack(NamedTuple):
    """One track of noise: its pieces, and its gain curve in dB at the knots."""

    pieces: list[Piece]
    eq_db: Float64[np.ndarray, " knots"]


def draw_noises(
    config: NoiseConfig,
    rng: np.random.Generator,
    num_samples: int,
    *,
    speech: Speech,
    clips: Speech | None,
    present: Bool[np.ndarray, " speakers"],
    speech_gain: float,
    first_row: int,
) -> list[NoiseTrack]:
    """Noise tracks, from `first_row` on; ratios refer to `speech_gain`, the RMS of active speech. `present` marks the
    speakers of the conversation and whoever may be the same person.

    Raises:
        ValueError: no clip folder is called as `people` says.
    """
    draws = rng.random(5)
    if draws[0] < config.quiet_probability:
        return []
    tracks = _background_noises(config, rng, draws[1:], num_samples, speech, clips, speech_gain, first_row)
    if config.people:
        pieces = _people(config, aside(rng, PEOPLE), first_row + len(tracks), num_samples, clips, speech_gain)
        tracks += [NoiseTrack(pieces, FLAT)] if pieces else []
    if config.background_probability > 0:
        others = np.flatnonzero(~present[speech.speaker[speech.piece_utterance]])
        side = aside(rng, BACKGROUND)
        pieces = _background(config, side, first_row + len(tracks), num_samples, speech, others, speech_gain)
        tracks += [NoiseTrack(pieces, FLAT)] if pieces else []
    return tracks


def _background_noises(
    config: NoiseConfig,
    rng: np.random.Generator,
    draws: Float64[np.ndarray, " 4"],
    num_samples: int,
    speech: Speech,
    clips: Speech | None,
    speech_gain: float,
    first_row: int,
) -> list[NoiseTrack]:
    """Hiss, clips, babble and clicks, each where its draw says so."""
    tracks: list[NoiseTrack] = []
    if draws[0] < config.coloured_probability:
        gain = _gain(rng, speech_gain, config.snr_db)
        pieces = _steady(rng, first_row, num_samples, gain)
        tracks.append(NoiseTrack(pieces, _tilt(config, rng)))
    if draws[1] < config.clip_probability and clips is not None:
        gain = _gain(rng, speech_gain, config.clip_snr_db)
        pieces = _clips(rng, first_row + len(tracks), num_samples, clips, gain)
        tracks.append(NoiseTrack(pieces, FLAT))
    if draws[2] < config.babble_probability:
        gain = _gain(rng, speech_gain, config.babble_snr_db)
        pieces = _babble(rng, first_row + len(tracks), num_samples, speech, gain)
        tracks.append(NoiseTrack(pieces, FLAT))
    if draws[3] < config.burst_probability:
        pieces = _bursts(config, rng, first_row + len(tracks), num_samples, speech_gain)
        tracks.append(NoiseTrack(pieces, _tilt(config, rng)))
    return tracks


def _gain(rng: np.random.Generator, speech_gain: float, snr_db: tuple[float, float]) -> float:
    """RMS of a noise whose ratio to speech is drawn from a range."""
    return speech_gain / db_to_ratio(rng.uniform(*snr_db))


def _tilt(config: NoiseConfig, rng: np.random.Generator) -> Float64[np.ndarray, " knots"]:
    """A gain curve of coloured noise: a slope over octaves with some roughness."""
    octaves = np.log2(np.maximum(knot_frequencies_hz(), 100.0) / 1000.0)
    return rng.uniform(*config.tilt_db_per_octave) * octaves + rng.normal(0, 2, NUM_KNOTS)


def _steady(rng: np.random.Generator, row: int, num_samples: int, gain: float) -> list[Piece]:
    """White noise without end."""
    pieces = []
    for start in range(0, num_samples, WHITE_SAMPLES // 4):
        length = min(WHITE_SAMPLES // 4, num_samples - start)
        offset = int(rng.integers(WHITE_SAMPLES - length))
        pieces.append(Piece(row, WHITE, start, offset, length, 0, 0, -1, gain))
    return pieces


def _whole(bank: int, source: Speech, factor: int, index: int, row: int, start: int, gain: float) -> Piece:
    """A whole utterance or clip, at RMS `gain` where it is loud."""
    length, offset = int(source.length[factor, index]), int(source.offset[factor, index])
    fade = min(CLIP_FADE_SAMPLES, length // 2)
    return Piece(row, bank, start, offset, length, fade, fade, -1, gain / float(source.level[index]))


def _clips(rng: np.random.Generator, row: int, num_samples: int, clips: Speech, gain: float) -> list[Piece]:
    """One clip again and again (a steady scene), or various clips with silences between (events)."""
    pieces: list[Piece] = []
    audible = np.flatnonzero(clips.level > 0)
    if not len(audible):
        return pieces
    steady = rng.random() < 0.5
    chosen = int(rng.choice(audible))
    time = -seconds_to_samples(rng.uniform(0, 3))
    while time < num_samples:
        piece = _whole(CLIP, clips, 0, chosen, row, time, gain)
        pieces.append(piece)
        if steady:
            time += max(piece.length - CLIP_FADE_SAMPLES, CLIP_FADE_SAMPLES)
        else:
            chosen = int(rng.choice(audible))
            time += piece.length + seconds_to_samples(rng.exponential(5.0))
    return pieces


def _babble(rng: np.random.Generator, row: int, num_samples: int, speech: Speech, gain: float) -> list[Piece]:
    """Three to six voices that go on without pauses."""
    pieces = []
    num_voices = int(rng.integers(3, 7))
    for _ in range(num_voices):
        factor = int(rng.integers(speech.num_factors))
        time = -seconds_to_samples(rng.uniform(0, 3))
        while time < num_samples:
            chosen = int(speech.piece_utterance[rng.integers(len(speech.piece_utterance))])
            piece = _whole(SPEECH, speech, factor, chosen, row, time, gain / num_voices**0.5)
            pieces.append(piece)
            time += max(piece.length - CLIP_FADE_SAMPLES, CLIP_FADE_SAMPLES)
    return pieces


def _bursts(
    config: NoiseConfig, rng: np.random.Generator, row: int, num_samples: int, speech_gain: float
) -> list[Piece]:
    """Clicks, knocks and rustle: short decaying noises, each at its own level."""
    pieces = []
    for _ in range(1 + int(rng.poisson(config.bursts_per_s * samples_to_seconds(num_samples)))):
        length = seconds_to_samples(10 ** rng.uniform(*config.burst_log10_s))
        start = int(rng.integers(num_samples))
        offset = int(rng.integers(WHITE_SAMPLES - length))
        gain = _gain(rng, speech_gain, config.burst_snr_db)
        pieces.append(Piece(row, WHITE, start, offset, length, 16, length - 16, -1, gain))
    return pieces


def _people(
    config: NoiseConfig,
    rng: np.random.Generator,
    row: int,
    num_samples: int,
    clips: Speech | None,
    speech_gain: float,
) -> list[Piece]:
    """Clips of the folders called `people`, one now and then, in some conversations."""
    folders = () if clips is None else clips.speakers
    wanted = [any(fnmatch(folder, pattern) for pattern in config.people) for folder in folders]
    if clips is None or not any(wanted):
        there = ", ".join(folders) if folders else "no clips"
        raise ValueError(f"noise.people={list(config.people)} matches no folder of the noise clips (there: {there})")
    chosen = np.flatnonzero(np.array(wanted)[clips.speaker] & (clips.level > 0))
    pieces: list[Piece] = []
    if rng.random() >= config.people_probability or not len(chosen):
        return pieces
    time = seconds_to_samples(rng.exponential(config.people_interval_s / 2))
    while time < num_samples:
        gain = _gain(rng, speech_gain, config.people_snr_db)
        piece = _whole(CLIP, clips, 0, int(rng.choice(chosen)), row, time, gain)
        pieces.append(piece)
        time += piece.length + seconds_to_samples(rng.exponential(config.people_interval_s))
    return pieces


def _background(
    config: NoiseConfig,
    rng: np.random.Generator,
    row: int,
    num_samples: int,
    speech: Speech,
    others: Int64[np.ndarray, " pieces"],
    speech_gain: float,
) -> list[Piece]:
    """Utterances of `others` (numbers of pieces) with pauses, in some conversations; nobody where there are none."""
    pieces: list[Piece] = []
    if rng.random() >= config.background_probability or not len(others):
        return pieces
    low, high = config.background_voices
    num_voices = int(rng.integers(low, high + 1))
    gain = _gain(rng, speech_gain, config.background_snr_db) / num_voices**0.5
    for _ in range(num_voices):
        speaker = speech.speaker[speech.piece_utterance[rng.choice(others)]]
        own = speech.piece_utterance[slice(*speech.speaker_piece[speaker : speaker + 2])]
        factor = int(rng.integers(speech.num_factors))
        time = -seconds_to_samples(rng.uniform(0, 3))
        while time < num_samples:
            piece = _whole(SPEECH, speech, factor, int(rng.choice(own)), row, time, gain)
            pieces.append(piece)
            time += piece.length + seconds_to_samples(rng.exponential(config.background_pause_s))
    return pieces
