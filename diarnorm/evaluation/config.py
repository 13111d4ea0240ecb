"""Configuration of an evaluation. Defaults live here; the command line says what differs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any

from diarnorm.checks import check_one_group, check_range
from diarnorm.memory import MemoryConfig
from diarnorm.timebase import chunk_frames
from diarnorm.turns import TurnConfig, check_max_speakers

SPEAKERS, NO_GROUPS = "speakers", "none"
"""Values of `group_by` beside regular expressions; the second of `family_by`, too."""
OF_THE_MEMORY = ("confirm_frames",)
"""Settings of turns that the model's memory decides."""
MEMORY_RULES = ("cap_frames", "floor", "birth", "confirm_frames", "drop_frames")
"""Settings of the memory that no weights depend on."""


def _changes(name: str, of: type, names: Iterable[str]) -> Any:
    """A dataclass with some fields of another; None, the default, leaves a model its own."""
    types = {each.name: each.type for each in fields(of)}
    return make_dataclass(name, [(each, types[each] | None, None) for each in names], frozen=True)  # pyright: ignore[reportOperatorIssue]


TurnChanges: Any = _changes(
    "TurnChanges", TurnConfig, [each.name for each in fields(TurnConfig) if each.name not in OF_THE_MEMORY]
)
MemoryChanges: Any = _changes("MemoryChanges", MemoryConfig, MEMORY_RULES)


@dataclass(frozen=True)
class Changes:
    """What may be asked of a model; None leaves it its own. Values out of range raise ValueError."""

    chunk_ms: int | None = None
    """Length of a chunk."""
    max_speakers: int | None = None
    turns: TurnChanges = field(default_factory=TurnChanges)  # pyright: ignore[reportInvalidTypeForm]
    memory: MemoryChanges = field(default_factory=MemoryChanges)  # pyright: ignore[reportInvalidTypeForm]

    def __post_init__(self) -> None:
        if self.chunk_ms is not None:
            chunk_frames(self.chunk_ms)
        if self.max_speakers is not None:
            check_max_speakers(self.max_speakers)


@dataclass(frozen=True)
class Variant(Changes):
    """A model with changes of its own, which go before those of all models."""

    path: str = ""
    """Name of a shipped model, or path of a model file."""
    oracle_memory: bool = False
    """Whether the reference says whom the memory hears, as if it never erred: a bound, no result; see
    `evaluation.oracle`."""


@dataclass(frozen=True)
class EvaluateConfig(Changes):
    """Models times sets of recordings, and changes of all models. Values out of range are refused with their key.

    Raises ValueError for the first of them.
    """

    models: Any = "rms"
    """Names of shipped models, paths of model files, folders of RTTM files: one, a list, or {NAME: PATH}; a `Variant`
    in place of a path is a model under rules of its own."""
    sets: dict[str, Any] = field(default_factory=dict)
    """Sets of recordings by name: a folder, a list, or {audio, rttm, uem, region_s}; see `evaluation.sources`."""
    collars_s: tuple[float, ...] = (0.0, 0.25)
    """Seconds on each side of a reference boundary that are not scored (NIST); the first is the headline's."""
    skip_overlap: bool = False
    group_by: str = SPEAKERS
    """`speakers` (of the reference), `none`, or a regular expression whose one group is found in a recording's name."""
    family_by: str = NO_GROUPS
    """`none`, or a regular expression whose one group is found in a model's name: models that share it are one model
    trained several times, and have rows for their mean."""
    long_s: float = 600.0
    """Recordings of which this much or more is scored have label switches and recognition after pauses reported."""
    pause_s: float = 300.0
    """Silence of the reference after which speakers must be recognised."""
    num_resamples: int = 1000
    seed: int = 0
    workers: int = 1
    """Processes, each on one CPU thread."""
    shard: str = "0/1"
    """K/N: this job does every N-th recording, from the K-th on (from 0)."""
    device: str = "cpu"
    strict: bool = False
    """Whether a missing hypothesis makes the command fail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("workers", "num_resamples"):
            check_range(name, getattr(self, name), low=1)
        check_range("seed", self.seed, low=0)
        check_range("long_s", self.long_s, low=0)
        check_range("pause_s", self.pause_s, above=0)
        if not self.collars_s:
            raise ValueError("collars_s is empty: give at least one number of seconds, 0 for none")
        for collar_s in self.collars_s:
            check_range("collars_s", collar_s, low=0)
        if len(set(self.collars_s)) < len(self.collars_s):
            raise ValueError(f"collars_s={list(self.collars_s)} has a collar twice: give each once")
        parse_shard(self.shard)
        self._check_groups()

    def _check_groups(self) -> None:
        if self.group_by not in (SPEAKERS, NO_GROUPS):
            check_one_group("group_by", self.group_by, "^([a-z]+)_", "speakers, none, or an expression")
        if self.family_by != NO_GROUPS:
            check_one_group("family_by", self.family_by, "^(.+)-[0-9]+$", "none, or an expression")


def given_values(changes: Any) -> dict[str, Any]:
    """Fields of a dataclass that are not None."""
    values = {each.name: getattr(changes, each.name) for each in fields(changes)}
    return {name: value for name, value in values.items() if value is not None}


def parse_shard(word: str, key: str = "shard") -> tuple[int, int]:
    """K and N of a shard K/N, given by the key of this name.

    >>> parse_shard("1/4")
    (1, 4)

    Raises:
        ValueError: not of that form, or K not below N.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", word)
    if match is None or not int(match[1]) < int(match[2]):
        raise ValueError(f"{key}={word} is none: give K/N with K from 0 to N - 1, such as {key}=0/4")
    return int(match[1]), int(match[2])


def group_of(name: str, num_speakers: int, group_by: str) -> str | None:
    """The group of a recording, None where there are none.

    >>> group_of("ami_dev00", 2, "^([a-z]+)_"), group_of("ami_dev00", 2, "speakers")
    ('ami', '2')
    """
    if group_by == NO_GROUPS:
        return None
    if group_by == SPEAKERS:
        return str(num_speakers)
    match = re.search(group_by, name)
    return "other" if match is None or match[1] is None else match[1]
