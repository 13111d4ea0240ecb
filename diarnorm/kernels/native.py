"""The native kernels: `rms.cpp`, compiled once on request by the machine's C++ compiler, or what Numba makes of loops.

PyTorch has no CPU kernel for RMSNorm: its six operators take four times LayerNorm's time on few rows. `build()` (the
command `diarnorm build-native`) compiles two operators into the user's cache, `load()` finds them; where they have not
been built but Numba is installed, it takes `numba_rms.py`. Without either everything runs on torch's own operators.

The file's name carries a hash of the source, the options, torch's version and the processor, so neither an update nor a
home shared between machines can load a library that does not fit.
"""

import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from diarnorm.resources import cache_dir

SOURCE = Path(__file__).with_name("rms.cpp")
TORCH = Path(torch.__path__[0])
OPTIONS = (
    *("-O3", "-fno-math-errno", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
    *(f"-I{TORCH / 'include'}", f"-I{TORCH / 'include/torch/csrc/api/include'}"),
    *(f"-L{TORCH / 'lib'}", "-lc10", "-ltorch_cpu"),
)
CHOICES = tuple(
    (standard, *machine)
    for standard in ("-std=c++20", "-std=c++17")
    for machine in (("-march=native",), ("-mcpu=native",), ())
)
"""Tried in this order: the standards of newer and older torch; the machine's own instructions as x86 and ARM compilers
call them, then none."""
COMPILERS = ("c++", "g++", "clang++")

logger = logging.getLogger(__name__)


class Native(NamedTuple):
    """Compiled functions: differentiable, for CPU tensors of any floating dtype and any strides."""

    name: str
    """What they are, for people."""
    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    """`(x, weight, eps) -> y` in x's dtype. One argument less than below: with few rows, that counts."""
    masked_rms_norm: Callable[[Tensor, Tensor, float, Tensor | None], Tensor]
    """`(x, weight, eps, mask) -> y` in x's dtype."""
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float, float, Tensor | None], tuple[Tensor, Tensor]]
    """`(x, residual, weight, eps, alpha, mask) -> (y, r)`; all float32, or all float64."""


@lru_cache(maxsize=1)
def load() -> Native | None:
    """The compiled library, else Numba's functions, else None; says once, as information, which it is."""
    found = None
    for way in _wanted:
        found = WAYS[way]() if found is None else found
    if found is None:
        logger.info("RMSNorm on the CPU runs on torch's operators; `diarnorm build-native` or Numba makes it faster")
    else:
        logger.info("RMSNorm on the CPU runs on the %s", found.name)
    return found


def load_library() -> Native | None:
    """The operators that `build()` has compiled; None where it has not, or, with a warning, where they do not load."""
    path, operators = library_path(), torch.ops.diarnorm_native
    if not path.exists():
        return None
    try:
        if not hasattr(operators, "rms_norm"):  # a second library of the same operators would be refused
            torch.ops.load_library(path)
        functions = (operators.rms_norm.default, operators.rms_norm.mask, operators.add_rms_norm.default)
    except (OSError, AttributeError) as error:
        logger.warning("RMSNorm's native kernel %s cannot be loaded (%s)", path, error)
        return None
    return Native("native kernel (C++)", *functions)


def load_numba() -> Native | None:
    """The same from Numba; None where it is not installed, or, with a warning, where it does not work."""
    if find_spec("numba") is None:
        return None
    try:
        from diarnorm.kernels import numba_rms

        numba_rms.rms_norm(torch.ones(1, 1, device="cpu"), torch.ones(1, device="cpu"), 1.0)
    except Exception as error:  # a Numba that does not fit NumPy, a cache that cannot be written
        logger.warning("RMSNorm's loops cannot be compiled by Numba (%s)", error)
        return None
    return Native("native kernel (Numba)", numba_rms.rms_norm, numba_rms.rms_norm, numba_rms.add_rms_norm)


WAYS: dict[str, Callable[[], Native | None]] = {"c++": load_library, "numba": load_numba}
"""What `load()` tries, in this order."""
_wanted = tuple(WAYS)


def restrict(*ways: str) -> None:
    """From now on `load()` tries no others; for measurements.

    Raises:
        ValueError: none of those that are named is there.
    """
    global _wanted
    _wanted = ways
    load.cache_clear()
    if ways and load() is None:
        need = {"c++": "run diarnorm build-native", "numba": "pip install numba"}
        raise ValueError(f"there is no kernel from {' or '.join(ways)}: {' or '.join(need[way] for way in ways)}")


def library_path() -> Path:
    """Where the library for this source, torch and processor is, or would be."""
    facts = [SOURCE.read_text("utf-8"), *OPTIONS, torch.__version__, platform.machine(), _processor()]
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache_dir() / f"rms-{key}.so"


def build() -> Path:
    """Compile the library (10 to 30 seconds) and return its path. A process that has loaded one keeps it.

    Raises:
        ValueError: there is no C++ compiler, or it cannot compile the source.
    """
    compiler, path = find_compiler(), library_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        fresh = Path(folder) / path.name
        compile_operators(SOURCE, fresh, compiler)
        fresh.replace(path)
    load.cache_clear()
    return path


def find_compiler() -> list[str]:
    """Words that start the C++ compiler: those of the variable CXX, else c++, g++ or clang++.

    Raises:
        ValueError: none is there.
    """
    words = shlex.split(os.environ.get("CXX", ""))
    names = words[:1] if words else COMPILERS
    for name in names:
        if shutil.which(name):
            return [name, *words[1:]]
    raise ValueError(
        f"no C++ compiler found (looked for {', '.join(names)}): install g++ or clang++, or name one in CXX"
    )


def compile_operators(source: Path, target: Path, compiler: list[str]) -> None:
    """Run the compiler with each of the choices until one works.

    Raises:
        ValueError: none does.
    """
    complaint = ""
    linked_later = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
    for choice in CHOICES:
        words = [*compiler, *choice, str(source), "-o", str(target), *OPTIONS, *linked_later]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        complaint = complaint or (errors[0].strip() if errors else f"exit code {done.returncode}")
    raise ValueError(f"{shlex.join(compiler)} cannot compile {source.name}: {complaint}; name another compiler in CXX")


def _processor() -> str:
    """What tells processors with different instructions apart."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    kept = ("flags", "features", "model name", "cpu part")
    return "\n".join(sorted({line for line in lines if line.lower().startswith(kept)}))
