"""The live timeline: rows from events, and a picture that goes away again."""

from io import StringIO

from rich.console import Console

from diarnorm.live import SPAN_S, Timeline, TimelineState, axis
from diarnorm.turns import Turn, TurnStart


def test_rows_show_who_spoke_when_and_who_speaks_now() -> None:
    state = TimelineState()
    state.update([TurnStart(1.0, "speaker_1"), Turn(1.0, 3.0, "speaker_1"), TurnStart(2.0, "speaker_2")], 4.0)
    first, second = state.rows(60)
    assert [i for i, cell in enumerate(first.cells) if cell] == [1, 2]
    assert [i for i, cell in enumerate(second.cells) if cell] == [2, 3]
    assert (first.is_speaking, first.speech_s) == (False, 2.0)
    assert (second.is_speaking, second.speech_s) == (True, 2.0)


def test_the_picture_moves_with_the_time_and_the_state_does_not_grow() -> None:
    state = TimelineState()
    for i in range(1000):
        state.update([TurnStart(2.0 * i, "speaker_1"), Turn(2.0 * i, 2.0 * i + 1, "speaker_1")], 2.0 * i + 2)
    (row,) = state.rows(60)
    assert row.cells == (True, False) * 30
    assert row.speech_s == 1000.0
    assert len(state._recent) <= SPAN_S / 2 + 1


def test_a_terminal_sees_bars_and_gets_its_lines_back() -> None:
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None, legacy_windows=False)
    with Timeline("my [talk]", shares_stdout=False, console=console) as timeline:
        timeline.update([TurnStart(15.0, "speaker_1")], 30.0)
    text = screen.getvalue()
    assert "my [talk]  30.0 s" in text
    assert "speaks" in text
    assert "·" * 12 + "━" * 12 in text  # 48 cells for 60 s
    assert f"0 s{' ' * 41}60 s" in text
    assert text.endswith("\x1b[1A\x1b[2K")


def test_the_axis_moves_with_the_bars() -> None:
    assert axis(100.0, 20) == "40 s           100 s"
    assert len(axis(11_000.0, 10)) >= 10
