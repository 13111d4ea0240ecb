"""What the simulator's numbers may be: one rule for each kind, which its name or its type tells."""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from diarnorm.checks import check_interval, check_range

KEY = "data.simulator"
"""Where the simulator's settings stand in the configuration of a training."""
SHARE = re.compile(r"_(probability|share)$")
LOGARITHM = re.compile(r"_log10|_db($|_per_)")
"""Ratios, levels and exponents: as a range they may be negative, as one number they are a spread or a limit."""
UNIT = {"s": "s", "hz": "Hz", "db": "dB"}


def check_numbers(part: str, config: Any, *, positive: Sequence[str] = ()) -> None:
    """Refuse numbers and ranges of a part of the simulator's configuration that cannot be.

    Probabilities and shares are from 0 to 1, ranges are two numbers in order, and nothing is negative but ranges of
    decibels and of logarithms. Fields named `positive` are not 0 either.

    Raises:
        ValueError: with the key, what was given and what is needed.
    """
    hints = get_type_hints(type(config))
    for name in (field.name for field in fields(config)):
        key, value = ".".join(filter(None, (KEY, part, name))), getattr(config, name)
        above, low = (0, None) if name in positive else (None, 0)
        if hints[name] is float:
            check_range(key, value, above=above, low=low, high=1 if SHARE.search(name) else None)
        elif get_args(hints[name]) in ((float, float), (int, int)):
            low = None if LOGARITHM.search(name) else low
            unit = "" if "log10" in name else UNIT.get(name.rpartition("_")[2], "")
            check_interval(key, value, unit=unit, above=above, low=low)
