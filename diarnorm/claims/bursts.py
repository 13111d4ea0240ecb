"""Claim 6: how much attention a loud burst takes, and what it does to the turns around it, in trained models.

The share of attention on the frames of bursts is compared with that on the same frames of the recording as it was: a
pull of 1 is no change. Bursts are those of `diarnorm.robustness`, at a level over that of the speech.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from diarnorm.checkpoint import load_checkpoint
from diarnorm.checks import check_range
from diarnorm.claims.evidence import Evidence, Measure, Plot, Series, Table, average, number
from diarnorm.claims.trained import find_networks
from diarnorm.evaluation.recordings import Recording, read_set
from diarnorm.evaluation.scores import Components
from diarnorm.evaluation.scoring import score
from diarnorm.evaluation.sources import parse_source
from diarnorm.resources import samples_dir
from diarnorm.robustness.corruption import corrupt, parse
from diarnorm.robustness.measures import attention_share
from diarnorm.robustness.passes import Trace, make_sheet
from diarnorm.robustness.runner import listen
from diarnorm.robustness.sound import Sound
from diarnorm.robustness.timemap import frames_in
from diarnorm.timebase import samples_to_seconds, seconds_to_samples
from diarnorm.training.crops import read_part

HEADLINE_DB = 20.0
AROUND_S = 2.0
"""Before and after a burst, where its DER is looked at."""


@dataclass(frozen=True)
class BurstConfig:
    """Trained models, and the recordings that bursts are put into."""

    models: Any = ""
    recordings: str = ""
    """A folder of recordings with RTTM beside each; the sample recordings unless given."""
    bursts: tuple[str, ...] = ("plosive", "slam")
    """Of `plosive`, `click` and `slam`; the verdict is about the first and the last of these."""
    levels_db: tuple[float, ...] = (0.0, 10.0, 20.0, 30.0)
    longest_s: float = 60.0
    """Of each recording, so much is used."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("longest_s", self.longest_s, low=5)
        if not self.bursts:
            raise ValueError("bursts is empty: give one or more of plosive, click, slam")
        for kind, level in product(self.bursts, self.levels_db):
            parse([f"burst.{kind}={level}"])
        if HEADLINE_DB not in self.levels_db:
            raise ValueError(
                f"levels_db={list(self.levels_db)} lacks {HEADLINE_DB:g}, which the verdict is about: add it"
            )


@dataclass(frozen=True)
class Effect:
    """What bursts of one level do to one model on one recording."""

    pull: float
    by_layer: tuple[float, ...]
    clean: Components
    """Errors around the places of the bursts, without them."""
    burst: Components


Found = Mapping[tuple[str, str, float], Sequence[Effect]]
"""By model, kind of burst and level, in dB: effects on the recordings, of a kind the same and in the same order for all
models."""


def bursts(config: BurstConfig) -> Evidence:
    """Pull of each kind and level for each model, and DER around bursts.

    Raises:
        ValueError: no models, or recordings that cannot be read or are too short for a burst.
    """
    if not config.models:
        raise ValueError("no models to compare: give models=[PATH,...], trained with different norms")
    candidates = find_networks(config.models)
    clean = _read(config)
    sounds = {
        (kind, level): [corrupt(sound, parse([f"burst.{kind}={level}"]), config.seed) for sound in clean]
        for kind, level in product(config.bursts, config.levels_db)
    }
    clean_sheet = make_sheet([sound.samples for sound in clean])
    sheets = {key: make_sheet([sound.samples for sound in loud]) for key, loud in sounds.items()}
    found = {}
    for candidate in candidates:
        before = listen(candidate, clean_sheet, attention=True)
        for (kind, level), loud in sounds.items():
            effects = map(effect, loud, before, listen(candidate, sheets[kind, level], attention=True))
            found[candidate.name, kind, level] = [each for each in effects if each is not None]
    if not all(found.values()):
        raise ValueError("bursts mark no frame of any recording, or all of them: give longer ones, recordings=FOLDER")
    norms = {each.name: load_checkpoint(each.path).model.config.encoder.norm for each in candidates}
    return evidence_of(norms, found, config)


def _read(config: BurstConfig) -> list[Sound]:
    """Recordings with a reference, each up to its longest."""
    source = parse_source("recordings", config.recordings or str(samples_dir()), "recordings")
    recordings = read_set("recordings", source, Path.cwd()).recordings
    return [_first_part(each, config.longest_s) for each in recordings if each.reference]


def _first_part(recording: Recording, longest_s: float) -> Sound:
    assert recording.audio is not None
    assert recording.duration_s is not None
    length = seconds_to_samples(min(recording.duration_s, longest_s))
    end_s = samples_to_seconds(length)
    turns = tuple(replace(t, end=min(t.end, end_s)) for t in recording.reference if t.start < end_s)
    return Sound(read_part(recording.audio, 0, length), turns)


def effect(loud: Sound, before: Trace, after: Trace) -> Effect | None:
    """One model on one recording without and with its bursts; None where they mark no frame, or all."""
    marked = frames_in(loud.events, len(after.activity))
    shares = []
    for trace in (before, after):
        assert trace.attention is not None
        shares.append(attention_share(trace.attention, marked, trace.chunk))
    clean, burst = shares
    if clean is None or burst is None:
        return None
    end_s = samples_to_seconds(len(loud.samples))
    around = [(max(0.0, start - AROUND_S), min(end_s, end + AROUND_S)) for start, end in loud.events]
    errors = (score({"x": loud.turns}, {"x": trace.turns}, {"x": around}).pooled for trace in (before, after))
    return Effect(mean(burst) / mean(clean), tuple(b / c for b, c in zip(burst, clean, strict=True)), *errors)


def evidence_of(norms: Mapping[str, str], found: Found, config: BurstConfig) -> Evidence:
    """Pull by kind and norm over recordings, each averaged over the models of the norm; `norms` are by model."""
    of_norm = {norm: sum(other == norm for other in norms.values()) for norm in norms.values()}
    heard = {kind: len(found[next(iter(norms)), kind, HEADLINE_DB]) for kind in config.bursts}
    return Evidence(
        "bursts",
        tuple(pull(kind, norm, HEADLINE_DB, norms, found) for kind, norm in product(config.bursts, of_norm)),
        (_table_of_levels(norms, found), *(_table_of_blocks(kind, norms, found) for kind in config.bursts)),
        tuple(_plot(kind, norms, found, config.levels_db) for kind in config.bursts),
        (
            f"One burst in each 5 s. Recordings with one: {', '.join(f'{kind} {num}' for kind, num in heard.items())}. "
            f"Models: {', '.join(f'{norm} {num}' for norm, num in of_norm.items())}.",
            "Pull is the share of attention on the frames of bursts over that on the same frames without them. DER "
            f"within {AROUND_S:g} s of a burst. A recording's pull is the mean over the models of a norm; intervals "
            "are Student's, over recordings: other models may differ more.",
        ),
    )


def pull(kind: str, norm: str, level_db: float, norms: Mapping[str, str], found: Found) -> Measure:
    """Pull of a kind and level over recordings, in the mean of the models of a norm."""
    models = [found[name, kind, level_db] for name in norms if norms[name] == norm]
    return average(f"pull_{kind}_{norm}", [mean(each.pull for each in own) for own in zip(*models, strict=True)])


def _table_of_levels(norms: Mapping[str, str], found: Found) -> Table:
    rows = tuple(
        _row(f"{name} ({norms[name]}), {kind} of {level:+g} dB", effects)
        for (name, kind, level), effects in found.items()
    )
    return Table("Bursts", ("model (norm), burst", "pull", "DER around, without", "with"), rows)


def _row(name: str, effects: Sequence[Effect]) -> tuple[str, ...]:
    clean, burst = (sum((getattr(e, key) for e in effects), Components()) for key in ("clean", "burst"))
    ders = ("-" if part.der is None else f"{100 * part.der:.1f} %" for part in (clean, burst))
    return (name, number(mean(e.pull for e in effects)), *ders)


def _table_of_blocks(kind: str, norms: Mapping[str, str], found: Found) -> Table:
    """Means over recordings; models with fewer blocks end earlier."""
    pulls = {
        f"{name} ({norm})": [
            mean(own) for own in zip(*(e.by_layer for e in found[name, kind, HEADLINE_DB]), strict=True)
        ]
        for name, norm in norms.items()
    }
    depth = max(map(len, pulls.values()))
    rows = tuple((name, *map(number, own), *("-",) * (depth - len(own))) for name, own in pulls.items())
    columns = ("model", *(str(at + 1) for at in range(depth)))
    return Table(f"Pull of a {kind} at +{HEADLINE_DB:g} dB by block", columns, rows)


def _plot(kind: str, norms: Mapping[str, str], found: Found, levels_db: tuple[float, ...]) -> Plot:
    lines = []
    for norm in dict.fromkeys(norms.values()):
        points = [pull(kind, norm, level, norms, found) for level in levels_db]
        lines.append(Series.of(norm, levels_db, points))
    x, y = "level of the burst over the speech, dB", "pull (1: as without)"
    return Plot(f"Attention on a {kind}", x, y, tuple(lines), lines=(1.0,))
