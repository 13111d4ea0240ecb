"""The claims whose experiments take seconds: figures against their laws, verdicts, and that a broken norm is found."""

import math
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diarnorm.claims import batchsize, halves, silence, swap
from diarnorm.claims.evidence import Evidence
from diarnorm.claims.registry import CLAIMS
from diarnorm.claims.rules import CONDITIONAL, CONFIRMED, EXACT, FAILS, HOLDS, MISSING, REFUTED, judge
from diarnorm.conformer import Encoder
from diarnorm.convert import Conversion, swap_norm
from diarnorm.norms import RMSNorm, make_norm
from diarnorm.turns import Turn

pytestmark = pytest.mark.usefixtures("one_thread")
EXPERIMENTS = {e.name: (claim, e) for claim in CLAIMS for e in claim.experiments if e.kind == EXACT}


@cache
def evidence(name: str) -> Evidence:
    """What the experiment finds, run once."""
    experiment = EXPERIMENTS[name][1]
    return getattr(import_module(f"diarnorm.claims.{experiment.module}"), experiment.function)()


def figures(found: Evidence) -> dict[str, float]:
    return {measure.name: measure.value for measure in found.measures}


VERDICTS = [
    ("definition", CONFIRMED, set()),
    ("batch_size", CONFIRMED, set()),
    ("silence", CONDITIONAL, {"zero_gradient_gain", "floor_output"}),
    ("levels", CONDITIONAL, {"rms_gain", "rms_dc"}),
    ("batchnorm_gap", CONDITIONAL, set()),
    ("half_precision", REFUTED, {"wide_wrong", "narrow_repaired", "loss_db", "gradient_not_finite"}),
    ("swap", CONDITIONAL, {"exact_error"}),
]


@pytest.mark.parametrize(("name", "verdict", "failing"), VERDICTS)
def test_verdict(name: str, verdict: str, failing: set[str]) -> None:
    found, claim = evidence(name), EXPERIMENTS[name][0]
    judgement = judge(claim, {measure.name: measure for measure in found.measures})
    states = {criterion.measure: state for criterion, _, state in judgement.findings}
    assert judgement.verdict == verdict
    assert {measure for measure, state in states.items() if state == FAILS} == failing
    of_others = {measure for measure, state in states.items() if state == MISSING}
    assert all(state == HOLDS for measure, state in states.items() if measure not in failing | of_others)
    assert of_others == {"batchnorm_gap": {"der_of_train_mode"}, "swap": {"naive_der", "exact_der", "frozen_der"}}.get(
        name, set()
    )
    assert found.tables
    assert found.plots


def test_every_exact_experiment_is_judged_above() -> None:
    assert {name for name, _, _ in VERDICTS} == EXPERIMENTS.keys()


def test_the_gap_of_batchnorm_is_that_of_its_law() -> None:
    # Batch statistics of n independent normal frames: the mean is off by 1/sqrt(n), the deviation by 1/sqrt(2n).
    found = figures(evidence("batchnorm_gap"))
    for size in (32, 128, 512):
        assert found[f"gap_{size}"] == pytest.approx(100 * math.sqrt(1.5 / size), rel=0.05)
    assert found["gap_128_correlated"] > 4 * found["gap_128"]
    assert found["gap_padding"] > 2 * found["gap_masked"]
    assert found["gap_masked"] == pytest.approx(100 * math.sqrt(1.5 / 64), rel=0.05)  # of the frames that are valid


def test_silence_multiplies_a_gradient_by_the_root_of_eps() -> None:
    found = figures(evidence("silence"))
    assert found["zero_gradient_gain"] == pytest.approx(1 / math.sqrt(1e-5), rel=1e-4)
    assert found["floor_output"] == pytest.approx(1.0, abs=1e-6)
    gains = {row[0]: row[1:] for row in evidence("silence").tables[0].rows}
    assert gains["rms, float32"] == ("100", "316", "1000", "10000", "100000")
    assert gains["rms, float16"][-1] == gains["layer, float16"][-1] == "inf"


class TwoVoices:
    """Stands in for a model that hears two speakers at once, to the end of the recording."""

    def __init__(self, from_s: float) -> None:
        self.turns = [Turn(from_s, 30.0, "a"), Turn(from_s, 30.0, "b")]

    def stream(self) -> "TwoVoices":
        return self

    def push(self, samples: np.ndarray) -> list[Turn]:
        return self.turns[:1]

    def finish(self) -> list[Turn]:
        return self.turns[1:]


@pytest.mark.parametrize(("from_s", "share"), [(0.0, 1.0), (25.5, 0.5)])
def test_heard_as_speech_is_a_share_of_the_time_that_counts(from_s: float, share: float) -> None:
    samples = np.zeros(30 * 16_000, np.float32)
    found = silence._spoken_share(TwoVoices(from_s), samples, 21.0)  # pyright: ignore[reportArgumentType]
    assert found == pytest.approx(share)  # of the nine seconds from 21 on, whoever speaks


def test_half_precision_loses_three_db_at_minus_40_db_with_the_large_eps() -> None:
    found = figures(evidence("half_precision"))
    assert found["loss_db"] == pytest.approx(10 * math.log10(2), abs=1e-3)
    # squares of 300, 1000, 10000 and 60000 overflow in float16: 4 of 12 sizes are lost
    assert found["narrow_repaired"] == pytest.approx(100 * 4 / 12)


def test_levels() -> None:
    found = figures(evidence("levels"))
    offset = 2 * (1 - 1 / math.sqrt(2))  # |x/|x| - (x+1)/|x+1||^2 of rows of mean 0 and size 1
    assert found["rms_offset"] == pytest.approx(100 * math.sqrt(offset), rel=0.2)
    assert found["filter_bank_difference"] < 1e-4
    assert found["layer_dc_kept"] > 5 * found["rms_dc_kept"]


def test_an_exact_swap_is_exact_and_a_plain_one_is_not() -> None:
    found = figures(evidence("swap"))
    assert found["naive_error"] > 10
    assert found["exact_error"] < 1e-10


# ---- broken norms are found -------------------------------------------------------------------------------


class LeakyRMSNorm(RMSNorm):
    """Takes the mean square over the batch."""

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        return x * torch.rsqrt(x.square().mean() + self.eps) * self.weight


def test_a_norm_that_looks_at_other_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, dim: int, eps: float = 1e-5) -> nn.Module:
        return LeakyRMSNorm(dim) if name == "rms" else make_norm(name, dim, eps)

    assert batchsize._changed_by_batch("rms", 0) == 0
    monkeypatch.setattr(batchsize, "make_norm", broken)
    assert batchsize._changed_by_batch("rms", 0) > 1000


@torch.no_grad()
def test_an_encoder_that_lets_padding_or_the_future_in_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Encoder.forward

    def forgetful(self: Encoder, mel: Tensor, state: Any = None, valid: Any = None, *, chunk: int) -> Any:
        return right(self, mel, None, None, chunk=chunk)

    monkeypatch.setattr(Encoder, "forward", forgetful)
    found = batchsize._encoder_changes("rms", 0)
    assert found["chunks"] > 1e-2
    assert found["padding"] <= 1e-5  # what comes later is not seen, valid or not ...

    def blurred(self: Encoder, mel: Tensor, state: Any = None, valid: Any = None, *, chunk: int) -> Any:
        return right(self, mel + mel.mean(dim=1, keepdim=True), state, None, chunk=chunk)

    monkeypatch.setattr(Encoder, "forward", blurred)
    assert batchsize._encoder_changes("rms", 0)["padding"] == math.inf  # ... unless something averages over time


def test_sums_in_half_precision_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "_wide", halves._narrow)
    x = 300.0 * halves._bounded_rows(0)
    assert halves._error(halves._wide, x, torch.float16, 1e-4) == pytest.approx(1.0)


def test_a_conversion_that_is_not_exact_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "convert", lambda model, to: Conversion(swap_norm(model, to), 0.0))
    plain, exact = swap._errors(2, 0)
    assert exact == plain > 0.1


def test_draws_are_seeded() -> None:
    again = batchsize._alone_against("batch", 7, 0)
    assert again == batchsize._alone_against("batch", 7, 0)
    assert np.isfinite(again)
