"""Optimisers of a run and its learning rate.

`adamw` for everything, or `muon` for the hidden matrices and AdamW for the rest. Muon (K. Jordan et al., 2024) makes
the update of a matrix orthogonal; its steps are scaled to the size of AdamW's (J. Liu et al., "Muon is scalable for LLM
training", 2025), so that both share one learning rate and one weight decay.
"""

import math
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from diarnorm.training.config import TrainConfig

OUTER = ("encoder.entry", "speech_head", "memory.decoder.head", "memory.decoder.from_facts")
"""Matrices at the model's ends: not hidden, so AdamW's."""


@runtime_checkable
class Optimizer(Protocol):
    """The part of `torch.optim.Optimizer` that a run needs."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...
    def zero_grad(self) -> None: ...
    def step(self) -> object: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Several:
    """Optimisers of different parameters as one."""

    def __init__(self, **parts: torch.optim.Optimizer) -> None:
        self.parts = parts

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Groups of all parts."""
        return [group for part in self.parts.values() for group in part.param_groups]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self.parts.values():
            part.zero_grad()

    def step(self) -> None:
        """One step of each."""
        for part in self.parts.values():
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """State of each by name."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        for name, part in self.parts.items():
            part.load_state_dict(state_dict[name])


def make_optimizer(model: nn.Module, heads: nn.Module, config: TrainConfig) -> Optimizer:
    """The optimiser of `config.optimizer` over the model and the heads of its training.

    Raises:
        ValueError: `muon` with a torch that has none.
    """
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "adamw":
        return torch.optim.AdamW([*model.parameters(), *heads.parameters()], rate, weight_decay=decay)
    if not hasattr(torch.optim, "Muon"):
        raise ValueError(f"train.optimizer=muon needs torch 2.9 or newer, this is {torch.__version__}: take adamw")
    hidden = list(_hidden_matrices(model))
    taken = {id(parameter) for parameter in hidden}
    others = [p for p in [*model.parameters(), *heads.parameters()] if id(p) not in taken]
    return Several(
        muon=torch.optim.Muon(hidden, rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        adamw=torch.optim.AdamW(others, rate, weight_decay=decay),
    )


def _hidden_matrices(model: nn.Module) -> Iterator[nn.Parameter]:
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and not name.startswith(OUTER):
            yield parameter


def learning_rate_factor(step: int, config: TrainConfig) -> float:
    """Linear warm-up, constant until `decay_from` of the run, then a cosine down to `final_share`."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    start = max(config.warmup_steps, config.decay_from * config.num_steps)
    progress = max(0.0, step - start) / max(1, config.num_steps - start)
    return config.final_share + (1 - config.final_share) * 0.5 * (1 + math.cos(math.pi * progress))
