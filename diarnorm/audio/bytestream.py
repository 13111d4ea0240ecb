"""Bytes of a file or pipe in the order they arrive, handed on as soon as they are there.

`ByteStream` is what the wav parser and the sample decoder read from. A pipe cannot be rewound, so nothing
here seeks; a regular file differs only in that its length is known beforehand.
"""

import io
import os
import select
import stat
import sys
from pathlib import Path

STDIN = "-"
"""The source that stands for standard input."""
SKIP_BYTES = 65_536
"""Bytes read at a time while skipping."""


class AudioError(ValueError):
    """Input that cannot be read as audio: one sentence with the path and the reason."""


class ByteStream:
    """Sequential reader over an unbuffered file.

    Attributes: `name` (for messages), `size` (bytes of a regular file, None for a pipe), `position` (bytes
    consumed).
    """

    def __init__(self, file: io.FileIO, name: str):
        info = os.fstat(file.fileno())
        self.name = name
        self.size = info.st_size if stat.S_ISREG(info.st_mode) else None
        self.position = 0
        self._file = file
        self._ahead = b""

    @property
    def remaining(self) -> int | None:
        """Bytes left in a regular file, None for a pipe."""
        return None if self.size is None else max(0, self.size - self.position)

    def error(self, reason: str) -> AudioError:
        """The exception that says what is wrong with this input."""
        return AudioError(f"{self.name}: {reason}")

    def fileno(self) -> int:
        """File descriptor, for readers that need the whole file."""
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()

    def peek(self, num_bytes: int) -> bytes:
        """The next `num_bytes` bytes (fewer only at the end) without consuming them."""
        while len(self._ahead) < num_bytes:
            data = self._read_once(num_bytes - len(self._ahead))
            if not data:
                break
            self._ahead += data
        return self._ahead[:num_bytes]

    def read_available(self, limit: int) -> bytes:
        """Up to `limit` bytes: what is there now, waiting only if nothing is; empty at the end."""
        if self._ahead:
            data, self._ahead = self._ahead[:limit], self._ahead[limit:]
        else:
            data = self._read_once(limit)
        self.position += len(data)
        return data

    def read_exactly(self, num_bytes: int) -> bytes:
        """`num_bytes` bytes, fewer only at the end."""
        parts = []
        while num_bytes > 0 and (data := self.read_available(num_bytes)):
            parts.append(data)
            num_bytes -= len(data)
        return b"".join(parts)

    def skip(self, num_bytes: int) -> None:
        """Read over `num_bytes` bytes, or to the end."""
        while num_bytes > 0 and (data := self.read_available(min(num_bytes, SKIP_BYTES))):
            num_bytes -= len(data)

    def _read_once(self, limit: int) -> bytes:
        try:
            while (data := self._file.read(limit)) is None:  # a non-blocking pipe with nothing in it yet
                select.select([self._file], [], [])
        except OSError as error:
            raise self.error(f"reading failed after {self.position} bytes ({error.strerror})") from error
        return data


def open_bytes(source: str | os.PathLike[str]) -> ByteStream:
    """Open a path, or standard input for `"-"`.

    Raises:
        AudioError: nothing there, a directory, no permission, or standard input is a terminal.
    """
    if source == STDIN:
        return _open_stdin()
    name = str(Path(source))
    try:
        return ByteStream(io.FileIO(name), name)
    except FileNotFoundError as error:
        raise AudioError(f"{name}: no such file") from error
    except IsADirectoryError as error:
        raise AudioError(f"{name}: is a directory, not an audio file") from error
    except PermissionError as error:
        raise AudioError(f"{name}: permission denied") from error
    except OSError as error:
        raise AudioError(f"{name}: cannot be opened ({error.strerror})") from error


def _open_stdin() -> ByteStream:
    try:
        fileno = sys.stdin.fileno()
        file = io.FileIO(fileno, closefd=False)
    except (AttributeError, OSError, ValueError) as error:
        raise AudioError("stdin: is closed; pipe a wav into it or give a file name") from error
    if os.isatty(fileno):
        raise AudioError("stdin: is a terminal; pipe a wav into it or give a file name")
    return ByteStream(file, "stdin")
