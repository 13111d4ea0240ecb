"""Who speaks when: the turn-taking of a simulated conversation.

After each turn one of four things happens: the same speaker goes on after a pause (hold), another begins
after a gap (switch) or before the end (interruption), or another says something short meanwhile
(backchannel). Pauses and gaps are exponential with a tail of long silences; how lively, how overlapping and
how one-sided a conversation is, is drawn once for each. Turns are filled with pieces of the speaker's
utterances.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from diarnorm.checks import check_shares
from diarnorm.simulation.conversation import SPEECH, Piece, db_to_ratio
from diarnorm.simulation.limits import KEY, check_numbers
from diarnorm.simulation.speech import Speech
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE, seconds_to_samples

HOLD, SWITCH, INTERRUPTION, BACKCHANNEL = range(4)
POSITIVE = ("transition_concentration", "dominance_concentration", "turn_median_s", "max_turn_s", "overlap_shape")
"""What may not be 0."""


@dataclass(frozen=True)
class Silence:
    """A stretch of a conversation in which nobody speaks.

    Raises:
        ValueError: a time that is negative or no number.
    """

    start_s: float = 0.0
    length_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("start_s", "length_s"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"a silence has {name}={value}; give seconds, 0 or more")


@dataclass(frozen=True)
class TurnTakingConfig:
    """Rates and lengths. Ranges are uniform; `.._probability` is per conversation, `.._share` per event.

    `transitions` are the mean shares of hold, switch, interruption and backchannel; a conversation draws
    its own from a Dirichlet distribution around them. Turns are log-normal, overlaps and silences
    exponential, their means drawn per conversation: a gamma distribution of shape `overlap_shape`, a
    log-normal one of `tempo_log_sigma`; the share of silences that are long is exponential with mean
    `long_silence_share`. In `silences` nobody speaks; turns that would reach into one come after it.

    Raises:
        ValueError: a value out of range, by its key.
    """

    transitions: tuple[float, float, float, float] = (0.15, 0.21, 0.44, 0.20)
    transition_concentration: float = 12.0
    dominance_concentration: float = 1.5
    dominance_change_probability: float = 0.3
    turn_median_s: float = 2.2
    turn_log_sigma: float = 0.75
    max_turn_s: float = 15.0
    inner_pause_s: tuple[float, float] = (0.02, 0.35)
    pause_mean_s: float = 0.6
    gap_mean_s: float = 0.6
    tempo_log_sigma: float = 0.7
    long_silence_share: float = 0.12
    max_long_silence_share: float = 0.7
    long_silence_s: tuple[float, float] = (2.0, 6.0)
    overlap_mean_s: float = 0.65
    overlap_shape: float = 1.3
    max_overlap_s: float = 3.0
    max_overlap_share: float = 0.7
    backchannel_s: tuple[float, float] = (0.25, 1.0)
    mid_turn_probability: float = 0.5
    mid_turn_s: tuple[float, float] = (0.0, 8.0)
    initial_silence_s: tuple[float, float] = (0.0, 3.0)
    turn_level_sigma_db: float = 1.5
    silences: tuple[Silence, ...] = ()

    def __post_init__(self) -> None:
        if len(self.transitions) != 4:
            given = f"{KEY}.turns.transitions={list(self.transitions)}"
            raise ValueError(f"{given}: give four shares, of hold, switch, interruption and backchannel")
        check_shares(f"{KEY}.turns.transitions", self.transitions)
        check_numbers("turns", self, positive=POSITIVE)


class TurnTaking:
    """Draws the turns of one conversation; `pieces` and `runs` (slot, start, end in samples) are the outcome.

    Args:
        speech: where pieces come from.
        speaker: speaker of each slot.
        factor: speed factor of each slot.
        level_db: level of each slot's speech, relative.
    """

    def __init__(
        self,
        speech: Speech,
        config: TurnTakingConfig,
        rng: np.random.Generator,
        num_samples: int,
        *,
        speaker: Int64[np.ndarray, " speakers"],
        factor: Int64[np.ndarray, " speakers"],
        level_db: Float64[np.ndarray, " speakers"],
    ) -> None:
        self.speech, self.config, self.rng, self.num_samples = speech, config, rng, num_samples
        self.speaker, self.factor, self.level_db = speaker, factor, level_db
        self.num_speakers = len(speaker)
        self.pieces: list[Piece] = []
        self.runs: list[tuple[int, int, int]] = []
        self.last_end = [-num_samples] * self.num_speakers
        self.queues: list[list[int]] = [[] for _ in range(self.num_speakers)]
        spans = [(silence.start_s, silence.start_s + silence.length_s) for silence in config.silences]
        self.silences = sorted((seconds_to_samples(start), seconds_to_samples(end)) for start, end in spans)
        concentration = np.array(config.transitions) * config.transition_concentration
        self.transitions = rng.dirichlet(np.maximum(concentration, 1e-3))
        self.long_silence_share = min(rng.exponential(config.long_silence_share), config.max_long_silence_share)
        self.tempo = float(np.exp(rng.normal(0, config.tempo_log_sigma)))
        self.overlap_s = config.overlap_mean_s * float(rng.gamma(config.overlap_shape) / config.overlap_shape)

    def take_turns(self) -> None:
        """Fill the conversation from start to end."""
        config, rng = self.config, self.rng
        dominance = self._draw_dominance()
        changes = rng.random() < config.dominance_change_probability
        change = self.num_samples * rng.random() if changes else np.inf
        current = int(rng.choice(self.num_speakers, p=dominance))
        start, end = self._speak(current, self._first_sample(), self._turn_samples())
        backchannels = 0
        while end < self.num_samples:
            if end > change:
                dominance, change = self._draw_dominance(), np.inf
            kind = int(rng.choice(4, p=self.transitions)) if self.num_speakers > 1 else HOLD
            if kind == BACKCHANNEL and backchannels < 2 and end - start > 1.5 * SAMPLE_RATE:
                self._backchannel(self._other(current, dominance), start, end)
                backchannels += 1
                continue
            backchannels = 0
            current, time = self._next_turn(kind, current, start, end, dominance)
            start, end = self._speak(current, time, self._turn_samples())

    def _first_sample(self) -> int:
        """Start of the first turn: before the beginning (heard from its middle on), or after a silence."""
        if self.rng.random() < self.config.mid_turn_probability:
            return -seconds_to_samples(self.rng.uniform(*self.config.mid_turn_s))
        return seconds_to_samples(self.rng.uniform(*self.config.initial_silence_s))

    def _draw_dominance(self) -> Float64[np.ndarray, " speakers"]:
        drawn = self.rng.dirichlet([self.config.dominance_concentration] * self.num_speakers) + 0.02
        return drawn / drawn.sum()

    def _other(self, current: int, dominance: np.ndarray) -> int:
        weights = np.where(np.arange(self.num_speakers) == current, 0, dominance)
        return int(self.rng.choice(self.num_speakers, p=weights / weights.sum()))

    def _turn_samples(self) -> int:
        drawn_s = self.config.turn_median_s * np.exp(self.rng.normal(0, self.config.turn_log_sigma))
        return seconds_to_samples(min(drawn_s, self.config.max_turn_s))

    def _silence(self, mean_s: float) -> int:
        if self.rng.random() < self.long_silence_share:
            return seconds_to_samples(self.rng.uniform(*self.config.long_silence_s))
        return seconds_to_samples(self.rng.exponential(mean_s * self.tempo))

    def _next_turn(self, kind: int, current: int, start: int, end: int, dominance: np.ndarray) -> tuple[int, int]:
        """Who speaks next, and from when; `start` and `end` are the last turn's."""
        if kind == HOLD:
            return current, end + self._silence(self.config.pause_mean_s)
        speaker = self._other(current, dominance)
        if kind == INTERRUPTION:
            overlap_s = min(self.rng.exponential(self.overlap_s), self.config.max_overlap_s)
            return speaker, end - min(seconds_to_samples(overlap_s), int(self.config.max_overlap_share * (end - start)))
        return speaker, end + self._silence(self.config.gap_mean_s)

    def _backchannel(self, speaker: int, start: int, end: int) -> None:
        length = seconds_to_samples(self.rng.uniform(*self.config.backchannel_s))
        time = start + int(self.rng.uniform(0.15, 0.9) * (end - start - length))
        if time > self.last_end[speaker]:
            self._say(speaker, time, length, limit=length)

    def _speak(self, speaker: int, time: int, target: int) -> tuple[int, int]:
        """Fill a turn of about `target` samples with pieces; returns where its speech starts and ends."""
        start = self._after_silence(max(time, self.last_end[speaker] + SAMPLE_RATE // 10), target)
        end = self._say(speaker, start, target)
        while end - start < 0.8 * target and end < self.num_samples:
            gap = seconds_to_samples(self.rng.uniform(*self.config.inner_pause_s))
            end = self._say(speaker, end + gap, target - (end - start))
        return start, end

    def _after_silence(self, time: int, target: int) -> int:
        """`time`, or the end of a silence that a turn of `target` samples would reach into."""
        for start, end in self.silences:
            if time < end and time + target > start:
                time = end
        return time

    def _heard(self, time: int, begin: int, end: int) -> tuple[int, int]:
        """What silences leave of a piece whose speech starts at `time`; nothing where that is within one."""
        for start, stop in self.silences:
            if begin < stop and end > start:
                begin, end = (begin, start) if time < start else (max(begin, stop), end) if time >= stop else (end, end)
        return begin, end

    def _say(self, speaker: int, time: int, target: int, limit: int | None = None) -> int:
        """Place one piece whose speech starts at `time`, about `target` and at most `limit` samples long.

        Returns the end of its speech.
        """
        speech, factor = self.speech, int(self.factor[speaker])
        p, q = speech.tempo(factor)
        piece = self._pick(speaker, target * p // q)
        utterance = int(speech.piece_utterance[piece])
        first, last = (int(hop) for hop in speech.piece_hops[piece])
        runs = speech.run_hops[slice(*speech.piece_run[piece])]
        runs = np.clip(runs, first, last)[(runs[:, 1] > first) & (runs[:, 0] < last)]
        if limit is not None and (last - first) * HOP_SAMPLES * q // p > limit:
            last = _cut(runs, first, max(1, limit * p // (q * HOP_SAMPLES)))
            runs = np.minimum(runs[runs[:, 0] < last], last)
        runs = runs * HOP_SAMPLES * q // p
        at, stop = first * HOP_SAMPLES * q // p, last * HOP_SAMPLES * q // p
        stop = min(stop, int(speech.length[factor, utterance]))
        begin = time - (int(runs[0, 0]) - at if len(runs) else 0)
        gain_db = self.level_db[speaker] + self.rng.normal(0, self.config.turn_level_sigma_db)
        gain = db_to_ratio(gain_db) / float(speech.level[utterance])
        offset = int(speech.offset[factor, utterance]) + at
        placed = runs + (begin - at)
        low, high = self._heard(time, begin, begin + stop - at)
        if high > low:
            self.pieces.append(Piece(speaker, SPEECH, low, offset + low - begin, high - low, 80, 240, utterance, gain))
            heard = placed if high - low == stop - at else np.clip(placed, low, high)
            self.runs.extend((speaker, int(a), int(b)) for a, b in heard if b > a)
        self.last_end[speaker] = max(self.last_end[speaker], begin + stop - at)
        return int(placed[-1, 1]) if len(placed) else begin + stop - at

    def _pick(self, speaker: int, target: int) -> int:
        """The best fitting of the next four pieces in a shuffled queue of the speaker's pieces."""
        queue = self.queues[speaker]
        if not queue:
            low, high = self.speech.speaker_piece[self.speaker[speaker] :][:2]
            queue.extend(int(i) for i in low + self.rng.permutation(high - low))
        lengths = [int(self.speech.piece_hops[i, 1] - self.speech.piece_hops[i, 0]) for i in queue[:4]]
        misfits = [abs(hops * HOP_SAMPLES - target) for hops in lengths]
        return queue.pop(misfits.index(min(misfits)))


def _cut(runs: np.ndarray, first: int, hops: int) -> int:
    """Where a piece that starts at `first` ends within `hops`: at a pause where there is one."""
    ends = runs[(runs[:, 1] <= first + hops) & (runs[:, 1] >= first + hops // 3), 1]
    return int(ends[-1]) if len(ends) else first + hops
