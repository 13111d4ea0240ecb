"""Looks inside an encoder while it works: level of the residual stream after every block, and where attention goes.

Nothing of the encoder is changed or computed twice. Levels come from hooks on its blocks; attention is computed
from the very arguments with which the encoder calls torch's fused attention, which does not give its weights away.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from diarnorm.conformer import Encoder


@dataclass
class Seen:
    """What was seen in one call of an encoder with B recordings of N chunks of C frames; a list item for each block.

    Attributes:
        powers: mean square of the residual stream after the block, `[B, N * C]`.
        attention: weight of each key of the window of a chunk, `[B * N, L + C]`, averaged over heads and the chunk's
            queries: each row adds up to 1. Key w of chunk n is frame `n * C - L + w`. Empty unless asked for.
    """

    powers: list[Tensor] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)


@contextmanager
def watching(encoder: Encoder, *, attention: bool) -> Iterator[Seen]:
    """What `encoder` does inside the `with`; its output is what it is without."""
    seen = Seen()

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        seen.powers.append(output[0].square().mean(dim=-1))

    hooks = [block.register_forward_hook(keep) for block in encoder.blocks]
    try:
        if attention:
            with _AttentionMode(seen.attention):
                yield seen
        else:
            yield seen
    finally:
        for hook in hooks:
            hook.remove()


class _AttentionMode(TorchFunctionMode):
    """Keeps the weights of every call of torch's scaled dot-product attention."""

    def __init__(self, kept: list[Tensor]) -> None:
        super().__init__()
        self._kept = kept

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            self._kept.append(_key_weights(*args, **kwargs))
        return func(*args, **kwargs)


def _key_weights(q_NHCd: Tensor, k_NHWd: Tensor, _: Tensor, attn_mask: Tensor) -> Tensor:
    """Softmax of the scaled products, averaged over heads and queries, `[N, W]`."""
    scores = q_NHCd @ k_NHWd.transpose(-1, -2) * q_NHCd.shape[-1] ** -0.5 + attn_mask
    return scores.softmax(dim=-1).mean(dim=(1, 2))
