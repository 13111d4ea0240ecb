"""diarnorm: who spoke when, live, with a normalisation layer that is a measurable choice.

The public names below are imported when first used, so that `import diarnorm` costs nothing.

>>> from diarnorm import Turn
>>> Turn(0.5, 2.0, "speaker_1").duration
1.5
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diarnorm.audio.reader import open_audio
    from diarnorm.evaluation.scoring import score
    from diarnorm.norms import make_norm
    from diarnorm.rttm import read_rttm, write_rttm
    from diarnorm.stream import Diarizer, Stream, StreamState
    from diarnorm.turns import Turn, TurnConfig, TurnStart

__version__ = "0.1.0"

__all__ = [
    "Diarizer",
    "Stream",
    "StreamState",
    "Turn",
    "TurnConfig",
    "TurnStart",
    "__version__",
    "make_norm",
    "open_audio",
    "read_rttm",
    "score",
    "write_rttm",
]

_HOMES = {
    "Diarizer": "stream",
    "Stream": "stream",
    "StreamState": "stream",
    "Turn": "turns",
    "TurnConfig": "turns",
    "TurnStart": "turns",
    "make_norm": "norms",
    "open_audio": "audio.reader",
    "read_rttm": "rttm",
    "score": "evaluation.scoring",
    "write_rttm": "rttm",
}
"""Module of each public name."""


def __getattr__(name: str) -> Any:
    """Import a public name from its module (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'diarnorm' has no attribute {name!r}")
    value = getattr(import_module(f"diarnorm.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
