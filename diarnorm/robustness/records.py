"""What is measured of one model on one recording under one change, and a file that keeps it while the work goes on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from diarnorm.evaluation.hypotheses import CODE as HYPOTHESES
from diarnorm.evaluation.scores import Components
from diarnorm.resources import code_sha256

FORMAT = 3
NAME = "records.jsonl"
_REPORT = "columns conventions factors figures grid intervals page panels players publish rows summary tables"
AFTERWARDS = frozenset(_REPORT.split())
"""Modules beside this one that only make reports of records."""
BEFORE = frozenset({"conditions", "config", "records", "study"})
"""Those that say what is measured, and keep it: all that they give to the rest stands in the key."""
FOREIGN = (
    *HYPOTHESES,
    *(f"evaluation/{name}.py" for name in ("scores", "scoring", "sums")),
    *(f"simulation/{name}.py" for name in ("acoustics", "activity", "channel", "conversation", "filters", "rooms")),
    "training/develop.py",
)
"""Sources elsewhere that numbers depend on."""


@dataclass(frozen=True)
class Record:
    """Measurements of one model on one recording under one condition; None where there is nothing to measure.

    Of a peer there is nothing from `drift` on.

    Attributes:
        key: hash of all that the rest depends on.
        duration_s: of what the model heard.
        level_dbfs: RMS of what the model heard, about its mean, on the raw input.
        speech_level_db: its active speech level (ITU-T P.56); see `level`.
        dc: mean of what the model heard, full scale 1.
        errors: parts of the DER, in seconds.
        merged: those of the output with one label for everybody; its false alarm is speech where nobody speaks.
        halves: parts of the DER of the first and the second half, each scored by itself; empty unless asked for.
        num_turns: of the model.
        turns: what it said, see `scored.written`; so that more can be asked of a run that is over.
        num_speakers: labels of the model.
        event_s: length of the changed pieces, without their edges.
        event_speech_s: speech of the model in them, without their edges.
        inserted_s: length of the pieces that were put in, without their edges.
        inserted_speech_s: speech of the model in those, without their edges.
        drift: see `measures.drift`.
        rms: of the residual stream after each block.
        event_rms: the same in the changed pieces.
        attention: share of the attention on the changed frames, per block.
        clean_attention: the same in the clean run on the same frames.
        uniform_attention: what their number alone would make it.
        recovery_s: see `measures.recovery`.
        after_s: seconds after a change in which one speaks in both runs; see `measures.labels_after`.
        same_labels_s: those with the label of the clean run.
    """

    key: str
    model: str
    set_name: str
    recording: str
    condition: str
    duration_s: float
    level_dbfs: float
    speech_level_db: float | None
    dc: float
    errors: Components
    merged: Components
    halves: tuple[Components, ...]
    num_turns: int
    turns: str
    num_speakers: int
    event_s: float
    event_speech_s: float
    inserted_s: float
    inserted_speech_s: float
    drift: float | None = None
    rms: tuple[float, ...] = ()
    event_rms: tuple[float, ...] | None = None
    attention: tuple[float, ...] | None = None
    clean_attention: tuple[float, ...] | None = None
    uniform_attention: float | None = None
    recovery_s: tuple[float | None, ...] = ()
    after_s: float = 0.0
    same_labels_s: float = 0.0

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> "Record":
        """The record that `asdict` and JSON turned into plain values."""
        fixed: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in values.items()}
        for name in ("errors", "merged"):
            fixed[name] = Components(**fixed[name])
        return cls(**{**fixed, "halves": tuple(Components(**half) for half in fixed["halves"])})


@cache
def measuring_code() -> tuple[str, ...]:
    """Sources that records depend on, beside those that turns do, as paths and patterns in the package."""
    here = Path(__file__).resolve().parent
    own = [path for path in sorted(here.glob("*.py")) if path.stem not in AFTERWARDS | BEFORE]
    return (*(f"{here.name}/{path.name}" for path in own), *FOREIGN)


def make_key(facts: Mapping[str, Any]) -> str:
    """Hash of plain values, and of the code that measures."""
    code = code_sha256(*measuring_code())
    text = json.dumps({"format": FORMAT, "code": code, **facts}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    """Records by key, in a file of one JSON object per line that grows as they come; a damaged line is left out."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._records: dict[str, Record] = {}
        folder.mkdir(parents=True, exist_ok=True)
        text = self._path.read_text("utf-8", errors="replace") if self._path.exists() else ""
        for line in text.split("\n"):
            try:
                record = Record.from_plain(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            self._records[record.key] = record
        if text and not text.endswith("\n"):  # stopped in the middle of a line
            with self._path.open("a", encoding="utf-8") as file:
                file.write("\n")

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def __getitem__(self, key: str) -> Record:
        return self._records[key]

    def add(self, record: Record) -> None:
        """Keep a record."""
        self._records[record.key] = record
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(record), ensure_ascii=False, allow_nan=False) + "\n")
