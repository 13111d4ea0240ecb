"""What embeddings learn: to tell voices apart, by their labels, by a teacher, or by one another."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.memory import exclusive
from diarnorm.model import Model
from diarnorm.training.batches import Batch
from diarnorm.training.lossconfig import LossConfig

ALONE = 0.9
"""Exclusive activity of a speaker from which on a frame teaches what the voice is like."""


class SpeakerHeads(nn.Module):
    """Classifier over training speakers and projection onto a teacher's embedding; neither is shipped."""

    def __init__(self, embedding_dim: int, num_classes: int, teacher_dim: int = 0) -> None:
        super().__init__()
        self.classes = nn.Parameter(torch.randn(num_classes, embedding_dim) * 0.1)
        self.teacher = nn.Linear(embedding_dim, teacher_dim, bias=False) if teacher_dim else None

    def forward(
        self,
        embedding: Float[Tensor, "rows embedding"],
        labels: Int[Tensor, " rows"],
        teacher: Float[Tensor, "rows teacher"] | None,
        config: LossConfig,
    ) -> dict[str, Tensor]:
        """Additive-margin softmax (F. Wang et al., 2018), mean cosine distance; a teacher row of zeros says nothing."""
        cosine = embedding @ F.normalize(self.classes, dim=-1).T
        margin = F.one_hot(labels, cosine.shape[1]) * config.margin
        losses = {"speaker": F.cross_entropy(config.scale * (cosine - margin), labels)}
        if self.teacher is not None and teacher is not None:
            known = teacher.abs().sum(dim=-1) > 0
            distance = 1.0 - F.cosine_similarity(self.teacher(embedding), teacher, dim=-1)
            losses["teacher"] = (distance * known).sum() / known.sum().clamp(min=1)
        return losses


def contrastive_loss(
    embedding: Float[Tensor, "rows embedding"], labels: Int[Tensor, " rows"], temperature: float
) -> Tensor:
    """Supervised contrastive loss (P. Khosla et al., 2020, L_out) of unit-norm embeddings: how probable the others of a
    row's label are among all others; mean over rows, 0 for one whose label is nobody else's."""
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    with torch.autocast(embedding.device.type, enabled=False):
        similarity = embedding @ embedding.T / temperature
    log_share = similarity.masked_fill(itself, torch.finfo(similarity.dtype).min).log_softmax(dim=-1)
    alike = (labels[:, None] == labels) & ~itself
    return -((log_share * alike).sum(dim=-1) / alike.sum(dim=-1).clamp(min=1)).mean()


def speaks_alone(
    activity: Float[Tensor, "batch frames speakers"],
) -> tuple[Bool[Tensor, "batch frames"], Int[Tensor, "batch frames"]]:
    """Whether a frame is one speaker's alone, as embeddings are learned from, and whose it is first of all."""
    share, speaker = exclusive(activity).max(dim=-1)
    return share >= ALONE, speaker


def voice_losses(
    model: Model,
    heads: SpeakerHeads,
    h: Tensor,
    batch: Batch,
    config: LossConfig,
    teacher: Tensor | None,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Named losses of the embeddings of frames that are one speaker's alone, weighted; none where there are none.

    Args:
        model: whose memory makes embeddings.
        heads: the classifier and the projection onto the teacher.
        h: encoder output `[batch, frames, dim]`.
        batch: who speaks, and from which utterance.
        config: weights.
        teacher: embeddings by utterance `[sources, teacher]`.
        generator: draws the frames that are compared with one another.
    """
    rows, speaker = speaks_alone(batch.activity[:, : h.shape[1]])
    if not rows.any():
        return {}
    labels = batch.speaker_class.gather(1, speaker)[rows]
    targets = None
    if teacher is not None:
        source = batch.source[:, : h.shape[1]][rows]
        targets = teacher[source.clamp(min=0)].float() * (source >= 0)[:, None]
    embedding = model.memory.embedding(h[rows]).float()
    losses = heads(embedding, labels, targets, config)
    if config.contrastive > 0:
        some = torch.randperm(len(labels), generator=generator)[: config.contrastive_frames].to(labels.device)
        losses["contrastive"] = contrastive_loss(embedding[some], labels[some], config.temperature)
    return {name: getattr(config, name) * loss for name, loss in losses.items()}
