"""LayerNorm to RMSNorm and BatchNorm into its neighbours: the same function, in networks that are not ours as well."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.norms import BatchNorm, RMSNorm, add_and_norm
from diarnorm.residual import OffsetRMSNorm, ResidualStream, fold_batch_norms, layer_to_rms, relative_error
from tests.tiny import noise

DIM = 12
Run = Callable[[nn.Module], Tensor]


def randomise(network: nn.Module) -> nn.Module:
    """Weights, scales and offsets that hide nothing: every writer has a mean, every norm an offset."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            fan_in = parameter.shape[-1] if parameter.ndim > 1 else 4
            parameter.add_(torch.randn(parameter.shape, generator=generator) / fan_in**0.5 + 0.1)
    return network.eval()


class Mixer(nn.Module):
    """A pre-norm network with every kind of writer and reader: parameter, embedding, convolution, linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv1d(3, DIM, 2, stride=2)
        self.positions = nn.Embedding(5, DIM)
        self.token = nn.Parameter(torch.zeros(1, 1, DIM))
        self.norms = nn.ModuleList([nn.LayerNorm(DIM), nn.LayerNorm(DIM, elementwise_affine=False), nn.LayerNorm(DIM)])
        self.up, self.gate, self.down = nn.Linear(DIM, 20), nn.Linear(DIM, 20, bias=False), nn.Linear(20, DIM)
        self.mix, self.out = nn.Conv1d(DIM, DIM, 2, stride=2), nn.Linear(DIM, DIM, bias=False)
        self.head = nn.Linear(DIM, 3)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, 3, 10] -> [B, 3]`."""
        x = self.patches(x).transpose(1, 2) + self.positions.weight + self.token
        y = self.norms[0](x)
        x = x + self.down(torch.tanh(self.up(y)) * self.gate(y))
        y = self.mix(self.norms[1](x)[:, :4].transpose(1, 2)).transpose(1, 2)
        x = x + self.out(F.gelu(y)).repeat(1, 3, 1)[:, :5]
        return self.head(self.norms[2](x)).mean(dim=1)


MIXER = ResidualStream(
    norms={"norms.0": ["up", "gate"], "norms.1": ["mix"], "norms.2": ["head"]},
    writers=["patches", "positions", "token", "down", "out"],
)


def mixer() -> nn.Module:
    return randomise(Mixer())


def run_mixer(network: nn.Module) -> Tensor:
    return network(noise(4, 3, 10).to(next(network.parameters())))


def whisper() -> tuple[nn.Module, ResidualStream, Run]:
    """Whisper's encoder: an activation writes to the stream, the last norm is the output, keys have no bias."""
    pytest.importorskip("transformers")
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=32,
        encoder_layers=3,
        encoder_attention_heads=2,
        encoder_ffn_dim=48,
        num_mel_bins=20,
        max_source_positions=24,
    )
    norms: dict[str, list[str]] = {"layer_norm": []}
    writers = []
    for layer in (f"layers.{i}" for i in range(3)):
        norms[f"{layer}.self_attn_layer_norm"] = [f"{layer}.self_attn.{name}_proj" for name in "qkv"]
        norms[f"{layer}.final_layer_norm"] = [f"{layer}.fc1"]
        writers += [f"{layer}.self_attn.out_proj", f"{layer}.fc2"]

    def run(network: nn.Module) -> Tensor:
        return network(noise(2, 20, 48).to(next(network.parameters()))).last_hidden_state

    return randomise(WhisperEncoder(config)), ResidualStream(norms, writers, entries=["layers.0"]), run


def gpt2() -> tuple[nn.Module, ResidualStream, Run]:
    """GPT-2: transposed weights, an embedding that is also the last layer, a last layer without bias."""
    pytest.importorskip("transformers")
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=50, n_positions=16, n_embd=32, n_layer=3, n_head=2, bos_token_id=None, eos_token_id=None
    )
    norms: dict[str, list[str]] = {"transformer.ln_f": ["lm_head"]}
    writers = ["transformer.wte", "transformer.wpe"]
    for layer in (f"transformer.h.{i}" for i in range(3)):
        norms[f"{layer}.ln_1"] = [f"{layer}.attn.c_attn"]
        norms[f"{layer}.ln_2"] = [f"{layer}.mlp.c_fc"]
        writers += [f"{layer}.attn.c_proj", f"{layer}.mlp.c_proj"]

    def run(network: nn.Module) -> Tensor:
        return network(input_ids=torch.arange(32).view(2, 16) % 50).logits

    return randomise(GPT2LMHeadModel(config)), ResidualStream(norms, writers), run


CASES: dict[str, Callable[[], tuple[nn.Module, ResidualStream, Run]]] = {
    "mixer": lambda: (mixer(), MIXER, run_mixer),
    "whisper": whisper,
    "gpt2": gpt2,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@torch.no_grad()
def test_rms_computes_what_layer_did(name: str, dtype: torch.dtype, largest: float) -> None:
    network, stream, run = CASES[name]()
    network = network.to(dtype)
    before = run(network)
    converted = layer_to_rms(network, stream)
    assert not [module for module in converted.modules() if isinstance(module, nn.LayerNorm)]
    assert sum(isinstance(module, nn.RMSNorm) for module in converted.modules()) == len(stream.norms)
    assert relative_error(before, run(converted)) <= largest
    assert torch.equal(run(network), before)  # the given network is as it was


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_a_swap_without_conversion_is_no_such_thing(name: str) -> None:
    network, stream, run = CASES[name]()
    before = run(network)
    for name in stream.norms:
        norm = network.get_submodule(name)
        assert isinstance(norm, nn.LayerNorm)
        fresh = RMSNorm(norm.normalized_shape[0])
        if norm.weight is not None:
            fresh.weight.copy_(norm.weight)
        network.set_submodule(name, fresh)
    assert relative_error(before, run(network)) > 0.01


def without(stream: ResidualStream, name: str) -> ResidualStream:
    """The stream with one writer, entry or reader left out."""
    norms = {norm: [reader for reader in readers if reader != name] for norm, readers in stream.norms.items()}
    lists = {part: [x for x in getattr(stream, part) if x != name] for part in ("writers", "entries")}
    return replace(stream, norms=norms, **lists)


@pytest.mark.parametrize("name", ["patches", "positions", "token", "down", "out", "gate"])
@torch.no_grad()
def test_leaving_one_out_is_seen(name: str) -> None:
    network = mixer()
    broken = layer_to_rms(network, without(MIXER, name))
    assert relative_error(run_mixer(network), run_mixer(broken)) > 1e-3


@torch.no_grad()
def test_leaving_the_entry_out_is_seen() -> None:
    network, stream, run = whisper()
    broken = layer_to_rms(network, without(stream, "layers.0"))
    assert relative_error(run(network), run(broken)) > 1e-3


@torch.no_grad()
def test_an_offset_that_nobody_takes_over_stays() -> None:
    network = mixer().double()
    converted = layer_to_rms(network, replace(MIXER, norms={**MIXER.norms, "norms.2": []}))
    assert isinstance(converted.get_submodule("norms.2"), OffsetRMSNorm)
    assert relative_error(run_mixer(network), run_mixer(converted)) <= 1e-12


def test_the_copy_can_be_trained_and_shares_nothing() -> None:
    network = mixer()
    network.get_parameter("up.weight").requires_grad_(False)
    converted = layer_to_rms(network, MIXER)
    run_mixer(converted).sum().backward()
    for name, parameter in converted.named_parameters():
        assert (parameter.grad is not None) == (name != "up.weight")
    for parameter in network.parameters():
        assert parameter.grad is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"writers": ["nowhere"]}, "Mixer has no module 'nowhere'"),
        ({"writers": ["norms.0"]}, "norms.0 is no linear layer, embedding, convolution or parameter but LayerNorm"),
        ({"norms": {"up": []}}, "up is no LayerNorm over one dimension but Linear"),
        ({"norms": {"norms.0": ["down"]}}, "down has 20 features in, the norm beside it 12: is it the right layer"),
        ({"norms": {"norms.0": ["padded"]}}, "padded pads its input with zeros"),
        ({"writers": ["grouped"]}, "grouped has 2 groups"),
    ],
)
def test_declarations_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    network = mixer()
    network.add_module("padded", nn.Conv1d(DIM, DIM, 3, padding=1))
    network.add_module("grouped", nn.Conv1d(DIM, DIM, 3, groups=2))
    with pytest.raises(ValueError, match=message):
        layer_to_rms(network, replace(MIXER, **change))


class Normed(nn.Module):
    """BatchNorms after a convolution of each group, and before two linear layers."""

    def __init__(self, norm: type[nn.BatchNorm1d]) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(DIM, DIM, 3, groups=DIM, bias=False)
        self.after, self.before = norm(DIM), norm(DIM)
        self.left, self.right = nn.Linear(DIM, 5), nn.Linear(DIM, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, DIM, T] -> [rows, 5]`."""
        x = torch.relu(self.after(self.depthwise(x).transpose(1, 2).reshape(-1, DIM)))
        x = self.before(x)
        return self.left(x) * self.right(x)


FOLDS: dict[str, Any] = {"writers": {"after": "depthwise"}, "readers": {"before": ["left", "right"]}}


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, BatchNorm])
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@torch.no_grad()
def test_batch_norms_fold_into_their_neighbours(norm: type, dtype: torch.dtype, largest: float) -> None:
    network = randomise(Normed(norm)).to(dtype)
    for _ in range(5):
        network.train()(noise(9, DIM, 7).to(dtype) + 0.5)
    x = noise(2, DIM, 7, seed=1).to(dtype)
    before = network.eval()(x)
    folded = fold_batch_norms(network, **FOLDS)
    assert not [module for module in folded.modules() if isinstance(module, nn.BatchNorm1d)]
    assert relative_error(before, folded(x)) <= largest
    assert torch.equal(network(x), before)
    for changes in ({**FOLDS, "readers": {"before": ["left"]}}, {**FOLDS, "readers": {}}):
        broken = fold_batch_norms(network, **changes)
        broken.before = nn.Identity()
        assert relative_error(before, broken(x)) > 1e-3


def test_what_is_no_batch_norm_is_not_folded() -> None:
    with pytest.raises(ValueError, match="left is no BatchNorm with running averages but Linear"):
        fold_batch_norms(Normed(nn.BatchNorm1d), writers={"left": "depthwise"})
    with pytest.raises(ValueError, match="left has 5 features out, the norm beside it 12"):
        fold_batch_norms(Normed(nn.BatchNorm1d), writers={"before": "left"})


def test_an_offset_stays_where_a_sum_comes_first() -> None:
    norm = OffsetRMSNorm(DIM, eps=1e-5)
    randomise(norm)
    x, residual = noise(5, DIM), noise(5, DIM, seed=1)
    y, r = add_and_norm(norm, x, residual, 0.5)
    torch.testing.assert_close(r, residual + 0.5 * x)
    torch.testing.assert_close(y, norm(r))
    torch.testing.assert_close(y, F.rms_norm(r, (DIM,), norm.weight, 1e-5) + norm.bias)
