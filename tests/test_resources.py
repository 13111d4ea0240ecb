"""The hash of the code counts what turns depend on, and nothing else."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from diarnorm import resources
from diarnorm.resources import cache_dir, code_sha256, commit, sources_of_turns
from tests.imports import file_of, reached_from

PACKAGE = Path(resources.__file__).parent


@pytest.fixture
def fresh_commit() -> Iterator[None]:
    """Nothing is known of the commit before and after the test."""
    commit.cache_clear()
    yield
    commit.cache_clear()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package's sources, elsewhere."""
    return shutil.copytree(PACKAGE, tmp_path / "diarnorm", ignore=shutil.ignore_patterns("__pycache__", "models"))


def test_the_same_code_has_the_same_hash_wherever_it_lies(package: Path) -> None:
    (package / "kernels" / "__pycache__").mkdir()
    (package / "kernels" / "__pycache__" / "cpu.pyc").write_bytes(b"made on import")
    assert resources._sources_sha256(package) == code_sha256()


@pytest.mark.parametrize("name", ["memory.py", "turns.py", "audio/reader.py", "kernels/cpu.py", "kernels/rms.cpp"])
def test_a_change_of_what_turns_depend_on_changes_it(package: Path, name: str) -> None:
    with (package / name).open("a") as file:
        file.write("\n")
    assert resources._sources_sha256(package) != code_sha256()


def test_all_that_a_stream_imports_counts_but_what_changes_no_turn() -> None:
    """And nothing else, but for how turns are written."""
    refuses_or_finds = {"checks", "resources"}
    reached = reached_from("stream", without=refuses_or_finds)
    counted = {path for path in sources_of_turns(PACKAGE) if path.suffix == ".py"}
    assert counted - reached == {file_of("rttm"), file_of("audio")}  # whose `__init__` has a sentence in it
    assert not reached - counted
    assert file_of("memory") in reached


@pytest.mark.parametrize("name", ["cli.py", "live.py", "training/trainer.py", "evaluation/scoring.py"])
def test_a_change_elsewhere_does_not(package: Path, name: str) -> None:
    with (package / name).open("a") as file:
        file.write("\n")
    assert resources._sources_sha256(package) == code_sha256()


def test_more_can_be_asked_for(package: Path) -> None:
    more = ("training/*.py", "evaluation/scoring.py")
    assert resources._sources_sha256(package, more) == code_sha256(*more) != code_sha256()
    with (package / "training" / "trainer.py").open("a") as file:
        file.write("\n")
    assert resources._sources_sha256(package, more) != code_sha256(*more)


def test_a_module_that_is_moved_is_another_code(package: Path) -> None:
    (package / "fbank.py").rename(package / "filters.py")
    assert resources._sources_sha256(package) != code_sha256()


def test_the_cache_lies_where_the_desktop_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "diarnorm"
    for unset in ("", None):
        monkeypatch.delenv("XDG_CACHE_HOME") if unset is None else monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_dir() == Path.home() / ".cache" / "diarnorm"


def test_an_installed_wheel_has_no_commit_even_inside_a_checkout_of_something_else(
    fresh_commit: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "something else"]):
        subprocess.run([*git, *words], check=True)
    package = tmp_path / "venv" / "site-packages" / "diarnorm"
    package.mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert commit() == "unknown"

    commit.cache_clear()
    (package.parent / "pyproject.toml").touch()  # as if it were the checkout
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    found = re.fullmatch("([0-9a-f]{7,})(-dirty)?", commit())
    assert found is not None
    assert head.startswith(found[1])
