"""`diarnorm bench norm`: figures that follow from known times, files to read back, mistakes in one sentence."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from diarnorm import model
from diarnorm.bench import norms as bench_norm
from diarnorm.bench import stopwatch
from diarnorm.bench.contestants import make_contestants
from diarnorm.bench.norms import Calls, Row, crossovers, measure, plot, table, write_csv
from diarnorm.bench.stopwatch import Comparison, Machine
from diarnorm.cli import main
from diarnorm.conformer import EncoderConfig
from diarnorm.kernels import native
from diarnorm.memory import MemoryConfig
from diarnorm.model import ModelConfig
from tests.tiny import ENCODER, MEMORY

CPU = torch.device("cpu")
MACHINE = Machine("CPU", copy_gb_per_s=10.0, floor_us=2.0)


@pytest.fixture(autouse=True)
def _same_number_of_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def row(name: str = "eager", dim: int = 256, rows: int = 1, time_us: float = 5.0, ratio: float = 2.0) -> Row:
    return Row("cpu", "float32", "forward", dim, rows, name, "note", time_us, ratio, ratio - 0.1, ratio + 0.1, 1.0, 0.1)


def test_command_writes_table_csv_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    target, picture = tmp_path / "norm.csv", tmp_path / "norm.png"
    words = ["--dims", "64", "--rows", "1", "8", "--rounds", "1", "--no-compile", "--csv", str(target)]
    assert main(["bench", "norm", *words, "--png", str(picture)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("CPU, float32, forward: copy ")
    assert " - " in out.splitlines()[2]  # one round has no interval
    with target.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = ["layer_norm", "eager", "F.rms_norm", "diarnorm"]
    if "left out: onnxruntime" not in out:
        names += ["ONNX layer_norm", "ONNX rms_norm"]
    assert [(entry["name"], entry["rows"]) for entry in rows] == [(name, count) for count in "18" for name in names]
    assert "left out: liger needs an NVIDIA GPU\n" in out
    for entry in rows:
        assert float(entry["time_us"]) > 0
        assert entry["note"]
        assert entry["name"] in out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("backward", [False, True])
def test_figures_of_known_times(backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 us for 16 x 256 in float32: 2 x 16 kB, with gradients 5 x 16 kB."""
    found = Comparison(baseline_s=2e-6, other_s=4e-6, ratio=2.0, low=1.9, high=2.1)
    monkeypatch.setattr(stopwatch, "compare", lambda *arguments: found)
    field = make_contestants(CPU, backward=True, compiled=False)
    calls = Calls(CPU, torch.float32, backward)
    rows = measure(field, calls, dims=[256], row_counts=[16], copy_gb_per_s=10.0)
    assert len(rows) == 4
    for entry in rows:
        assert (entry.dim, entry.rows, entry.ratio, entry.ratio_low, entry.ratio_high) == (256, 16, 2.0, 1.9, 2.1)
        assert entry.time_us == pytest.approx(4.0)
        assert entry.gb_per_s == pytest.approx((5 if backward else 2) * 16384 / 4e-6 / 1e9)
        assert entry.of_copy == pytest.approx(entry.gb_per_s / 10.0)
        assert entry.mode == ("forward+backward" if backward else "forward")


@dataclass(frozen=True)
class Tiny(ModelConfig):
    """A small model where none is asked for."""

    encoder: EncoderConfig = ENCODER
    memory: MemoryConfig = MEMORY


def test_layers_and_steps_of_the_encoder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, way_of_load: list[tuple[str, ...]]
) -> None:
    monkeypatch.setattr(model, "ModelConfig", Tiny)
    words = ["--encoder", "--dims", "32", "--rows", "1", "--rounds", "1", "--cpu-kernel", "operators"]
    assert main(["bench", "norm", *words]) == 0
    out = capsys.readouterr().out
    assert "time over norm=layer with" in out
    assert "norm=rms" in out
    assert "four operators of torch" in out
    assert "layer_norm" not in out
    *_, headline, rms, none = out.splitlines()
    assert headline == "streaming step of 960 ms, whole model, batch 1; time over norm=layer:"
    assert rms.split()[0] == "norm=rms"
    assert none.split()[0] == "norm=none"
    assert way_of_load == [()]


@pytest.fixture
def way_of_load() -> Iterator[list[tuple[str, ...]]]:
    """What `load()` was restricted to at the end of a test; afterwards it is as before."""
    seen: list[tuple[str, ...]] = []
    before, restrict = native._wanted, native.restrict
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "restrict", lambda *ways: (seen.append(ways), restrict(*ways)))
        yield seen
    native._wanted = before
    native.load.cache_clear()


def test_a_kernel_that_is_not_there_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, way_of_load: list[tuple[str, ...]]
) -> None:
    monkeypatch.setitem(native.WAYS, "c++", lambda: None)
    assert main(["bench", "norm", "--cpu-kernel", "c++"]) == 2
    assert capsys.readouterr().err == ("diarnorm bench: there is no kernel from c++: run diarnorm build-native\n")
    assert way_of_load == [("c++",)]


def test_crossover_is_what_copying_moves_in_the_time_of_the_smallest_call() -> None:
    rows = [row(rows=1000, time_us=90.0), row(rows=1, time_us=5.0), row("diarnorm", rows=1, time_us=2.5)]
    found = crossovers(rows, MACHINE)
    assert found["eager"] == (5.0, pytest.approx(50e3))
    assert found["diarnorm"] == (2.5, pytest.approx(25e3))
    text = table(rows, MACHINE)
    assert "50.0 kB   note" in text
    assert "1.900..2.100" in text


def test_csv_holds_every_figure(tmp_path: Path) -> None:
    write_csv([row(time_us=1 / 3)], tmp_path / "x.csv")
    header, line = (tmp_path / "x.csv").read_text("utf-8").splitlines()
    assert header.split(",")[-3:] == ["ratio_high", "gb_per_s", "of_copy"]
    assert str(1 / 3) in line


def test_picture_without_matplotlib_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"--png needs matplotlib: pip install 'diarnorm\[plot\]'"):
        plot([row()], MACHINE, tmp_path / "x.png")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "tpu"], "device=tpu cannot be used here: give cpu, or cuda"),
        (["--device", "meta"], "device=meta cannot be"),
        (["--rows", "0"], "0 is out of range: give 1 or more"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--round", "3"], "unknown option --round 3; did you mean --rounds?"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "norm", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu-check"], "needs an NVIDIA GPU, and torch finds none here"),
        (["--device", "cuda"], "device=cuda cannot be used here: give cpu, or cuda"),
    ],
)
def test_without_a_gpu_it_says_so(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "norm", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_help_does_not_load_torch() -> None:
    """The parser is made before torch is asked for."""
    assert "import torch" not in bench_norm.make_parser.__code__.co_names
    assert bench_norm.make_parser().parse_args([]).rounds == 15
