"""Corruptions by name: what there is, chains of them from words, and a recording that went through a chain.

    spec = parse(["loudness.swing=12", "silence.middle=10"])
    sound = corrupt(Sound(samples, turns), spec, seed=0)

Everything is pure and seeded. A link of a chain draws from a generator of its own, seeded by the seed and the link's
name: adding or leaving out another link moves nothing else, and severities are compared at the same places (unless
they are a number of places). What is drawn is the same on every machine; samples agree to rounding.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from zlib import crc32

import numpy as np

from diarnorm.checks import check_range
from diarnorm.robustness import band, bursts, damage, dc, features, loudness, noise, room, silence
from diarnorm.robustness.sound import Corruption, Mel, Sound

__all__ = ["Corruption", "Link", "Sound", "Spec", "catalogue", "corrupt", "parse"]

FAMILIES = (loudness, dc, silence, damage, bursts, noise, room, band, features)
DEGREES = ("mild", "medium", "strong")
"""Words for the severities that each corruption suggests."""


@dataclass(frozen=True)
class Link:
    """A corruption of the catalogue at a severity."""

    name: str
    severity: float

    def __post_init__(self) -> None:
        known = find(self.name)
        if self.severity != known.neutral:
            low, high = known.limits
            check_range(self.name, self.severity, low=low, high=high)

    def __str__(self) -> str:
        return f"{self.name}={self.severity:.12g}"

    @property
    def changes(self) -> bool:
        """Whether it changes anything at all."""
        return self.severity != find(self.name).neutral


@dataclass(frozen=True)
class Spec:
    """A chain of corruptions, the first applied first."""

    links: tuple[Link, ...] = ()

    def __str__(self) -> str:
        return " ".join(map(str, self.links))

    @property
    def on_samples(self) -> "Spec":
        """The links that act on samples: what `corrupt` does."""
        return Spec(tuple(link for link in self.links if find(link.name).acts_on == "samples"))

    @property
    def on_features(self) -> "Spec":
        """The links that act on log-mel frames: what `apply_mel` does."""
        return Spec(tuple(link for link in self.links if find(link.name).acts_on == "features"))

    def apply_mel(self, mel: Mel) -> Mel:
        """Log-mel frames after the links that act on them; the very input where there are none."""
        for link in self.on_features.links:
            function = find(link.name).apply_mel
            assert function is not None
            mel = function(mel, link.severity) if link.changes else mel
        return mel


def catalogue() -> tuple[Corruption, ...]:
    """All corruptions, family by family."""
    return tuple(_by_name().values())


@cache
def _by_name() -> dict[str, Corruption]:
    return {each.name: each for family in FAMILIES for each in family.CORRUPTIONS}


def find(name: str) -> Corruption:
    """The corruption called `name`.

    Raises:
        ValueError: there is none, with the nearest names.
    """
    known = _by_name()
    if name in known:
        return known[name]
    family = [other for other in known if other.startswith(f"{name.split('.')[0]}.")]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or family
    families = dict.fromkeys(other.split(".")[0] for other in known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"families are {', '.join(families)}"
    raise ValueError(f"no corruption is called {name!r}; {hint}")


def parse(words: Sequence[str]) -> Spec:
    """A chain from words `family.name=severity`; `mild`, `medium` and `strong` stand for the catalogue's severities.

    >>> str(parse(["loudness.swing=12", "features.offset=strong"]))
    'loudness.swing=12 features.offset=4.605'

    Raises:
        ValueError: no such corruption, no severity, one that is no number or out of range.
    """
    return Spec(tuple(_parse_word(word) for word in words))


def _parse_word(word: str) -> Link:
    name, equals, value = word.partition("=")
    known = find(name)
    usual = ", ".join(f"{degree} {number:g}" for degree, number in zip(DEGREES, known.severities, strict=True))
    if not equals:
        example = f"{name}={known.severities[1]:g}"
        raise ValueError(f"{name} has no severity: write {example} ({known.unit}; {usual})")
    if value in DEGREES:
        return Link(name, known.severities[DEGREES.index(value)])
    try:
        return Link(name, float(value))
    except ValueError as error:
        if "out of range" in str(error):
            raise
        raise ValueError(f"{name}={value} is no number: give one in {known.unit} ({usual})") from error


def corrupt(sound: Sound, spec: Spec, seed: int) -> Sound:
    """A recording after the chain's links on samples; those on features wait for `Spec.apply_mel`.

    Where no link changes anything, the very input comes back.

    Raises:
        ValueError: a link needs reference turns and there are none, or does not work on these samples.
    """
    times: Counter[str] = Counter()
    for link in spec.on_samples.links:
        known, number = find(link.name), times[link.name]
        times[link.name] += 1
        assert known.apply is not None
        if not link.changes:
            continue
        if known.needs_turns and not sound.turns:
            raise ValueError(f"{link} needs to know who speaks when: give reference turns (RTTM)")
        if known.needs_finite and not np.isfinite(sound.samples).all():
            raise ValueError(f"{link} needs samples that are finite: put damage.nan and damage.inf behind it")
        rng = np.random.Generator(np.random.PCG64([seed, crc32(link.name.encode()), number]))
        sound = known.apply(sound, float(link.severity), rng)
    return sound
