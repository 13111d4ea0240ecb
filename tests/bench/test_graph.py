"""A step of the whole model can be recorded as one CUDA graph."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException

from diarnorm.bench.graph import make_step
from diarnorm.model import ModelConfig
from tests.tiny import ENCODER, MEMORY

CPU = torch.device("cpu")
TINY = ModelConfig(encoder=ENCODER, memory=MEMORY)


def test_a_step_never_waits_for_its_values() -> None:
    """What a CUDA graph cannot record, a number read back or a shape that depends on one, has no fake either."""
    step, _ = make_step(TINY, CPU, chunk=2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert [tuple(tensor.shape[:2]) for tensor in step()] == [(1, 2)] * 4


def test_a_wait_is_noticed() -> None:
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        bool(torch.ones(3).sum() > 2)
