"""Encoder: a dense reference, stream against one step, padding, causality, positions, compilation, memory."""

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from diarnorm import conformer
from diarnorm.conformer import BlockState, Encoder, EncoderConfig, EncoderState
from diarnorm.norms import NORMS
from tests.tiny import ENCODER, REACH_FRAMES, in_steps, make_encoder, noise, shake, tensors_of, whole_chunks

CHUNK = 4
NUM_CHUNKS = 8
VARIANTS = list(product(NORMS, conformer.PLACEMENTS))
each_variant = pytest.mark.parametrize(("norm", "placement"), VARIANTS)
TOLERANCE = 1e-5


def mel_frames(num_frames: int = CHUNK * NUM_CHUNKS, batch: int = 2, seed: int = 0) -> Tensor:
    """Normalised mel frames `[batch, 8 * num_frames, 80]`."""
    return noise(batch, 8 * num_frames, 80, seed=seed)


def difference(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference; NaN counts as infinite."""
    return (a - b).abs().nan_to_num(nan=math.inf).max().item()


# ---- against the definition -------------------------------------------------------------------------------


def by_dense_attention(encoder: Encoder, mel: Tensor, chunk: int) -> Tensor:
    """One recording `[8T, 80]` with T x T masks and absolute positions: slow, plain, by the definitions."""
    x = encoder.entry(mel.reshape(-1, 640))
    for block in encoder.blocks:
        assert isinstance(block, conformer.Block)
        steps = [
            (block.ff_in, 0.5),
            (lambda z, block=block: dense_attention(block.attention, z, chunk), 1.0),
            (lambda z, block=block: dense_convolution(block.convolution, z), 1.0),
            (block.ff_out, 0.5),
        ]
        for norm, (step, share) in zip(block.norms, steps, strict=True):
            x = x + share * step(norm(x)) if block.placement == "pre" else norm(x + share * step(x))
    return encoder.final_norm(x)


def dense_attention(attention: conformer.Attention, x: Tensor, chunk: int) -> Tensor:
    time = torch.arange(len(x))
    half = attention.head_dim // 2
    turn = torch.polar(torch.ones(()), time[:, None] * 10_000.0 ** (-torch.arange(half) / half))
    q, k, v = attention.qkv(x).view(len(x), 3, attention.num_heads, -1).unbind(dim=1)
    q, k = (torch.complex(z[..., :half], z[..., half:]) * turn[:, None] for z in (q, k))
    scores = torch.einsum("qhd,khd->hqk", q, k.conj()).real / math.sqrt(attention.head_dim)
    first = time // chunk * chunk
    seen = (time >= first[:, None] - attention.left_context) & (time < first[:, None] + chunk)
    weights = scores.masked_fill(~seen, -math.inf).softmax(dim=-1)
    return attention.out(torch.einsum("hqk,khd->qhd", weights, v).flatten(1))


def dense_convolution(convolution: conformer.Convolution, x: Tensor) -> Tensor:
    a, b = convolution.expand(x).chunk(2, dim=-1)
    gated, kernel = a * b.sigmoid(), convolution.depthwise.weight[:, 0]
    padded = torch.cat([gated.new_zeros(kernel.shape[1] - 1, gated.shape[1]), gated])
    y = torch.stack([padded[i : i + len(x)] * kernel[:, i] for i in range(kernel.shape[1])]).sum(dim=0)
    assert convolution.depthwise.bias is not None
    return convolution.project(F.silu(convolution.norm(y + convolution.depthwise.bias)))


@each_variant
@pytest.mark.parametrize("chunk", [1, 4, 16])
def test_equals_dense_attention(norm: str, placement: str, chunk: int) -> None:
    encoder, mel = make_encoder(norm, placement), mel_frames(batch=1)
    y, _ = encoder(mel, chunk=chunk)
    assert difference(y[0], by_dense_attention(encoder, mel[0], chunk)) < TOLERANCE


# ---- stream against one step ------------------------------------------------------------------------------


def assert_stream_equals_one_step(encoder: Encoder, sizes: list[int], batch: int = 2) -> None:
    mel = mel_frames(batch=batch)
    whole, last = encoder(mel, chunk=CHUNK)

    def call(piece: Tensor, state: EncoderState) -> tuple[Tensor, EncoderState]:
        return encoder(piece, state, chunk=CHUNK)

    pieces, state = in_steps(call, None, mel, [8 * CHUNK * size for size in sizes])
    assert difference(torch.cat(pieces, dim=1), whole) < TOLERANCE
    for a, b in zip(tensors_of(state), tensors_of(last), strict=True):
        assert a.dtype == b.dtype
        assert difference(a.float(), b.float()) < TOLERANCE


@each_variant
@settings(max_examples=6)
@given(sizes=whole_chunks(NUM_CHUNKS))
def test_stream_equals_one_step(norm: str, placement: str, sizes: list[int]) -> None:
    assert_stream_equals_one_step(make_encoder(norm, placement), sizes)


@each_variant
def test_chunk_by_chunk_equals_one_step(norm: str, placement: str) -> None:
    assert_stream_equals_one_step(make_encoder(norm, placement), [1] * NUM_CHUNKS, batch=1)


@pytest.mark.parametrize("chunk", [6, 12, 25])
def test_default_size_streams_like_one_step(chunk: int) -> None:
    encoder = shake(Encoder()).eval()
    mel = noise(1, 8 * 12 * chunk, 80)
    with torch.inference_mode():
        whole, _ = encoder(mel, chunk=chunk)
        state, pieces = None, []
        for piece in mel.split(8 * chunk, dim=1):
            y, state = encoder(piece, state, chunk=chunk)
            pieces.append(y)
    assert difference(torch.cat(pieces, dim=1), whole) < TOLERANCE


class StateMutant(Encoder):
    """Mutant: hands on a state in which something is lost."""

    def __init__(self, config: EncoderConfig, lose: Callable[[EncoderState], EncoderState]) -> None:
        super().__init__(config)
        self.lose = lose

    def forward(self, mel: Tensor, state=None, valid=None, *, chunk: int) -> tuple[Tensor, EncoderState]:
        y, state = super().forward(mel, state, valid, chunk=chunk)
        return y, self.lose(state)


def without(field: str) -> Callable[[EncoderState], EncoderState]:
    """Zeros in one field of every block's state."""

    def lose(state: EncoderState) -> EncoderState:
        blocks = (block._replace(**{field: torch.zeros_like(getattr(block, field))}) for block in state.blocks)
        return state._replace(blocks=tuple(blocks))

    return lose


@pytest.mark.parametrize(
    "lose",
    [
        *(without(field) for field in BlockState._fields),
        lambda state: state._replace(valid=torch.zeros_like(state.valid)),
        lambda state: state._replace(blocks=state.blocks[::-1]),
        lambda state: state._replace(blocks=tuple(b._replace(keys=b.keys.roll(1, 1)) for b in state.blocks)),
    ],
    ids=["keys", "values", "conv", "valid", "blocks swapped", "keys one frame late"],
)
def test_stream_check_notices_a_wrong_state(lose: Callable[[EncoderState], EncoderState]) -> None:
    mutant = StateMutant(ENCODER, lose)
    mutant.load_state_dict(make_encoder().state_dict())
    with pytest.raises(AssertionError):
        assert_stream_equals_one_step(mutant.eval(), [4, 4])


def test_state_is_small_canonical_and_its_own() -> None:
    encoder = make_encoder()
    _, state = encoder(mel_frames(), chunk=CHUNK)
    for tensor, first in zip(tensors_of(state), tensors_of(encoder.init_state(2)), strict=True):
        assert tensor.shape == first.shape
        assert tensor.dtype == first.dtype
        assert tensor.stride() == first.stride() == torch.empty(tensor.shape).stride()
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_no_frames_change_nothing() -> None:
    encoder = make_encoder()
    _, state = encoder(mel_frames(), chunk=CHUNK)
    y, after = encoder(torch.zeros(2, 0, 80), state, chunk=CHUNK)
    assert y.shape == (2, 0, ENCODER.dim)
    for a, b in zip(tensors_of(after), tensors_of(state), strict=True):
        assert torch.equal(a, b)


def test_chunk_size_may_change_between_calls() -> None:
    encoder, mel = make_encoder(), mel_frames(batch=1)
    first, state = encoder(mel[:, : 8 * 16], chunk=4)
    second, _ = encoder(mel[:, 8 * 16 :], state, chunk=8)
    assert difference(first, encoder(mel, chunk=4)[0][:, :16]) < TOLERANCE
    assert second.isfinite().all()
    # In one block without taps, what was cached does not depend on the chunk size.
    whole = make_encoder(num_blocks=1, kernel_size=1)
    _, state = whole(mel[:, : 8 * 16], chunk=4)
    assert difference(whole(mel[:, 8 * 16 :], state, chunk=8)[0], whole(mel, chunk=8)[0][:, 16:]) < TOLERANCE


# ---- padding and batches ----------------------------------------------------------------------------------


def assert_padding_is_inert(encoder: Encoder, content: float, *, front: bool = False) -> None:
    """A chunk cut short by padding gives what the recording alone gives, at its very length, by definition.

    In training mode so it is with gradients and running averages.
    """
    mel, length = mel_frames(2 * CHUNK + 1, batch=1), 2 * CHUNK + 1
    before, after = (3 * CHUNK if front else 0), 3 * CHUNK - 1
    start = {name: value.clone() for name, value in encoder.state_dict().items()}

    def padded() -> Tensor:
        sides = [torch.full((1, 8 * n, 80), content) for n in (before, after)]
        time = torch.arange(before + length + after)
        valid = ((time >= before) & (time < before + length))[None]
        y, _ = encoder(torch.cat([sides[0], mel, sides[1]], dim=1), None, valid, chunk=CHUNK)
        return y[valid]

    def results(call: Callable[[], Tensor]) -> dict[str, Tensor]:
        encoder.load_state_dict(start)
        encoder.zero_grad()
        y = call()
        y.square().mean().backward()
        gradients = {name: p.grad for name, p in encoder.named_parameters() if p.grad is not None}
        return {"y": y, **gradients, **{name: b.clone() for name, b in encoder.named_buffers()}}

    found, expected = results(padded), results(lambda: by_dense_attention(encoder, mel[0], CHUNK))
    assert found.keys() == expected.keys()
    for name in expected:
        scale = max(1.0, expected[name].abs().max().item())
        assert difference(found[name], expected[name]) < TOLERANCE * scale, name


@each_variant
@pytest.mark.parametrize("content", [0.0, 1e3, math.nan])
@pytest.mark.parametrize("training", [False, True])
def test_padding_is_inert(norm: str, placement: str, content: float, training: bool) -> None:
    assert_padding_is_inert(make_encoder(norm, placement).train(training), content)


@pytest.mark.parametrize("norm", NORMS)
def test_padding_in_front_is_inert(norm: str) -> None:
    assert_padding_is_inert(make_encoder(norm), 1e3, front=True)


def ignored(encoder: Encoder, mel: Tensor, state: EncoderState, valid: Tensor, *, chunk: int) -> tuple:
    """Mutant of the encoder: `valid` is ignored."""
    return encoder_forward(encoder, mel, state, chunk=chunk)


def all_keys(known: Tensor, window: int, chunk: int, x: Tensor) -> Tensor:
    """Mutant of the mask: every key is there."""
    return 0 * key_bias(known, window, chunk, x)


def all_frames(norm: nn.Module, x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Mutant of the batch norm: padding enters the statistics."""
    return batch_forward(norm, x)


encoder_forward, key_bias, batch_forward = Encoder.forward, conformer._key_bias, NORMS["batch"].forward


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "training"),
    [
        (Encoder, "forward", ignored, False),
        (conformer, "_key_bias", all_keys, False),
        (NORMS["batch"], "forward", all_frames, True),
    ],
)
def test_padding_check_notices_the_mutants(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, mutant: Callable, training: bool
) -> None:
    encoder = make_encoder("batch").train(training)
    assert_padding_is_inert(encoder, 0.0)
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises(AssertionError):
        assert_padding_is_inert(encoder, 0.0)


@each_variant
def test_row_in_a_batch_is_the_row_alone(norm: str, placement: str) -> None:
    encoder, mel = make_encoder(norm, placement), mel_frames(3 * CHUNK, batch=7)
    lengths = torch.tensor([12, 11, 7, 4, 2, 1, 0])
    valid = torch.arange(12) < lengths[:, None]
    together, _ = encoder(mel, None, valid, chunk=CHUNK)
    assert together.isfinite().all()
    for row, length in enumerate(lengths.tolist()):
        whole = -(-length // CHUNK) * CHUNK
        alone, _ = encoder(mel[row : row + 1, : 8 * whole], None, valid[row : row + 1, :whole], chunk=CHUNK)
        if length:
            largest = max(1.0, together[row].abs().max().item())
            assert difference(alone[0, :length], together[row, :length]) < 1e-6 * largest


@each_variant
def test_frames_without_any_key_are_finite(norm: str, placement: str) -> None:
    encoder, nothing = make_encoder(norm, placement), torch.zeros(2, 2 * CHUNK, dtype=torch.bool)
    y, state = encoder(torch.full((2, 16 * CHUNK, 80), math.nan), None, nothing, chunk=CHUNK)
    assert y.isfinite().all()
    after, _ = encoder(mel_frames(CHUNK), state, chunk=CHUNK)
    assert difference(after, encoder(mel_frames(CHUNK), chunk=CHUNK)[0]) < TOLERANCE


@pytest.mark.parametrize("norm", NORMS)
def test_half_precision_is_finite(norm: str) -> None:
    encoder = make_encoder(norm).bfloat16()
    valid = (torch.arange(2 * CHUNK) < 3).expand(2, -1)
    y, _ = encoder(mel_frames(2 * CHUNK).bfloat16(), None, valid, chunk=CHUNK)
    assert y.dtype == torch.bfloat16
    assert y.isfinite().all()
    expected, _ = make_encoder(norm)(mel_frames(2 * CHUNK), None, valid, chunk=CHUNK)
    assert difference(y[valid].float(), expected[valid]) < 0.05 * expected[valid].abs().max().item()


# ---- causality and positions ------------------------------------------------------------------------------


def inputs_seen(encoder: Encoder, frame: int, num_frames: int, chunk: int) -> list[int]:
    """Input frames on which output frame `frame` depends, by its gradient."""
    mel = mel_frames(num_frames, batch=1).requires_grad_()
    y, _ = encoder(mel, chunk=chunk)
    (y[0, frame] * noise(y.shape[-1], seed=9)).sum().backward()
    assert mel.grad is not None
    return mel.grad.view(num_frames, -1).abs().sum(dim=1).nonzero()[:, 0].tolist()


def assert_attention_window(encoder: Encoder, context: int) -> None:
    """Every frame of every chunk depends on `context` frames before its chunk and on its chunk, exactly."""
    for frame in range(5 * CHUNK):
        start = frame // CHUNK * CHUNK
        expected = list(range(max(0, start - context), start + CHUNK))
        assert inputs_seen(encoder, frame, 5 * CHUNK, CHUNK) == expected


@each_variant
def test_attention_sees_its_window_and_nothing_else(norm: str, placement: str) -> None:
    encoder = make_encoder(norm, placement, num_blocks=1, kernel_size=1)
    assert_attention_window(encoder, ENCODER.left_context)


def assert_causal(encoder: Encoder) -> None:
    """No output depends on an input after its chunk; all depend on one that takes both blocks to reach."""
    last_start = 4 * CHUNK
    for frame in range(last_start, last_start + CHUNK):
        seen = inputs_seen(encoder, frame, 6 * CHUNK, CHUNK)
        assert max(seen) == last_start + CHUNK - 1
        assert last_start - REACH_FRAMES <= min(seen) < last_start - encoder.config.left_context


@each_variant
def test_causal_at_every_position_of_a_chunk(norm: str, placement: str) -> None:
    assert_causal(make_encoder(norm, placement))


def test_convolution_alone_is_causal_frame_by_frame() -> None:
    convolution = make_encoder().blocks[0].get_submodule("convolution")
    x = noise(1, 9, ENCODER.dim).requires_grad_()
    state = BlockState(x, x, torch.zeros(1, ENCODER.kernel_size - 1, ENCODER.dim))
    y, _ = convolution(x, state, torch.ones(1, 9, dtype=torch.bool))
    y[0, 6].sum().backward()
    assert x.grad is not None
    assert x.grad[0].abs().sum(dim=1).nonzero()[:, 0].tolist() == [2, 3, 4, 5, 6]


class LookAhead(nn.Module):
    """Mutant: a convolution whose outputs come one frame early."""

    def __init__(self, convolution: conformer.Convolution) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, x: Tensor, state: BlockState, valid: Tensor) -> tuple[Tensor, Tensor]:
        y, taps = self.convolution(x, state, valid)
        return torch.cat([y[:, 1:], y[:, -1:]], dim=1), taps


def test_causality_checks_notice_the_mutants() -> None:
    encoder = make_encoder()
    for block in encoder.blocks:
        assert isinstance(block, conformer.Block)
        block.convolution = LookAhead(block.convolution)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AssertionError):
        assert_causal(encoder)
    for context in (ENCODER.left_context - 1, ENCODER.left_context + 1):
        encoder = make_encoder(num_blocks=1, kernel_size=1, left_context=context)
        with pytest.raises(AssertionError):
            assert_attention_window(encoder, ENCODER.left_context)


def assert_no_absolute_position(encoder: Encoder) -> None:
    """The same sounds give the same output at any time, once all that the encoder reaches is the same."""
    period = 3 * CHUNK
    y, state = encoder(mel_frames(period, batch=1).repeat(1, 8, 1), chunk=CHUNK)
    cycles = y.view(8, period, -1)
    first = math.ceil((REACH_FRAMES + CHUNK) / period)
    assert difference(cycles[first:], cycles[first : first + 1]) < TOLERANCE
    assert difference(cycles[0], cycles[first]) > 0.01  # the first cycle has nothing before it
    far, _ = encoder(mel_frames(period, batch=1).repeat(1, 3, 1), state, chunk=CHUNK)
    assert difference(far[0, :period], cycles[first]) < TOLERANCE


@each_variant
def test_no_absolute_position(norm: str, placement: str) -> None:
    assert_no_absolute_position(make_encoder(norm, placement))


def test_twelve_minutes_later_gives_the_same() -> None:
    encoder, sounds = make_encoder(), mel_frames(REACH_FRAMES + 2 * CHUNK, batch=1)
    sounds = sounds[:, : sounds.shape[1] // (8 * CHUNK) * 8 * CHUNK]
    _, state = encoder(mel_frames(9_000, batch=1, seed=5), chunk=CHUNK)
    late, early = encoder(sounds, state, chunk=CHUNK)[0], encoder(sounds, chunk=CHUNK)[0]
    assert difference(late[:, -CHUNK:], early[:, -CHUNK:]) < TOLERANCE


def test_position_check_notices_absolute_positions() -> None:
    encoder = make_encoder()

    def add_position(_module: nn.Module, _args: object, y: Tensor) -> Tensor:
        return y + 0.01 * torch.arange(y.shape[1])[:, None]

    encoder.entry.register_forward_hook(add_position)
    with pytest.raises(AssertionError):
        assert_no_absolute_position(encoder)


# ---- memory and compilation -------------------------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """Size of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.num_bytes = max(self.num_bytes, tensor.untyped_storage().nbytes())
        return out


def growth(call: Callable[[Tensor], object]) -> float:
    """By how much the largest tensor grows when the recording is eight times as long."""
    sizes = []
    for num_chunks in (16, 128):
        with LargestTensor() as largest, torch.no_grad():
            call(mel_frames(num_chunks * CHUNK, batch=1))
        sizes.append(largest.num_bytes)
    return sizes[1] / sizes[0]


def test_memory_is_linear_in_length() -> None:
    encoder = make_encoder()
    assert growth(lambda mel: encoder(mel, chunk=CHUNK)) == pytest.approx(8, rel=0.15)


def test_memory_check_notices_a_square_mask() -> None:
    encoder = make_encoder()
    assert growth(lambda mel: by_dense_attention(encoder, mel[0], CHUNK)) > 20


@pytest.mark.compile
@pytest.mark.parametrize("norm", NORMS)
def test_compiles_once_without_graph_breaks(norm: str) -> None:
    torch.compiler.reset()
    encoder, mel = make_encoder(norm), mel_frames(4 * CHUNK, batch=1)
    compiled = torch.compile(encoder, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        expected, _ = encoder(mel, chunk=CHUNK)
        outputs, state = [], encoder.init_state(1)
        for i, piece in enumerate(mel.split(8 * CHUNK, dim=1)):
            with torch.compiler.set_stance("default" if i == 0 else "fail_on_recompile"):
                y, state = compiled(piece, state, chunk=CHUNK)
            outputs.append(y)
    assert difference(torch.cat(outputs, dim=1), expected) < TOLERANCE


# ---- configuration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_norm_swaps_every_norm_at_once(norm: str) -> None:
    found = [type(m) for m in make_encoder(norm).modules() if isinstance(m, tuple(NORMS.values()))]
    assert found == [NORMS[norm]] * (2 * 5 + 1)


def test_conv_norm_follows_unless_set() -> None:
    block = make_encoder("layer", conv_norm="batch").blocks[0]
    assert isinstance(block.get_submodule("convolution.norm"), NORMS["batch"])
    assert isinstance(block.get_submodule("norms.0"), NORMS["layer"])


def test_post_placement_has_no_final_norm() -> None:
    assert isinstance(make_encoder("rms", "post").final_norm, NORMS["none"])


def test_impossible_configurations_are_refused() -> None:
    with pytest.raises(ValueError, match=r"placement='mid' is not known: choose one of pre, post"):
        EncoderConfig(placement="mid")
    with pytest.raises(ValueError, match=r"dim=100 must be a multiple of 2 \* num_heads = 8"):
        EncoderConfig(dim=100)
    with pytest.raises(ValueError, match=r"norm='rsm' is not known"):
        make_encoder("rsm")


@pytest.mark.parametrize("num_mel_frames", [8, 8 * CHUNK + 1, 12 * CHUNK])
def test_partial_chunks_are_refused(num_mel_frames: int) -> None:
    message = rf"whole chunks of 4 frames \(32 mel frames\), got {num_mel_frames} mel frames"
    with pytest.raises(ValueError, match=message):
        make_encoder()(torch.zeros(1, num_mel_frames, 80), chunk=CHUNK)
