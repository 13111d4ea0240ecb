"""The table of conversations side by side, by hand."""

from diarnorm.commands.talktable import comparison_table
from diarnorm.simulation.talkstats import count_talk, talk_statistics
from diarnorm.turns import Turn

BY_HAND = [Turn(1.0, 3.0, "a"), Turn(3.5, 4.0, "a"), Turn(5.0, 8.0, "b"), Turn(6.0, 6.5, "c"), Turn(7.0, 9.0, "a")]


def test_the_table_stands_side_by_side() -> None:
    one = talk_statistics([count_talk(BY_HAND, [(0.0, 20.0)])])
    other = talk_statistics([count_talk([Turn(0.0, 5.0, "x")], [(0.0, 10.0)])])
    lines = comparison_table({"simulated": one, "real": other}).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["", "simulated", "real"]
    assert len({len(line) for line in lines}) == 1
    by_name = {row[0]: row[1:] for row in cells}
    assert by_name["speech, % of time"] == ["32.5", "50.0"]
    assert by_name["overlap, % of speech"] == ["23.1", "0.0"]
    assert by_name["gap (another begins), s"] == ["1.00 (1.00 .. 1.00)", "n/a"]
