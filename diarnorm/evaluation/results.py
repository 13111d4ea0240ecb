"""What the jobs of an evaluation leave behind: the seconds of every recording, as JSON, and how shards become one.

Numbers are written so that reading gives the same number, bit for bit.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from diarnorm.evaluation.causes import Causes
from diarnorm.evaluation.config import EvaluateConfig
from diarnorm.evaluation.hypotheses import Candidate, Settings
from diarnorm.evaluation.labels import LabelScore
from diarnorm.evaluation.recordings import RecordingSet
from diarnorm.evaluation.scores import Components, FileScore
from diarnorm.files import replacing
from diarnorm.resources import code_sha256

FORMAT = 4
WITHOUT_HASHES = 3
"""The format that did not say what was scored against, nor by which code: good for one job, which needs no others."""
FOLDER = "results"
NESTED = {"errors": Components, "merged": Components, "grid": Components, "causes": Causes}
"""Fields of a score that are dataclasses."""


@dataclass(frozen=True)
class Result:
    """Scores of one model on one recording."""

    set_name: str
    recording: str
    model: str
    duration_s: float | None
    """Length of the recording; None where only turns are there."""
    busy_s: float | None
    """Time the model worked; None for turns that were given."""
    scores: tuple[FileScore, ...]
    """One for each collar."""
    labels: LabelScore | None
    """How steady the labels are; None for a recording that is too short to tell."""
    missing: bool
    """Whether there is no hypothesis, so that all speech counts as missed."""
    notes: tuple[str, ...]

    @property
    def place(self) -> tuple[str, str, str]:
        """Set, recording and model."""
        return self.set_name, self.recording, self.model

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "Result":
        """The result that `asdict` and JSON turned into plain values."""
        scores = tuple(
            FileScore(**{**score, **{name: part(**score[name]) for name, part in NESTED.items()}})
            for score in values["scores"]
        )
        labels = None if values["labels"] is None else LabelScore(**values["labels"])
        return cls(**{**values, "scores": scores, "labels": labels, "notes": tuple(values["notes"])})


@dataclass(frozen=True)
class Heading:
    """What was evaluated and how: the same for all jobs of an evaluation. Plain JSON values."""

    settings: dict[str, Any]
    models: dict[str, dict[str, Any]]
    """By name: `sha256` of the file, None for turns that were given, and the `changes` asked of it."""
    sets: dict[str, dict[str, Any]]
    """By name: `recordings`, the `region` in words, `notes`, and the `sha256` of what is scored against."""

    @classmethod
    def of(
        cls,
        config: EvaluateConfig,
        candidates: Sequence[Candidate],
        sets: Sequence[RecordingSet],
        notes: Mapping[str, Sequence[str]],
    ) -> "Heading":
        """The heading of an evaluation; `notes` by name of the set."""
        import diarnorm

        names = ("skip_overlap", "group_by", "family_by", "long_s", "pause_s", "num_resamples", "seed")
        settings = {name: getattr(config, name) for name in names} | {"collars_s": list(config.collars_s)}
        settings |= Settings(device=config.device).changed_by(config).plain()
        return cls(
            {**settings, "diarnorm": diarnorm.__version__, "code_sha256": code_sha256("evaluation/*.py")},
            {each.name: {"sha256": each.sha256, "changes": each.settings.plain()} for each in candidates},
            {
                each.name: {
                    "recordings": [recording.name for recording in each.recordings],
                    "region": each.region,
                    "notes": list(notes[each.name]),
                    "sha256": scored_sha256(each),
                }
                for each in sets
            },
        )

    @property
    def places(self) -> list[tuple[str, str, str]]:
        """Set, recording and model of every result that there must be, in order."""
        return [
            (name, recording, model)
            for name, each in self.sets.items()
            for recording in each["recordings"]
            for model in self.models
        ]


def scored_sha256(each: RecordingSet) -> str:
    """Hash of what hypotheses on a set are scored against: names, lengths, references and regions of its recordings."""
    facts = [
        [one.name, one.duration_s, [[turn.start, turn.end, turn.speaker] for turn in one.reference], one.region]
        for one in each.recordings
    ]
    return hashlib.sha256(json.dumps(facts, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class Shard:
    """The results of one job, number `number` of `of`."""

    heading: Heading
    number: int
    of: int
    results: tuple[Result, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every result is there."""
        return {result.place for result in self.results} == set(self.heading.places)


def write_shard(shard: Shard, folder: Path) -> str | None:
    """Write `results/K-of-N.json` in a folder; what another evaluation left there goes. Returns in what that was
    another, in words; None where nothing went."""
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    gone = None
    for path in _shard_paths([place]):
        other = _other_than(path, shard)
        if other is not None:
            path.unlink(missing_ok=True)
            gone = other
    values = {"format": FORMAT, "heading": asdict(shard.heading), "number": shard.number, "of": shard.of}
    values["results"] = [asdict(result) for result in shard.results]
    with replacing(place / f"{shard.number}-of-{shard.of}.json") as partial:
        partial.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", "utf-8")
    return gone


def _other_than(path: Path, shard: Shard) -> str | None:
    """What makes a file one of another evaluation, in words; None where it is of the same."""
    try:
        return _difference(read_shard(path), shard)
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"
    except ValueError:
        return f"{path.name} is damaged, or of another version"


def read_shard(path: Path) -> Shard:
    """Read the results of one job.

    Raises:
        ValueError: not such a file, or of another version.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
        if values["format"] != FORMAT and (values["format"], values.get("of")) != (WITHOUT_HASHES, 1):
            raise ValueError(f"{path} has format {values['format']}, this version reads {FORMAT}: evaluate again")
        results = tuple(Result.from_plain(result) for result in values["results"])
        return Shard(Heading(**values["heading"]), values["number"], values["of"], results)
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no results of an evaluation, or is damaged: evaluate again") from error


def shards_beside(shard: Shard, folder: Path) -> list[Shard]:
    """The results of all jobs of the same evaluation that a folder holds by now."""
    return [read_shard(path) for path in _shard_paths([folder / FOLDER]) if _other_than(path, shard) is None]


def find_shards(folder: Path) -> list[Shard]:
    """All results in a folder, `results/K-of-N.json`; in the folders below it, where it has none of its own.

    Raises:
        ValueError: there are none, or one cannot be read.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: give the one that the jobs wrote to")
    own = folder if folder.name == FOLDER else folder / FOLDER
    paths = _shard_paths([own]) or _shard_paths(folder.rglob(FOLDER))
    if not paths:
        raise ValueError(f"{folder} holds no {FOLDER}/K-of-N.json: give the folder that the jobs wrote to")
    return [read_shard(path) for path in paths]


def _shard_paths(places: Iterable[Path]) -> list[Path]:
    paths = {path for place in places for path in place.glob("*.json")}
    return sorted(path for path in paths if re.fullmatch(r"\d+-of-\d+\.json", path.name))


def merge(shards: Sequence[Shard]) -> Shard:
    """One shard with the results of all, in the order of sets, recordings and models.

    Raises:
        ValueError: shards of different evaluations, one that is there twice, or one that is missing.
    """
    first = shards[0]
    for shard in shards:
        difference = _difference(shard, first)
        if difference is not None:
            raise ValueError(
                f"shard {shard.number}/{shard.of} is of another evaluation than {first.number}/{first.of}: "
                f"{difference}; give a folder with the results of one"
            )
    numbers = [shard.number for shard in shards]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if twice:
        raise ValueError(f"shard {twice[0]}/{first.of} is there twice: remove one")
    missing = sorted(set(range(first.of)) - set(numbers))
    if missing:
        raise ValueError(f"{len(missing)} of {first.of} shards are missing: run shard={missing[0]}/{first.of} first")
    by_place = {result.place: result for shard in shards for result in shard.results}
    return replace(first, number=0, of=1, results=tuple(by_place[place] for place in first.heading.places))


def _difference(a: Shard, b: Shard) -> str | None:
    """The first thing in which two evaluations differ, in words; None where they are the same."""
    if a.of != b.of:
        return f"{a.of} shards, not {b.of}"
    for name in ("settings", "models", "sets"):
        ours, theirs = getattr(a.heading, name), getattr(b.heading, name)
        for key in dict.fromkeys((*ours, *theirs)):
            if ours.get(key) != theirs.get(key):
                return f"{name} differ in {key}"
    return None
