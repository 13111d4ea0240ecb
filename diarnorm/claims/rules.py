"""What a claim is, and the rule by which measures confirm or refute it.

A claim has criteria: a measure of an experiment and the bounds that it must keep. A criterion *holds* when the whole
95 % interval lies within the bounds, *fails* when it lies outside, and is *open* in between. All hold: confirmed. All
fail: refuted. Anything else, measures that are missing included: conditional, and the criteria are the conditions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from diarnorm.claims.evidence import Measure

CONFIRMED, CONDITIONAL, REFUTED, NOT_MEASURED = "confirmed", "conditional", "refuted", "not measured"
HOLDS, FAILS, OPEN, MISSING = "holds", "fails", "open", "not measured"
EXACT, TIMED, STUDY, GIVEN = "exact", "timed", "study", "given"
"""Kinds of experiments: the same everywhere; this machine's; of trainings, in a folder that keeps them; of what the
user has."""


@dataclass(frozen=True)
class Experiment:
    """Where an experiment is: `function` in a module of `diarnorm.claims`, by its name.

    One with a `recipe` takes a configuration, of the class `config` in the same module, and one with `needs` does
    nothing unless this key of it is given.
    """

    name: str
    module: str
    function: str
    kind: str = EXACT
    config: str = ""
    needs: str = ""

    @property
    def recipe(self) -> str:
        """Name of the file in `recipes/claims/`, without its ending; empty for those that need none."""
        return self.name if self.config else ""


@dataclass(frozen=True)
class Criterion:
    """`low <= measure <= high`, and what it says when it holds."""

    measure: str
    says: str
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""

    @property
    def bounds(self) -> str:
        """In words: `at most 0.93`."""
        parts = [f"{word} {value:g}" for word, value in (("at least", self.low), ("at most", self.high))]
        kept = [part for part, value in zip(parts, (self.low, self.high), strict=True) if math.isfinite(value)]
        return " and ".join(kept) + (f" {self.unit}" if self.unit else "")

    def state(self, measure: Measure | None) -> str:
        """Whether it holds.

        >>> Criterion("x", "", high=1.0).state(Measure("x", 0.9, 0.8, 1.1))
        'open'
        """
        if measure is None:
            return MISSING
        if self.low <= measure.low and measure.high <= self.high:
            return HOLDS
        return FAILS if measure.high < self.low or measure.low > self.high else OPEN


@dataclass(frozen=True)
class Claim:
    """A sentence that is said about norms; the first criterion's measure is its headline figure."""

    number: int
    sentence: str
    source: str
    experiments: tuple[Experiment, ...]
    criteria: tuple[Criterion, ...]


@dataclass(frozen=True)
class Judgement:
    """A claim with what was measured: the state of each criterion, and the verdict."""

    claim: Claim
    findings: tuple[tuple[Criterion, Measure | None, str], ...]

    @property
    def verdict(self) -> str:
        """One of the four words."""
        states = {state for _, _, state in self.findings}
        words = {frozenset({HOLDS}): CONFIRMED, frozenset({FAILS}): REFUTED, frozenset({MISSING}): NOT_MEASURED}
        return words.get(frozenset(states), CONDITIONAL)

    @property
    def headline(self) -> tuple[Criterion, Measure] | None:
        """The first criterion that was measured."""
        return next(((criterion, found) for criterion, found, _ in self.findings if found is not None), None)


def judge(claim: Claim, measures: Mapping[str, Measure]) -> Judgement:
    """Apply the claim's rule to measures by their names."""
    found = [(criterion, measures.get(criterion.measure)) for criterion in claim.criteria]
    return Judgement(claim, tuple((criterion, measure, criterion.state(measure)) for criterion, measure in found))
