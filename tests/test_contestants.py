"""The norms that are compared: they all compute what they say, and say what they run on."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from diarnorm import contestants
from diarnorm.contestants import (
    BASELINE,
    OURS,
    Inputs,
    forward_call,
    make_contestants,
    make_inputs,
    traffic_bytes,
    training_call,
)
from diarnorm.norms import EPS

CPU = torch.device("cpu")


def rms(x: Tensor, weight: Tensor) -> Tensor:
    """The formula in float64."""
    x = x.double()
    return x / (x.square().mean(dim=-1, keepdim=True) + EPS).sqrt() * weight.double()


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=[pytest.mark.compile, pytest.mark.slow])])
def test_all_compute_their_norm_and_its_gradients(compiled: bool) -> None:
    inputs = make_inputs(5, 33, torch.float32, CPU, gradients=True)
    field = make_contestants(CPU, compiled=compiled)
    assert field[0].name == BASELINE
    assert {"eager", "F.rms_norm", OURS} <= {contestant.name for contestant in field}
    for contestant in field:
        parameters = inputs[:3] if contestant.name == BASELINE else inputs[:2]
        if contestant.name == BASELINE:
            exact = F.layer_norm(inputs.x.double(), (33,), inputs.weight.double(), inputs.bias.double(), EPS)
        else:
            exact = rms(inputs.x, inputs.weight)
        expected = torch.autograd.grad(exact, parameters, inputs.dy.double())
        torch.testing.assert_close(forward_call(contestant.norm, inputs)(), exact.float())
        gradients = training_call(contestant.norm, inputs)()
        assert isinstance(gradients, tuple)
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_they_say_what_they_run_on() -> None:
    notes = {contestant.name: contestant.note for contestant in make_contestants(CPU, compiled=False)}
    assert notes[BASELINE] == "native_layer_norm"
    assert notes["F.rms_norm"].split()[0] in ("pow", "_fused_rms_norm")
    assert notes[OURS].startswith(("native kernel", "operators of torch"))
    assert contestants.describe_ours(torch.ones(2, 3, device="meta")) == "eager"


def test_others_take_part_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins of the two packages' interfaces."""
    assert contestants._others() == []
    inputs, called = make_inputs(2, 8, torch.float32, CPU), []

    def fake(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        called.append(eps)
        return rms(x, weight).float()

    function = SimpleNamespace(LigerRMSNormFunction=SimpleNamespace(apply=fake))
    for name, module in (("liger_kernel", None), ("liger_kernel.ops", None), ("liger_kernel.ops.rms_norm", function)):
        monkeypatch.setitem(sys.modules, name, ModuleType(name) if module is None else module)
    monkeypatch.setitem(sys.modules, "quack", SimpleNamespace(rmsnorm=fake))
    monkeypatch.setattr(contestants, "find_spec", lambda name: object())
    found = contestants._others()
    assert [contestant.name for contestant in found] == ["liger", "quack"]
    for contestant in found:
        torch.testing.assert_close(contestant.norm(inputs), rms(inputs.x, inputs.weight).float())
    assert called == [EPS, EPS]


def test_inputs_are_random_and_the_same_again() -> None:
    first, second = (make_inputs(1000, 8, torch.bfloat16, CPU) for _ in range(2))
    assert isinstance(first, Inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert {tensor.dtype for tensor in first} == {torch.bfloat16}
    assert first.x.float().std().item() == pytest.approx(1.0, abs=0.05)
    assert not first.x.requires_grad


def test_least_traffic() -> None:
    """64k x 256 in bfloat16: 33.6 MB in and as much out."""
    assert traffic_bytes(65536, 256, torch.bfloat16, backward=False) == 2 * 65536 * 256 * 2
    assert traffic_bytes(10, 256, torch.float32, backward=True) == 5 * 10 * 256 * 4
