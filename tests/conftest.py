"""Rules that hold for every test: seeded, quiet, no GPU test without a GPU."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# The same examples on every run and machine; time limits per example only measure the machine.
hypothesis.settings.register_profile("diarnorm", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("diarnorm")

LONGEST = "test_readme.py"
"""Its blocks go one after the other, whatever runs beside them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--check-shapes`: annotations of diarnorm, shapes included, are checked while the tests run."""
    parser.addoption("--check-shapes", action="store_true", help="check annotations and shapes at run time")


def pytest_configure(config: pytest.Config) -> None:
    """Install the checker before any module of diarnorm is imported; the commands handle no arrays."""
    if config.getoption("--check-shapes"):
        import jaxtyping

        import tests.shapes  # noqa: F401 - the hook looks the name up

        package = Path(__file__).resolve().parent.parent / "diarnorm"
        folders = ("", "audio", "simulation", "evaluation", "training", "bench", "robustness")
        paths = [path.relative_to(package) for folder in folders for path in (package / folder).glob("*.py")]
        modules = [".".join(["diarnorm", *path.with_suffix("").parts]) for path in paths if path.stem != "__init__"]
        jaxtyping.install_import_hook(modules, "tests.shapes.check")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Every test starts from the same seeds; torch's only where the test's module imported torch."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - third-party code draws from the global generator
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest file comes first, so that processes that share the files end together; tests marked `gpu` are
    skipped where no CUDA device is found."""
    items.sort(key=lambda item: item.path.name != LONGEST)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread, which is faster for tiny tensors; afterwards as before, whatever the test's subject set."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def loudness_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file in which one speaker talks whenever it is loud; see `tests/loudness.py`."""
    from tests.loudness import save_loudness_model

    return save_loudness_model(tmp_path_factory.mktemp("models") / "loudness.safetensors")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of synthetic voices, eight speakers under `train`, four others under `dev`.

    It lies where `data.speech=synthetic` looks with `corpus.parent.parent` as XDG_CACHE_HOME; put caches beside it.
    """
    from diarnorm.simulation.synthetic import make_corpus

    return make_corpus(tmp_path_factory.mktemp("cache") / "diarnorm" / "synthetic")
