"""Compiling and finding the native kernels: on request only, once, for this machine; every failure is one sentence.

Whether Numba is installed makes no difference here: `no_numba`, or a stand-in.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from diarnorm import cli, kernels
from diarnorm.kernels import native


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    native.load.cache_clear()
    yield tmp_path / "cache" / "diarnorm"
    native.load.cache_clear()


def fake_compiler(folder: Path, script: str) -> Path:
    """A program in place of the compiler; `$target` is the file it is asked for."""
    path = folder / "compiler"
    find_target = 'target=; while [ $# -gt 0 ]; do [ "$1" = -o ] && target=$2; shift; done\n'
    path.write_text(f'#!/bin/sh\nwords="$*"\n{find_target}{script}\n', "utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Numba is not installed."""
    monkeypatch.setattr(native, "find_spec", lambda name: None)


def pretend_numba(monkeypatch: pytest.MonkeyPatch, norm: Callable[..., object]) -> None:
    """As where Numba is installed and `norm` is what it makes of the loops."""
    functions = SimpleNamespace(rms_norm=norm, add_rms_norm=norm)
    monkeypatch.setattr(native, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "diarnorm.kernels.numba_rms", functions)
    monkeypatch.setattr(kernels, "numba_rms", functions, raising=False)


def test_without_a_library_numba_is_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def norm(*arguments: object) -> None:
        """Does nothing."""

    pretend_numba(monkeypatch, norm)
    with caplog.at_level(logging.INFO):
        assert native.load() == native.Native("native kernel (Numba)", norm, norm, norm)  # pyright: ignore[reportArgumentType]
    assert [record.getMessage() for record in caplog.records] == [
        "RMSNorm on the CPU runs on the native kernel (Numba)"
    ]


def test_a_library_comes_before_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    built = native.Native("native kernel (C++)", *[lambda: None] * 3)  # pyright: ignore[reportArgumentType]
    pretend_numba(monkeypatch, lambda *arguments: None)
    monkeypatch.setitem(native.WAYS, "c++", lambda: built)
    assert native.load() is built


def test_a_numba_that_does_not_work_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("Numba needs NumPy 1.9 or less")

    pretend_numba(monkeypatch, fail)
    assert native.load() is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == "RMSNorm's loops cannot be compiled by Numba (Numba needs NumPy 1.9 or less)"


def test_without_either_nothing_is_compiled_and_it_is_said_once(
    cache: Path, caplog: pytest.LogCaptureFixture, no_numba: None
) -> None:
    with caplog.at_level(logging.INFO):
        assert native.load() is None
        assert native.load() is None
    assert [record.getMessage() for record in caplog.records] == [
        "RMSNorm on the CPU runs on torch's operators; `diarnorm build-native` or Numba makes it faster"
    ]
    assert not cache.exists()


def test_a_damaged_library_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, no_numba: None
) -> None:
    monkeypatch.setattr(torch.ops, "diarnorm_native", object())  # as if none had been loaded in this process
    path = native.library_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x7fELF")
    assert native.load() is None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{path} cannot be loaded" in caplog.text


def test_the_name_follows_source_options_torch_and_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "rms.cpp"
    changed.write_text("// another\n", "utf-8")
    changes = {
        (native, "SOURCE"): changed,
        (native, "OPTIONS"): ("-O2",),
        (torch, "__version__"): "9.9",
        (native, "_processor"): lambda: "another",
    }
    names = {native.library_path()}
    for (owner, name), value in changes.items():
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            names.add(native.library_path())
    assert len(names) == 1 + len(changes)
    assert native.library_path() in names


def test_build_leaves_one_file(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{fake_compiler(tmp_path, 'echo $words > $target')} -first")
    path = native.build()
    assert path == native.library_path()
    assert list(cache.iterdir()) == [path]
    words = path.read_text("utf-8").split()
    assert words[:3] == ["-first", "-std=c++20", "-march=native"]
    assert str(native.SOURCE) in words


def test_build_tries_what_older_compilers_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'case "$words" in *c++20*|*native*) echo "error: unknown option" >&2; exit 1;; esac; echo $words > $target'
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, script)))
    assert native.build().read_text("utf-8").startswith("-std=c++17 ")


def test_a_compiler_that_fails_is_quoted(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = fake_compiler(tmp_path, 'echo "rms.cpp:1: error: no such header" >&2; exit 1')
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(ValueError, match=r"compiler cannot compile rms.cpp: rms.cpp:1: error: no such header; name"):
        native.build()
    assert list(cache.iterdir()) == []


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    assert cli.main(["build-native"]) == 2
    assert capsys.readouterr().err.startswith(
        "diarnorm build-native: no C++ compiler found (looked for c++, g++, clang++)"
    )


def test_the_command_compiles_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, f"echo run >> {runs}; echo > $target")))
    monkeypatch.setattr(native, "load_library", lambda: object())
    native_load_cleared = []
    monkeypatch.setattr(native.load, "cache_clear", lambda: native_load_cleared.append(True))
    for arguments, said in (([], "compiled in"), ([], "is there already"), (["--force"], "compiled in")):
        assert cli.main(["build-native", *arguments]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"{native.library_path()} {said}")
        assert err == ""
    assert runs.read_text("utf-8").split() == ["run", "run"]
    assert native_load_cleared == [True, True]
