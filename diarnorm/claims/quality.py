"""Claim 12: DER of RMSNorm against LayerNorm's, from the results of `diarnorm evaluate`.

Models are told apart by their names, in which the norm is a word (`rms-0`, `norm=layer,train.seed=1`); those of one
norm are seeds. Recordings are drawn anew for the interval, the same for both norms.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diarnorm.checks import check_expression
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, spoken
from diarnorm.evaluation.results import Result, find_shards
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


def quality(config: QualityConfig, folder: Path) -> Evidence:
    """Pooled DER per norm, and the paired difference.

    Raises:
        ValueError: no results, none of one of the norms, or norms with other recordings.
    """
    if not config.evaluation:
        raise ValueError(
            "no results to compare: give evaluation=FOLDER, where `diarnorm evaluate` wrote, with models of both norms"
        )
    shards = find_shards(Path(config.evaluation).expanduser())
    results = [result for shard in shards for result in shard.results if re.search(config.names, result.model)]
    return evidence_of(results, config.evaluation)


def evidence_of(results: Sequence[Result], source: str) -> Evidence:
    """What the results say, over all sets."""
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
    pooled = {norm: _per_recording(own) for norm, own in by_norm.items()}
    if pooled["rms"].keys() != pooled["layer"].keys():
        raise ValueError(f"{source}: models of both norms need the same recordings; evaluate them together")
    order = sorted(pooled["rms"])
    rms, layer = ([pooled[norm][key] for key in order] for norm in ("rms", "layer"))
    difference = _points(_der(rms) - _der(layer), bootstrap_difference(rms, layer))
    rows, points = [], []
    for norm, recordings in sorted(pooled.items()):
        files = list(recordings.values())
        der = _points(_der(files), bootstrap_interval(files))
        models = {result.model for result in by_norm[norm]}
        points.append((norm, der))
        rows.append((norm, str(len(models)), str(len(files)), spoken(der)))
    return Evidence(
        "quality",
        (difference,),
        (Table("DER in %, pooled over recordings and seeds", ("norm", "models", "recordings", "DER"), tuple(rows)),),
        (_plot(points),),
        (
            "Seconds of errors are summed over the models of a norm, recording by recording; intervals by bootstrap "
            "over recordings, the same drawn for both norms in the difference. The evaluation's first collar counts.",
        ),
    )


def norm_of(model: str) -> str | None:
    """The norm that is a word of a model's name, if there is just one.

    >>> norm_of("norm=layer,train.seed=1"), norm_of("rms-0"), norm_of("mine")
    ('layer', 'rms', None)
    """
    words = set(re.split(r"[^a-z]+", model.lower())) & NORMS.keys()
    return words.pop() if len(words) == 1 else None


def _per_recording(results: Sequence[Result]) -> dict[tuple[str, str], Components]:
    """Error components of each recording, summed over the models."""
    found: dict[tuple[str, str], Components] = {}
    for result in results:
        key = result.set_name, result.recording
        found[key] = found.get(key, Components()) + result.scores[0].errors
    return found


def _der(files: Sequence[Components]) -> float:
    der = sum(files, Components()).der
    if der is None:
        raise ValueError("there is no speech in the recordings, so DER is not defined: evaluate others")
    return der


def _points(value: float, interval: tuple[float, float] | None) -> Measure:
    low, high = (value, value) if interval is None else interval
    return Measure("rms_less_layer", 100 * value, 100 * low, 100 * high)


def _plot(points: list[tuple[str, Measure]]) -> Plot:
    series = tuple(
        Series(norm, (float(at),), (der.value,), (der.low,), (der.high,)) for at, (norm, der) in enumerate(points)
    )
    return Plot("DER by norm", "norm, in the order of the legend", "DER, %", series)
