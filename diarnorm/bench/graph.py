"""A streaming step of the whole model as one call, and any step as one CUDA graph."""

from collections.abc import Callable

import torch
from torch import Tensor

from diarnorm.model import Model, ModelConfig


def make_step(
    config: ModelConfig, device: torch.device, chunk: int
) -> tuple[Callable[[], list[Tensor]], Callable[[], list[Tensor]]]:
    """One chunk of sound through a model with random weights; and what the last step gave."""
    torch.manual_seed(0)
    model = Model(config).to(device).eval()
    samples = 0.1 * torch.randn(1, model.chunk_samples(chunk), device=device)
    with torch.inference_mode():
        _, state = model(samples, chunk=chunk)
    last: list[Tensor] = []

    def step() -> list[Tensor]:
        with torch.inference_mode():
            output, _ = model(samples, state, chunk=chunk)
        last[:] = output
        return last

    return step, lambda: last


def capture(step: Callable[[], object]) -> Callable[[], object]:
    """The launches of a step, recorded once and replayed as one."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
