"""Record of a run: a row per step whatever happened in between, and what a person is shown."""

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from diarnorm.training import trainlog
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.trainlog import LOSSES, TrainingLog

FIGURES = {name: float(number) for number, name in enumerate(DevelopmentSet.FIGURES)} | {"der": 31.256}


def write(path: Path, first_step: int, last_step: int, num_steps: int = 10) -> None:
    """Rows after `first_step`; the loss of step i is i."""
    with TrainingLog(path, num_steps, first_step) as log:
        for step in range(first_step + 1, last_step + 1):
            log.add(
                step, step / 100, 150.04, {"births": float(step), "grad_norm": 0.5}, FIGURES if step % 4 == 0 else {}
            )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_per_step(tmp_path: Path) -> None:
    write(tmp_path / "log.csv", 0, 4)
    found = rows(tmp_path / "log.csv")
    assert [row["step"] for row in found] == ["1", "2", "3", "4"]
    assert list(found[0]) == ["step", "hours", "audio_s_per_s", *LOSSES, *DevelopmentSet.FIGURES]
    assert found[2]["births"] == "3.0"
    assert found[2]["hours"] == "0.03"
    assert found[2]["audio_s_per_s"] == "150.0"
    assert found[2]["own"] == found[2]["der"] == ""
    assert found[3]["der"] == "31.26"


@pytest.mark.parametrize("at_step", [0, 3, 7, 9])
def test_a_run_that_goes_on_has_each_step_once(tmp_path: Path, at_step: int) -> None:
    """However far the log was ahead of the checkpoint at `at_step`."""
    write(tmp_path / "whole.csv", 0, 10)
    write(tmp_path / "log.csv", 0, 7)
    write(tmp_path / "log.csv", at_step, 10)
    expected = [row for row in rows(tmp_path / "whole.csv") if not 7 < int(row["step"]) <= at_step]
    assert rows(tmp_path / "log.csv") == expected
    assert len((tmp_path / "log.csv").read_bytes().splitlines()) == 1 + len(expected)


@pytest.mark.parametrize("cut", [1, 5, 10_000])
def test_a_row_cut_short_is_written_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.csv"
    write(path, 0, 5)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)])
    first = 4 if cut < len(whole) else 0
    write(path, first, 5)
    assert path.read_bytes() == whole


def test_a_run_of_a_version_with_fewer_losses_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"step,hours,births,der\r\n1,0.01,2.5,\r\n2,0.02,2.25,40.5\r\n3,0.03,2.0,\r\n")
    write(path, 2, 4)
    found = rows(path)
    assert list(found[0]) == list(trainlog.COLUMNS)
    assert [row["step"] for row in found] == list("1234")
    assert [row["births"] for row in found] == ["2.5", "2.25", "3.0", "4.0"]
    assert [row["der"] for row in found] == ["", "40.5", "", "31.26"]
    assert found[1]["contrastive"] == ""


def test_lines_come_now_and_then_and_with_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingLog(tmp_path / "log.csv", 50) as log:
        for step in range(1, 51):
            log.add(step, 1.0, 100.0, {"births": 2.0}, FIGURES if step == 30 else {})
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["step=20", "step=30", "step=40", "step=50"]
    assert "births=2.0" in lines[0]
    assert "own" not in lines[0]
    assert "der=31.26" in lines[1]
    assert log.last_figures == FIGURES


def test_the_time_left_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [1000.0]
    monkeypatch.setattr(trainlog.time, "monotonic", lambda: now[0])
    with TrainingLog(tmp_path / "log.csv", 1020, 0) as log:
        for step in range(1, 21):
            log.add(step, 1.0, 100.0, {}, {})
            now[0] += 6.0  # ten steps a minute
    assert capsys.readouterr().err.rstrip().endswith("eta=1:40")  # 1000 steps, 100 minutes


def test_a_terminal_shows_losses_and_the_last_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(trainlog.sys, "stderr", Terminal())
    monkeypatch.setattr(trainlog, "Console", lambda stderr: Console(file=terminal, force_terminal=True, width=200))
    terminal = Terminal()
    with TrainingLog(tmp_path / "log.csv", 10) as log:
        log.add(1, 0.25, 123.4, {"births": 1.5}, FIGURES)
        log.add(2, 0.5, 123.4, {"births": 1.25}, {})
    shown = terminal.getvalue()
    assert "step 2 of 10, 0.5 h heard" in shown
    assert "1.25" in shown
    assert "123.4" in shown
    assert "der 31.3" in shown.rpartition("step 2 of 10")[2]  # the figures of step 1 are still there
