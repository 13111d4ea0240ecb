"""Losses of embeddings by hand: labels with a margin, a teacher, contrast."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.voices import SpeakerHeads, contrastive_loss
from tests.tiny import noise


def test_margin_softmax_by_hand() -> None:
    heads, config = SpeakerHeads(4, 3), LossConfig(margin=0.2, scale=10.0)
    e, labels = F.normalize(noise(5, 4), dim=-1), torch.tensor([0, 1, 2, 1, 0])
    terms = []
    for vector, label in zip(e, labels.tolist(), strict=True):
        cosine = [(vector @ c / c.norm()).item() - 0.2 * (i == label) for i, c in enumerate(heads.classes)]
        terms.append(math.log(sum(math.exp(10 * c) for c in cosine)) - 10 * cosine[label])
    assert heads(e, labels, None, config)["speaker"].item() == pytest.approx(sum(terms) / 5, rel=1e-5)


def contrast_by_hand(e: Tensor, labels: list[int], temperature: float) -> float:
    """The loss row by row: mean over the others of a label of how probable each is among all others."""
    total = 0.0
    for i, own in enumerate(labels):
        others = [j for j in range(len(labels)) if j != i]
        scores = {j: math.exp((e[i] @ e[j]).item() / temperature) for j in others}
        shares = [math.log(scores[j] / sum(scores.values())) for j in others if labels[j] == own]
        total -= sum(shares) / len(shares) if shares else 0.0
    return total / len(labels)


def test_contrastive_loss_by_hand() -> None:
    e, labels = F.normalize(noise(7, 4), dim=-1), [0, 1, 0, 2, 1, 0, 5]  # 2 and 5 are alone
    for temperature in (0.1, 0.5):
        found = contrastive_loss(e, torch.tensor(labels), temperature).item()
        assert found == pytest.approx(contrast_by_hand(e, labels, temperature), rel=1e-5)


@pytest.mark.parametrize("labels", [[3], [3, 4], [3, 3]])
def test_contrastive_loss_of_next_to_nothing_has_finite_gradients(labels: list[int]) -> None:
    e = noise(len(labels), 4).requires_grad_()
    loss = contrastive_loss(F.normalize(e, dim=-1), torch.tensor(labels), 0.1)
    assert loss.isfinite()
    loss.backward()
    assert e.grad is not None
    assert e.grad.isfinite().all()


def test_contrastive_loss_stays_float32_under_autocast() -> None:
    e, labels = F.normalize(noise(40, 8), dim=-1), torch.arange(40) % 5
    with torch.autocast("cpu", torch.bfloat16):
        narrow = contrastive_loss(e, labels, 0.1)
    assert torch.equal(narrow, contrastive_loss(e, labels, 0.1))


def test_teacher_rows_of_zeros_say_nothing() -> None:
    heads, e = SpeakerHeads(4, 3, teacher_dim=6), F.normalize(noise(3, 4), dim=-1)
    assert heads.teacher is not None
    labels, teacher = torch.tensor([0, 1, 2]), noise(3, 6)
    teacher[1] = 0.0
    cosine = F.cosine_similarity(heads.teacher(e), teacher, dim=-1)
    found = heads(e, labels, teacher, LossConfig())["teacher"].item()
    assert found == pytest.approx(1 - (cosine[0] + cosine[2]).item() / 2, rel=1e-5)
    assert heads(e, labels, torch.zeros(3, 6), LossConfig())["teacher"] == 0
