"""The arm without memory: a fixed number of outputs straight from the encoder, as in EEND (Y. Fujita et al., 2019).

Nothing tells an output whose voice it has: the encoder must give a voice the same output as before, as far back as it
hears. In training the speakers come in the order that fits best.

All else is the speaker memory's, so that one thing differs: exclusive speech is counted per output, an output is
occupied, confirmed and dropped by the same rules and thresholds. Prototypes are collected, and not looked at.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.memory import HIDDEN_LOGIT, Decoder, MemoryConfig, MemoryState, SpeakerMemory


class OutputDecoder(Decoder):
    """One logit per output from the frame alone."""

    def __init__(self, dim: int, num_outputs: int) -> None:
        super().__init__()
        self.from_frame = nn.Identity()
        self.head = nn.Linear(dim, num_outputs)

    def forward(
        self,
        frame: Float[Tensor, "*rows dim"],
        embedding: Float[Tensor, "*rows embedding"],
        prototype: Float[Tensor, "*rows slots embedding"],
        count: Float[Tensor, "*rows slots"],
        newcomer: Bool[Tensor, "*rows slots"],
    ) -> Float[Tensor, "*rows slots"]:
        """Logit of every slot; those beyond the outputs get a large negative one."""
        logits = self.head(frame)
        return F.pad(logits, (0, count.shape[-1] - logits.shape[-1]), value=HIDDEN_LOGIT)


class FixedOutputs(SpeakerMemory):
    """`num_slots` outputs; `forward`, its output and its state are those of `SpeakerMemory`."""

    def __init__(self, dim: int, config: MemoryConfig | None = None) -> None:
        super().__init__(dim, config)
        self.decoder = OutputDecoder(dim, self.config.num_slots)

    def init_state(self, batch_size: int, num_slots: int | None = None) -> MemoryState:
        """Every slot free. Slots beyond the outputs stay free.

        Raises:
            ValueError: fewer slots than outputs.
        """
        outputs = self.config.num_slots
        if num_slots is not None and num_slots < outputs:
            raise ValueError(
                f"this model has no speaker memory but {outputs} fixed outputs, max_speakers={num_slots} is fewer: "
                f"give {outputs} or more"
            )
        return super().init_state(batch_size, num_slots)

    def newcomers(self, count: Float[Tensor, "*rows slots"]) -> Bool[Tensor, "*rows slots"]:
        """Any free slot: which output has a voice is not known before."""
        return count <= 0

    def logits(self, h: Float[Tensor, "batch frames dim"]) -> Float[Tensor, "batch frames outputs"]:
        """What all outputs say of all frames; float32 under autocast, too."""
        return self.decoder.head(h).float()


def make_memory(dim: int, config: MemoryConfig) -> SpeakerMemory:
    """What `config.kind` stands for."""
    return FixedOutputs(dim, config) if config.kind == "none" else SpeakerMemory(dim, config)


@torch.no_grad()
def in_best_order(
    logits: Float[Tensor, "batch frames outputs"], activity: Float[Tensor, "batch frames speakers"]
) -> Float[Tensor, "batch frames outputs"]:
    """Targets: per row the speakers, no more than outputs, in the order with the lowest cross-entropy over all frames;
    silence for the other outputs (permutation-invariant training: D. Yu et al., 2017).

    Of the cross-entropy only `-logit * activity` depends on the order.
    """
    from scipy.optimize import linear_sum_assignment  # for training alone

    wide = (tensor.cpu().double() for tensor in (logits, activity))  # in this order: not every device has float64
    gain = torch.einsum("bto,bts->bos", *wide).nan_to_num()
    target = torch.zeros_like(logits)
    for row, matrix in enumerate(gain.numpy()):
        outputs, speakers = linear_sum_assignment(matrix, maximize=True)
        target[row][:, outputs.tolist()] = activity[row][:, speakers.tolist()]
    return target
