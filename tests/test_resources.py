"""The hash of the code counts what turns depend on, and nothing else."""

import shutil
from pathlib import Path

import pytest

from diarnorm import resources
from diarnorm.resources import code_sha256

PACKAGE = Path(resources.__file__).parent


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


@pytest.mark.parametrize("name", ["training/trainer.py", "commands/evaluate.py", "evaluation/scoring.py"])
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
