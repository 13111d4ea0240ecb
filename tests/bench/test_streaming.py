"""`diarnorm bench stream`: figures against a clock that is known, output that can be read, mistakes in one sentence."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from diarnorm.bench import streaming as bench
from diarnorm.checkpoint import Checkpoint, save_checkpoint
from diarnorm.cli import main
from diarnorm.simulation.synthetic import voice
from diarnorm.stream import Diarizer
from tests.tiny import make_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "tiny.safetensors"
    save_checkpoint(path, Checkpoint(make_model(), chunk=6, chunks=(6,)))
    return path


def test_json_can_be_read_and_adds_up(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "stream", "--model", str(model), "--seconds", "4.8", "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    figures = json.loads(out)
    assert figures["chunks"] == 10
    assert figures["chunk_ms"] == pytest.approx(480)
    assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]
    assert figures["median_rtf"] == pytest.approx(figures["p50_ms"] / 480)
    assert 0 < figures["rtf"] < 1
    assert figures["threads"] == 1
    assert figures["peak_mb"] > 50  # torch alone
    stream = Diarizer.from_pretrained(model).stream()
    stream.push(voice(100.0, 12.0, 0)[0])
    assert figures["state_kb"] == pytest.approx(len(pickle.dumps(stream.state)) / 1024, rel=0.05)


def test_the_table_has_the_same_figures(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["stream", "--model", str(model), "--seconds", "1", "--chunk-ms", "160", "--max-speakers", "2"]
    assert bench.main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "6 chunks of 160 ms on 1 thread(s)"
    assert [line.split()[0] for line in lines[1:]] == ["per", "real-time", "state", "peak", "load"]


def test_figures_of_a_known_clock(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 chunks of 480 ms that take 1, 2, ... 100 ms, after 20 that take 1 s and do not count."""
    durations = [*(1.0 for _ in range(20)), *(number / 1000 for number in range(1, 101))]
    edges = [0.0]
    for duration in durations:
        edges += [edges[-1], edges[-1] + duration]
    clock = iter(edges[1:])
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    figures = bench.bench_stream(str(model), duration_s=48.0)
    assert figures["chunks"] == 100
    expected = {
        name: np.percentile(np.arange(1, 101), p) for name, p in (("p50_ms", 50), ("p95_ms", 95), ("p99_ms", 99))
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert figures["rtf"] == pytest.approx(0.0505 / 0.48)
    assert figures["median_rtf"] == pytest.approx(0.0505 / 0.48)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: WHAT"),
        (["strem"], "invalid choice: 'strem'"),
        (["--threads", "2", "norm"], "norm goes first: diarnorm bench norm ..."),
        (["--json", "train"], "train goes first: diarnorm bench train ..."),
        (["stream", "--chunk-ms", "100"], "chunk_ms=100 is not a multiple of 80 ms: give 80 or 160"),
        (["stream", "--max-speakers", "0"], "max_speakers=0 is out of range: give 1 to 64"),
        (["stream", "--seconds", "nan"], "nan is out of range: give seconds, 0 or more"),
        (["stream", "--second", "3"], "unknown option --second 3; did you mean --seconds?"),
        (["stream", "--model", "nosuch"], "no shipped model is called 'nosuch'"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("diarnorm bench: ")
    assert message in err
