"""Curves of training runs: figures by hand, divergence, families, mistakes."""

import csv
from pathlib import Path

import numpy as np
import pytest

from diarnorm.cli import main
from diarnorm.training.curves import LOG, read_curve, table
from diarnorm.training.trainlog import TrainingLog


def make_run(folder: Path, losses: list[float], *, first: int = 1, name: str = "births") -> Path:
    folder.mkdir(parents=True)
    with TrainingLog(folder / LOG, len(losses)) as log:
        for step, loss in enumerate(losses, start=first):
            figures = {"der": 50.0 - step} if step % 10 == 0 else {}
            log.add(step, step / 10, 100.0 + step, {name: loss, "grad_norm": float(step)}, figures)
    return folder


def test_figures_by_hand(tmp_path: Path) -> None:
    run = make_run(tmp_path / "norm=rms,train.seed=0", [2.0 - step / 20 for step in range(1, 21)])
    curve = read_curve(run, "^norm=([a-z]+),")
    assert (curve.name, curve.family) == ("norm=rms,train.seed=0", "rms")
    assert not curve.diverged
    (row,) = table([curve]).splitlines()[2:]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["norm=rms,train.seed=0", "20", "2.0", "1.025", "30.0", "10.50", "19.81", "110"]
    np.testing.assert_allclose(curve.smooth(curve.step), curve.step)  # a tenth is two steps, a quarter of it one


def test_a_mean_is_centred(tmp_path: Path) -> None:
    curve = read_curve(make_run(tmp_path / "run", [float(step) for step in range(160, 0, -1)]))
    np.testing.assert_allclose(curve.smooth(curve.loss), np.arange(158.5, 2.0, -1.0))  # over four steps
    assert len(curve.smooth(curve.loss)) == len(curve.smooth(curve.hours)) == 157


@pytest.mark.parametrize(
    ("losses", "diverged"),
    [([1.0] * 20, True), ([1.0] * 18 + [0.5, 0.5], False), ([1.0] * 10 + [0.2] * 8 + [3.0, 3.0], True)],
)
def test_a_loss_that_ends_no_lower_than_it_began_has_diverged(
    losses: list[float], diverged: bool, tmp_path: Path
) -> None:
    curve = read_curve(make_run(tmp_path / "run", losses))
    assert curve.diverged is diverged
    assert ("diverged" in table([curve])) is diverged


@pytest.mark.parametrize(("grad_norm", "loss"), [("nan", "nan"), ("inf", "inf"), ("nan", "1.5")])
@pytest.mark.parametrize(("skipped", "diverged"), [((3,), False), ((3, 4), True), ((1, 2), True), ((19, 20), True)])
def test_steps_that_are_left_out_count(
    skipped: tuple[int, ...], diverged: bool, grad_norm: str, loss: str, tmp_path: Path
) -> None:
    """They have a row with what was not finite. Nothing else of the curve changes."""
    run = make_run(tmp_path / "run", [2.0 - step / 20 for step in range(1, 21)])
    whole = read_curve(run)
    assert whole.num_skipped == 0
    with (run / LOG).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    with (run / LOG).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        left_out = {"births": loss, "grad_norm": grad_norm}
        writer.writerows(row | left_out if int(row["step"]) in skipped else row for row in rows)
    curve = read_curve(run)
    assert (curve.num_skipped, curve.diverged) == (len(skipped), diverged)
    assert f"20, {len(skipped)} left out" in table([curve])
    kept = np.delete(np.arange(20), np.array(skipped) - 1)
    np.testing.assert_array_equal(curve.grad_norm[kept], whole.grad_norm[kept])
    assert np.isnan(np.delete(curve.grad_norm, kept)).all()
    assert "inf" not in table([curve])


def test_a_mean_is_over_what_is_finite(tmp_path: Path) -> None:
    losses = [float(step) for step in range(160, 0, -1)]
    losses[10], losses[80:84] = float("nan"), [float("inf")] * 4
    curve = read_curve(make_run(tmp_path / "run", losses))
    smooth = curve.smooth(curve.loss)
    plain = np.arange(158.5, 2.0, -1.0)
    np.testing.assert_allclose(smooth[11:77], plain[11:77])
    assert smooth[7] == pytest.approx((153 + 152 + 151) / 3)
    assert np.flatnonzero(np.isnan(smooth)).tolist() == [80]


def test_models_without_memory_have_the_loss_of_their_outputs(tmp_path: Path) -> None:
    curve = read_curve(make_run(tmp_path / "run", [3.0, 2.0], name="outputs"))
    assert (curve.loss_name, list(curve.loss)) == ("outputs", [3.0, 2.0])


def test_the_command_prints_a_table_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(make_run(tmp_path / f"{norm}-{seed}", [2.0, 1.5, 1.0])) for norm in ("a", "b") for seed in (0, 1)]
    picture = tmp_path / "curves.png"
    assert main(["curves", *runs, "--family-by", "^(.)-", "--output", str(picture)]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]] == ["a-0", "a-1", "b-0", "b-1"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_files_beside_the_runs_of_a_sweep_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = make_run(tmp_path / "norm=rms", [2.0, 1.5, 1.0]), tmp_path / "multirun.yaml"
    file.write_text("hydra: {}\n", "utf-8")
    capsys.readouterr()  # what the log of the run said
    assert main(["curves", *sorted(str(path) for path in tmp_path.iterdir())]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[1] for line in out.splitlines()[2:]] == [run.name]
    assert err == f"diarnorm curves: {file} is a file, no run, and is passed over\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: RUN"),
        (["nosuch"], "nosuch holds no log.csv: give folders of training runs"),
        (["empty"], "holds no step of a training run"),
        (["empty/log.csv"], "empty/log.csv is a file: give folders of training runs"),
        (["empty", "--family-by", "a"], "--family-by=a has 0 groups: give an expression with one group"),
        (["empty", "--family-by", "(a"], "--family-by=(a is no regular expression"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("empty", LOG).write_text("step,hours\n", "utf-8")
    assert main(["curves", *words]) == 2
    assert message in capsys.readouterr().err
