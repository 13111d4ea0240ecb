"""A small set of recordings for evaluations: bursts of noise with references that are off by known amounts."""

from collections.abc import Iterable
from pathlib import Path

import soundfile

from diarnorm.rttm import write_rttm
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.turns import Turn
from tests.loudness import noise_bursts

REFERENCES = {
    "a_one": [("anna", 1.0, 2.0), ("anna", 3.0, 4.5)],
    "a_two": [("anna", 0.5, 1.5), ("ben", 2.0, 3.0)],
    "b_one": [("ben", 1.0, 3.0)],
    "b_silent": [],
    "b_two": [("anna", 1.0, 2.5), ("ben", 2.0, 3.5), ("carl", 4.0, 5.0)],
}
"""Speaker, start, end in seconds; each recording ends a second after the last."""


def turns(spans: Iterable[tuple[str, float, float]]) -> list[Turn]:
    """Turns from speaker, start and end."""
    return [Turn(start, end, who) for who, start, end in spans]


def save_rttm(path: Path, spans: Iterable[tuple[str, float, float]], uri: str | None = None) -> Path:
    """An RTTM file about the recording of its own name, or of another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        write_rttm(turns(spans), uri or path.stem, file)
    return path


def duration_of(spans: Iterable[tuple[str, float, float]]) -> float:
    """A second after the last turn, or three."""
    return max((end for _, _, end in spans), default=2.0) + 1.0


def save_set(folder: Path, names: Iterable[str] = REFERENCES, ending: str = "wav") -> Path:
    """Recordings that are loud where their references say, and the references."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        spans = REFERENCES[name]
        samples = noise_bursts([(start, end) for _, start, end in spans], duration_of(spans))
        soundfile.write(folder / f"{name}.{ending}", samples, SAMPLE_RATE)
        save_rttm(folder / f"{name}.rttm", spans)
    return folder
