"""Teacher embeddings find their utterance and speed, whatever their paths leave out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diarnorm.simulation.speech import Speech
from diarnorm.simulation.warps import Warp
from diarnorm.training.teacher import load_teacher
from tests.voices import imagined_speech

PATHS = ("/data/a/s0/0.wav", "/data/a/s0/1.wav", "/data/a/s1/0.wav", "/data/a/s1/only.wav")


@pytest.fixture
def speech() -> Speech:
    """Four utterances at speeds 0.9, 1 and 1.1."""
    return replace(imagined_speech(num_speakers=2, num_utterances=2), paths=PATHS)


def save(folder: Path, name: str, paths: list[str]) -> np.ndarray:
    """Store embeddings for these paths; returns them at unit length."""
    embedding = np.random.default_rng(len(name)).standard_normal((len(paths), 5)).astype(np.float16)
    np.savez(folder / name, path=paths, embedding=embedding)
    return embedding.astype(float) / np.linalg.norm(embedding.astype(float), axis=1, keepdims=True)


def test_rows_are_those_of_utterance_and_speed(tmp_path: Path, speech: Speech) -> None:
    natural = save(tmp_path, "train.npz", ["s1/0.wav", "s0/0.wav", "only.wav"])
    slow = save(tmp_path, "train_0.9.npz", ["/elsewhere/a/s0/1.wav", "/elsewhere/a/s1/only.wav"])
    table = load_teacher(tmp_path, speech)
    expected = np.zeros((4, 3, 5))
    expected[[2, 0, 3], 1] = natural
    expected[[1, 3], 0] = slow
    np.testing.assert_allclose(table.float().numpy(), expected.reshape(12, 5), atol=1e-3)
    assert table.dtype == torch.float16
    lengths = table.float().norm(dim=1)
    assert lengths[lengths > 0] == pytest.approx(1.0, abs=1e-3)


def test_warps_have_files_of_their_own(tmp_path: Path, speech: Speech) -> None:
    warped = replace(speech, warps=(Warp(pitch=1.15), Warp(tract=0.9)))
    natural, longer = (save(tmp_path, f"train{name}.npz", ["s1/0.wav", "s0/0.wav"]) for name in ("", "_t0.9"))
    table = load_teacher(tmp_path, warped).float().numpy().reshape(4, 5, 5)
    np.testing.assert_allclose(table[[2, 0], 1], natural, atol=1e-3)
    np.testing.assert_allclose(table[[2, 0], 4], longer, atol=1e-3)
    assert np.count_nonzero(np.abs(table).sum(axis=-1)) == 4


def test_utterances_of_others_are_left_out(tmp_path: Path, speech: Speech) -> None:
    """Even where the file's own name is known."""
    natural = save(tmp_path, "train.npz", ["b/s9/only.wav", "a/s1/only.wav", "c/s1/only.wav"])
    table = load_teacher(tmp_path, speech).float().numpy().reshape(4, 3, 5)
    np.testing.assert_allclose(table[3, 1], natural[1], atol=1e-3)
    assert np.count_nonzero(np.abs(table).sum(axis=-1)) == 1


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["only.wav", "0.wav"], r"several utterances are called 0.wav: give more of their paths"),
        (["s9/7.wav"], r"train.npz has none of the utterances of this run"),
        (None, r"holds no teacher embeddings: expected train.npz"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, speech: Speech, paths: list[str] | None, message: str) -> None:
    if paths is not None:
        save(tmp_path, "train.npz", paths)
    with pytest.raises(ValueError, match=message):
        load_teacher(tmp_path, speech)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (
            {"x": np.zeros(3)},
            r"train.npz holds no embeddings \(.*path is not a file .*\): store path \[utterances\] and",
        ),
        (
            {"path": np.array(["a", None]), "embedding": np.ones((2, 5))},
            r"train.npz holds no embeddings \(Object arrays",
        ),
        ({"path": ["s0/0.wav"], "embedding": np.ones((2, 5))}, r"1 paths and embeddings of shape \[2, 5\]"),
        ({"path": ["s0/0.wav"], "embedding": np.ones(1)}, r"1 paths and embeddings of shape \[1\]: store"),
        (
            {"path": ["s0/0.wav", "s0/1.wav"], "embedding": [[1.0, 1.0], [1.0, np.nan]]},
            r"the embedding of s0/1.wav is not finite, leave it out",
        ),
        ({}, r"train.npz holds no embeddings"),
    ],
)
def test_files_that_hold_something_else_are_named(
    tmp_path: Path, speech: Speech, stored: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "train.npz", **stored)
    if not stored:
        (tmp_path / "train.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match=message):
        load_teacher(tmp_path, speech)


def test_embeddings_of_several_sizes_are_refused(tmp_path: Path, speech: Speech) -> None:
    save(tmp_path, "train.npz", ["s1/0.wav"])
    np.savez(tmp_path / "train_1.1.npz", path=["s1/0.wav"], embedding=np.ones((1, 4)))
    with pytest.raises(ValueError, match=r"train_1.1.npz: embeddings have 4 dimensions, those before 5"):
        load_teacher(tmp_path, speech)
