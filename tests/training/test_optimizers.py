"""Optimisers: who gets which parameters, and that several together are each of them alone."""

import math
from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from diarnorm.conformer import EncoderConfig
from diarnorm.memory import MemoryConfig
from diarnorm.model import Model, ModelConfig
from diarnorm.training.config import TrainConfig
from diarnorm.training.optimizers import Several, learning_rate_factor, make_optimizer
from diarnorm.training.voices import SpeakerHeads
from tests.tiny_run import differing, tensors_in

SMALL = ModelConfig(
    encoder=EncoderConfig(dim=16, num_blocks=1, num_heads=2, ff_factor=2, kernel_size=3, left_context=6),
    memory=MemoryConfig(embedding_dim=8, dim=16, num_layers=1, num_heads=2, num_slots=3),
)
MUON = TrainConfig(optimizer="muon", learning_rate=1e-2, weight_decay=0.1)


def parts(seed: int = 0) -> tuple[Model, SpeakerHeads]:
    """A small model and its heads, with a gradient in every parameter."""
    torch.manual_seed(seed)
    model, heads = Model(SMALL), SpeakerHeads(8, 5, 3)
    new_gradients(model, heads)
    return model, heads


def new_gradients(*modules: nn.Module) -> None:
    for module in modules:
        for parameter in module.parameters():
            parameter.grad = torch.randn_like(parameter)


def test_muon_has_the_hidden_matrices_and_nothing_else() -> None:
    model, heads = parts()
    optimizer = make_optimizer(model, heads, MUON)
    muon, adamw = optimizer.param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    taken = {names[id(parameter)] for parameter in muon["params"]}
    assert "encoder.blocks.0.attention.qkv.weight" in taken
    assert "encoder.blocks.0.ff_in.0.weight" in taken
    assert "memory.decoder.layers.0.qkv.weight" in taken
    assert not taken & {"encoder.entry.weight", "speech_head.weight", "memory.decoder.head.weight"}
    assert all(parameter.ndim == 2 for parameter in muon["params"])
    everything = [*model.parameters(), *heads.parameters()]
    assert len(muon["params"]) + len(adamw["params"]) == len(everything)
    assert {id(p) for group in (muon, adamw) for p in group["params"]} == {id(p) for p in everything}
    assert {muon["lr"], adamw["lr"]} == {1e-2}


def test_steps_are_those_of_muon_and_of_adamw() -> None:
    (model, heads), (twin, twin_heads) = parts(), parts()
    optimizer = make_optimizer(model, heads, MUON)
    hidden = {id(parameter) for parameter in optimizer.param_groups[0]["params"]}
    ours, theirs = [*model.parameters(), *heads.parameters()], [*twin.parameters(), *twin_heads.parameters()]
    pairs = list(zip(ours, theirs, strict=True))
    muon = torch.optim.Muon(
        [b for a, b in pairs if id(a) in hidden], lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
    )
    adamw = torch.optim.AdamW([b for a, b in pairs if id(a) not in hidden], lr=1e-2, weight_decay=0.1)
    for step in range(3):
        torch.manual_seed(step)
        new_gradients(model, heads)
        for a, b in pairs:
            b.grad = None if a.grad is None else a.grad.clone()
        optimizer.step()
        muon.step()
        adamw.step()
    assert all(torch.equal(a, b) for a, b in pairs)


def test_updates_of_muon_are_as_large_as_those_of_adamw() -> None:
    """So that both share a learning rate: 0.2 in root mean square for Muon, at most 1 for AdamW's first step."""
    model, heads = parts()
    optimizer = make_optimizer(model, heads, TrainConfig(optimizer="muon", learning_rate=1e-2, weight_decay=0.0))
    weight = model.encoder.blocks[0].ff_in[0].weight  # pyright: ignore
    before = weight.detach().clone()
    optimizer.step()
    assert (weight - before).square().mean().sqrt().item() == pytest.approx(0.2 * 1e-2, rel=0.25)


def test_several_go_on_from_their_state() -> None:
    (model, heads), (other, other_heads) = parts(0), parts(0)
    optimizer, resumed = make_optimizer(model, heads, MUON), make_optimizer(other, other_heads, MUON)
    assert isinstance(optimizer, Several)
    optimizer.step()
    other.load_state_dict(model.state_dict())
    other_heads.load_state_dict(heads.state_dict())
    resumed.load_state_dict(deepcopy(optimizer.state_dict()))
    assert len(tensors_in(resumed.state_dict())) > 20
    for group in [*optimizer.param_groups, *resumed.param_groups]:
        group["lr"] = 3e-3
    torch.manual_seed(9)
    new_gradients(model, heads)
    torch.manual_seed(9)
    new_gradients(other, other_heads)
    optimizer.step()
    resumed.step()
    assert differing(tensors_in(other.state_dict()), tensors_in(model.state_dict())) == []
    resumed.zero_grad()
    assert all(parameter.grad is None for parameter in other.parameters())


def test_a_torch_without_muon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ValueError, match=r"train.optimizer=muon needs torch 2.9 or newer"):
        make_optimizer(*parts(), MUON)
    assert isinstance(make_optimizer(*parts(), TrainConfig()), torch.optim.AdamW)


def test_learning_rates_by_hand() -> None:
    config = TrainConfig(num_steps=110, warmup_steps=10, final_share=0.2)
    factors = [learning_rate_factor(step, config) for step in range(111)]
    np.testing.assert_allclose(factors[:10], np.arange(1, 11) / 10)
    assert factors[10] == 1.0
    assert factors[60] == pytest.approx(0.6)  # half-way down: (1 + 0.2) / 2
    assert factors[35] == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)
    assert factors[110] == pytest.approx(0.2)
    assert all(a > b for a, b in pairwise(factors[10:]))
    assert learning_rate_factor(0, TrainConfig(warmup_steps=0)) == 1.0
    assert learning_rate_factor(3, TrainConfig(num_steps=3, warmup_steps=3, final_share=0.5)) == 1.0


def test_learning_rates_that_stay_before_they_fall() -> None:
    config = TrainConfig(num_steps=100, warmup_steps=10, final_share=0.0, decay_from=0.6)
    factors = [learning_rate_factor(step, config) for step in range(101)]
    assert factors[9:61] == [1.0] * 52
    assert factors[80] == pytest.approx(0.5)  # half-way between 60 and 100
    assert factors[100] == pytest.approx(0.0)
    early = TrainConfig(num_steps=100, warmup_steps=10, decay_from=0.05)
    assert learning_rate_factor(55, early) == learning_rate_factor(55, TrainConfig(num_steps=100, warmup_steps=10))
