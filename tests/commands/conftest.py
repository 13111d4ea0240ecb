"""What tests of several commands start from."""

from pathlib import Path

import pytest

from tests.evalset import save_set


@pytest.fixture
def model_and_set(tmp_path: Path, loudness_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder with a model, `loud.safetensors`, and a set of recordings."""
    save_set(tmp_path / "my set", ["a_one", "b_two"])
    (tmp_path / "loud.safetensors").symlink_to(loudness_model)
    monkeypatch.chdir(tmp_path)
