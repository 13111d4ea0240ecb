"""Plans of simulated conversations, drawn with numpy's PCG64 from one seed.

A plan is the same on any machine and for any model under study, so that comparisons change one thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from diarnorm.acoustics import ChannelConfig, NoiseConfig, RoomConfig, draw_channel, draw_noises, draw_rooms
from diarnorm.conversation import Plan, close_gaps, collect_pieces
from diarnorm.speech import Speech
from diarnorm.timebase import frames_to_samples, samples_to_frames, samples_to_seconds, seconds_to_samples
from diarnorm.turntaking import TurnTaking, TurnTakingConfig


@dataclass(frozen=True)
class SimulatorConfig:
    """Who takes part, how the reference is written, and the parts that have modules of their own.

    `speaker_probabilities[i]` is the probability of `i + 1` speakers. Reference: `pad_s` is added on both
    sides of speech, then gaps shorter than `close_gap_s` are closed. Levels of speakers are normal within a
    limit; the wide limit, with a spread to match, holds in some conversations.
    """

    speaker_probabilities: tuple[float, ...] = (0.1, 0.3, 0.3, 0.3)
    same_source_probability: float = 0.6
    same_gender_probability: float = 0.25
    speed_probability: float = 0.6
    level_sigma_db: float = 4.0
    level_limit_db: float = 6.0
    wide_level_probability: float = 0.15
    wide_level_limit_db: float = 12.0
    close_gap_s: float = 0.3
    pad_s: float = 0.0
    turns: TurnTakingConfig = field(default_factory=TurnTakingConfig)
    rooms: RoomConfig = field(default_factory=RoomConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    channel: ChannelConfig = field(default_factory=ChannelConfig)


def plan_conversation(
    speech: Speech,
    config: SimulatorConfig | None = None,
    seed: int | Sequence[int] | np.random.Generator = 0,
    *,
    duration_s: float = 30.0,
    num_speakers: int | None = None,
    clips: Speech | None = None,
) -> Plan:
    """Draw one conversation.

    Args:
        speech: the speakers to draw from; at least as many as asked for. config: what conversations are
            like; the defaults when None. seed: whatever seeds PCG64, or a generator that already exists.
            duration_s: length; rounded down to whole frames of 80 ms. num_speakers: how many; drawn from
            `config.speaker_probabilities` when None. Some may stay silent, and are then not part of the
            plan.
        clips: noise clips, for conversations that draw them.

    Raises:
        ValueError: more speakers than there are, or a duration below one frame.
    """
    config = SimulatorConfig() if config is None else config
    rng = seed if isinstance(seed, np.random.Generator) else np.random.Generator(np.random.PCG64(seed))
    num_samples = frames_to_samples(samples_to_frames(seconds_to_samples(duration_s)))
    if num_samples <= 0:
        raise ValueError(f"duration_s is {duration_s}; a conversation needs at least one frame of 0.08 s")
    if num_speakers is None:
        probabilities = np.array(config.speaker_probabilities)
        num_speakers = 1 + int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))
    speaker = _draw_speakers(speech, config, rng, num_speakers)
    factor = _draw_factors(speech, config, rng, num_speakers)
    level_db = _draw_levels(config, rng, num_speakers)
    turns = TurnTaking(speech, config.turns, rng, num_samples, speaker=speaker, factor=factor, level_db=level_db)
    turns.take_turns()
    segments = close_gaps(turns.runs, num_samples, config.close_gap_s, config.pad_s)
    heard = _by_first_activity(segments)
    slots = np.full(num_speakers, -1)
    slots[heard] = np.arange(len(heard))
    segments[:, 0] = slots[segments[:, 0]]
    speech_gain = _speech_gain(segments, level_db[heard])
    spoken = [piece._replace(row=int(slots[piece.row])) for piece in turns.pieces if slots[piece.row] >= 0]
    noises = draw_noises(
        config.noise,
        rng,
        num_samples,
        speech=speech,
        clips=clips,
        speech_gain=speech_gain,
        first_row=len(heard),
    )
    return Plan(
        num_samples=num_samples,
        speaker=speaker[heard],
        factor=factor[heard],
        speaker_class=speaker[heard] * speech.num_factors + factor[heard],
        segments=segments,
        pieces=collect_pieces([*spoken, *(piece for noise in noises for piece in noise.pieces)], num_samples),
        rooms=draw_rooms(config.rooms, rng, len(heard), [noise.eq_db for noise in noises]),
        channel=draw_channel(config.channel, rng, num_samples, speech_gain=speech_gain),
        num_factors=speech.num_factors,
        names=tuple(speech.voice_name(s, f) for s, f in zip(speaker[heard], factor[heard], strict=True)),
    )


def _draw_speakers(
    speech: Speech, config: SimulatorConfig, rng: np.random.Generator, num_speakers: int
) -> Int64[np.ndarray, " speakers"]:
    """Different speakers; of one source or one gender in some conversations, where it has enough of them."""
    candidates = np.flatnonzero(np.diff(speech.speaker_piece) > 0)
    if not 1 <= num_speakers <= len(candidates):
        raise ValueError(f"num_speakers is {num_speakers}; the speech allows 1 to {len(candidates)}")
    sizes = np.bincount(speech.speaker_source[candidates], minlength=len(speech.sources))
    able = np.flatnonzero(sizes >= num_speakers)
    if rng.random() < config.same_source_probability and len(able):
        source = rng.choice(able, p=sizes[able] / sizes[able].sum())
        candidates = candidates[speech.speaker_source[candidates] == source]
    if rng.random() < config.same_gender_probability:
        gender = ("F", "M")[int(rng.integers(2))]
        same = candidates[[speech.speaker_gender[i] == gender for i in candidates]]
        candidates = same if len(same) >= num_speakers else candidates
    return rng.choice(candidates, num_speakers, replace=False)


def _draw_factors(
    speech: Speech, config: SimulatorConfig, rng: np.random.Generator, num_speakers: int
) -> Int64[np.ndarray, " speakers"]:
    natural = [i for i, (p, q) in enumerate(speech.speed_factors) if p == q]
    drawn = rng.integers(speech.num_factors, size=num_speakers)
    warped = rng.random(num_speakers) < config.speed_probability
    return np.where(warped, drawn, natural[0]) if natural else drawn


def _draw_levels(
    config: SimulatorConfig, rng: np.random.Generator, num_speakers: int
) -> Float64[np.ndarray, " speakers"]:
    wide = rng.random() < config.wide_level_probability
    limit_db = config.wide_level_limit_db if wide else config.level_limit_db
    sigma_db = config.level_sigma_db * limit_db / config.level_limit_db
    return np.clip(rng.normal(0, sigma_db, num_speakers), -limit_db, limit_db)


def _by_first_activity(segments: np.ndarray) -> Int64[np.ndarray, " heard"]:
    """Slots that are heard, in order of their first segment (segments are sorted by start)."""
    slots, first = np.unique(segments[:, 0], return_index=True)
    return slots[np.argsort(first)]


def _speech_gain(segments: np.ndarray, level_db: np.ndarray) -> float:
    """RMS of active speech, from the levels of the speakers and how long each speaks; 1 where nobody does."""
    if not len(segments):
        return 1.0
    weights = np.bincount(segments[:, 0], weights=segments[:, 2] - segments[:, 1])
    return float(np.sqrt(np.average(10 ** (level_db / 10), weights=weights)))


class PlanStatistics(NamedTuple):
    """What some conversations are like; quantiles are at 5, 25, 50, 75 and 95 %."""

    speech_share: float
    """Share of time in which anybody speaks."""
    overlap_share: float
    """Share of speech time in which several speak."""
    speech_quantiles: list[float]
    """Speech share over conversations."""
    overlap_quantiles: list[float]
    """Overlap share over conversations of several speakers."""
    turn_quantiles_s: list[float]
    """Lengths of reference segments."""
    pause_quantiles_s: list[float]
    """Lengths of silences between any speech."""
    level_quantiles_db: list[float]
    """Active levels asked for, dBFS."""
    num_speakers: list[int]
    """Conversations with 0, 1, 2, ... speakers heard."""


def plan_statistics(plans: Sequence[Plan]) -> PlanStatistics:
    """Shares, lengths and levels of plans, from their references."""
    counts = [(plan.activity() > 0.5).sum(1) for plan in plans]
    speech = np.array([(count > 0).sum() for count in counts])
    several = np.array([(count > 1).sum() for count in counts])
    frames = np.array([len(count) for count in counts])
    many = np.array([plan.num_speakers > 1 for plan in plans])
    lengths = np.concatenate([plan.segments[:, 2] - plan.segments[:, 1] for plan in plans])
    pauses = np.concatenate([_pauses(plan) for plan in plans])
    return PlanStatistics(
        speech_share=float(speech.sum() / frames.sum()),
        overlap_share=float(several.sum() / max(1, speech.sum())),
        speech_quantiles=_quantiles(speech / frames),
        overlap_quantiles=_quantiles((several / np.maximum(speech, 1))[many]),
        turn_quantiles_s=_quantiles(samples_to_seconds(1) * lengths),
        pause_quantiles_s=_quantiles(samples_to_seconds(1) * pauses),
        level_quantiles_db=_quantiles(np.array([float(plan.channel.level_db) for plan in plans])),
        num_speakers=np.bincount([plan.num_speakers for plan in plans]).tolist(),
    )


def _quantiles(values: np.ndarray) -> list[float]:
    return [round(float(x), 3) for x in np.percentile(values, (5, 25, 50, 75, 95))] if len(values) else []


def _pauses(plan: Plan) -> np.ndarray:
    """Silences between speech of anybody in samples, without those at the edges."""
    starts, reach = plan.segments[1:, 1], np.maximum.accumulate(plan.segments[:, 2])[:-1]
    return (starts - reach)[starts > reach]
