"""The operators: torch's own check of them, and what torch.compile sees of a norm."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

from diarnorm.kernels import add_rms_norm, library, reference, rms_norm
from tests.kernels.oracle import EPS, make_case, run

MASK = torch.tensor([True, False, True])


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's checker reads it of what is no leaf
@pytest.mark.parametrize(("dtype", "mask"), [(torch.float32, None), (torch.bfloat16, MASK)])
def test_torchs_check_of_the_operators(dtype: torch.dtype, mask: Tensor | None) -> None:
    case = make_case(3, 8, dtype=dtype)
    x, weight = case.x.requires_grad_(), case.weight.requires_grad_()
    residual = make_case(3, 8, seed=1).x.requires_grad_()
    opcheck(library._rms_norm, (x, weight, EPS, mask, torch.float32))
    opcheck(library._add_rms_norm, (x, residual, weight, EPS, 0.5, mask, dtype))
    opcheck(library._rms_norm_backward, (case.dy, x.detach(), weight.detach(), EPS, mask))
    opcheck(
        library._add_rms_norm_backward,
        (case.dy, residual.detach(), residual.detach(), weight.detach(), EPS, 1.0, mask, torch.float32),
    )


def test_a_transposed_input() -> None:
    x = make_case(2, 8, 3).x.transpose(1, 2)
    opcheck(library._rms_norm, (x, torch.ones(8), EPS, None, torch.float32))


def test_gradients_are_those_of_the_definition() -> None:
    case, residual = make_case(3, 8, mask=MASK), make_case(3, 8, seed=1).x
    for ours, theirs in zip(run(library.rms_norm, case), run(reference.rms_norm, case), strict=True):
        torch.testing.assert_close(ours, theirs)
    grads = []
    for module in (library, reference):
        leaves = [t.clone().requires_grad_() for t in (case.x, residual, case.weight)]
        results = module.add_rms_norm(*leaves, EPS, 0.5, MASK)
        torch.autograd.backward(results, [case.dy, residual])
        grads.append([leaf.grad for leaf in leaves])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)


class Graphs:
    """A compiler backend that keeps the graphs it is given and runs them as they are."""

    def __init__(self) -> None:
        self.seen: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.seen.append(graph)
        return graph.forward

    def operators(self) -> set[str]:
        """Names of everything called."""
        return {str(node.target) for graph in self.seen for node in graph.graph.nodes if node.op == "call_function"}


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["auto", "op", "triton"])
def test_torch_compile_sees_the_definition_or_on_request_one_operator(backend: str) -> None:
    torch.compiler.reset()
    graphs, case = Graphs(), make_case(3, 8)

    def model(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        y, r = add_rms_norm(x, residual, weight, EPS, 0.5, backend=backend)
        return rms_norm(y + r, weight, EPS, mask=MASK, backend=backend)

    inputs = (case.x, make_case(3, 8, seed=1).x, case.weight)
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    expected = model(*inputs) if backend != "triton" else compiled(*inputs)
    torch.testing.assert_close(compiled(*inputs), expected)
    own = {name for name in graphs.operators() if "diarnorm" in name}
    assert len(graphs.seen) == 1
    assert len(own) == (0 if backend == "auto" else 2), own


@pytest.mark.compile
def test_chunks_of_twenty_lengths_compile_at_most_three_times() -> None:
    torch.compiler.reset()
    graphs, weight = Graphs(), torch.ones(8)
    compiled = torch.compile(lambda x: rms_norm(x, weight, EPS), backend=graphs, dynamic=True)
    for frames in range(1, 21):
        x = make_case(2, frames, 8).x
        torch.testing.assert_close(compiled(x), reference.rms_norm(x, weight, EPS))
    assert len(graphs.seen) <= 3


@pytest.mark.compile
def test_compiled_bf16_is_as_close_to_float64_as_eager() -> None:
    torch.compiler.reset()
    case = make_case(64, 256, dtype=torch.bfloat16)
    exact = reference.rms_norm(case.x.double(), case.weight.double(), EPS)
    compiled = torch.compile(lambda x: rms_norm(x, case.weight, EPS), backend="aot_eager")
    worst = (compiled(case.x).double() - exact).abs().max()
    assert worst <= 1.5 * (reference.rms_norm(case.x, case.weight, EPS).double() - exact).abs().max()
