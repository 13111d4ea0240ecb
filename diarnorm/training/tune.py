"""Thresholds of the memory and of the turns, chosen on simulated conversations of held-out speakers.

One parameter at a time, in rounds: the value with the lowest DER stays. The encoder runs once; the memory runs anew for
each of its own parameters; turns cost next to nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from diarnorm.checkpoint import Checkpoint
from diarnorm.memory import MemoryConfig
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.devrecordings import RecordedSet
from diarnorm.turns import TurnConfig

MEMORY_GRID: dict[str, tuple[float, ...]] = {
    "birth": (0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
    "floor": (0.3, 0.4, 0.5, 0.6, 0.7),
    "confirm_frames": (2.0, 4.0, 6.0, 9.0, 13.0),
    "drop_frames": (12, 25, 50, 100),
}
TURN_GRID: dict[str, tuple[float, ...]] = {
    "onset": (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8),
    "offset": (0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7),
    "min_on_frames": (1, 2, 3, 4),
    "min_off_frames": (2, 3, 4, 6, 8),
    "pad_frames": (0, 1, 2),
}


@dataclass(frozen=True)
class Trial:
    """One setting and its development figures."""

    memory: MemoryConfig
    turns: TurnConfig
    figures: dict[str, float]

    @property
    def der(self) -> float:
        """What is minimised, in %."""
        return self.figures["der"]

    def applied_to(self, checkpoint: Checkpoint) -> Checkpoint:
        """The same weights under this setting."""
        return checkpoint.under(self.memory, self.turns)


class Tuner:
    """Coordinate descent over the two grids."""

    def __init__(self, checkpoint: Checkpoint, development: DevelopmentSet | RecordedSet) -> None:
        self.model, self.development = checkpoint.model.eval(), development
        self.h: Any = development.encode(self.model)
        self._remember = lru_cache(maxsize=4)(self._run_memory)
        self.best = self._try(self.model.config.memory, checkpoint.turns)

    def run(self, rounds: int = 2) -> Trial:
        """The best setting after `rounds` passes over all parameters."""
        for _ in range(rounds):
            for memory, turns in self._neighbours():
                trial = self._try(memory, turns)
                if trial.der < self.best.der:
                    self.best = trial
        return self.best

    def _neighbours(self) -> Iterator[tuple[MemoryConfig, TurnConfig]]:
        """Settings that differ from the best one, as it is by then, in one parameter."""
        for name, values in MEMORY_GRID.items():
            for value in values:
                if name != "confirm_frames" or value <= self.best.memory.cap_frames:
                    yield replace(self.best.memory, **{name: value}), self.best.turns
        for value in TURN_GRID["onset"]:  # undivided speech asks for another threshold, so both change together
            lower = min(value, self.best.turns.offset)
            other = not self.best.turns.undivided
            yield self.best.memory, replace(self.best.turns, undivided=other, onset=value, offset=lower)
        for name, values in TURN_GRID.items():
            for value in values:
                changed = {name: value}
                if name == "onset":
                    changed["offset"] = min(value, self.best.turns.offset)
                if name == "offset":
                    changed["onset"] = max(value, self.best.turns.onset)
                try:
                    yield self.best.memory, replace(self.best.turns, **changed)
                except ValueError:  # min_off_frames and pad_frames do not fit one another
                    continue

    def _try(self, memory: MemoryConfig, turns: TurnConfig) -> Trial:
        turns = memory.turn_rules(turns)
        return Trial(memory, turns, self.development.score(self._remember(memory), turns))

    def _run_memory(self, memory: MemoryConfig) -> Any:
        with self.model.memory.under(memory):
            return self.development.remember(self.model, self.h)
