"""Plans of simulated conversations: who says which piece when, in which room, over which noise.

A plan holds numbers only, drawn with numpy's PCG64 from one seed, so that it is the same on any machine, for any
model under study. `diarnorm.simulate.render` turns plans into samples.

The turn-taking follows the four transitions hold, switch, interruption and backchannel, with pauses and gaps that
are exponential with a long tail, and a dominance per conversation.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from diarnorm.speech import Speech
from diarnorm.timebase import FRAME_SAMPLES, HOP_SAMPLES, SAMPLE_RATE

NUM_KNOTS = 10
"""Points of a gain curve over frequency, evenly spaced on the mel scale from 0 to 8 kHz."""
NUM_TAPS = 6
"""Early reflections of a room."""
WHITE_SAMPLES = 1 << 22
"""Length of the one stretch of white noise that noises and rooms are cut from."""
SPEECH, CLIP, WHITE = 0, 1, 2
"""Where a piece comes from: the speech, the noise clips, or white noise."""
Range = tuple[float, float]


@dataclass(frozen=True)
class SimulatorConfig:
    """What conversations are like. Ranges are uniform; every `.._probability` is per conversation."""

    # who
    speaker_probabilities: tuple[float, ...] = (0.1, 0.3, 0.3, 0.3)
    same_source_probability: float = 0.6
    same_gender_probability: float = 0.25
    speed_probability: float = 0.6
    # turn-taking
    transitions: tuple[float, float, float, float] = (0.15, 0.21, 0.44, 0.20)
    transition_concentration: float = 30.0
    dominance_concentration: float = 1.5
    dominance_change_probability: float = 0.3
    turn_median_s: float = 2.2
    turn_log_sigma: float = 0.75
    max_turn_s: float = 15.0
    pause_mean_s: float = 0.5
    gap_mean_s: float = 0.5
    tempo_log_sigma: float = 0.5
    long_silence_share: float = 0.07
    long_silence_s: Range = (2.0, 6.0)
    overlap_mean_s: float = 0.45
    overlap_shape: float = 1.6
    max_overlap_s: float = 3.0
    backchannel_s: Range = (0.25, 1.0)
    mid_turn_probability: float = 0.5
    initial_silence_s: Range = (0.0, 3.0)
    # reference style
    close_gap_s: float = 0.3
    pad_s: float = 0.0
    # voices and rooms
    speaker_level_sigma_db: float = 4.0
    speaker_level_limit_db: float = 6.0
    wide_level_probability: float = 0.15
    wide_level_limit_db: float = 12.0
    turn_level_sigma_db: float = 1.5
    dry_probability: float = 0.15
    shared_room_probability: float = 0.5
    same_place_probability: float = 0.5
    rt60_s: Range = (0.1, 0.7)
    direct_to_reverberant_db: Range = (-3.0, 15.0)
    speaker_eq_probability: float = 0.3
    speaker_eq_db: float = 3.0
    # noise
    quiet_probability: float = 0.08
    coloured_probability: float = 0.85
    clip_probability: float = 0.3
    babble_probability: float = 0.2
    burst_probability: float = 0.25
    hum_probability: float = 0.1
    snr_db: Range = (5.0, 35.0)
    babble_snr_db: Range = (10.0, 30.0)
    burst_snr_db: Range = (-5.0, 20.0)
    hum_snr_db: Range = (15.0, 40.0)
    tilt_db_per_octave: Range = (-8.0, 1.0)
    # microphone and channel
    level_db: Range = (-50.0, -14.0)
    eq_db: float = 6.0
    band_limit_probability: float = 0.15
    band_limit_hz: Range = (3400.0, 4000.0)
    high_pass_probability: float = 0.5
    mu_law_probability: float = 0.05
    dc_probability: float = 0.15
    dc_log10: Range = (-4.0, -1.5)
    clipping_probability: float = 0.03
    clipping_above_rms_db: Range = (3.0, 12.0)
    swing_probability: float = 0.15
    swing_db: Range = (6.0, 20.0)
    swing_interval_s: Range = (1.0, 8.0)


class Turn(NamedTuple):
    """Who spoke from when to when, in seconds."""

    start: float
    end: float
    speaker: str


class Pieces(NamedTuple):
    """Stretches of sound put into the tracks of a conversation; one entry per stretch, all integers but gain."""

    row: Int64[np.ndarray, " pieces"]
    bank: Int64[np.ndarray, " pieces"]
    start: Int64[np.ndarray, " pieces"]
    offset: Int64[np.ndarray, " pieces"]
    length: Int64[np.ndarray, " pieces"]
    fade_in: Int64[np.ndarray, " pieces"]
    fade_out: Int64[np.ndarray, " pieces"]
    utterance: Int64[np.ndarray, " pieces"]
    gain: Float32[np.ndarray, " pieces"]


class Rooms(NamedTuple):
    """Per track: the room it is heard in, and its own gain curve (dB at the knots)."""

    rt60_s: Float32[np.ndarray, " rows"]
    direct: Float32[np.ndarray, " rows"]
    tail: Float32[np.ndarray, " rows"]
    tail_offset: Int64[np.ndarray, " rows"]
    tap_samples: Int64[np.ndarray, "rows taps"]
    tap_gain: Float32[np.ndarray, "rows taps"]
    eq_db: Float32[np.ndarray, "rows knots"]


class Channel(NamedTuple):
    """What happens to the sum of all tracks, in this order: filter, hum, level, swings, DC, clipping, mu-law."""

    eq_db: Float32[np.ndarray, " knots"]
    band_hz: Float32[np.ndarray, " 2"]
    hum_hz: Int64[np.ndarray, ""]
    hum_gain: Float32[np.ndarray, " 5"]
    level_db: Float32[np.ndarray, ""]
    swing_samples: Int64[np.ndarray, " swings"]
    swing_db: Float32[np.ndarray, " swings"]
    dc: Float32[np.ndarray, ""]
    clip_above_rms_db: Float32[np.ndarray, ""]
    mu_law: Int64[np.ndarray, ""]


@dataclass(frozen=True)
class Plan:
    """One conversation, ready to render.

    Speakers are numbered by their first activity; tracks 0 .. speakers-1 are theirs, the others are noise.
    `segments` is the reference: slot, start, end in samples, sorted by start.
    """

    num_samples: int
    speaker: Int64[np.ndarray, " speakers"]
    factor: Int64[np.ndarray, " speakers"]
    speaker_class: Int64[np.ndarray, " speakers"]
    segments: Int64[np.ndarray, "segments 3"]
    pieces: Pieces
    rooms: Rooms
    channel: Channel
    num_factors: int
    names: tuple[str, ...] = field(default=())

    @property
    def num_speakers(self) -> int:
        """Speakers heard in this conversation."""
        return len(self.speaker)

    @property
    def num_rows(self) -> int:
        """Tracks: speakers, then noises."""
        return len(self.rooms.rt60_s)

    @property
    def num_frames(self) -> int:
        """Whole frames of 80 ms."""
        return self.num_samples // FRAME_SAMPLES

    def turns(self) -> list[Turn]:
        """The reference in seconds, by start."""
        return [
            Turn(int(start) / SAMPLE_RATE, int(end) / SAMPLE_RATE, self.names[slot])
            for slot, start, end in self.segments
        ]

    def activity(self) -> Float32[np.ndarray, "frames speakers"]:
        """Share of each frame in which each speaker is active, by the reference."""
        edges = np.arange(self.num_frames + 1) * FRAME_SAMPLES
        out = np.zeros((self.num_frames, self.num_speakers), dtype=np.float32)
        for slot in range(self.num_speakers):
            own = self.segments[self.segments[:, 0] == slot, 1:]
            knots = np.concatenate([[0], own.reshape(-1), [self.num_samples]])
            covered = np.zeros(len(knots))
            covered[1:-1] = np.repeat(np.cumsum(own[:, 1] - own[:, 0]), 2)
            covered[1:-1:2] -= own[:, 1] - own[:, 0]
            covered[-1] = covered[-2]
            out[:, slot] = np.diff(np.interp(edges, knots, covered)) / FRAME_SAMPLES
        return out

    def source(self) -> Int64[np.ndarray, " frames"]:
        """Per frame `utterance * num_factors + factor` of the only speaker active; -1 where none or several are."""
        activity = self.activity()
        alone = (activity.max(axis=1, initial=0.0) > 0.5) & ((activity > 0).sum(axis=1) == 1)
        only = activity.argmax(axis=1) if self.num_speakers else np.zeros(self.num_frames, dtype=np.int64)
        out = np.full((self.num_frames, self.num_speakers + 1), -1, dtype=np.int64)
        pieces = self.pieces
        for i in np.flatnonzero((pieces.row < self.num_speakers) & (pieces.bank == SPEECH)):
            first = (pieces.start[i] + FRAME_SAMPLES // 2) // FRAME_SAMPLES
            last = (pieces.start[i] + pieces.length[i] + FRAME_SAMPLES // 2) // FRAME_SAMPLES
            row = pieces.row[i]
            out[first:last, row] = pieces.utterance[i] * self.num_factors + self.factor[row]
        return np.where(alone, out[np.arange(self.num_frames), only], -1)

    def digest(self) -> str:
        """A hash of everything in the plan."""
        hasher = hashlib.sha256()
        for item in fields(self):
            value = getattr(self, item.name)
            for part in value if isinstance(value, Pieces | Rooms | Channel) else (value,):
                hasher.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
        return hasher.hexdigest()


def plan_conversation(
    speech: Speech,
    config: SimulatorConfig = SimulatorConfig(),
    seed: int | Sequence[int] | np.random.Generator = 0,
    *,
    duration_s: float = 30.0,
    num_speakers: int | None = None,
    clips: Speech | None = None,
) -> Plan:
    """Draw one conversation.

    Args:
        speech: the speakers to draw from; at least as many as asked for.
        config: what conversations are like.
        seed: whatever seeds PCG64, or a generator that already exists.
        duration_s: length; rounded down to whole frames of 80 ms.
        num_speakers: how many; drawn from `config.speaker_probabilities` when None. Some may stay silent, and are
            then not part of the plan.
        clips: noise clips, for conversations that draw them.

    Raises:
        ValueError: more speakers than there are, or a duration below one frame.
    """
    rng = seed if isinstance(seed, np.random.Generator) else np.random.Generator(np.random.PCG64(seed))
    num_samples = int(duration_s * SAMPLE_RATE) // FRAME_SAMPLES * FRAME_SAMPLES
    if num_samples <= 0:
        raise ValueError(f"duration_s is {duration_s}; a conversation needs at least one frame of 0.08 s")
    if num_speakers is None:
        probabilities = np.array(config.speaker_probabilities)
        num_speakers = 1 + int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))
    if not 1 <= num_speakers <= speech.num_speakers:
        raise ValueError(
            f"num_speakers is {num_speakers}; this speech has speakers for 1 to {speech.num_speakers}"
        )
    return _Planner(speech, clips, config, rng, num_samples, num_speakers).plan()


class _Planner:
    """Draws one conversation; holds what the steps share."""

    def __init__(
        self,
        speech: Speech,
        clips: Speech | None,
        config: SimulatorConfig,
        rng: np.random.Generator,
        num_samples: int,
        num_speakers: int,
    ) -> None:
        self.speech, self.clips, self.config, self.rng = speech, clips, config, rng
        self.num_samples, self.num_speakers = num_samples, num_speakers
        self.pieces: list[tuple] = []
        self.runs: list[tuple[int, int, int]] = []
        self.last_end = [-(10**9)] * num_speakers
        self.queues: list[list[int]] = [[] for _ in range(num_speakers)]

    def plan(self) -> Plan:
        """All steps, in a fixed order of draws."""
        self.speaker = self._draw_speakers()
        self.factor = self._draw_factors()
        self.level_db = self._draw_levels()
        self._take_turns()
        segments = close_gaps(self.runs, self.num_samples, self.config.close_gap_s, self.config.pad_s)
        heard = np.unique(segments[:, 0])
        heard = heard[
            np.argsort([segments[segments[:, 0] == slot, 1].min() for slot in heard], kind="stable")
        ]
        slot_of = np.full(self.num_speakers, -1)
        slot_of[heard] = np.arange(len(heard))
        segments[:, 0] = slot_of[segments[:, 0]]
        speech_gain = self._speech_gain(segments, heard)
        noise_rows = self._add_noises(speech_gain)
        pieces = self._collect(slot_of, len(heard))
        speaker, factor = self.speaker[heard], self.factor[heard]
        return Plan(
            num_samples=self.num_samples,
            speaker=speaker,
            factor=factor,
            speaker_class=speaker * self.speech.num_factors + factor,
            segments=segments,
            pieces=pieces,
            rooms=self._draw_rooms(len(heard), noise_rows),
            channel=self._draw_channel(speech_gain),
            num_factors=self.speech.num_factors,
            names=tuple(self._name(s, f) for s, f in zip(speaker, factor, strict=True)),
        )

    def _name(self, speaker: int, factor: int) -> str:
        p, q = self.speech.speed_factors[factor]
        return self.speech.speakers[speaker] + ("" if p == q else f"_x{p / q:g}")

    # who

    def _draw_speakers(self) -> np.ndarray:
        speech, rng = self.speech, self.rng
        candidates = np.flatnonzero(np.diff(speech.speaker_piece) > 0)
        sizes = np.bincount(speech.speaker_source[candidates], minlength=len(speech.sources))
        able = np.flatnonzero(sizes >= self.num_speakers)
        if rng.random() < self.config.same_source_probability and len(able):
            source = rng.choice(able, p=sizes[able] / sizes[able].sum())
            candidates = candidates[speech.speaker_source[candidates] == source]
        if rng.random() < self.config.same_gender_probability:
            gender = ("F", "M")[int(rng.integers(2))]
            same = candidates[[speech.speaker_gender[i] == gender for i in candidates]]
            candidates = same if len(same) >= self.num_speakers else candidates
        if len(candidates) < self.num_speakers:
            raise ValueError(f"{self.num_speakers} speakers are needed, {len(candidates)} have speech")
        return rng.choice(candidates, self.num_speakers, replace=False)

    def _draw_factors(self) -> np.ndarray:
        natural = [i for i, (p, q) in enumerate(self.speech.speed_factors) if p == q]
        drawn = self.rng.integers(self.speech.num_factors, size=self.num_speakers)
        warped = self.rng.random(self.num_speakers) < self.config.speed_probability
        return np.where(warped, drawn, natural[0]) if natural else drawn

    def _draw_levels(self) -> np.ndarray:
        config, rng = self.config, self.rng
        wide = rng.random() < config.wide_level_probability
        limit = config.wide_level_limit_db if wide else config.speaker_level_limit_db
        scale = limit / config.speaker_level_limit_db
        return np.clip(rng.normal(0, config.speaker_level_sigma_db * scale, self.num_speakers), -limit, limit)

    # turn-taking

    def _take_turns(self) -> None:
        config, rng = self.config, self.rng
        self.transitions = rng.dirichlet(
            np.maximum(config.transitions, 1e-3) * np.float64(config.transition_concentration)
        )
        self.tempo = float(np.exp(rng.normal(0, config.tempo_log_sigma)))
        self.overlap_s = config.overlap_mean_s * float(
            rng.gamma(config.overlap_shape, 1 / config.overlap_shape)
        )
        dominance = self._draw_dominance()
        change = (
            self.num_samples * rng.random() if rng.random() < config.dominance_change_probability else np.inf
        )
        if rng.random() < config.mid_turn_probability:
            time = -int(rng.uniform(0, 8) * SAMPLE_RATE)
        else:
            time = int(rng.uniform(*config.initial_silence_s) * SAMPLE_RATE)
        current = int(rng.choice(self.num_speakers, p=dominance))
        start, end = self._speak(current, time, self._turn_samples())
        backchannels = 0
        while end < self.num_samples:
            if end > change:
                dominance, change = self._draw_dominance(), np.inf
            kind = int(rng.choice(4, p=self.transitions)) if self.num_speakers > 1 else 0
            if kind == 3 and backchannels < 2 and end - start > 1.5 * SAMPLE_RATE:
                self._backchannel(self._other(current, dominance), start, end)
                backchannels += 1
                continue
            backchannels = 0
            current, time = self._next_turn(kind, current, start, end, dominance)
            start, end = self._speak(current, time, self._turn_samples())

    def _draw_dominance(self) -> np.ndarray:
        drawn = self.rng.dirichlet([self.config.dominance_concentration] * self.num_speakers) + 0.02
        return drawn / drawn.sum()

    def _other(self, current: int, dominance: np.ndarray) -> int:
        weights = np.where(np.arange(self.num_speakers) == current, 0, dominance)
        return int(self.rng.choice(self.num_speakers, p=weights / weights.sum()))

    def _turn_samples(self) -> int:
        config = self.config
        drawn = config.turn_median_s * np.exp(self.rng.normal(0, config.turn_log_sigma))
        return int(min(drawn, config.max_turn_s) * SAMPLE_RATE)

    def _silence(self, mean_s: float) -> int:
        config, rng = self.config, self.rng
        if rng.random() < config.long_silence_share:
            return int(rng.uniform(*config.long_silence_s) * SAMPLE_RATE)
        return int(rng.exponential(mean_s * self.tempo) * SAMPLE_RATE)

    def _next_turn(
        self, kind: int, current: int, start: int, end: int, dominance: np.ndarray
    ) -> tuple[int, int]:
        """Who speaks next, and from when: after a pause (hold), a gap (switch), or before the end (interruption)."""
        if kind == 0:
            return current, end + self._silence(self.config.pause_mean_s)
        speaker = self._other(current, dominance)
        if kind == 2:
            overlap_s = min(self.rng.exponential(self.overlap_s), self.config.max_overlap_s)
            overlap = min(int(overlap_s * SAMPLE_RATE), int(0.7 * (end - start)))
            return speaker, end - overlap
        return speaker, end + self._silence(self.config.gap_mean_s)

    def _backchannel(self, speaker: int, start: int, end: int) -> None:
        length = int(self.rng.uniform(*self.config.backchannel_s) * SAMPLE_RATE)
        time = start + int(self.rng.uniform(0.15, 0.9) * (end - start - length))
        if time > self.last_end[speaker]:
            self._say(speaker, time, length, length)

    def _speak(self, speaker: int, time: int, target: int) -> tuple[int, int]:
        """Fill a turn with pieces of one speaker; returns where its speech starts and ends."""
        time = max(time, self.last_end[speaker] + int(0.1 * SAMPLE_RATE))
        start, end = time, self._say(speaker, time, target, None)
        while end - start < 0.8 * target and end < self.num_samples:
            gap = int(self.rng.uniform(0.02, 0.35) * SAMPLE_RATE)
            end = self._say(speaker, end + gap, target - (end - start), None)
        return start, end

    def _say(self, speaker: int, time: int, target: int, limit: int | None) -> int:
        """Place one piece, near `target` samples long and cut at `limit`; returns the end of its speech."""
        speech = self.speech
        factor = int(self.factor[speaker])
        p, q = speech.speed_factors[factor]
        piece = self._pick(speaker, target * p // q)
        first, last = (int(x) for x in speech.piece_hops[piece])
        runs = speech.run_hops[slice(*speech.piece_run[piece])]
        runs = np.clip(runs, first, last)[(runs[:, 1] > first) & (runs[:, 0] < last)]
        if limit is not None and (last - first) * HOP_SAMPLES * q // p > limit:
            last = self._cut(runs, first, limit * p // (q * HOP_SAMPLES))
            runs = np.minimum(runs[runs[:, 0] < last], last)
        at, stop = (hop * HOP_SAMPLES * q // p for hop in (first, last))
        lead = (int(runs[0, 0]) * HOP_SAMPLES * q // p) - at if len(runs) else 0
        begin = time - lead
        utterance = int(speech.piece_utterance[piece])
        length = min(stop - at, int(speech.length[factor, utterance]) - at)
        gain_db = self.level_db[speaker] + self.rng.normal(0, self.config.turn_level_sigma_db)
        gain = 10 ** (gain_db / 20) / max(float(speech.level[utterance]), 1e-4)
        offset = int(speech.offset[factor, utterance]) + at
        self.pieces.append((speaker, SPEECH, begin, offset, length, 80, 240, utterance, gain))
        placed = begin + runs * HOP_SAMPLES * q // p - at
        self.runs.extend((speaker, int(a), int(b)) for a, b in placed)
        end = int(placed[-1, 1]) if len(placed) else begin + length
        self.last_end[speaker] = max(self.last_end[speaker], begin + length)
        return end

    def _cut(self, runs: np.ndarray, first: int, hops: int) -> int:
        """Where a piece that starts at `first` ends within `hops`: at a pause where there is one."""
        ends = runs[(runs[:, 1] <= first + hops) & (runs[:, 1] >= first + hops // 3), 1]
        return int(ends[-1]) if len(ends) else first + hops

    def _pick(self, speaker: int, target: int) -> int:
        """The best fitting of the next four pieces in a shuffled queue of the speaker's pieces."""
        queue = self.queues[speaker]
        if not queue:
            low, high = self.speech.speaker_piece[self.speaker[speaker] :][:2]
            queue.extend(int(i) for i in low + self.rng.permutation(high - low))
        hops = [
            abs(int(self.speech.piece_hops[i, 1] - self.speech.piece_hops[i, 0]) * HOP_SAMPLES - target)
            for i in queue[:4]
        ]
        return queue.pop(int(np.argmin(hops)))

    # noise: tracks beyond the speakers' own

    def _speech_gain(self, segments: np.ndarray, heard: np.ndarray) -> float:
        """RMS of the speech where there is any."""
        if not len(segments):
            return 1.0
        weights = np.bincount(segments[:, 0], weights=segments[:, 2] - segments[:, 1])
        return float(np.sqrt(np.average(10 ** (self.level_db[heard] / 10), weights=weights)))

    def _add_noises(self, speech_gain: float) -> list[np.ndarray]:
        """Adds noise pieces on rows from `num_speakers` on; returns the gain curve of each such row."""
        config, rng = self.config, self.rng
        draws = rng.random(5)
        rows: list[np.ndarray] = []
        if draws[0] < config.quiet_probability:
            return rows
        if draws[1] < config.coloured_probability:
            self._add_steady(len(rows), speech_gain * _ratio(-rng.uniform(*config.snr_db)))
            rows.append(self._tilt())
        if draws[2] < config.clip_probability and self.clips is not None:
            self._add_clips(self.clips, len(rows), speech_gain * _ratio(-rng.uniform(*config.snr_db)))
            rows.append(np.zeros(NUM_KNOTS))
        if draws[3] < config.babble_probability:
            self._add_babble(len(rows), speech_gain * _ratio(-rng.uniform(*config.babble_snr_db)))
            rows.append(np.zeros(NUM_KNOTS))
        if draws[4] < config.burst_probability:
            self._add_bursts(len(rows), speech_gain)
            rows.append(self._tilt())
        return rows

    def _tilt(self) -> np.ndarray:
        """A gain curve of coloured noise: a slope over octaves with some roughness."""
        octaves = np.log2(np.maximum(knot_frequencies_hz(), 100.0) / 1000.0)
        return self.rng.uniform(*self.config.tilt_db_per_octave) * octaves + self.rng.normal(0, 2, NUM_KNOTS)

    def _noise_piece(
        self, row: int, bank: int, start: int, offset: int, length: int, fades: tuple, gain: float
    ) -> None:
        self.pieces.append((self.num_speakers + row, bank, start, offset, length, *fades, -1, gain))

    def _add_steady(self, row: int, gain: float) -> None:
        for start in range(0, self.num_samples, WHITE_SAMPLES // 4):
            length = min(WHITE_SAMPLES // 4, self.num_samples - start)
            offset = int(self.rng.integers(WHITE_SAMPLES - length))
            self._noise_piece(row, WHITE, start, offset, length, (0, 0), gain)

    def _add_clips(self, clips: Speech, row: int, gain: float) -> None:
        """Clips one after another: without a break (a steady scene), or with silences between (events)."""
        rng = self.rng
        steady = rng.random() < 0.5
        chosen = int(rng.integers(clips.num_utterances))
        time = -int(rng.uniform(0, 3) * SAMPLE_RATE)
        while time < self.num_samples:
            chosen = chosen if steady else int(rng.integers(clips.num_utterances))
            length = int(clips.length[0, chosen])
            level = max(float(clips.level[chosen]), 1e-4)
            self._noise_piece(row, CLIP, time, int(clips.offset[0, chosen]), length, (800, 800), gain / level)
            time += max(length, 1600) - 800 if steady else length + int(rng.exponential(5.0) * SAMPLE_RATE)

    def _add_babble(self, row: int, gain: float) -> None:
        """Three to six voices that go on without pauses."""
        speech, rng = self.speech, self.rng
        num_voices = int(rng.integers(3, 7))
        for _ in range(num_voices):
            factor = int(rng.integers(speech.num_factors))
            time = -int(rng.uniform(0, 3) * SAMPLE_RATE)
            while time < self.num_samples:
                chosen = int(rng.integers(speech.num_utterances))
                length = int(speech.length[factor, chosen])
                level = max(float(speech.level[chosen]), 1e-4) * num_voices**0.5
                offset = int(speech.offset[factor, chosen])
                self._noise_piece(row, SPEECH, time, offset, length, (800, 800), gain / level)
                time += max(length - 800, 1600)

    def _add_bursts(self, row: int, speech_gain: float) -> None:
        """Clicks, knocks and rustle: short decaying noises."""
        rng = self.rng
        num_bursts = 1 + int(rng.poisson(self.num_samples / SAMPLE_RATE / 4))
        for _ in range(num_bursts):
            length = int(SAMPLE_RATE * 10 ** rng.uniform(-2.3, -0.5))
            start = int(rng.integers(self.num_samples))
            offset = int(rng.integers(WHITE_SAMPLES - length))
            gain = speech_gain * _ratio(-rng.uniform(*self.config.burst_snr_db))
            self._noise_piece(row, WHITE, start, offset, length, (16, length - 16), gain)

    def _collect(self, slot_of: np.ndarray, num_heard: int) -> Pieces:
        """Pieces as arrays: rows renumbered, cut to the conversation, silent speakers dropped."""
        columns = list(zip(*self.pieces, strict=True))
        row, bank, start, offset, length, fade_in, fade_out, utterance = (
            np.array(column, dtype=np.int64) for column in columns[:8]
        )
        shift = num_heard - self.num_speakers
        row = np.where(row < self.num_speakers, slot_of[np.minimum(row, self.num_speakers - 1)], row + shift)
        before = np.maximum(-start, 0)
        after = np.maximum(start + length - self.num_samples, 0)
        start, offset, length = start + before, offset + before, length - before - after
        fade_in, fade_out = np.where(before > 0, 0, fade_in), np.where(after > 0, 0, fade_out)
        short = fade_in + fade_out > length
        fade_in, fade_out = (
            np.where(short, 0, fade_in),
            np.where(short, np.minimum(length, fade_out), fade_out),
        )
        gain = np.array(columns[8], dtype=np.float32)
        keep = (length > 0) & (row >= 0)
        arrays = (row, bank, start, offset, length, fade_in, fade_out, utterance, gain)
        return Pieces(*(array[keep] for array in arrays))

    # rooms and channel

    def _draw_rooms(self, num_heard: int, noise_rows: list[np.ndarray]) -> Rooms:
        config, rng = self.config, self.rng
        rows = num_heard + len(noise_rows)
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
        direct = np.sqrt(1 / (1 + 1 / ratio))
        eq_db = self._curve(config.speaker_eq_db, rows)
        eq_db *= rng.random() < config.speaker_eq_probability
        eq_db[num_heard:] = np.array(noise_rows).reshape(-1, NUM_KNOTS)
        single = (rt60_s, direct, np.sqrt(1 - direct**2))
        return Rooms(
            *(np.asarray(array, dtype=np.float32) for array in single),
            tail_offset=tail_offset,
            tap_samples=tap_samples,
            tap_gain=tap_gain.astype(np.float32),
            eq_db=eq_db.astype(np.float32),
        )

    def _curve(self, limit_db: float, rows: int) -> np.ndarray:
        """Smooth random gain curves within +-`limit_db`."""
        rough = self.rng.normal(0, limit_db, (rows, NUM_KNOTS + 2))
        return np.clip((rough[:, :-2] + rough[:, 1:-1] + rough[:, 2:]) / 3, -limit_db, limit_db)

    def _draw_channel(self, speech_gain: float) -> Channel:
        config, rng = self.config, self.rng
        draws = rng.random(6)
        band = np.array([0.0, SAMPLE_RATE / 2])
        limits = 300.0, rng.uniform(*config.band_limit_hz)
        if draws[0] < config.band_limit_probability:
            band[1] = limits[1]
            band[0] = limits[0] if draws[1] < config.high_pass_probability else 0.0
        hum_gain = rng.random(5) * 0.6 ** np.arange(5)
        hum_gain *= speech_gain * _ratio(-rng.uniform(*config.hum_snr_db)) / np.sqrt(np.sum(hum_gain**2) / 2)
        hum_hz = (50, 60)[int(rng.integers(2))]
        dc = 10 ** rng.uniform(*config.dc_log10) * (1 if rng.random() < 0.5 else -1)
        clip_db = rng.uniform(*config.clipping_above_rms_db)
        times, swings = self._draw_swings()
        return Channel(
            eq_db=self._curve(config.eq_db, 1)[0].astype(np.float32),
            band_hz=band.astype(np.float32),
            hum_hz=np.array(hum_hz),
            hum_gain=(hum_gain * (draws[2] < config.hum_probability)).astype(np.float32),
            level_db=np.array(rng.uniform(*config.level_db), dtype=np.float32),
            swing_samples=times,
            swing_db=swings,
            dc=np.array(dc if draws[3] < config.dc_probability else 0.0, dtype=np.float32),
            clip_above_rms_db=np.array(
                clip_db if draws[4] < config.clipping_probability else np.inf, dtype=np.float32
            ),
            mu_law=np.array(int(draws[5] < config.mu_law_probability)),
        )

    def _draw_swings(self) -> tuple[np.ndarray, np.ndarray]:
        """Times at which the gain jumps, and the gain from then on, around 0 dB."""
        config, rng = self.config, self.rng
        times: list[int] = []
        if rng.random() < config.swing_probability:
            interval_s = rng.uniform(*config.swing_interval_s)
            time = rng.exponential(interval_s)
            while time < self.num_samples / SAMPLE_RATE:
                times.append(int(time * SAMPLE_RATE))
                time += rng.exponential(interval_s) + 0.1
        signs = np.where(np.arange(len(times)) % 2 == int(rng.integers(2)), 0.5, -0.5)
        depth_db = rng.uniform(*config.swing_db, len(times))
        return np.array(times, dtype=np.int64), (signs * depth_db).astype(np.float32)


def _ratio(db: float) -> float:
    return 10 ** (db / 20)


def knot_frequencies_hz() -> np.ndarray:
    """Frequencies at which gain curves are given."""
    top = 1127 * np.log(1 + SAMPLE_RATE / 2 / 700)
    return 700 * (np.exp(np.linspace(0, top, NUM_KNOTS) / 1127) - 1)


def close_gaps(
    runs: Sequence[tuple[int, int, int]], num_samples: int, close_gap_s: float, pad_s: float
) -> Int64[np.ndarray, "segments 3"]:
    """Reference segments from runs of speech (slot, start, end in samples).

    Each run grows by `pad_s` on both sides; gaps of one slot shorter than `close_gap_s` are closed; all is cut to
    `[0, num_samples)` and sorted by start.
    """
    pad, gap = round(pad_s * SAMPLE_RATE), round(close_gap_s * SAMPLE_RATE)
    all_runs = np.array(runs, dtype=np.int64).reshape(-1, 3)
    out = []
    for slot in np.unique(all_runs[:, 0]):
        own = all_runs[all_runs[:, 0] == slot, 1:] + np.array([-pad, pad])
        own = own[np.argsort(own[:, 0], kind="stable")]
        reach = np.maximum.accumulate(own[:, 1])
        new = np.concatenate([[True], own[1:, 0] - reach[:-1] >= max(gap, 1)])
        first = np.flatnonzero(new)
        ends = reach[np.concatenate([first[1:], [len(own)]]) - 1]
        out.append(np.stack([np.full(len(first), slot), own[first, 0], ends], axis=1))
    segments = np.concatenate(out) if out else np.zeros((0, 3), dtype=np.int64)
    segments[:, 1:] = np.clip(segments[:, 1:], 0, num_samples)
    segments = segments[segments[:, 2] > segments[:, 1]]
    return segments[np.lexsort((segments[:, 0], segments[:, 1]))]
