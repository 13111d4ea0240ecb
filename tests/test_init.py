"""The public names: few, lazy, and there."""

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import diarnorm

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = ["Diarizer", "Stream", "StreamState", "Turn", "TurnConfig", "TurnStart", "__version__"]
PUBLIC += ["make_norm", "open_audio", "read_rttm", "score", "write_rttm"]


def test_public_names_are_frozen() -> None:
    assert diarnorm.__all__ == PUBLIC


@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "__version__"])
def test_name_comes_from_its_module(name: str) -> None:
    value = getattr(diarnorm, name)
    assert getattr(import_module(value.__module__), name) is value
    assert name in dir(diarnorm)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'diarnorm' has no attribute 'Diariser'"):
        _ = diarnorm.Diariser  # pyright: ignore[reportAttributeAccessIssue]


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert diarnorm.__version__ == project["version"]


def test_import_loads_no_library() -> None:
    code = "import sys, diarnorm; print(sorted({'numpy', 'torch', 'soundfile', 'rich'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
