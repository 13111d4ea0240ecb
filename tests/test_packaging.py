"""What the wheel carries, and that the package finds it in a checkout and when installed."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from diarnorm import resources

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without network."""
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return next(out.glob("*.whl"))


def files_under(folder: Path, *suffixes: str) -> set[str]:
    return {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in suffixes and path.is_file()
    }


def imported_packages() -> set[str]:
    """What diarnorm imports of others, anywhere: the first part of the name, of `pyannote`, which many share, two."""
    names: set[str] = set()
    for path in (ROOT / "diarnorm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    parts = {tuple(name.split(".")[: 2 if name.startswith("pyannote.") else 1]) for name in names}
    return {".".join(part) for part in parts if part[0] not in {*sys.stdlib_module_names, "diarnorm"}}


def test_every_package_that_is_imported_is_declared() -> None:
    """What another package happens to bring today may be gone tomorrow; only triton comes with torch or not at all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["plot"], *extras["fast"], *extras["onnx"]]
    declared = {re.split(r"[<>=~;\[ ]", line)[0].lower() for line in lines}
    other_names = {"hydra": "hydra-core", "yaml": "pyyaml"}
    imported = {other_names.get(name, name) for name in imported_packages()}
    assert {"torch", "pyannote.metrics", "pyannote.core", "omegaconf", "soundfile"} <= imported
    assert imported - declared == {"triton"}


def test_checkout_folders() -> None:
    assert resources.configs_dir() == ROOT / "configs"
    assert resources.recipes_dir() == ROOT / "recipes"
    assert resources.samples_dir() == ROOT / "data_samples"


def test_unknown_model_is_refused_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"no shipped model is called 'nosuch' \(shipped: "):
        resources.model_path("nosuch")
    for name in resources.model_names():
        assert resources.model_path(name).is_file()


def test_a_word_with_a_folder_or_an_ending_is_a_path() -> None:
    assert resources.find_model() == resources.find_model("rms") == resources.model_path("rms")
    for given in ("talk.wav", "m.safetensors", "runs/best", "/tmp", "./rms"):
        assert resources.find_model(given) == resources.find_model(Path(given)) == Path(given)
    with pytest.raises(ValueError, match="no shipped model is called 'nosuch'"):
        resources.find_model("nosuch")


def test_every_model_has_its_card() -> None:
    cards = files_under(resources.models_dir(), ".md")
    assert [name for name in resources.model_names() if f"{name}.md" not in cards] == []


def test_wheel_carries_everything_and_the_installed_package_finds_it(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    expected = {
        "_configs": files_under(ROOT / "configs", ".yaml"),
        "_recipes": files_under(ROOT / "recipes", ".yaml", ".md"),
        "_samples": files_under(ROOT / "data_samples", ".flac", ".rttm", ".uem"),
        "models": files_under(ROOT / "diarnorm" / "models", ".safetensors", ".md"),
        ".": files_under(ROOT / "diarnorm", ".py", ".typed"),
    }
    assert expected["_samples"]
    assert expected["."]
    for folder, names in expected.items():
        missing = names - files_under(site / "diarnorm" / folder, *{Path(name).suffix for name in names})
        assert not missing, f"{folder} of the wheel lacks {sorted(missing)}"
    code = "from diarnorm.resources import *; print(configs_dir(), recipes_dir(), samples_dir(), sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines() == [str(site / "diarnorm" / name) for name in ("_configs", "_recipes", "_samples")]


def test_version_is_in_the_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"## [{project['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
