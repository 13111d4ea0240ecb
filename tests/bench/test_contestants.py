"""The norms that are compared: they all compute what they say, and say what they run on."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from diarnorm.bench import contestants
from diarnorm.bench.contestants import (
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
    field = make_contestants(CPU, backward=True, compiled=compiled)
    assert field[0].name == BASELINE
    assert {"eager", "F.rms_norm", OURS} <= {contestant.name for contestant in field}
    for contestant in field:
        parameters = inputs[:3] if contestant.name == BASELINE else inputs[:2]
        if contestant.name == BASELINE:
            exact = F.layer_norm(inputs.x.double(), (33,), inputs.weight.double(), inputs.bias.double(), EPS)
        else:
            exact = rms(inputs.x, inputs.weight)
        expected = torch.autograd.grad(exact, parameters, inputs.dy.double())
        torch.testing.assert_close(forward_call(contestant.bind, inputs)(), exact.float())
        gradients = training_call(contestant.bind, inputs)()
        assert isinstance(gradients, tuple)
        for ours, theirs in zip(gradients, expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_they_say_what_they_run_on() -> None:
    notes = {contestant.name: contestant.note for contestant in make_contestants(CPU, compiled=False)}
    assert notes[BASELINE] == "native_layer_norm"
    assert notes["F.rms_norm"].split()[0] in ("pow", "_fused_rms_norm")
    assert notes[OURS].startswith(("native kernel", "four operators of torch"))
    assert contestants.describe_ours(torch.ones(2, 3, device="meta")) == "eager"


def test_onnx_runtime_runs_one_node_each() -> None:
    """The numbers of both norms, for any number of rows; other fusions would be another contest."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    field = {contestant.name: contestant for contestant in make_contestants(CPU, compiled=False)}
    layer, rms_ = field["ONNX layer_norm"], field["ONNX rms_norm"]
    assert (layer.note, rms_.note) == ("LayerNormalization", "SimplifiedLayerNormalization")
    for rows in (1, 7):
        inputs = make_inputs(rows, 64, torch.float32, CPU)
        torch.testing.assert_close(rms_.bind(inputs)(), rms(inputs.x, inputs.weight).float())
        expected = F.layer_norm(inputs.x, (64,), inputs.weight, inputs.bias, EPS)
        torch.testing.assert_close(layer.bind(inputs)(), expected)


def test_who_cannot_take_part_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "find_spec", lambda name: None)
    gpu, missing = "needs an NVIDIA GPU", "is not installed: pip install"
    assert contestants.obstacles(CPU) == {"liger": gpu, "quack": gpu, "onnxruntime": f"{missing} 'diarnorm[onnx]'"}
    assert contestants.obstacles(torch.device("cuda")) == {
        "liger": f"{missing} liger-kernel",
        "quack": f"{missing} quack-kernels",
        "onnxruntime": "is timed on the CPU, in float32, without gradients",
    }
    monkeypatch.setattr(contestants, "find_spec", lambda name: object())
    assert set(contestants.obstacles(CPU)) == {"liger", "quack"}
    assert "onnxruntime" in contestants.obstacles(CPU, backward=True)
    assert "onnxruntime" in contestants.obstacles(CPU, torch.bfloat16)
    assert set(contestants.obstacles(torch.device("cuda"))) == {"onnxruntime"}


def test_others_compute_their_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With stand-ins of the two packages' interfaces."""
    inputs, called = make_inputs(2, 8, torch.float32, CPU), []

    def fake(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        called.append(eps)
        return rms(x, weight).float()

    function = SimpleNamespace(LigerRMSNormFunction=SimpleNamespace(apply=fake))
    for name, module in (("liger_kernel", None), ("liger_kernel.ops", None), ("liger_kernel.ops.rms_norm", function)):
        monkeypatch.setitem(sys.modules, name, ModuleType(name) if module is None else module)
    monkeypatch.setitem(sys.modules, "quack", SimpleNamespace(rmsnorm=fake))
    monkeypatch.setattr(contestants, "obstacles", lambda *arguments, **options: {"onnxruntime": "left out"})
    found = make_contestants(CPU, compiled=False)[-2:]
    assert [contestant.name for contestant in found] == ["liger", "quack"]
    for contestant in found:
        torch.testing.assert_close(contestant.bind(inputs)(), rms(inputs.x, inputs.weight).float())
    assert called == [EPS, EPS]


def test_layers_of_the_encoder_learn_with_the_same_parameters() -> None:
    inputs = make_inputs(5, 33, torch.float32, CPU, gradients=True)
    layer, ours = contestants.encoder_contestants(CPU)
    assert (layer.name, ours.name) == ("norm=layer", "norm=rms")
    torch.testing.assert_close(ours.bind(inputs)(), rms(inputs.x, inputs.weight).float())
    expected = F.layer_norm(inputs.x, (33,), inputs.weight, inputs.bias, EPS)
    torch.testing.assert_close(layer.bind(inputs)(), expected)
    for contestant, count in ((layer, 3), (ours, 2)):
        gradients = training_call(contestant.bind, inputs)()
        assert isinstance(gradients, tuple)
        assert len(gradients) == count


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
