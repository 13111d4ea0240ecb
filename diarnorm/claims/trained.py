"""Trained models that an experiment is given, each with the settings that are asked of it."""

from pathlib import Path
from typing import Any

from diarnorm.evaluation.hypotheses import Candidate, Settings, find_candidates


def find_networks(models: Any) -> tuple[Candidate, ...]:
    """Models that run: one, a list, or by name, each a path or a variant; relative paths start here.

    Raises:
        ValueError: see `find_candidates`; a folder of turns, or a memory that is told by a reference.
    """
    candidates = find_candidates(models, Path.cwd(), Settings())
    for each in candidates:
        if not each.is_network:
            raise ValueError(f"{each.name} is a folder, not a model that runs: give model files")
        if each.settings.oracle_memory:
            raise ValueError(f"{each.name} has oracle_memory, which is not done here: leave it out")
    return candidates
