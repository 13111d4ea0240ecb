"""What a simulated conversation sounds like: its rooms, and the channel behind the microphone."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from diarnorm.checks import check_range
from diarnorm.simulation.conversation import (
    A_LAW,
    MU_LAW,
    NUM_KNOTS,
    NUM_TAPS,
    WHITE_SAMPLES,
    Channel,
    Rooms,
    aside,
    db_to_ratio,
)
from diarnorm.simulation.limits import KEY, check_numbers
from diarnorm.simulation.rooms import load_rooms
from diarnorm.timebase import SAMPLE_RATE, samples_to_seconds, seconds_to_samples

MEASURED, DRIFT, CODEC, HUM = 3, 4, 5, 7
"""Which generator each addition has; see `conversation.aside`."""
DRIFT_STEP_S = 0.1
"""A drifting gain moves this often."""


@dataclass(frozen=True)
class RoomConfig:
    """Reverberation and gain curves. Ranges are uniform; every `.._probability` is per conversation.

    `measured` are files and folders of impulse responses; a conversation that uses them has one for all tracks or one
    for each, as often as speakers share a made-up room.

    Raises:
        ValueError: a value out of range, by its key.
    """

    dry_probability: float = 0.15
    shared_room_probability: float = 0.5
    same_place_probability: float = 0.5
    rt60_s: tuple[float, float] = (0.1, 0.7)
    direct_to_reverberant_db: tuple[float, float] = (-3.0, 15.0)
    speaker_eq_probability: float = 0.3
    speaker_eq_db: float = 3.0
    measured: tuple[str, ...] = ()
    measured_probability: float = 0.5

    def __post_init__(self) -> None:
        check_numbers("rooms", self, positive=("rt60_s",))


@dataclass(frozen=True)
class ChannelConfig:
    """Microphone and what follows. Ranges are uniform; every `.._probability` is per conversation.

    `level_db` is the level of active speech in dBFS, before swings: steps of the gain, and its drift up and down
    (a sine of `drift_db` each way). Some hums come and go, every `hum_switch_s` on average.

    Raises:
        ValueError: a value out of range, by its key.
    """

    level_db: tuple[float, float] = (-50.0, -14.0)
    eq_db: float = 8.0
    band_limit_probability: float = 0.15
    band_limit_hz: tuple[float, float] = (3400.0, 4000.0)
    high_pass_probability: float = 0.5
    high_pass_hz: float = 300.0
    hum_probability: float = 0.1
    hum_snr_db: tuple[float, float] = (15.0, 40.0)
    hum_switch_probability: float = 0.0
    hum_switch_s: tuple[float, float] = (2.0, 15.0)
    swing_probability: float = 0.15
    swing_db: tuple[float, float] = (6.0, 20.0)
    swing_interval_s: tuple[float, float] = (1.0, 8.0)
    drift_probability: float = 0.0
    drift_db: tuple[float, float] = (2.0, 8.0)
    drift_period_s: tuple[float, float] = (4.0, 40.0)
    dc_probability: float = 0.15
    dc_log10: tuple[float, float] = (-4.0, -1.5)
    clipping_probability: float = 0.03
    clipping_above_level_db: tuple[float, float] = (3.0, 12.0)
    mu_law_probability: float = 0.05
    a_law_probability: float = 0.0

    def __post_init__(self) -> None:
        check_numbers("channel", self, positive=("band_limit_hz", "hum_switch_s", "drift_period_s"))
        check_range(f"{KEY}.channel.high_pass_hz", self.high_pass_hz, low=0, high=self.band_limit_hz[0])


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
    rooms = Rooms(
        rt60_s=rt60_s.astype(np.float32),
        direct=np.sqrt(1 / (1 + 1 / ratio)).astype(np.float32),
        tail=np.sqrt(1 / (1 + ratio)).astype(np.float32),
        tail_offset=tail_offset,
        tap_samples=tap_samples,
        tap_gain=tap_gain.astype(np.float32),
        eq_db=eq_db.astype(np.float32),
    )
    return _measured(config, aside(rng, MEASURED), rooms) if config.measured else rooms


def _measured(config: RoomConfig, rng: np.random.Generator, rooms: Rooms) -> Rooms:
    """The same, or measured rooms instead."""
    rows = len(rooms.rt60_s)
    chosen = rng.integers(len(load_rooms(config.measured).names), size=rows)
    used, shared = rng.random(2)
    if used >= config.measured_probability:
        return rooms
    if shared < config.shared_room_probability:
        chosen[:] = chosen[:1]
    return rooms._replace(direct=np.zeros_like(rooms.direct), tail=np.ones_like(rooms.tail), measured=chosen)


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
    hum *= speech_gain / db_to_ratio(rng.uniform(*config.hum_snr_db)) / np.sqrt(np.sum(hum**2) / 2)
    hum_hz = (50, 60)[int(rng.integers(2))]
    dc = 10 ** rng.uniform(*config.dc_log10) * (1 if rng.random() < 0.5 else -1)
    clip_db = rng.uniform(*config.clipping_above_level_db)
    switching, switches = _draw_hum_switches(config, rng, num_samples)
    swing_samples, swing_db = _draw_swings(config, rng, num_samples)
    eq_db = _curves(rng, config.eq_db, 1)[0]
    level_db = rng.uniform(*config.level_db)
    if config.drift_probability > 0:
        swing_samples, swing_db = _add_drift(config, aside(rng, DRIFT), num_samples, swing_samples, swing_db)
    return Channel(
        eq_db=eq_db.astype(np.float32),
        band_hz=band_hz.astype(np.float32),
        hum_hz=np.array(hum_hz),
        hum_gain=(hum * (switching or draws[2] < config.hum_probability)).astype(np.float32),
        hum_switches=switches,
        level_db=np.array(level_db, dtype=np.float32),
        swing_samples=swing_samples,
        swing_db=swing_db.astype(np.float32),
        dc=np.array(dc if draws[3] < config.dc_probability else 0.0, dtype=np.float32),
        clip_above_rms_db=np.array(clip_db if draws[4] < config.clipping_probability else np.inf, dtype=np.float32),
        companding=np.array(_draw_companding(config, rng, draws[5])),
    )


def _draw_hum_switches(
    config: ChannelConfig, rng: np.random.Generator, num_samples: int
) -> tuple[bool, Int64[np.ndarray, " switches"]]:
    """Whether there is a hum that comes and goes, and when; every other one begins in silence."""
    none = np.zeros(0, dtype=np.int64)
    if config.hum_switch_probability == 0:
        return False, none
    rng = aside(rng, HUM)
    if rng.random() >= config.hum_switch_probability:
        return False, none
    interval_s = rng.uniform(*config.hum_switch_s)
    num_switches = int(rng.poisson(samples_to_seconds(num_samples) / interval_s))
    switches = np.unique(rng.integers(1, num_samples, num_switches))
    return True, switches if rng.random() < 0.5 else np.concatenate([[0], switches])


def _draw_companding(config: ChannelConfig, rng: np.random.Generator, drawn: float) -> int:
    if drawn < config.mu_law_probability:
        return MU_LAW
    a_law = config.a_law_probability > 0 and aside(rng, CODEC).random() < config.a_law_probability
    return A_LAW if a_law else 0


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


def _add_drift(
    config: ChannelConfig, rng: np.random.Generator, num_samples: int, times: np.ndarray, swing_db: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Swings with a slow sine on top, in small steps, in some conversations."""
    depth_db, period_s = rng.uniform(*config.drift_db), rng.uniform(*config.drift_period_s)
    used, phase = rng.random(2)
    if used >= config.drift_probability:
        return times, swing_db
    all_times = np.union1d(np.arange(1, num_samples, seconds_to_samples(DRIFT_STEP_S)), times)
    steps_db = np.concatenate([[0.0], swing_db])[np.searchsorted(times, all_times, side="right")]
    drift_db = depth_db * np.sin(2 * np.pi * (all_times / (SAMPLE_RATE * period_s) + phase))
    return all_times, steps_db + drift_db
