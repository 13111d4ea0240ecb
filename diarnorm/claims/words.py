"""What a report says in words, whatever it is written in."""

from collections.abc import Iterable

from diarnorm.claims.evidence import Measure, Table, spoken
from diarnorm.claims.records import Record
from diarnorm.claims.rules import CONDITIONAL, CONFIRMED, NOT_MEASURED, REFUTED, Criterion, Judgement

VERDICTS = (CONFIRMED, CONDITIONAL, REFUTED, NOT_MEASURED)

INTRODUCTION = (
    "What is said about normalisation layers, each put to the test by an experiment; `diarnorm claims N` runs it "
    "again. What confirms a claim are bounds; those of the studies were fixed before there were data. A criterion "
    "holds when the whole 95 % interval keeps them. All hold: confirmed. All fail: refuted. Else conditional, and the "
    "criteria say on what."
)


def headline(judgement: Judgement) -> str:
    """The first figure, with its interval and its unit.

    >>> from diarnorm.claims.registry import CLAIMS
    >>> from diarnorm.claims.rules import judge
    >>> headline(judge(CLAIMS[1], {"ratio_fused": Measure("ratio_fused", 3.0, 2.5, 3.5)}))
    "as one kernel: time over LayerNorm's: 3 (2.5 to 3.5)"
    """
    found = judgement.headline
    if found is None:
        return ""
    says = found[0].says
    return f"{says.removesuffix(': by')} by {figure(*found)}" if says.endswith(": by") else f"{says}: {figure(*found)}"


def figure(criterion: Criterion, measure: Measure) -> str:
    """A measure in words: `3 (2.5 to 3.5) %`."""
    return f"{spoken(measure)}{f' {criterion.unit}' if criterion.unit else ''}"


def tally(judgements: Iterable[Judgement]) -> str:
    """How many claims there are of each verdict: `2 confirmed, 1 refuted`."""
    verdicts = [each.verdict for each in judgements]
    return ", ".join(f"{verdicts.count(word)} {word}" for word in VERDICTS if word in verdicts)


def criteria_table(judgement: Judgement) -> Table:
    """What the claim had to show, and what came of it."""
    rows = [
        (criterion.says, criterion.bounds, "-" if measure is None else figure(criterion, measure), state)
        for criterion, measure, state in judgement.findings
    ]
    return Table("Criteria", ("criterion", "has to be", "measured (95 % interval)", "verdict"), tuple(rows))


def made_on(record: Record) -> str:
    """Commit, machine, time and settings, in a sentence."""
    settings = f", with {' '.join(record.settings)}" if record.settings else ""
    name = record.evidence.experiment
    return f"Experiment `{name}`{settings}: commit {record.commit}, {record.machine}, {record.seconds:.0f} s."
