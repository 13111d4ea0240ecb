"""What a simulated conversation sounds like: rooms, noises, and the channel behind the microphone."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from diarnorm.conversation import (
    CLIP,
    NUM_KNOTS,
    NUM_TAPS,
    SPEECH,
    WHITE,
    WHITE_SAMPLES,
    Channel,
    Piece,
    Rooms,
    knot_frequencies_hz,
)
from diarnorm.speech import Speech
from diarnorm.timebase import SAMPLE_RATE, samples_to_seconds, seconds_to_samples

CLIP_FADE_SAMPLES = 800


@dataclass(frozen=True)
class RoomConfig:
    """Reverberation and gain curves. Ranges are uniform; every `.._probability` is per conversation."""

    dry_probability: float = 0.15
    shared_room_probability: float = 0.5
    same_place_probability: float = 0.5
    rt60_s: tuple[float, float] = (0.1, 0.7)
    direct_to_reverberant_db: tuple[float, float] = (-3.0, 15.0)
    speaker_eq_probability: float = 0.3
    speaker_eq_db: float = 3.0


@dataclass(frozen=True)
class NoiseConfig:
    """Kinds of noise, each there or not; ratios are those of active speech to the noise where it sounds."""

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


@dataclass(frozen=True)
class ChannelConfig:
    """Microphone and what follows. Ranges are uniform; every `.._probability` is per conversation.

    `level_db` is the level of active speech in dBFS, before swings.
    """

    level_db: tuple[float, float] = (-50.0, -14.0)
    eq_db: float = 8.0
    band_limit_probability: float = 0.15
    band_limit_hz: tuple[float, float] = (3400.0, 4000.0)
    high_pass_probability: float = 0.5
    high_pass_hz: float = 300.0
    hum_probability: float = 0.1
    hum_snr_db: tuple[float, float] = (15.0, 40.0)
    swing_probability: float = 0.15
    swing_db: tuple[float, float] = (6.0, 20.0)
    swing_interval_s: tuple[float, float] = (1.0, 8.0)
    dc_probability: float = 0.15
    dc_log10: tuple[float, float] = (-4.0, -1.5)
    clipping_probability: float = 0.03
    clipping_above_level_db: tuple[float, float] = (3.0, 12.0)
    mu_law_probability: float = 0.05


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
    speech_gain: float,
    first_row: int,
) -> list[NoiseTrack]:
    """Noise tracks, from `first_row` on; ratios refer to `speech_gain`, the RMS of active speech."""
    draws = rng.random(5)
    tracks: list[NoiseTrack] = []
    if draws[0] < config.quiet_probability:
        return tracks
    if draws[1] < config.coloured_probability:
        gain = speech_gain / _ratio(rng.uniform(*config.snr_db))
        pieces = _steady(rng, first_row + len(tracks), num_samples, gain)
        tracks.append(NoiseTrack(pieces, _tilt(config, rng)))
    if draws[2] < config.clip_probability and clips is not None:
        gain = speech_gain / _ratio(rng.uniform(*config.clip_snr_db))
        pieces = _clips(rng, first_row + len(tracks), num_samples, clips, gain)
        tracks.append(NoiseTrack(pieces, np.zeros(NUM_KNOTS)))
    if draws[3] < config.babble_probability:
        gain = speech_gain / _ratio(rng.uniform(*config.babble_snr_db))
        pieces = _babble(rng, first_row + len(tracks), num_samples, speech, gain)
        tracks.append(NoiseTrack(pieces, np.zeros(NUM_KNOTS)))
    if draws[4] < config.burst_probability:
        pieces = _bursts(config, rng, first_row + len(tracks), num_samples, speech_gain)
        tracks.append(NoiseTrack(pieces, _tilt(config, rng)))
    return tracks


def _ratio(db: float) -> float:
    return 10 ** (db / 20)


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
        gain = speech_gain / _ratio(rng.uniform(*config.burst_snr_db))
        pieces.append(Piece(row, WHITE, start, offset, length, 16, length - 16, -1, gain))
    return pieces


def draw_rooms(config: RoomConfig, rng: np.random.Generator, num_speakers: int, noise_eq_db: list[np.ndarray]) -> Rooms:
    """A room for every track; speakers share theirs, or even their place in it, in some conversations."""
    rows = num_speakers + len(noise_eq_db)
    rt60_s = rng.uniform(*config.rt60_s, rows)
    ratio = 10 ** (rng.uniform(*config.direct_to_reverberant_db, rows) / 10)
    tail_offset = rng.integers(WHITE_SAMPLES - SAMPLE_RATE, size=rows)
    tap_samples = np.sort(rng.integers(16, 640, size=(rows, NUM_TAPS)), axis=1)
    tap_gain = rng.uniform(-1, 1, (rows, NUM_TAPS)) * np.exp(-tap_samples / 320.0)
    dry, shared, same_place = rng.random(3)
    if shared < config.shared_room_probability:
        rt60_s[:], ratio[:] = rt60_s[:1], ratio[:1]
        if same_place < config.same_place_probability:
            tail_offset[:], tap_samples[:], tap_gain[:] = tail_offset[:1], tap_samples[:1], tap_gain[:1]
    if dry < config.dry_probability:
        ratio[:] = np.inf
    eq_db = _curves(rng, config.speaker_eq_db, rows) * (rng.random() < config.speaker_eq_probability)
    eq_db[num_speakers:] = np.array(noise_eq_db).reshape(-1, NUM_KNOTS)
    return Rooms(
        rt60_s=rt60_s.astype(np.float32),
        direct=np.sqrt(1 / (1 + 1 / ratio)).astype(np.float32),
        tail=np.sqrt(1 / (1 + ratio)).astype(np.float32),
        tail_offset=tail_offset,
        tap_samples=tap_samples,
        tap_gain=tap_gain.astype(np.float32),
        eq_db=eq_db.astype(np.float32),
    )


def _curves(rng: np.random.Generator, limit_db: float, rows: int) -> Float64[np.ndarray, "rows knots"]:
    """Smooth random gain curves within +-`limit_db`."""
    rough = rng.normal(0, limit_db, (rows, NUM_KNOTS + 2))
    return np.clip((rough[:, :-2] + rough[:, 1:-1] + rough[:, 2:]) / 3, -limit_db, limit_db)


def draw_channel(config: ChannelConfig, rng: np.random.Generator, num_samples: int, *, speech_gain: float) -> Channel:
    """Everything from the microphone on; `speech_gain` is the RMS of active speech before it."""
    draws = rng.random(6)
    band_hz = np.array([0.0, SAMPLE_RATE / 2])
    upper_hz = rng.uniform(*config.band_limit_hz)
    if draws[0] < config.band_limit_probability:
        lower_hz = config.high_pass_hz if draws[1] < config.high_pass_probability else 0.0
        band_hz = np.array([lower_hz, upper_hz])
    hum = rng.random(5) * 0.6 ** np.arange(5)
    hum *= speech_gain / _ratio(rng.uniform(*config.hum_snr_db)) / np.sqrt(np.sum(hum**2) / 2)
    hum_hz = (50, 60)[int(rng.integers(2))]
    dc = 10 ** rng.uniform(*config.dc_log10) * (1 if rng.random() < 0.5 else -1)
    clip_db = rng.uniform(*config.clipping_above_level_db)
    swing_samples, swing_db = _draw_swings(config, rng, num_samples)
    return Channel(
        eq_db=_curves(rng, config.eq_db, 1)[0].astype(np.float32),
        band_hz=band_hz.astype(np.float32),
        hum_hz=np.array(hum_hz),
        hum_gain=(hum * (draws[2] < config.hum_probability)).astype(np.float32),
        level_db=np.array(rng.uniform(*config.level_db), dtype=np.float32),
        swing_samples=swing_samples,
        swing_db=swing_db.astype(np.float32),
        dc=np.array(dc if draws[3] < config.dc_probability else 0.0, dtype=np.float32),
        clip_above_rms_db=np.array(clip_db if draws[4] < config.clipping_probability else np.inf, dtype=np.float32),
        mu_law=np.array(int(draws[5] < config.mu_law_probability)),
    )


def _draw_swings(config: ChannelConfig, rng: np.random.Generator, num_samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples at which the gain jumps, and the gain in dB from each on: up and down by turns, around 0."""
    times_s: list[float] = []
    if rng.random() < config.swing_probability:
        interval_s = rng.uniform(*config.swing_interval_s)
        time_s = rng.exponential(interval_s)
        while time_s < samples_to_seconds(num_samples):
            times_s.append(time_s)
            time_s += 0.1 + rng.exponential(interval_s)
    sign = np.where((np.arange(len(times_s)) + rng.integers(2)) % 2, 0.5, -0.5)
    samples = np.array([seconds_to_samples(time_s) for time_s in times_s], dtype=np.int64)
    return samples, sign * rng.uniform(*config.swing_db, len(times_s))
