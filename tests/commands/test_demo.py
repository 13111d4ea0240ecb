"""`diarnorm demo`: every sample is diarized, written and scored."""

from pathlib import Path

import pytest

from diarnorm import cli
from diarnorm.commands.session import paced
from diarnorm.resources import samples_dir
from diarnorm.rttm import read_rttm


def test_demo_diarizes_writes_and_scores_every_sample(
    loudness_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.set_num_threads", lambda num_threads: None)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--model", str(loudness_model)]) == 0
    out, err = capsys.readouterr()
    names = sorted(path.stem for path in samples_dir().glob("*.flac"))
    assert len(names) >= 3
    assert sorted(path.stem for path in (tmp_path / "diarnorm-demo").iterdir()) == names
    for name in names:
        assert f"| {name} " in out
        assert f"{name}: activity latency 0.96 s, RTF 0." in out
        assert f"{name}: " in err
    assert f"| pooled ({len(names)}) " in out
    assert "region: UEM" in out
    assert "turns are in diarnorm-demo" in out
    turns = read_rttm(tmp_path / "diarnorm-demo" / "meeting.rttm")["meeting"]
    assert turns == sorted(turns)
    assert sum(turn.duration for turn in turns) > 20


def test_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    now, naps = [100.0], []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    blocks = [[0.0] * 8000] * 4  # half a second each
    assert list(paced(blocks, 16_000, 10.0)) == blocks  # pyright: ignore[reportArgumentType]
    assert naps == pytest.approx([0.05] * 4)
