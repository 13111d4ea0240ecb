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
    bounds = bounds or ["that is finite"]
    fits = (above is None or value > above) and (low is None or value >= low) and (high is None or value <= high)
    if not (math.isfinite(value) and fits):
        raise ValueError(f"{key}={value} is out of range: give a number {' and '.join(bounds)}")


def check_interval(
    key: str,
    given: Sequence[float],
    *,
    unit: str = "",
    above: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> None:
    """Refuse what is not two numbers in order, or has an end that `check_range` refuses.

    Raises:
        ValueError: with the key, what was given, and its unit or the bounds.
    """
    if len(given) != 2 or given[0] > given[1]:
        raise ValueError(f"{key}={list(given)} is no range: give [LOW,HIGH]{unit and f' in {unit}'}")
    for end in given:
        check_range(key, end, above=above, low=low, high=high)


def check_shares(key: str, given: Sequence[float]) -> None:
    """Refuse what is no list of relative shares: none, one that is negative or not finite, or nothing but zeros.

    Raises:
        ValueError: with the key and what was given.
    """
    if not given or not all(0 <= share < math.inf for share in given) or sum(given) <= 0:
        raise ValueError(f"{key}={list(given)} are no shares: give one or more numbers from 0 on, not all of them 0")


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
