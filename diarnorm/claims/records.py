"""Evidence as files: one JSON each, with what it was made on, so that a report can be put together at any time."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from diarnorm.checkpoint import from_plain
from diarnorm.claims.evidence import Evidence
from diarnorm.files import replacing
from diarnorm.kernels import native
from diarnorm.modelfile import as_json
from diarnorm.resources import commit, processor

FOLDER = "evidence"


@dataclass(frozen=True)
class Record:
    """Evidence, and what it was made on."""

    evidence: Evidence
    commit: str
    machine: str
    seconds: float
    settings: tuple[str, ...]
    """What was changed of the recipe, as typed."""


def record_of(evidence: Evidence, seconds: float, settings: Sequence[str] = ()) -> Record:
    """`evidence` as made here and now."""
    return Record(evidence, commit(), machine(), round(seconds, 1), tuple(settings))


def machine() -> str:
    """Processor, GPU, torch and the kernel of RMSNorm, in words."""
    kernels = native.load()
    parts = [
        f"{processor()}, {os.cpu_count()} cores",
        torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU",
        f"torch {torch.__version__}",
        f"RMSNorm on the CPU by {'four operators of torch' if kernels is None else kernels.name}",
    ]
    return ", ".join(parts)


def save(record: Record, folder: Path) -> Path:
    """Write the record to `folder/evidence/`; the path."""
    path = folder / FOLDER / f"{record.evidence.experiment}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_text(json.dumps(as_json(asdict(record)), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path


def load_all(folder: Path) -> dict[str, Record]:
    """Every record of a folder, by experiment.

    Raises:
        ValueError: a file that is none.
    """
    records = {}
    for path in sorted((folder / FOLDER).glob("*.json")):
        try:
            records[path.stem] = from_plain(Record, json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is no evidence of this version ({error}): remove it") from error
    return records
