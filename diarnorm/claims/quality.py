"""Claim 12: DER of RMSNorm against LayerNorm's, from the results of `diarnorm evaluate`.

Models are told apart by their names, in which the norm is a word (`rms-0`, `norm=layer,train.seed=1`); those of one
norm are seeds. The difference has two intervals: over recordings, which are drawn anew, the same for both norms, and
over seeds (Student's t), of models that have all of their names but the norm in common.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diarnorm.checks import check_expression
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, average, number, spoken
from diarnorm.evaluation.results import Result, find_shards, merge
from diarnorm.evaluation.scores import Components, bootstrap_difference, bootstrap_interval
from diarnorm.norms import NORMS


@dataclass(frozen=True)
class QualityConfig:
    """`evaluation` is the folder of an evaluation of models of both norms.

    Raises ValueError for `names` that are no regular expression.
    """

    evaluation: str = ""
    names: str = ""
    """Regular expression: only models in whose names it is found count. Models of a norm that differ in more than
    their seed, as in their front end, are to be left out by it."""

    def __post_init__(self) -> None:
        check_expression("names", self.names)


def quality(config: QualityConfig) -> Evidence:
    """Pooled DER per norm, and the difference, paired by recordings and by seeds.

    Raises:
        ValueError: no results, not all of one evaluation, none of one of the norms, or norms with other recordings.
    """
    if not config.evaluation:
        raise ValueError(
            "no results to compare: give evaluation=FOLDER, where `diarnorm evaluate` wrote, with models of both norms"
        )
    results = merge(find_shards(Path(config.evaluation).expanduser())).results
    wanted = [result for result in results if re.search(config.names, result.model)]
    found = evidence_of(wanted, config.evaluation)
    left_out = _models(results, besides=_models(wanted))
    notes = (f"Left out by the names asked for: {', '.join(left_out)}.",) if left_out else ()
    return replace(found, notes=(*found.notes, *notes))


def evidence_of(results: Sequence[Result], source: str) -> Evidence:
    """What the results say, over all sets; models without a norm in their names are left out, which a note says.

    Raises:
        ValueError: none of one of the norms, or norms with other recordings.
    """
    by_norm = _by_norm(results, source)
    pooled = {norm: _per_recording(own) for norm, own in sorted(by_norm.items())}
    if pooled["rms"].keys() != pooled["layer"].keys():
        raise ValueError(f"{source}: models of both norms need the same recordings; evaluate them together")
    order = sorted(pooled["rms"])
    rms, layer = ([pooled[norm][key] for key in order] for norm in ("rms", "layer"))
    difference = _points(pooled_der(rms) - pooled_der(layer), bootstrap_difference(rms, layer))
    files = {norm: list(recordings.values()) for norm, recordings in pooled.items()}
    ders = {norm: _points(pooled_der(own), bootstrap_interval(own)) for norm, own in files.items()}
    rows = tuple(
        (norm, str(len(_models(by_norm[norm]))), str(len(files[norm])), spoken(der)) for norm, der in ders.items()
    )
    by_seed, alone = _by_seed(by_norm["rms"], by_norm["layer"])
    over_seeds = (average("rms_less_layer_seeds", list(by_seed.values())),) if by_seed else ()
    unknown = [model for model in _models(results) if norm_of(model) is None]
    left_out = {"since their names are not of one norm": unknown, "over seeds, since no other is their like": alone}
    notes = tuple(f"Left out, {why}: {', '.join(names)}." for why, names in left_out.items() if names)
    return Evidence(
        "quality",
        (difference, *over_seeds),
        (
            Table("DER in %, pooled over recordings and seeds", ("norm", "models", "recordings", "DER"), rows),
            *_tables_of_seeds(by_seed),
        ),
        (_plot(ders),),
        (
            "Seconds of errors are summed over the models of a norm, recording by recording; intervals by bootstrap "
            "over recordings, the same drawn for both norms in the difference. Over seeds the interval is Student's. "
            "The evaluation's first collar counts.",
            *notes,
        ),
    )


def _by_norm(results: Sequence[Result], source: str) -> dict[str, list[Result]]:
    """Results by the norm in their model's name.

    Raises:
        ValueError: none of RMSNorm or of LayerNorm.
    """
    by_norm: dict[str, list[Result]] = {}
    for result in results:
        norm = norm_of(result.model)
        if norm is not None:
            by_norm.setdefault(norm, []).append(result)
    for norm in ("rms", "layer"):
        if norm not in by_norm:
            raise ValueError(
                f"{source} has no model with {norm} in its name: name models by their norm, models={{rms-0: PATH}}"
            )
    return by_norm


def _models(results: Sequence[Result], besides: Sequence[str] = ()) -> list[str]:
    """Names of models in their order, without those in `besides`."""
    return [model for model in dict.fromkeys(result.model for result in results) if model not in besides]


def norm_of(model: str) -> str | None:
    """The norm that is a word of a model's name, if there is just one; `none` beside another is a front end's.

    >>> norm_of("norm=layer,train.seed=1"), norm_of("rms-0"), norm_of("frontend=none,norm=rms"), norm_of("mine")
    ('layer', 'rms', 'rms', None)
    """
    words = set(re.split(r"[^a-z]+", model.lower())) & NORMS.keys()
    named = words - {"none"} or words
    return named.pop() if len(named) == 1 else None


def _per_recording(results: Sequence[Result]) -> dict[tuple[str, str], Components]:
    """Error components of each recording, summed over the models."""
    found: dict[tuple[str, str], Components] = {}
    for result in results:
        key = result.set_name, result.recording
        found[key] = found.get(key, Components()) + result.scores[0].errors
    return found


def _by_seed(rms: Sequence[Result], layer: Sequence[Result]) -> tuple[dict[str, float], list[str]]:
    """DER of RMSNorm's model less that of LayerNorm's, in points, by what both names have in common; and the models
    that have no counterpart."""
    ders = [{_without_norm(name): _der_of(own, name) for name in _models(own)} for own in (rms, layer)]
    common = [name for name in ders[0] if name in ders[1]]
    alone = [name for own in (rms, layer) for name in _models(own) if _without_norm(name) not in common]
    return {name: 100 * (ders[0][name] - ders[1][name]) for name in common}, alone


def _without_norm(model: str) -> str:
    """A model's name without the word of its norm."""
    return re.sub(rf"(?<![a-z]){norm_of(model)}(?![a-z])", "", model.lower())


def _der_of(results: Sequence[Result], model: str) -> float:
    return pooled_der([result.scores[0].errors for result in results if result.model == model])


def _tables_of_seeds(by_seed: dict[str, float]) -> tuple[Table, ...]:
    """One, unless there are no pairs."""
    rows = tuple((name.strip("-_=, ") or "-", number(difference)) for name, difference in by_seed.items())
    title = "DER of RMSNorm less that of LayerNorm, seed by seed, points"
    return (Table(title, ("models", "difference"), rows),) if rows else ()


def pooled_der(files: Sequence[Components]) -> float:
    """DER of all together, a share.

    Raises:
        ValueError: nobody speaks in them.
    """
    der = sum(files, Components()).der
    if der is None:
        raise ValueError("there is no speech in the recordings, so DER is not defined: evaluate others")
    return der


def _points(value: float, interval: tuple[float, float] | None) -> Measure:
    low, high = (-math.inf, math.inf) if interval is None else interval
    return Measure("rms_less_layer", value, low, high).scaled(100)


def _plot(ders: dict[str, Measure]) -> Plot:
    series = tuple(Series.of(norm, [at], [der]) for at, (norm, der) in enumerate(ders.items()))
    return Plot("DER by norm", "norm", "DER, %", series)
