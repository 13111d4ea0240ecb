"""A norm in ONNX: one node from opset 23 on, below it what ONNX Runtime fuses into one; the same numbers."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diarnorm.kernels import add_rms_norm, export, reference, rms_norm
from tests.kernels.oracle import EPS, make_case

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations


class Sandwich(nn.Module):
    """Two norms between matrix products, as in a block."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.weight = nn.Parameter(make_case(16).weight)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y, r = add_rms_norm(self.linear(x), x, self.weight, EPS, 0.5)
        return self.linear(rms_norm(y + r, self.weight, EPS, mask=mask))


INPUTS = (make_case(2, 5, 16).x, torch.tensor([[True, True, True, False, True], [True] * 5]))


def write(opset: int, spelling: int | None) -> Any:
    """The model in ONNX, of this opset."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.manual_seed(0)
    time = torch.export.Dim("time", min=1)
    options = {"opset_version": opset, "dynamo": True, "verbose": False, "dynamic_shapes": ({1: time}, {1: time})}
    if spelling is None:
        program = torch.onnx.export(Sandwich().eval(), INPUTS, **options)
    else:
        with export.onnx_spelling(spelling):
            program = torch.onnx.export(Sandwich().eval(), INPUTS, **options)
    assert program is not None
    return program.model_proto


def run_and_fuse(model: Any, path: Path) -> tuple[Tensor, list[str]]:
    """What ONNX Runtime computes, and the nodes that it runs."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [node.name for node in session.get_inputs()]
    (result,) = session.run(None, {name: value.numpy() for name, value in zip(names, INPUTS, strict=True)})
    return torch.from_numpy(result), node_types(onnx.load(str(path)))


def node_types(model: Any) -> list[str]:
    """Operators of the graph, in order."""
    return [node.op_type for node in model.graph.node]


def expected() -> Tensor:
    """The model in torch."""
    torch.manual_seed(0)
    return Sandwich().eval()(*INPUTS).detach()


def test_opset_23_is_one_node_each(tmp_path: Path) -> None:
    model = write(23, spelling=23)
    assert node_types(model).count("RMSNormalization") == 2
    assert not {"Pow", "ReduceMean", "Sqrt", "Div"} & set(node_types(model))
    onnx.checker.check_model(model)
    result, _ = run_and_fuse(model, tmp_path / "optimised.onnx")
    torch.testing.assert_close(result, expected())


@pytest.mark.parametrize("spelling", [18, pytest.param(None, marks=pytest.mark.slow)])
def test_below_it_onnx_runtime_fuses_each_norm(spelling: int | None, tmp_path: Path) -> None:
    model = write(18, spelling)
    assert "RMSNormalization" not in node_types(model)
    result, fused = run_and_fuse(model, tmp_path / "optimised.onnx")
    assert sum(name.endswith("SimplifiedLayerNormalization") for name in fused) == 2
    assert not {"Pow", "ReduceMean", "Sqrt", "Div"} & set(fused)
    torch.testing.assert_close(result, expected())


@pytest.mark.slow
def test_the_definition_itself_would_not_be_fused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why there is a spelling."""
    monkeypatch.setattr(export, "rms_norm", reference.rms_norm)
    monkeypatch.setattr(export, "add_rms_norm", reference.add_rms_norm)
    _, fused = run_and_fuse(write(18, 18), tmp_path / "optimised.onnx")
    assert not any(name.endswith("SimplifiedLayerNormalization") for name in fused)


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_spelling_computes_the_definition(opset: int, dtype: torch.dtype) -> None:
    case, residual = make_case(3, 33, dtype=dtype), make_case(3, 33, seed=1).x
    mask = torch.tensor([True, False, True])
    with export.onnx_spelling(opset):
        got = export.add_rms_norm(case.x, residual, case.weight, EPS, 0.5, mask)
    want = reference.add_rms_norm(case.x, residual, case.weight, EPS, 0.5, mask)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs)
    assert not export.spells_onnx()


def test_a_traced_model_keeps_its_norm() -> None:
    """torch.jit.trace must record operators, not the numbers that a native kernel gave."""
    weight = torch.ones(8)
    traced: Any = torch.jit.trace(lambda x: rms_norm(x, weight, EPS), make_case(2, 8).x)
    x = make_case(5, 8, seed=3).x
    torch.testing.assert_close(traced(x), reference.rms_norm(x, weight, EPS))
