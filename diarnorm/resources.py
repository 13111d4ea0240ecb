"""Where the files that travel with the package lie: configurations, recipes, sample recordings, models, and sources;
which state of them this is; and where files that are made from them are kept.

The folders `configs/`, `recipes/` and `data_samples/` stand at the top of a checkout and inside the package
once it is installed from a wheel; the functions here answer for both. Nothing is copied, unpacked or
downloaded, and no function looks at the current folder.
"""

import contextlib
import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

DEFAULT_MODEL = "rms"
"""The shipped model that is used unless another is asked for."""

_PACKAGE = Path(__file__).resolve().parent
_TOP = "checkpoint conformer fbank frontend memory model modelfile norms outputs rttm runs stream timebase turns"
_CODE_OF_TURNS = (*(f"{name}.py" for name in _TOP.split()), "audio/*.py", "kernels/*.py", "kernels/*.cpp")
"""What a model needs to hear a recording, beside its file; no more, so that the hash stays while other parts change."""


def _folder(packaged: str, in_checkout: str) -> Path:
    installed = _PACKAGE / packaged
    path = installed if installed.is_dir() else _PACKAGE.parent / in_checkout
    if not path.is_dir():
        raise FileNotFoundError(f"neither {installed} nor {path} exists; reinstall diarnorm")
    return path


def configs_dir() -> Path:
    """Folder of Hydra's configuration groups."""
    return _folder("_configs", "configs")


def recipes_dir() -> Path:
    """Folder of the recipes, one folder each."""
    return _folder("_recipes", "recipes")


def samples_dir() -> Path:
    """Folder of the sample recordings with their RTTM and UEM files."""
    return _folder("_samples", "data_samples")


def models_dir() -> Path:
    """Folder of the shipped models and their cards."""
    return _PACKAGE / "models"


def model_names() -> list[str]:
    """Names of the shipped models, sorted."""
    return sorted(path.stem for path in models_dir().glob("*.safetensors"))


def model_path(name: str) -> Path:
    """Path of the shipped model `name`.

    Raises:
        ValueError: no model of that name is shipped; the message lists those that are.
    """
    path = models_dir() / f"{name}.safetensors"
    if name not in model_names():
        shipped = ", ".join(model_names()) or "none"
        raise ValueError(f"no shipped model is called {name!r} (shipped: {shipped}); give one of these or a path")
    return path


def find_model(name_or_path: str | Path | None = None) -> Path:
    """Path of a model: a shipped one by name (`rms` when None), or any file by path. A word with a folder or an
    ending is a path.

    Raises:
        ValueError: no model of that name is shipped. Whether a file exists is left to its reader.
    """
    given = DEFAULT_MODEL if name_or_path is None else name_or_path
    is_file = isinstance(given, Path) or given != Path(given).name or Path(given).suffix != ""
    return Path(given) if is_file else model_path(str(given))


def cache_dir() -> Path:
    """Folder of what can be made again: `$XDG_CACHE_HOME/diarnorm`, or `~/.cache/diarnorm` where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "diarnorm"


@cache
def commit() -> str:
    """The commit of the checkout that the package lies in, with `-dirty` where files have changed since; "unknown" for
    an installed wheel, also one that was installed inside a checkout of something else."""
    command = ["git", "-C", str(_PACKAGE), "describe", "--always", "--dirty", "--exclude=*"]
    if (_PACKAGE.parent / "pyproject.toml").is_file():
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return "unknown"


def processor() -> str:
    """The machine's processor by its name, where the system tells."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def code_sha256(*more: str) -> str:
    """Hash of the sources that turns depend on: names and bytes of the modules between sound and turns, of `audio` and
    of `kernels`; and of `more`, patterns of paths in the package. What was made by one code is not taken for another's,
    whatever the version says."""
    return _sources_sha256(_PACKAGE, more)


def sources_of_turns(package: Path, more: tuple[str, ...] = ()) -> list[Path]:
    """The files that `code_sha256` is about, in order."""
    return sorted({path for pattern in (*_CODE_OF_TURNS, *more) for path in package.glob(pattern)})


def _sources_sha256(package: Path, more: tuple[str, ...] = ()) -> str:
    digest = hashlib.sha256()
    for path in sources_of_turns(package, more):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(package).as_posix()} {content}\n".encode())
    return digest.hexdigest()
