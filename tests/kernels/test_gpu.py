"""What only a GPU can show: the compiled kernels' results, large offsets, no waiting for the device, graphs."""

import pytest
import torch

from diarnorm.bench.gpuresults import check_large_tensor, check_results
from diarnorm.bench.graph import capture
from diarnorm.kernels import add_rms_norm, choose_backend, reference, rms_norm
from tests.kernels.oracle import EPS, make_case

pytestmark = pytest.mark.gpu


def test_results_on_this_gpu() -> None:
    findings = list(check_results(torch.device("cuda", 0)))
    assert all(finding.passed for finding in findings), findings


def test_more_elements_than_31_bits_count() -> None:
    (finding,) = check_large_tensor(torch.device("cuda", 0))
    assert finding.passed is not False, finding
    third = torch.empty(2, 70_000, 3 * 5120, dtype=torch.float16, device="cuda")[..., 5120:10240]
    third.fill_(1.0)
    y = rms_norm(third, torch.ones(5120, device="cuda"), EPS)
    assert bool((y[:, -1] == 1).all())


def test_nothing_waits_for_the_device() -> None:
    case = make_case(64, 80)
    x, weight, dy = (tensor.cuda() for tensor in (case.x, case.weight, case.dy))
    mask = torch.arange(64, device="cuda") % 2 == 0
    residual = x.clone()
    for leaf in (x, residual, weight):
        leaf.requires_grad_()

    def step() -> None:
        y, r = add_rms_norm(x, residual, weight, EPS, 0.5, mask=mask)
        torch.autograd.backward([y, r], [dy, dy])

    step()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_graph_replays_the_norm() -> None:
    x, weight = make_case(10, 256).x.cuda(), torch.ones(256, device="cuda")
    replay = capture(lambda: x.copy_(rms_norm(x, weight, EPS)))
    x.copy_(make_case(10, 256, seed=5).x)
    expected = reference.rms_norm(x, weight, EPS)
    replay()
    torch.testing.assert_close(x, expected)


def test_the_way_taken_on_cuda() -> None:
    x = torch.ones(2, 8, device="cuda")
    assert choose_backend(x) == "triton"
    assert choose_backend(x.double()) == "eager"
    with pytest.raises(ValueError, match="float64: use backend='eager'"):
        choose_backend(x.double(), backend="triton")


@pytest.mark.parametrize("backend", ["auto", "eager", "op"])
def test_autocast_gives_the_dtype_it_gives_on_a_cpu(backend: str) -> None:
    case = make_case(2, 33, dtype=torch.bfloat16)
    with torch.autocast("cuda", dtype=torch.float16):
        y = rms_norm(case.x.cuda(), case.weight.cuda(), EPS, backend=backend)
    assert y.dtype == torch.bfloat16
