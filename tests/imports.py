"""What a module of the package imports, and what those import in turn, read off the sources."""

import ast
from collections.abc import Collection
from pathlib import Path

import diarnorm

PACKAGE = Path(diarnorm.__file__).parent


def file_of(module: str) -> Path:
    """Source of a module, named from the package on: `audio.mono`; of a folder its `__init__`."""
    path = PACKAGE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported_by(module: str) -> set[str]:
    """Modules that it imports anywhere, also inside functions, under the same names; `diarnorm` itself is none."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file_of(module).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        inside = (name.removeprefix("diarnorm.") for name in names if name.startswith("diarnorm."))
        found |= {name for name in inside if file_of(name).exists()}
    return found


def reached_from(module: str, *, without: Collection[str] = (), ends: Collection[str] = ()) -> set[Path]:
    """Sources of the module, of what it imports, and so on: but not `without` these and what only they import; `ends`
    are there, what they import is not."""
    seen: set[str] = set()
    left = [module]
    while left:
        name = left.pop()
        if name not in seen and name not in without:
            seen.add(name)
            left += [] if name in ends else imported_by(name)
    return {file_of(name) for name in seen}
