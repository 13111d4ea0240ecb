"""One contract for every norm of the table, and what is particular to each, against stock torch in float64."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.checkpoint import Checkpoint
from diarnorm.norms import EPS, NORMS, BatchNorm, RMSNorm, make_norm
from diarnorm.rttm import format_turn
from diarnorm.stream import Diarizer
from tests.tiny import make_checkpoint, make_encoder, noise, shake, two_voices

STOCK = {"rms": nn.RMSNorm, "layer": nn.LayerNorm, "batch": nn.BatchNorm1d}
DIM = 12
each_norm = pytest.mark.parametrize("name", NORMS)
each_real_norm = pytest.mark.parametrize("name", STOCK)


def shaken(name: str, dim: int = DIM) -> nn.Module:
    """A norm with scales, offsets and averages of its own, in evaluation mode."""
    return shake(make_norm(name, dim)).eval()


def stock(name: str, norm: nn.Module) -> nn.Module:
    """Torch's layer with the same state dict, in double precision."""
    module = STOCK[name](DIM, eps=EPS)
    module.load_state_dict(norm.state_dict())
    return module.train(norm.training).double()


# ---- the contract -----------------------------------------------------------------------------------------


def assert_frame_local(norm: nn.Module) -> None:
    """Output frame t depends on input frame t alone, bit for bit, whatever the batch."""
    x = noise(64, 5, DIM)
    y = norm(x)
    for size in (1, 2, 7):
        assert torch.equal(norm(x[:size]), y[:size])
    assert torch.equal(norm(x[3, 2]), y[3, 2])
    changed = x.clone()
    changed[3, 2] = 100 * noise(DIM, seed=1)
    same = torch.ones(64, 5, dtype=torch.bool)
    same[3, 2] = False
    assert torch.equal(norm(changed)[same], y[same])


@each_norm
def test_frame_local_in_evaluation(name: str) -> None:
    assert_frame_local(shaken(name))


def test_frame_local_check_notices_batch_statistics() -> None:
    with pytest.raises(AssertionError):
        assert_frame_local(shaken("batch").train())


@each_norm
@pytest.mark.parametrize("training", [False, True])
def test_a_fresh_norm_gives_unit_rms(name: str, training: bool) -> None:
    y = make_norm(name, DIM).train(training)(noise(4000, DIM))
    assert y.square().mean().sqrt().item() == pytest.approx(1.0, abs=0.01)


@each_norm
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weights_too", [False, True])
def test_keeps_the_dtype_and_computes_in_float32(name: str, dtype: torch.dtype, weights_too: bool) -> None:
    norm = shaken(name)
    x = (30 * noise(50, DIM)).to(dtype)
    expected = norm(x.float()).to(dtype)
    if weights_too:
        norm = norm.to(dtype)
    y = norm(x)
    assert y.dtype == dtype
    tolerance = 3 * torch.finfo(dtype).eps if weights_too else 0
    torch.testing.assert_close(y, expected, rtol=tolerance, atol=2 * tolerance)


@each_norm
@pytest.mark.parametrize("training", [False, True])
def test_backward_is_finite_on_silent_frames(name: str, training: bool) -> None:
    norm = make_norm(name, DIM).train(training)
    x = torch.cat([torch.zeros(3, DIM), noise(3, DIM)]).requires_grad_()
    norm(x).square().sum().backward()
    for tensor in (x, *norm.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@each_norm
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(0, DIM), (3, 0, DIM), (0, 5, DIM)])
def test_empty_batches_pass(name: str, training: bool, shape: tuple[int, ...]) -> None:
    norm = make_norm(name, DIM).train(training)
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    x = torch.zeros(shape, requires_grad=True)
    y = norm(x)
    assert y.shape == shape
    y.sum().backward()
    for parameter in norm.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()
    for key, value in norm.state_dict().items():
        assert torch.equal(value, before[key])


@each_norm
def test_valid_changes_nothing_in_evaluation(name: str) -> None:
    norm, x, valid = shaken(name), noise(3, 7, DIM), noise(3, 7) > 0
    assert torch.equal(norm(x, valid)[valid], norm(x)[valid])


@each_real_norm
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("layout", ["plain", "strided", "transposed", "expanded", "shifted"])
def test_outputs_and_gradients_equal_stock_torch(name: str, training: bool, layout: str) -> None:
    norm = shaken(name).train(training)
    reference = stock(name, norm)
    x = {
        "plain": noise(6, DIM),
        "strided": noise(6, 2 * DIM)[:, ::2],
        "transposed": noise(DIM, 6).T,
        "expanded": noise(6, 1).expand(-1, DIM) if name != "layer" else noise(1, DIM).expand(6, -1),
        "shifted": noise(7, DIM)[1:],
    }[layout]
    if layout == "expanded":
        x = x + noise(6, DIM, seed=2) if training else x
    x, kept = x.detach(), x.clone()
    given, wide = x.requires_grad_(), x.detach().double().requires_grad_()
    y, expected = norm(given), reference(wide)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    gradient = noise(DIM, 6, seed=3).T
    y.backward(gradient)
    expected.backward(gradient.double())
    torch.testing.assert_close(given.grad, wide.grad, rtol=1e-4, atol=1e-4, check_dtype=False)
    for ours, theirs in zip(norm.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4, check_dtype=False)
    assert torch.equal(x, kept)
    for key, value in reference.state_dict().items():
        torch.testing.assert_close(norm.state_dict()[key], value, check_dtype=False)


@each_real_norm
def test_state_dicts_are_interchangeable_with_stock_torch(name: str) -> None:
    norm = shaken(name)
    theirs = STOCK[name](DIM, eps=EPS)
    assert theirs.load_state_dict(norm.state_dict()) is not None
    back = make_norm(name, DIM)
    back.load_state_dict(theirs.state_dict())
    for key, value in norm.state_dict().items():
        assert torch.equal(back.state_dict()[key], value)
    assert isinstance(norm, STOCK[name])


@pytest.mark.parametrize("eps", [0.0, -1e-5, math.nan, None])
@each_norm
def test_eps_that_protects_nothing_is_refused(name: str, eps: Any) -> None:
    with pytest.raises(ValueError, match=rf"eps={eps} .* give a positive number"):
        make_norm(name, DIM, eps)


def test_the_eps_that_torch_would_choose_by_dtype_is_refused() -> None:
    """`torch.nn.RMSNorm` takes None for the smallest step of the dtype, 1.2e-7 to 7.8e-3."""
    with pytest.raises(ValueError, match="eps=None means another number for every dtype"):
        RMSNorm(DIM, eps=None)(noise(2, DIM))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["rsm", "", "RMS", "False"])
def test_unknown_names_are_refused_with_the_choices(name: str) -> None:
    with pytest.raises(ValueError, match=rf"norm='{name}' is not known: choose one of rms, layer, batch"):
        make_norm(name, DIM)


# ---- compiled -----------------------------------------------------------------------------------------------


class Counting:
    """A compiler backend that counts what it is given and runs it as it is."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.count += 1
        return graph.forward


@pytest.mark.compile
@each_norm
def test_twenty_lengths_compile_at_most_three_times(name: str) -> None:
    torch.compiler.reset()
    norm, counting = shaken(name), Counting()
    compiled = torch.compile(norm, dynamic=True, fullgraph=True, backend=counting)
    for num_frames in range(1, 21):
        x = noise(2, num_frames, DIM, seed=num_frames)
        torch.testing.assert_close(compiled(x), norm(x))
    assert counting.count <= 3


@pytest.mark.compile
@pytest.mark.slow
@pytest.mark.parametrize("name", ["rms", "layer"])
def test_an_encoder_of_twenty_lengths_compiles_at_most_three_times(name: str) -> None:
    torch.compiler.reset()
    counting, encoder = Counting(), make_encoder(name)
    compiled = torch.compile(encoder, dynamic=True, fullgraph=True, backend=counting)
    with torch.inference_mode():
        for num_chunks in range(1, 21):
            x = noise(1, num_chunks * 4 * 8, 80)
            torch.testing.assert_close(compiled(x, None, None, chunk=4)[0], encoder(x, None, None, chunk=4)[0])
    assert 1 <= counting.count <= 3


@pytest.mark.compile
@pytest.mark.parametrize("name", ["rms", pytest.param("layer", marks=pytest.mark.slow)])
def test_turns_of_a_compiled_encoder_are_the_same(name: str) -> None:
    torch.compiler.reset()
    counting, checkpoint = Counting(), make_checkpoint(name, talkative=True)
    expected, encoder = rttm(checkpoint), checkpoint.model.encoder
    assert len(expected) > 10
    encoder.forward = torch.compile(encoder.forward, dynamic=True, fullgraph=True, backend=counting)
    assert rttm(checkpoint) == expected
    assert 1 <= counting.count <= 3


def rttm(checkpoint: Checkpoint) -> list[str]:
    """Lines for two voices."""
    stream = Diarizer(checkpoint).stream()
    turns = stream.push(two_voices(8 * 16_000))
    return [format_turn(turn, "x") for turn in turns + stream.finish()]


# ---- what is particular to each ---------------------------------------------------------------------------


def test_large_half_precision_values_do_not_overflow() -> None:
    x = torch.full((2, DIM), 300.0, dtype=torch.float16)
    assert torch.equal(make_norm("rms", DIM)(x), torch.ones_like(x))
    alternating = x * torch.tensor([1, -1] * (DIM // 2))
    assert torch.equal(make_norm("layer", DIM)(alternating), alternating / 300)
    rows = torch.cat([x, -x])
    assert torch.equal(make_norm("batch", DIM)(rows), rows / 300)


@pytest.mark.parametrize(("eps", "expected"), [(1e-6, 0.0995), (1e-5, 0.0316), (1e-12, 1.0)])
def test_eps_is_what_was_asked_for(eps: float, expected: float) -> None:
    y = make_norm("rms", DIM, eps)(torch.full((DIM,), 1e-4))
    assert y[0].item() == pytest.approx(expected, rel=2e-3)


def test_gradient_of_a_silent_frame_is_one_over_the_root_of_eps() -> None:
    x = torch.zeros(DIM, requires_grad=True)
    make_norm("rms", DIM, 1e-6)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((DIM,), 1000.0), rtol=1e-3, atol=0)


def test_a_spike_is_not_lost_among_small_values() -> None:
    x = torch.full((DIM,), 1e-3)
    x[5] = 1e4
    expected = x.double() / (x.double().square().mean() + EPS).sqrt()
    torch.testing.assert_close(make_norm("rms", DIM)(x).double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("offset", [0.0, 0.1, 1.0, 4.6, 30.0])
def test_an_offset_divides_rms_output_by_the_root_of_one_plus_its_square(offset: float) -> None:
    x = noise(20, 64).double()
    x = F.layer_norm(x, (64,), eps=0.0)
    y = make_norm("rms", 64, 1e-12)((x + offset).float()).double()
    centred = y - y.mean(dim=-1, keepdim=True)
    torch.testing.assert_close(centred, x / math.sqrt(1 + offset**2), rtol=0, atol=1e-5)
    through = make_norm("layer", 64, 1e-12)((x + offset).float()).double()
    torch.testing.assert_close(through, x, rtol=0, atol=1e-4)


def test_rms_equals_layer_on_centred_frames() -> None:
    x = noise(20, DIM)
    x = x - x.mean(dim=-1, keepdim=True)
    torch.testing.assert_close(make_norm("rms", DIM)(x), make_norm("layer", DIM)(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["rms", "layer"])
@pytest.mark.parametrize("gain", [0.01, 100.0])
def test_scale_invariance_as_eps_vanishes(name: str, gain: float) -> None:
    norm, x = make_norm(name, DIM, 1e-20), noise(20, DIM)
    torch.testing.assert_close(norm(gain * x), norm(x), rtol=1e-5, atol=1e-5)


def test_none_is_the_identity() -> None:
    x = noise(3, DIM)
    assert make_norm("none", DIM)(x) is x
    assert not make_norm("none", DIM).state_dict()


# ---- batch statistics -------------------------------------------------------------------------------------


def assert_statistics_over_valid_frames(cls: type[BatchNorm], padding: float) -> None:
    """Valid outputs and running averages are those of the batch without its padding."""
    alone, padded = cls(DIM).train(), cls(DIM).train()
    x = 3 * noise(1, 100, DIM) + 1
    long = torch.cat([x, torch.full((1, 900, DIM), padding)], dim=1)
    valid = (torch.arange(1000) < 100)[None]
    torch.testing.assert_close(padded(long, valid)[:, :100], alone(x), rtol=1e-5, atol=1e-5)
    for key, value in alone.state_dict().items():
        torch.testing.assert_close(padded.state_dict()[key], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padding", [0.0, 1e3, math.nan])
def test_statistics_are_those_of_the_valid_frames(padding: float) -> None:
    assert_statistics_over_valid_frames(BatchNorm, padding)


class Careless(BatchNorm):
    """Mutant: `valid` is ignored."""

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        return super().forward(x)


@pytest.mark.parametrize("padding", [0.0, 1e3, math.nan])
def test_check_of_statistics_notices_an_ignored_mask(padding: float) -> None:
    with pytest.raises(AssertionError):
        assert_statistics_over_valid_frames(Careless, padding)


def test_gradients_are_those_of_the_valid_frames() -> None:
    norm, x, valid = BatchNorm(DIM).train(), noise(4, 9, DIM).requires_grad_(), noise(4, 9, seed=1) > 0
    gradient = noise(4, 9, DIM, seed=2)
    norm(x, valid)[valid].backward(gradient[valid])
    reference, rows = stock("batch", BatchNorm(DIM).train()), x.detach()[valid].double().requires_grad_()
    reference(rows).backward(gradient[valid].double())
    assert x.grad is not None
    torch.testing.assert_close(x.grad[valid], rows.grad, rtol=1e-4, atol=1e-5, check_dtype=False)
    assert not x.grad[~valid].any()


@pytest.mark.parametrize("num_valid", [0, 1])
def test_fewer_than_two_values_train_by_the_running_averages(num_valid: int) -> None:
    norm = shake(BatchNorm(DIM))
    assert isinstance(norm, BatchNorm)
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    x, valid = noise(1, 3, DIM).requires_grad_(), (torch.arange(3) < num_valid)[None]
    y = norm.train()(x, valid)
    for key, value in norm.state_dict().items():
        assert torch.equal(value, before[key])
    assert torch.equal(y, norm.eval()(x))
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_a_damaged_batch_leaves_the_averages_alone(bad: float) -> None:
    norm = BatchNorm(DIM).train()
    norm(noise(50, DIM))
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    x = noise(50, DIM, seed=1)
    x[7, 3] = bad
    norm(x)
    for key, value in norm.state_dict().items():
        assert torch.equal(value, before[key])


def test_averages_follow_the_data() -> None:
    norm = BatchNorm(DIM).train()
    for step in range(100):
        norm(2 * noise(200, DIM, seed=step) + 3)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked == 100
    torch.testing.assert_close(norm.running_mean, torch.full((DIM,), 3.0), rtol=0, atol=0.2)
    torch.testing.assert_close(norm.running_var, torch.full((DIM,), 4.0), rtol=0.15, atol=0)


def halves(rank: int) -> tuple[Tensor, Tensor]:
    """Rows and their gradient: 5 for process 0, 3 for process 1."""
    part = slice(0, 5) if rank == 0 else slice(5, 8)
    return 2 * noise(8, DIM)[part] + 1, noise(8, DIM, seed=1)[part]


def forward_and_backward(x: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """Outputs, gradients and state of a fresh layer in training."""
    norm, x = BatchNorm(DIM).train(), x.requires_grad_()
    y = norm(x)
    y.backward(gradient)
    found = {"y": y.detach(), "dx": x.grad, "dw": norm.weight.grad, "db": norm.bias.grad}
    return {**{name: tensor for name, tensor in found.items() if tensor is not None}, **norm.state_dict()}


@contextmanager
def process_group(folder: Path, rank: int, world_size: int) -> Iterator[None]:
    """Membership in a group of processes on this machine."""
    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=world_size)
    try:
        yield
    finally:
        dist.destroy_process_group()


def second_process(_: int, folder: Path) -> None:
    """What the other of two processes does; results go to a file."""
    with process_group(folder, 1, 2):
        torch.save(forward_and_backward(*halves(1)), folder / "1.pt")


def test_two_processes_equal_one(tmp_path: Path) -> None:
    other = mp.spawn(second_process, (tmp_path,), nprocs=1, join=False)  # pyright: ignore[reportPrivateImportUsage]
    with process_group(tmp_path, 0, 2):
        first = forward_and_backward(*halves(0))
    assert other is not None
    assert other.join(timeout=60)
    second = torch.load(tmp_path / "1.pt", weights_only=True)
    both = [torch.cat(parts) for parts in zip(halves(0), halves(1), strict=True)]
    for name, expected in forward_and_backward(both[0], both[1]).items():
        if name in ("y", "dx"):
            found = torch.cat([first[name], second[name]])
        elif name in ("dw", "db"):
            found = first[name] + second[name]
        else:
            found = first[name]
            assert torch.equal(found, second[name])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_group_of_one_process_changes_nothing(tmp_path: Path) -> None:
    expected = forward_and_backward(*halves(0))
    with process_group(tmp_path, 0, 1):
        found = forward_and_backward(*halves(0))
    for name, value in found.items():
        assert torch.equal(value, expected[name])


def test_subclass_of_stock_rms_norm() -> None:
    assert issubclass(RMSNorm, nn.RMSNorm)
