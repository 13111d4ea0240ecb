"""Settings out of range or unknown, refused with their key, what was given and what is possible."""

import math
import re
from collections.abc import Sequence


def check_choice(key: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        ValueError: with the key, the value and the choices.
    """
    if value not in choices:
        raise ValueError(f"{key}={value} is not known: choose one of {', '.join(choices)}")


def check_range(
    key: str,
    value: float,
    *,
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
    why: str = "",
) -> None:
    """Refuse a number that is not finite, not `above` one bound, below `low` or beyond `high`.

    Raises:
        ValueError: with the key, the value and the bounds.
    """
    bounds = [f"above {above:g}"] if above is not None else []
    bounds += [f"of at least {low:g}{why}"] if low is not None else []
    bounds += [f"of at most {high:g}"] if high is not None else []
    fits = (above is None or value > above) and (low is None or value >= low) and (high is None or value <= high)
    if not (math.isfinite(value) and fits):
        raise ValueError(f"{key}={value} is out of range: give a number {' and '.join(bounds)}")


def check_expression(key: str, given: str) -> re.Pattern[str]:
    """Refuse what is no regular expression; the expression.

    Raises:
        ValueError: with the key and what is wrong.
    """
    try:
        return re.compile(given)
    except re.error as error:
        raise ValueError(f"{key}={given} is no regular expression: {error}") from error


def check_one_group(key: str, given: str, example: str, choices: str = "an expression") -> None:
    """Refuse what is no regular expression with one group.

    Raises:
        ValueError: with the key, the number of groups and an example.
    """
    num_groups = check_expression(key, given).groups
    if num_groups != 1:
        raise ValueError(f"{key}={given} has {num_groups} groups: give {choices} with one group, such as '{example}'")
