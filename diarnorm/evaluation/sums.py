"""Figures that add up over recordings."""

from dataclasses import fields
from typing import Any, TypeVar

Figures = TypeVar("Figures", bound="Additive")


class Additive:
    """Base of a dataclass of numbers whose sum, field by field, is one of its kind; all zeros without arguments."""

    def __add__(self: Figures, other: Figures) -> Figures:
        mine: Any = self
        return type(self)(*(getattr(mine, each.name) + getattr(other, each.name) for each in fields(mine)))
