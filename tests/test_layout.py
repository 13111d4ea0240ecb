"""Imports inside diarnorm run one way: the table below is the order, a walk over the sources enforces it."""

import ast
import subprocess
import sys
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "diarnorm"

# From the bottom up. A module or folder imports from lower levels, or from its own level where that makes no circle.
# `__init__` only gathers the public names, so nothing imports from it.
LEVELS = [
    {"timebase", "files", "resources", "checks", "modelfile", "kernels"},
    {"audio", "fbank", "frontend", "norms", "residual", "events", "rttm", "runs", "turns", "manifest"},
    {"conformer", "memory", "outputs", "simulation"},
    {"checkpoint", "model"},
    {"stream", "hydrajob"},
    {"convert", "evaluation"},
    {"training"},
    {"robustness"},
    {"bench", "claims", "cli", "commands", "live"},
    {"__init__", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}

TORCH_FREE = ["timebase", "resources", "modelfile", "audio.reader", "turns", "rttm", "events", "evaluation.scoring"]
TORCH_FREE += ["live", "cli", "robustness.corruption"]
"""What `diarnorm --help` and `diarnorm score` load: importing these must not import torch."""


def read_sources() -> dict[str, str]:
    """Source text of every module, by its path relative to the package ("kernels/rms.py")."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}


def imported_components(path: str, source: str) -> set[str]:
    """Names of diarnorm's components that a module imports anywhere, also inside functions.

    A component is a module or a folder directly under `diarnorm/`; `from diarnorm import x` counts as `x`.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = ["diarnorm", *Path(path).parent.parts][: None if node.level <= 1 else 1 - node.level]
            base = ".".join([*(package if node.level else []), *([node.module] if node.module else [])])
            targets = [f"{base}.{alias.name}" if base == "diarnorm" else base for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in targets if name.startswith("diarnorm.")}
    return found


def violations(sources: Mapping[str, str]) -> list[str]:
    """What breaks the order, one sentence each."""
    problems: list[str] = []
    graph: dict[str, set[str]] = {}
    for path, source in sources.items():
        component = Path(path).parts[0].removesuffix(".py")
        if component not in LEVEL:
            problems.append(f"diarnorm/{path}: give {component!r} its place in LEVELS of tests/test_layout.py")
            continue
        imports = imported_components(path, source) - {component}
        graph.setdefault(component, set()).update(imports)
        for name in sorted(imports):
            if name not in LEVEL:
                problems.append(f"diarnorm/{path} imports {name!r} from diarnorm, which is no module of the table")
            elif LEVEL[name] > LEVEL[component]:
                problems.append(f"diarnorm/{path} imports {name!r} from above it; move what both need further down")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        problems.append("imports run in a circle: " + " -> ".join(error.args[1]))
    return problems


def test_imports_run_one_way() -> None:
    sources = read_sources()
    assert "timebase.py" in sources
    assert not (problems := violations(sources)), "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        ("fbank.py", "import diarnorm.stream", "fbank.py imports 'stream' from above it"),
        (
            "fbank.py",
            "def f():\n    from diarnorm.model import Model",
            "fbank.py imports 'model' from above it",
        ),
        ("norms.py", "from .conformer import Encoder", "norms.py imports 'conformer' from above it"),
        ("kernels/rms.py", "from ..norms import make_norm", "kernels/rms.py imports 'norms' from above it"),
        ("kernels/rms.py", "from .. import norms", "kernels/rms.py imports 'norms' from above it"),
        ("model.py", "from diarnorm import stream", "model.py imports 'stream' from above it"),
        ("stream.py", "from diarnorm import Diarizer", "stream.py imports 'Diarizer' from diarnorm"),
        ("utils.py", "", "give 'utils' its place in LEVELS"),
        ("timebase.py", "from diarnorm import resources", "in a circle"),
    ],
)
def test_each_kind_of_violation_is_found(path: str, source: str, message: str) -> None:
    below = {
        "resources.py": "from diarnorm import timebase",
        "timebase.py": "",
        "kernels/other.py": "import math",
    }
    assert violations(below) == []
    problems = violations({**below, path: source})
    assert any(message in problem for problem in problems), problems


def test_light_modules_do_not_import_torch() -> None:
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(f'diarnorm.{name}')\n"
        "    assert 'torch' not in sys.modules, f'diarnorm.{name} imports torch'\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *TORCH_FREE],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
