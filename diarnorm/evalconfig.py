"""Configuration of an evaluation. Defaults live here; the command line says what differs."""

import re
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any

from diarnorm.runconfig import check_range
from diarnorm.timebase import chunk_frames
from diarnorm.turns import TurnConfig, check_max_speakers

SPEAKERS, NO_GROUPS = "speakers", "none"
"""Values of `group_by` beside regular expressions."""
OF_THE_MEMORY = ("confirm_frames",)
"""Settings of turns that the model's memory decides."""

TurnChanges: Any = make_dataclass(
    "TurnChanges",
    [
        (each.name, each.type | None, None)  # pyright: ignore[reportOperatorIssue]
        for each in fields(TurnConfig)
        if each.name not in OF_THE_MEMORY
    ],
    frozen=True,
)
"""Every setting of turns that may be changed for all models at once; None leaves a model its own."""


@dataclass(frozen=True)
class EvaluateConfig:
    """Models times sets of recordings. Values out of range are refused with their key.

    Raises ValueError for the first of them.
    """

    models: Any = "rms"
    """Names of shipped models, paths of model files, folders of RTTM files: one, a list, or {NAME: PATH}."""
    sets: dict[str, Any] = field(default_factory=dict)
    """Sets of recordings by name: a folder, a list, or {audio, rttm, uem, region_s}; see `diarnorm.recordings`."""
    chunk_ms: int | None = None
    """Length of a chunk for all models; None: each model's own."""
    max_speakers: int | None = None
    turns: TurnChanges = field(default_factory=TurnChanges)  # pyright: ignore[reportInvalidTypeForm]
    collars_s: tuple[float, ...] = (0.0, 0.25)
    """Seconds on each side of a reference boundary that are not scored (NIST); the first is the headline's."""
    skip_overlap: bool = False
    group_by: str = SPEAKERS
    """`speakers` (of the reference), `none`, or a regular expression whose one group is found in a recording's name."""
    long_s: float = 600.0
    """Recordings of this length or more have label switches and recognition after pauses reported."""
    pause_s: float = 300.0
    """Silence after which speakers must be recognised."""
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
        if self.chunk_ms is not None:
            chunk_frames(self.chunk_ms)
        if self.max_speakers is not None:
            check_max_speakers(self.max_speakers)
        parse_shard(self.shard)
        self._check_groups()

    def _check_groups(self) -> None:
        if self.group_by in (SPEAKERS, NO_GROUPS):
            return
        try:
            num_groups = re.compile(self.group_by).groups
        except re.error as error:
            raise ValueError(f"group_by={self.group_by} is no regular expression: {error}") from error
        if num_groups != 1:
            raise ValueError(
                f"group_by={self.group_by} has {num_groups} groups: give speakers, none, or an expression "
                "with one group, such as '^([a-z]+)_'"
            )

    @property
    def turn_changes(self) -> dict[str, Any]:
        """The settings of turns that are given."""
        values = {each.name: getattr(self.turns, each.name) for each in fields(self.turns)}
        return {name: value for name, value in values.items() if value is not None}


def parse_shard(word: str) -> tuple[int, int]:
    """K and N of a shard K/N.

    >>> parse_shard("1/4")
    (1, 4)

    Raises:
        ValueError: not of that form, or K not below N.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", word)
    if match is None or not int(match[1]) < int(match[2]):
        raise ValueError(f"shard={word} is none: give K/N with K from 0 to N - 1, such as shard=0/4")
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
