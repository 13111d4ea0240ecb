"""Under what conditions models are heard: corruptions at their severities, each with the margin that it must keep."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from diarnorm.robustness.config import RobustnessConfig
from diarnorm.robustness.corruption import Link, Sound, Spec, catalogue, corrupt, find, parse
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.turns import Turn

ALL, NOTHING, CLEAN = "all", "nothing", "clean"
"""Words for the whole catalogue, for silence to which nothing is done, and for recordings to which nothing is done."""
LATER = ("silence", "damage", "burst", "dc.step")
"""Families and corruptions that leave all before their first event as it was."""


NO_CHANGE = Spec()


@dataclass(frozen=True)
class Condition:
    """What is done to a recording.

    Attributes:
        spec: the chain of corruptions; empty where nothing is done.
        margin: most that the DER may grow, in points; None: no margin.
        with_halves: whether halves are scored apart.
        is_quiet: whether there must be no speech in what it puts in.
        keeps_labels: whether labels must be the same after it; only where it `comes_later`.
        is_alone: whether it is done to silence, where there must be no turns.
    """

    spec: Spec = NO_CHANGE
    margin: float | None = None
    with_halves: bool = False
    is_quiet: bool = False
    keeps_labels: bool = False
    is_alone: bool = False

    @property
    def name(self) -> str:
        """The words that say it, such as `dc.offset=0.1`."""
        return str(self.spec) or (NOTHING if self.is_alone else CLEAN)

    @property
    def is_clean(self) -> bool:
        """Whether recordings stay as they are."""
        return not self.spec.links and not self.is_alone

    @property
    def factor(self) -> str:
        """The name without severities."""
        return " ".join(link.name for link in self.spec.links)

    @property
    def severity(self) -> float | None:
        """Of a single corruption."""
        return self.spec.links[0].severity if len(self.spec.links) == 1 else None

    @property
    def comes_later(self) -> bool:
        """Whether all before its first event is as it was: there a label means what it means in the clean run."""
        return bool(self.spec.links) and all(_comes_later(link.name) for link in self.spec.links)

    @property
    def unit(self) -> str:
        """Of the severity."""
        return find(self.factor).unit if self.severity is not None else ""

    @property
    def needs_turns(self) -> bool:
        """Whether it cannot be done to a recording in which nobody speaks."""
        return any(find(link.name).needs_turns for link in self.spec.links)


def find_conditions(config: RobustnessConfig) -> list[Condition]:
    """The clean condition, all others, and those in which nobody speaks, as the configuration asks for them.

    Raises:
        ValueError: a corruption or family that there is not, one twice, a severity out of range; one that must leave
            silence quiet and puts none in, must keep labels and acts from the start on, or is to be listened to and
            cannot be heard.
    """
    for name in (*(margin.factor for margin in config.margins), *config.halves, *config.quiet, *config.same_labels):
        _names_of(name)
    for name in config.quiet:
        if not any(find(each).puts_in for each in _names_of(name)):
            raise ValueError(f"quiet={name} puts nothing in that could be quiet: give silence, or one of that family")
    for name in config.same_labels:
        if not any(map(_comes_later, _names_of(name))):
            raise ValueError(
                f"same_labels={name} acts from the start on, where no label is there to be kept: give silence, damage, "
                "burst or dc.step, or one of these families"
            )
    find_players(config)
    changed = [_condition(spec, config) for asked in config.corruptions for spec in _specs(asked)]
    alone = [
        Condition(spec, is_alone=True)
        for asked in config.alone
        for spec in ([Spec()] if asked == NOTHING else _specs(asked))
    ]
    for group in (changed, alone):
        names = [each.name for each in group]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"corruption {twice[0]} is there twice: give it once")
    return [Condition(with_halves=any(each.with_halves for each in changed)), *changed, *alone]


def try_out(conditions: Iterable[Condition]) -> None:
    """Do each of them to two seconds of made-up sound: a chain that no recording bears is found before hours of work.

    Raises:
        ValueError: one does not work on samples that are there, or needs turns where nobody speaks.
    """
    noise = np.random.default_rng(0).normal(0.0, 0.01, 2 * SAMPLE_RATE).astype(np.float32)
    talk = Sound(noise, (Turn(0.2, 1.0, "a"), Turn(1.1, 1.9, "b")))
    silent = Sound(np.zeros_like(noise))
    for each in conditions:
        corrupt(silent if each.is_alone else talk, each.spec, 0)


def find_players(config: RobustnessConfig) -> list[Condition]:
    """What can be listened to, the clean recording first.

    Raises:
        ValueError: no such corruption, no severity, or a change that cannot be heard.
    """
    specs = [parse(words.split()) for words in config.players]
    for spec in specs:
        if spec.on_features.links:
            raise ValueError(f"players={spec}: log-mel frames cannot be heard, leave out {spec.on_features}")
    return [Condition(), *map(Condition, specs)] if specs else []


def _specs(asked: str) -> list[Spec]:
    """The chain that was asked for; one for every default severity where there is no severity."""
    words = asked.split()
    if not words:
        raise ValueError(f"corruptions={asked!r} names none: give one, or corruptions=[] for none at all")
    if len(words) == 1 and "=" not in words[0]:
        return [Spec((Link(name, severity),)) for name in _names_of(words[0]) for severity in find(name).severities]
    return [parse(words)]


def _names_of(given: str) -> list[str]:
    """Corruptions by their own name, that of their family, or `all`.

    Raises:
        ValueError: neither, with the nearest.
    """
    every = [each.name for each in catalogue()]
    names = [name for name in every if _is_of(name, given)]
    if not names:
        known = sorted({*every, *(name.partition(".")[0] for name in every)})
        near = get_close_matches(given, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"families are {', '.join(k for k in known if '.' not in k)}"
        raise ValueError(f"no corruption or family is called {given!r}; {hint}")
    return names


def _condition(spec: Spec, config: RobustnessConfig) -> Condition:
    names = [link.name for link in spec.links]
    return Condition(
        spec,
        _margin(spec.links, config),
        any(_is_of(name, given) for name in names for given in config.halves),
        any(_is_of(name, given) for name in names if find(name).puts_in for given in config.quiet),
        all(map(_comes_later, names)) and any(_is_of(name, given) for name in names for given in config.same_labels),
    )


def _margin(links: Iterable[Link], config: RobustnessConfig) -> float | None:
    """The margin of the first entry that is about all of the links, that of all others where none is."""
    for margin in config.margins:
        if all(_is_of(link.name, margin.factor) for link in links):
            low = float("-inf") if margin.low is None else margin.low
            high = float("inf") if margin.high is None else margin.high
            return margin.points if all(low <= link.severity <= high for link in links) else None
    return config.margin


def _comes_later(name: str) -> bool:
    return any(_is_of(name, each) for each in LATER)


def _is_of(name: str, given: str) -> bool:
    """Whether a corruption is the one given, or of that family; all are of `all`.

    >>> _is_of("dc.offset", "dc"), _is_of("dc.offset", "dc.off")
    (True, False)
    """
    return given in (ALL, name) or name.startswith(f"{given}.")
