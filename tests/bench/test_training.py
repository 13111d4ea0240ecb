"""`diarnorm bench train`: figures against a clock that is known, norms in turns, mistakes in one sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diarnorm.bench import stopwatch
from diarnorm.bench import training as bench_train
from diarnorm.cli import main
from diarnorm.simulation.conversation import CLIP, Plan
from diarnorm.simulation.render import Mixture, render
from diarnorm.simulation.speech import Speech

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _cache(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(corpus.parent.parent))


def test_figures_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--steps",
        "2",
        "--batches",
        "2",
        "--batch",
        "2",
        "--seconds",
        "4",
        "--norms",
        "rms",
        "layer",
        "--json",
    ]
    assert main(["bench", "train", *arguments]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [rate["what"] for rate in figures["simulator"]] == ["simulator", "simulator and features"]
    for rate in figures["simulator"]:
        assert rate["audio_s_per_s"] > 0
        assert (rate["low"], rate["high"]) == ("-inf", "inf")  # two batches have no interval
    rms, layer = figures["training"]
    assert (rms["norm"], layer["norm"], layer["ratio"]) == ("rms", "layer", 1.0)
    assert 0.2 < rms["ratio"] < 5
    for step in (rms, layer):
        assert step["steps_per_s"] == pytest.approx(1000 / step["step_ms"])
        assert step["audio_s_per_s"] == pytest.approx(2 * 4 * step["steps_per_s"])


def test_ratios_are_medians_of_rounds_in_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps of `batch` that take twice those of `layer`, which get slower from round to round."""
    order: list[str] = []
    called = {"rms": 0.5, "layer": 1.0, "batch": 2.0}

    def fake_call(norm: str, *_: object) -> Callable[[], str]:
        return lambda: norm

    def fake_sample(call: Callable[[], object], *_: object) -> float:
        name = call()
        if name not in called:
            return 0.25
        order.append(str(name))
        return called[str(name)] * (1 + (len(order) - 1) // 3)

    monkeypatch.setattr(bench_train, "_training_call", fake_call)
    monkeypatch.setattr(stopwatch, "sample", fake_sample)
    monkeypatch.setattr(bench_train, "measure_simulator", lambda *_: [])
    arguments = ["--steps", "9", "--batch", "1", "--seconds", "1.04", "--json"]
    assert bench_train.main(arguments) == 0
    steps = {step["norm"]: step for step in json.loads(capsys.readouterr().out)["training"]}
    assert steps["batch"]["ratio"] == steps["batch"]["low"] == steps["batch"]["high"] == 2.0
    assert steps["rms"]["ratio"] == 0.5
    assert steps["layer"]["step_ms"] == pytest.approx(1000 * np.median(np.arange(3, 12)))  # two rounds do not count
    rounds = [order[i : i + 3] for i in range(0, len(order), 3)]
    assert len(rounds) == 11
    assert all(sorted(one) == ["batch", "layer", "rms"] for one in rounds)
    assert {one[0] for one in rounds} == {"rms", "layer", "batch"}  # each goes first in turn


def test_audio_per_second_of_a_known_clock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([9.0, 9.0, 0.1, 0.2, 0.4, 0.2, 0.2, 0.2, 9.0, 9.0, 0.5, 0.5, 1.0, 0.5, 0.5, 0.5])

    def fake_sample(call: Callable[[], object], *_: object) -> float:
        call()
        return next(times)

    monkeypatch.setattr(stopwatch, "sample", fake_sample)
    assert main(["bench", "train", "--steps", "0", "--batches", "6", "--batch", "2", "--seconds", "2.4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["simulator", "24", "12..48"]
    assert lines[2].split() == ["simulator", "and", "features", "10", "5..10"]
    assert len(lines) == 3


def test_the_world_that_is_timed_is_the_one_that_is_asked_for(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Speakers, settings and clips: in the plans, and in the samples that are rendered under the clock."""
    made = []

    def noted(plans: list[Plan], speech: Speech, *, clips: Speech, **options: Any) -> Mixture:
        made.append((plans, clips))
        return render(plans, speech, clips=clips, **options)

    (tmp_path / "recipe.yaml").write_text(
        "data: {simulator: {speaker_probabilities: [1], noise: {quiet_probability: 0, clip_probability: 1}}}"
    )
    monkeypatch.setattr("diarnorm.simulation.render.render", noted)
    monkeypatch.setattr("diarnorm.training.batches.render", noted)
    arguments = ["--steps", "1", "--norms", "rms", "--batches", "1", "--batch", "2", "--seconds", "12", "--json"]
    arguments += ["--config", str(tmp_path / "recipe.yaml"), "--noise", str(corpus / "dev")]
    assert main(["bench", "train", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["simulator"][0]["audio_s_per_s"] > 0
    assert len(made) == 2 * 3 + 1  # alone and with features, two of each do not count; and the batch to train on
    for plans, clips in made:
        assert all(CLIP in plan.pieces.bank for plan in plans)
        assert clips.num_utterances == len(list((corpus / "dev").rglob("*.wav")))
    assert {plan.num_speakers for plans, _ in made for plan in plans} == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--norms", "rsm"], "invalid choice: 'rsm'"),
        (["--seconds", "0.5"], "0.5 is out of range: give seconds from 1 to 600"),
        (["--speech", "nosuch"], "--speech nosuch does not exist"),
        (["--noise", "nosuch"], "--noise nosuch does not exist"),
        (["--config", "nosuch"], "--config nosuch does not exist"),
        (["--step", "3"], "unknown option --step 3; did you mean --steps?"),
    ],
)
def test_mistakes_are_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err
