"""Triton kernels of a module run by Triton's interpreter, on CPU tensors, in this process.

Triton decides when a function is decorated whether it will be compiled or interpreted. So the module is loaded a second
time with TRITON_INTERPRET set, and its helpers from Triton's own library are exchanged while it runs. The interpreter
changes `triton.language` in every call of every helper, and leaves some of that behind; here it is changed once, and
taken back at the end, so that kernels can still be compiled.
"""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from unittest import mock

LIBRARY_HELPERS = ("sum", "zeros", "cdiv")
"""Functions of `triton.language` that the kernels call and that are themselves kernels."""


def load_interpreted(path: Path) -> ModuleType:
    """The module at `path`, anew, with its kernels interpreted."""
    with mock.patch.dict(os.environ, {"TRITON_INTERPRET": "1"}):
        return load_module(path)


def load_module(path: Path) -> ModuleType:
    """The module at `path`, anew, under another name."""
    spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def interpreting() -> Iterator[None]:
    """Inside, interpreted kernels run; afterwards `triton.language` is as it was."""
    import triton.language as tl
    from triton.runtime import interpreter

    namespaces = [tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base]
    before = [dict(vars(namespace)) for namespace in namespaces]
    try:
        for name in LIBRARY_HELPERS:
            setattr(tl, name, interpreter.InterpretedFunction(getattr(tl, name).fn))
        interpreter._patch_lang(FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core}))
        with mock.patch.object(interpreter, "_patch_lang", return_value=mock.Mock()):
            yield
    finally:
        for namespace, names in zip(namespaces, before, strict=True):
            _restore(namespace, names)


def _restore(namespace: object, names: dict[str, object]) -> None:
    for name in set(vars(namespace)) - set(names):
        delattr(namespace, name)
    for name, value in names.items():
        if vars(namespace)[name] is not value:
            setattr(namespace, name, value)
