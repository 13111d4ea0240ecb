"""Normalisation layers: functions of one frame, `(..., dim) -> (..., dim)`.

In evaluation mode output frame t depends on input frame t alone, so a norm can be swapped without touching streaming,
padding cannot leak, and batch size cannot matter. Only `batch` in training mode looks at other frames, and then only
at the valid ones. All compute in float32 (float64 where x is) and cast back once; all start with scale 1.

Sources: S. Ioffe and C. Szegedy, "Batch Normalization", 2015; J. L. Ba et al., "Layer Normalization", 2016;
B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization", 2019.
"""

# pyright: reportIncompatibleMethodOverride=false
# (torch's norms take `input`; ours take `x` and `valid`)

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.kernels import add_rms_norm, rms_norm
from diarnorm.kernels.check import check_eps

EPS = 1e-5
"""Added under the square root by every norm."""


class RMSNorm(nn.RMSNorm):
    """`y = x / sqrt(mean(x^2) + eps) * weight`; state dicts are interchangeable with `torch.nn.RMSNorm`.

    `backend` chooses what computes it, see `diarnorm.kernels`; it may change at any time and is in no state dict.
    """

    eps: float  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, dim: int, eps: float = EPS, backend: str = "auto") -> None:
        super().__init__(dim, eps=eps)
        self.backend = backend

    def forward(self, x: Float[Tensor, "*rows dim"], valid: Bool[Tensor, "*rows"] | None = None) -> Tensor:
        """Normalise the last dimension. `valid` is accepted for the common signature and not needed."""
        return rms_norm(x, self.weight, self.eps, backend=self.backend)

    def add(self, x: Tensor, residual: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        """`(norm(r), r)` with `r = residual + alpha * x`, in one kernel."""
        return add_rms_norm(x, residual, self.weight, self.eps, alpha, backend=self.backend)


class LayerNorm(nn.LayerNorm):
    """`y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`."""

    def __init__(self, dim: int, eps: float = EPS) -> None:
        super().__init__(dim, eps=eps)

    def forward(self, x: Float[Tensor, "*rows dim"], valid: Bool[Tensor, "*rows"] | None = None) -> Tensor:
        """Normalise the last dimension. `valid` is accepted for the common signature and not needed."""
        wide, weight, bias = _wide(x), _wide(self.weight), _wide(self.bias)
        return F.layer_norm(wide, self.normalized_shape, weight, bias, self.eps).to(x.dtype)


class BatchNorm(nn.BatchNorm1d):
    """Per-feature statistics over the valid frames of the batch in training, running averages in evaluation.

    Torch's conventions: momentum 0.1, biased variance to normalise, unbiased variance to keep. A batch with fewer than
    two valid frames is normalised by the running averages; such a batch, or one with a value that is not finite, leaves
    the averages alone. With a process group, sums are reduced over it, with gradient.
    """

    def __init__(self, dim: int, eps: float = EPS) -> None:
        super().__init__(dim, eps=eps)

    def forward(self, x: Float[Tensor, "*rows dim"], valid: Bool[Tensor, "*rows"] | None = None) -> Tensor:
        """Normalise each feature; in training mode only frames with `valid` count (all, when None)."""
        wide = _wide(x)
        mean, var = self._batch_statistics(wide, valid) if self.training else self._running_statistics()
        scale = torch.rsqrt(var + self.eps) * _wide(self.weight)
        return ((wide - mean) * scale + _wide(self.bias)).to(x.dtype)

    def _running_statistics(self) -> tuple[Tensor, Tensor]:
        assert self.running_mean is not None
        assert self.running_var is not None
        return self.running_mean, self.running_var

    def _batch_statistics(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        if valid is not None:
            rows = rows[valid.reshape(-1)]
        count = _sum_over_processes(rows.new_full((1,), rows.shape[0]))
        mean = _sum_over_processes(rows.sum(dim=0)) / count.clamp(min=1)
        var = _sum_over_processes((rows - mean).square().sum(dim=0)) / count.clamp(min=1)
        running_mean, running_var = self._running_statistics()
        enough = count >= 2
        self._update_running(mean.detach(), var.detach(), count)
        return torch.where(enough, mean, running_mean.clone()), torch.where(enough, var, running_var.clone())

    @torch.no_grad()
    def _update_running(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        running_mean, running_var = self._running_statistics()
        accept = (count >= 2) & mean.isfinite().all() & var.isfinite().all()
        unbiased = var * count / (count - 1).clamp(min=1)
        assert self.momentum is not None
        assert self.num_batches_tracked is not None
        running_mean.copy_(torch.where(accept, torch.lerp(running_mean, mean, self.momentum), running_mean))
        running_var.copy_(torch.where(accept, torch.lerp(running_var, unbiased, self.momentum), running_var))
        self.num_batches_tracked += accept.squeeze().long()


class NoNorm(nn.Identity):
    """No normalisation, with the common signature."""

    def forward(self, x: Float[Tensor, "*rows dim"], valid: Bool[Tensor, "*rows"] | None = None) -> Tensor:
        """Return `x`."""
        return x


NORMS: dict[str, Any] = {"rms": RMSNorm, "layer": LayerNorm, "batch": BatchNorm, "none": NoNorm}
"""The norms by name."""


def make_norm(name: str, dim: int, eps: float = EPS) -> nn.Module:
    """The norm called `name` over `dim` features.

    Raises ValueError for an unknown name or an eps that is not positive.
    """
    if name not in NORMS:
        raise ValueError(f"norm={name!r} is not known: choose one of {', '.join(NORMS)}")
    check_eps(eps)
    return NoNorm() if name == "none" else NORMS[name](dim, eps=eps)


def add_and_norm(
    norm: nn.Module, x: Tensor, residual: Tensor, alpha: float, valid: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`(norm(r, valid), r)` with `r = residual + alpha * x`; one kernel where the norm has one."""
    if isinstance(norm, RMSNorm):
        return norm.add(x, residual, alpha)
    r = torch.add(residual, x, alpha=alpha)
    return norm(r, valid), r


def _wide(x: Tensor) -> Tensor:
    """float32, or float64 where x is."""
    return x if x.dtype == torch.float64 else x.float()


class _SumOverProcesses(torch.autograd.Function):
    """Sum of one tensor per process. Every process uses the sum, so the gradient is summed as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _sum_over_processes(gradient)


def _sum_over_processes(x: Tensor) -> Tensor:
    alone = not (dist.is_available() and dist.is_initialized())
    return x if alone else _SumOverProcesses.apply(x)  # pyright: ignore[reportReturnType]
