"""Plans of simulated conversations, drawn with numpy's PCG64 from one seed.

A plan is the same on any machine and for any model under study, so that comparisons change one thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from diarnorm.checks import check_shares
from diarnorm.simulation.acoustics import ChannelConfig, RoomConfig, draw_channel, draw_rooms
from diarnorm.simulation.conversation import Piece, Plan, aside, close_gaps, collect_pieces
from diarnorm.simulation.limits import KEY, check_numbers
from diarnorm.simulation.noises import NoiseConfig, NoiseTrack, draw_noises
from diarnorm.simulation.speech import Speech
from diarnorm.simulation.turntaking import TurnTaking, TurnTakingConfig
from diarnorm.timebase import frames_to_samples, samples_to_frames, seconds_to_samples

REDRAW = 6
"""Which generator has a redraw of speakers; see `conversation.aside`."""


@dataclass(frozen=True)
class SimulatorConfig:
    """Who takes part, how the reference is written, and the parts that have modules of their own.

    `speaker_probabilities[i]` is the probability of `i + 1` speakers. Reference: `pad_s` is added on both
    sides of speech, then gaps shorter than `close_gap_s` are closed. Levels of speakers are normal within a
    limit; the wide limit, with a spread to match, holds in some conversations. Speakers of a pair `anna/bert` in
    `same_person`, or in the manifest, may be one person and never meet; names of speakers of other splits do no harm.
    With `speed_probability` a speaker has any of the voices that are kept of them, their own being one: those at other
    speeds and, where there are any, warps.

    Raises:
        ValueError: a value out of range, by its key, or a pair that is none.
    """

    speaker_probabilities: tuple[float, ...] = (0.1, 0.3, 0.3, 0.3)
    same_source_probability: float = 0.6
    same_gender_probability: float = 0.25
    speed_probability: float = 0.6
    same_person: tuple[str, ...] = ()
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

    def __post_init__(self) -> None:
        check_shares(f"{KEY}.speaker_probabilities", self.speaker_probabilities)
        check_numbers("", self, positive=("level_limit_db",))
        for pair in self.same_person:
            if pair.count("/") != 1 or not all(pair.split("/")):
                raise ValueError(f"same_person has {pair!r}; give two speakers' names with a / between them: anna/bert")


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
        speech: the speakers to draw from; at least as many as asked for.
        config: what conversations are like; the defaults when None.
        seed: whatever seeds PCG64, or a generator that already exists.
        duration_s: length; rounded down to whole frames of 80 ms.
        num_speakers: how many; drawn from `config.speaker_probabilities` when None. Some may stay silent, and are then
            not part of the plan.
        clips: noise clips, for conversations that draw them.

    Raises:
        ValueError: more speakers than there are, or a duration below one frame.
    """
    config = SimulatorConfig() if config is None else config
    rng = seed if isinstance(seed, np.random.Generator) else np.random.Generator(np.random.PCG64(seed))
    num_samples = frames_to_samples(samples_to_frames(seconds_to_samples(duration_s)))
    if num_samples <= 0:
        raise ValueError(f"duration_s is {duration_s}; a conversation needs at least one frame of 0.08 s")
    person = persons(speech, config.same_person)
    cast = _draw_cast(speech, config, rng, num_speakers, person)
    talk = _take_turns(speech, config, rng, num_samples, cast)
    speech_gain = _speech_gain(talk.segments, talk.heard.level_db)
    noises = draw_noises(
        config.noise,
        rng,
        num_samples,
        speech=speech,
        clips=clips,
        present=np.isin(person, person[cast.speaker]),
        speech_gain=speech_gain,
        first_row=len(talk.heard.speaker),
    )
    return _compose(speech, config, rng, num_samples, talk, noises, speech_gain)


class _Cast(NamedTuple):
    """Speakers, their voices and levels."""

    speaker: Int64[np.ndarray, " speakers"]
    factor: Int64[np.ndarray, " speakers"]
    level_db: Float64[np.ndarray, " speakers"]


class _Talk(NamedTuple):
    """What they say: those of the cast who are heard, by their first activity, their segments and pieces."""

    heard: _Cast
    segments: Int64[np.ndarray, "segments 3"]
    pieces: list[Piece]


def _draw_cast(
    speech: Speech,
    config: SimulatorConfig,
    rng: np.random.Generator,
    num_speakers: int | None,
    person: Int64[np.ndarray, " all_speakers"],
) -> _Cast:
    if num_speakers is None:
        probabilities = np.array(config.speaker_probabilities)
        num_speakers = 1 + int(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))
    return _Cast(
        _draw_speakers(speech, config, rng, num_speakers, person),
        _draw_factors(speech, config, rng, num_speakers),
        _draw_levels(config, rng, num_speakers),
    )


def _take_turns(
    speech: Speech, config: SimulatorConfig, rng: np.random.Generator, num_samples: int, cast: _Cast
) -> _Talk:
    turns = TurnTaking(speech, config.turns, rng, num_samples, **cast._asdict())
    turns.take_turns()
    segments = close_gaps(turns.runs, num_samples, config.close_gap_s, config.pad_s)
    heard = _by_first_activity(segments)
    slots = np.full(len(cast.speaker), -1)
    slots[heard] = np.arange(len(heard))
    segments[:, 0] = slots[segments[:, 0]]
    pieces = [piece._replace(row=int(slots[piece.row])) for piece in turns.pieces if slots[piece.row] >= 0]
    return _Talk(_Cast(*(part[heard] for part in cast)), segments, pieces)


def _compose(
    speech: Speech,
    config: SimulatorConfig,
    rng: np.random.Generator,
    num_samples: int,
    talk: _Talk,
    noises: Sequence[NoiseTrack],
    speech_gain: float,
) -> Plan:
    """What is said over its noises, in rooms and through a channel that are drawn here."""
    speaker, factor, _ = talk.heard
    return Plan(
        num_samples=num_samples,
        speaker=speaker,
        factor=factor,
        speaker_class=speaker * speech.num_factors + factor,
        segments=talk.segments,
        pieces=collect_pieces([*talk.pieces, *(piece for noise in noises for piece in noise.pieces)], num_samples),
        rooms=draw_rooms(config.rooms, rng, len(speaker), [noise.eq_db for noise in noises]),
        channel=draw_channel(config.channel, rng, num_samples, speech_gain=speech_gain),
        num_factors=speech.num_factors,
        names=tuple(speech.voice_name(s, f) for s, f in zip(speaker, factor, strict=True)),
        room_places=config.rooms.measured,
    )


def persons(speech: Speech, same_person: Sequence[str] = ()) -> Int64[np.ndarray, " speakers"]:
    """A number per speaker, the same for those who may be one person, by these pairs and those of the manifest; in a
    chain of pairs all are one."""
    person = np.arange(speech.num_speakers)
    pairs = [*speech.same_person, *(pair.split("/") for pair in same_person)]
    number = {name: i for i, name in enumerate(speech.speakers)} if pairs else {}
    for first, second in pairs:
        if first in number and second in number:
            person[person == person[number[second]]] = person[number[first]]
    return person


def num_people(speech: Speech, same_person: Sequence[str] = ()) -> int:
    """Different people in whose utterances speech was found: as many as a conversation can have."""
    return len(np.unique(persons(speech, same_person)[np.diff(speech.speaker_piece) > 0]))


def _draw_speakers(
    speech: Speech,
    config: SimulatorConfig,
    rng: np.random.Generator,
    num_speakers: int,
    person: Int64[np.ndarray, " all_speakers"],
) -> Int64[np.ndarray, " speakers"]:
    """Different people; of one source or one gender in some conversations, where it has enough of them."""
    candidates = np.flatnonzero(np.diff(speech.speaker_piece) > 0)
    most = len(np.unique(person[candidates]))
    if not 1 <= num_speakers <= most:
        raise ValueError(f"num_speakers is {num_speakers}; the speech allows 1 to {most}")
    source_person = np.unique(speech.speaker_source[candidates] * speech.num_speakers + person[candidates])
    sizes = np.bincount(source_person // speech.num_speakers, minlength=len(speech.sources))
    able = np.flatnonzero(sizes >= num_speakers)
    if rng.random() < config.same_source_probability and len(able):
        source = rng.choice(able, p=sizes[able] / sizes[able].sum())
        candidates = candidates[speech.speaker_source[candidates] == source]
    if rng.random() < config.same_gender_probability:
        gender = ("F", "M")[int(rng.integers(2))]
        same = candidates[[speech.speaker_gender[i] == gender for i in candidates]]
        candidates = same if len(np.unique(person[same])) >= num_speakers else candidates
    chosen = rng.choice(candidates, num_speakers, replace=False)
    if len(np.unique(person[chosen])) == num_speakers:
        return chosen
    shuffled = aside(rng, REDRAW).permutation(candidates)
    first = np.unique(person[shuffled], return_index=True)[1]
    return shuffled[np.sort(first)[:num_speakers]]


def _draw_factors(
    speech: Speech, config: SimulatorConfig, rng: np.random.Generator, num_speakers: int
) -> Int64[np.ndarray, " speakers"]:
    natural = speech.natural_factor
    drawn = rng.integers(speech.num_factors, size=num_speakers)
    other = rng.random(num_speakers) < config.speed_probability
    return drawn if natural is None else np.where(other, drawn, natural)


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
