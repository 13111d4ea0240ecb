"""Other norms under trained weights, exactly: LayerNorm to RMSNorm, BatchNorm into its neighbours.

LayerNorm to RMSNorm (pre-norm networks). LayerNorm takes the mean out of what it reads; RMSNorm does not. When all that
is added to the residual stream has mean zero over the features, so has the stream, and both norms agree: the variance
is the mean square. So the writers of the stream are centred (which LayerNorm could not see anyway), LayerNorm's scale
stays, its offset moves into the bias of the linear layers that read it, and eps has the same effect as before.

BatchNorm. In evaluation it multiplies and adds a number per feature, which the linear layer or convolution before it,
or the linear layers after it, can do as well.

Source: Z. Jiang et al., "Pre-RMSNorm and Pre-CRMSNorm Transformers: Equivalent and Efficient Pre-LN Transformers", 2023
(arXiv 2305.14858).
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from diarnorm.norms import BatchNorm, NoNorm, RMSNorm


@dataclass(frozen=True)
class ResidualStream:
    """Who writes to a residual stream and who reads it, by the modules' names in the network.

    Attributes:
        norms: each LayerNorm that reads the stream, with the linear layers that read its output. Without any, something
            else reads it, such as the caller, and the offset stays where it is (`OffsetRMSNorm`).
        writers: modules (linear layers, embeddings, convolutions) and parameters whose output is added to the stream.
        entries: modules whose first argument is a stream that no writer can centre, say because an activation comes
            after the last linear layer; its mean is taken out in front of them.
    """

    norms: Mapping[str, Sequence[str]]
    writers: Sequence[str]
    entries: Sequence[str] = field(default=())


class OffsetRMSNorm(RMSNorm):
    """RMSNorm with an offset, for a LayerNorm whose readers cannot take it over."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__(dim, eps=eps)
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Float[Tensor, "*rows dim"], valid: Tensor | None = None) -> Tensor:
        """Normalise the last dimension, add the offset."""
        return super().forward(x, valid) + self.bias.to(x.dtype)

    def add(self, x: Tensor, residual: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        """`(norm(r), r)` with `r = residual + alpha * x`."""
        y, r = super().add(x, residual, alpha)
        return y + self.bias.to(y.dtype), r


def layer_to_rms(network: nn.Module, stream: ResidualStream) -> nn.Module:
    """A copy of `network` with RMSNorm for every LayerNorm of the stream that computes the same function.

    Weights that a writer shares with another module are no longer shared in the copy.

    Raises:
        ValueError: a name is not in the network, or names something that cannot play its part.
    """
    network = copy.deepcopy(network)
    with torch.no_grad():
        for name in stream.writers:
            _centre(network, name)
        for name, readers in stream.norms.items():
            _replace_norm(network, name, readers)
    for name in stream.entries:
        _find(network, name).register_forward_pre_hook(_centre_first_argument)
    return network


def fold_batch_norms(
    network: nn.Module, *, writers: Mapping[str, str] | None = None, readers: Mapping[str, Sequence[str]] | None = None
) -> nn.Module:
    """A copy of `network`, in evaluation mode, that computes the same without the BatchNorms that are named.

    Args:
        writers: each BatchNorm with the linear layer or convolution whose output it reads and which takes it over.
        readers: each BatchNorm with all linear layers that read its output and take it over together.

    Raises:
        ValueError: a name is not in the network, or names something that cannot play its part.
    """
    network = copy.deepcopy(network).eval()
    with torch.no_grad():
        for name, writer in (writers if writers is not None else {}).items():
            scale, offset = _scale_and_offset(network, name)
            _scale_outputs(_linear(network, writer, scale.numel(), "out"), scale, offset)
        for name, layers in (readers if readers is not None else {}).items():
            scale, offset = _scale_and_offset(network, name)
            for reader in layers:
                layer = _linear(network, reader, scale.numel(), "in")
                _add_to_bias(layer, offset)
                layer.weight = _like(layer.weight, layer.weight.double() * _along(layer, "in", scale))
    return network


def relative_error(before: Tensor, after: Tensor) -> float:
    """Root mean square of the difference, over that of `before`."""
    return float((after.double() - before.double()).norm() / before.double().norm())


def _scale_and_offset(network: nn.Module, name: str) -> tuple[Tensor, Tensor]:
    """What the BatchNorm `name` multiplies and adds; an identity takes its place."""
    norm = _find(network, name)
    if not isinstance(norm, nn.BatchNorm1d) or norm.running_mean is None or norm.running_var is None:
        raise ValueError(f"{name} is no BatchNorm with running averages but {type(norm).__name__}")
    mean = norm.running_mean.double()
    scale = _double(norm.weight, mean, 1.0) * torch.rsqrt(norm.running_var.double() + norm.eps)
    network.set_submodule(name, NoNorm() if isinstance(norm, BatchNorm) else nn.Identity())
    return scale, _double(norm.bias, mean, 0.0) - mean * scale


def _centre(network: nn.Module, name: str) -> None:
    """Take the mean over the features out of what `name` writes."""
    owner, _, attribute = name.rpartition(".")
    parent = _find(network, owner)
    value = getattr(parent, attribute, None)
    if isinstance(value, nn.Parameter):
        setattr(parent, attribute, _like(value, _centred(value, -1)))
    elif isinstance(value, nn.Embedding):
        value.weight = _like(value.weight, _centred(value.weight, -1))
    else:
        layer = _linear(network, name, None, "out")
        layer.weight = _like(layer.weight, _centred(layer.weight, _dimension(layer, "out")))
        if layer.bias is not None:
            layer.bias = _like(layer.bias, _centred(layer.bias, 0))


def _replace_norm(network: nn.Module, name: str, readers: Sequence[str]) -> None:
    norm = _find(network, name)
    if not isinstance(norm, nn.LayerNorm) or len(norm.normalized_shape) != 1:
        raise ValueError(f"{name} is no LayerNorm over one dimension but {type(norm).__name__}")
    dim = norm.normalized_shape[0]
    like = next(network.parameters())
    offset = _double(norm.bias, like.new_zeros(dim).double(), 0.0)
    for reader in readers:
        _add_to_bias(_linear(network, reader, dim, "in"), offset)
    keeps_offset = not readers and bool(offset.any())
    fresh = (OffsetRMSNorm if keeps_offset else RMSNorm)(dim, eps=norm.eps).to(like)
    fresh.weight.copy_(_double(norm.weight, offset, 1.0))
    if isinstance(fresh, OffsetRMSNorm):
        fresh.bias.copy_(offset)
    network.set_submodule(name, fresh.train(norm.training))


def _add_to_bias(layer: Any, offset: Tensor) -> None:
    """Let `layer` add what it would make of `offset` in its input."""
    terms = layer.weight.double() * _along(layer, "in", offset)
    out = _dimension(layer, "out")
    effect = terms.sum(dim=[d for d in range(terms.ndim) if d != out])
    layer.bias = _like(_bias_or_weight(layer), _double(layer.bias, effect, 0.0) + effect)


def _scale_outputs(layer: Any, scale: Tensor, offset: Tensor) -> None:
    layer.bias = _like(_bias_or_weight(layer), scale * _double(layer.bias, scale, 0.0) + offset)
    layer.weight = _like(layer.weight, layer.weight.double() * _along(layer, "out", scale))


def _bias_or_weight(layer: Any) -> Tensor:
    return layer.weight if layer.bias is None else layer.bias


def _linear(network: nn.Module, name: str, features: int | None, side: str) -> Any:
    """The linear layer or convolution `name`, checked to have so many features on its `side`, "in" or "out"."""
    layer = _find(network, name)
    kind = type(layer).__name__
    convolution = isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    if not (convolution or isinstance(layer, nn.Linear) or _is_transposed(layer)):
        raise ValueError(f"{name} is no linear layer, embedding, convolution or parameter but {kind}")
    if convolution and side == "in" and any(layer.padding if isinstance(layer.padding, tuple) else [1]):
        raise ValueError(f"{name} pads its input with zeros, which an offset in front of it would have changed")
    if convolution and layer.groups != 1 and (side == "in" or features is None):
        raise ValueError(
            f"{name} has {layer.groups} groups: only those of one group are centred or take an offset over"
        )
    weight: Any = layer.weight
    found = weight.shape[_dimension(layer, side)]
    if features is not None and found != features:
        raise ValueError(f"{name} has {found} features {side}, the norm beside it {features}: is it the right layer?")
    return layer


def _is_transposed(layer: nn.Module) -> bool:
    """Whether `layer` is transformers' `Conv1D`, a linear layer with its weight as [in, out]."""
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")


def _dimension(layer: nn.Module, side: str) -> int:
    """Dimension of the weight along the features on a `side`."""
    return int((side == "out") == _is_transposed(layer))


def _along(layer: nn.Module, side: str, vector: Tensor) -> Tensor:
    """`vector` in the shape that multiplies the weight feature by feature."""
    weight: Any = layer.weight
    shape = [1] * weight.ndim
    shape[_dimension(layer, side)] = -1
    return vector.view(shape)


def _centred(x: Tensor, dim: int) -> Tensor:
    return x.double() - x.double().mean(dim=dim, keepdim=True)


def _like(old: Tensor, value: Tensor) -> nn.Parameter:
    return nn.Parameter(value.to(old.dtype), requires_grad=old.requires_grad)


def _double(x: Tensor | None, like: Tensor, default: float) -> Tensor:
    return torch.full_like(like, default) if x is None else x.double()


def _find(network: nn.Module, name: str) -> nn.Module:
    try:
        return network.get_submodule(name)
    except AttributeError as error:
        raise ValueError(f"{type(network).__name__} has no module {name!r}") from error


def _centre_first_argument(module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    x = arguments[0]
    return x - x.mean(dim=-1, keepdim=True), *arguments[1:]
