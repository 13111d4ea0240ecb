"""What a check found, in lines; a speed below its bar is no wrong result."""

import pytest

from diarnorm.bench.findings import Finding, line, tell


def test_lines_say_what_failed() -> None:
    assert line(Finding("x", "1 us", "at most 2", True)).endswith("ok")
    assert line(Finding("x", "3 us", "at most 2", False)).endswith("BELOW THE BAR")
    assert line(Finding("x", "3 us")).endswith("3 us")
    assert line(Finding("x", "0.1", "right", False, is_result=True)).endswith("WRONG")


def test_slow_is_not_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell([Finding("x", "3 us", "at most 2", False), Finding("y", "1", "1", True, is_result=True)])
    assert not tell([Finding("x", "wrong", "right", False, is_result=True)])
    assert capsys.readouterr().out.count("BELOW THE BAR") == 1
