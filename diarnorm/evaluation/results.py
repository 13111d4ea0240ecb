"""What the jobs of an evaluation leave behind: the seconds of every recording, as JSON, and how shards become one.

Numbers are written so that reading gives the same number, bit for bit.
"""

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

FORMAT = 3
FOLDER = "results"
PARTS = {"errors": Components, "merged": Components, "grid": Components, "causes": Causes}
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
            FileScore(**{**score, **{name: part(**score[name]) for name, part in PARTS.items()}})
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
    """By name: `recordings`, the `region` in words, `notes`."""

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
            {**settings, "diarnorm": diarnorm.__version__},
            {each.name: {"sha256": each.sha256, "changes": each.settings.plain()} for each in candidates},
            {
                each.name: {
                    "recordings": [recording.name for recording in each.recordings],
                    "region": each.region,
                    "notes": list(notes[each.name]),
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


def write_shard(shard: Shard, folder: Path) -> None:
    """Write `results/K-of-N.json` in a folder; what another evaluation left there goes."""
    place = folder / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    for path in _shard_paths([place]):
        if not _is_of(path, shard):
            path.unlink(missing_ok=True)
    values = {"format": FORMAT, "heading": asdict(shard.heading), "number": shard.number, "of": shard.of}
    values["results"] = [asdict(result) for result in shard.results]
    with replacing(place / f"{shard.number}-of-{shard.of}.json") as partial:
        partial.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", "utf-8")


def _is_of(path: Path, shard: Shard) -> bool:
    """Whether a file is of the same evaluation."""
    try:
        other = read_shard(path)
    except (OSError, ValueError):
        return False
    return (other.heading, other.of) == (shard.heading, shard.of)


def read_shard(path: Path) -> Shard:
    """Read the results of one job.

    Raises:
        ValueError: not such a file, or of another version.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
        if values["format"] != FORMAT:
            raise ValueError(f"{path} has format {values['format']}, this version reads {FORMAT}: evaluate again")
        results = tuple(Result.from_plain(result) for result in values["results"])
        return Shard(Heading(**values["heading"]), values["number"], values["of"], results)
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no results of an evaluation, or is damaged: evaluate again") from error


def shards_beside(shard: Shard, folder: Path) -> list[Shard]:
    """The results of all jobs of the same evaluation that a folder holds by now."""
    return [read_shard(path) for path in _shard_paths([folder / FOLDER]) if _is_of(path, shard)]


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
        if (shard.heading, shard.of) != (first.heading, first.of):
            raise ValueError(
                f"shard {shard.number}/{shard.of} is of another evaluation than {first.number}/{first.of}: "
                f"{_difference(shard, first)}; give a folder with the results of one"
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


def _difference(a: Shard, b: Shard) -> str:
    """The first thing in which two headings differ, in words."""
    if a.of != b.of:
        return f"{a.of} shards, not {b.of}"
    for name in ("settings", "models", "sets"):
        ours, theirs = getattr(a.heading, name), getattr(b.heading, name)
        for key in dict.fromkeys((*ours, *theirs)):
            if ours.get(key) != theirs.get(key):
                return f"{name} differ in {key}"
    return "they differ"
