"""Where a set lies, as a configuration says it: what is no source is refused by its key."""

import pytest

from diarnorm.evaluation.sources import SetSource, parse_source


def test_a_path_is_enough() -> None:
    assert parse_source("s", "x") == SetSource(("x",))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "sets.s names no recordings"),
        ([], "sets.s names no recordings"),
        ([3], "sets.s names no recordings"),
        ({"rttm": "x"}, "sets.s names no recordings"),
        ({"audio": "x", "umm": "y"}, "sets.s.umm is no key of a set; did you mean uem?"),
        ({"audio": "x", "colour": "y"}, "known are audio, rttm, uem, region_s"),
        ({"audio": "x", "rttm": 3}, "sets.s.rttm=3 is no path"),
        ({"audio": "x", "region_s": [3, 2]}, r"sets.s.region_s=\[3, 2\] is no region: give \[START,END\]"),
        ({"audio": "x", "region_s": "30"}, "sets.s.region_s=30 is no region"),
        ({"audio": "x", "region_s": [0, 1], "uem": "x"}, "has a uem and a region_s"),
    ],
)
def test_a_source_that_is_none(given: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_source("s", given)
