"""Files and folders: written all at once, told apart by what is in them, and named so that any system takes it."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; what was written takes the place of `path` at the end, all at once, or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Errors of reading or writing say where it was, as those of an open file do not."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, place) from error


def file_sha256(path: Path) -> str:
    """Hash of a file's bytes.

    Errors: ValueError for a file that is not there.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError as error:
        raise ValueError(f"{path}: no such file") from error


def legal_folder(name: str) -> str:
    """A name as a folder can have it: what is no letter, digit, dot, dash or underscore becomes `_`.

    >>> legal_folder("../x y")
    '_x_y'
    """
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "_"


def shared_folder(names: Iterable[str]) -> str | None:
    """The first folder that several of the names stand for; None where each has one of its own.

    >>> shared_folder(["a", "a b", "a_b"])
    'a_b'
    """
    counts = Counter(map(legal_folder, names))
    return next((folder for folder, count in counts.items() if count > 1), None)
