"""Losses of the runs of a study as curves."""

from collections.abc import Sequence

from diarnorm.claims.cells import Outcome
from diarnorm.claims.evidence import Plot, Series, average

PICTURE = (
    "Dotted: the loss of runs that hear nothing. What is above twice that is drawn at the edge; runs that stopped are "
    "left out."
)
"""What `losses_by_rate` shows."""


def losses_by_rate(title: str, deaf: Sequence[Outcome], curves: tuple[Series, ...]) -> Plot:
    """Losses at the end over the learning rate, beside those of the deaf runs."""
    silent = sum(outcome.last_loss for outcome in deaf) / len(deaf)
    return Plot(title, "learning rate", "loss", curves, log_x=True, lines=(silent,), top=2 * silent)


def curve(name: str, outcomes: list[Outcome], fact: str) -> Series:
    """Loss at the end over a fact, mean over the rest, with its interval; what is infinite is left out."""
    points = []
    for x in sorted({o.facts[fact] for o in outcomes}):
        losses = [o.last_loss for o in outcomes if o.facts[fact] == x and o.last_loss < float("inf")]
        if losses:
            points.append((x, average(name, losses)))
    return Series.of(name, [x for x, _ in points], [loss for _, loss in points])
