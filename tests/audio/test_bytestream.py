"""Bytes of pipes: as they come, none lost, and one sentence when there are none to be had."""

import io
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diarnorm.audio.bytestream import AudioError, ByteStream, open_bytes


@pytest.fixture
def pipe() -> Iterator[tuple[ByteStream, int]]:
    """A stream and the file descriptor that feeds it (closed by the test); waiting in vain is an error."""

    def give_up(*_: object) -> None:
        raise TimeoutError("waited for more than there is")

    reading, writing = os.pipe()
    stream = ByteStream(io.FileIO(reading), "stdin")
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(10)
    yield stream, writing
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    stream.close()


def test_what_is_there_is_handed_on_at_once(pipe: tuple[ByteStream, int]) -> None:
    stream, writing = pipe
    assert stream.size is None
    assert stream.remaining is None
    os.write(writing, b"abc")
    assert stream.read_available(1000) == b"abc"  # would wait for ever if it wanted all 1000
    os.write(writing, b"defg")
    assert stream.peek(2) == b"de"
    assert stream.position == 3
    assert stream.read_available(1000) == b"de"
    os.close(writing)
    assert stream.read_exactly(1000) == b"fg"
    assert stream.peek(1) == stream.read_available(1) == b""
    assert stream.position == 7


def test_peek_waits_for_all_it_was_asked_for(pipe: tuple[ByteStream, int]) -> None:
    stream, writing = pipe
    os.write(writing, b"ab")
    late = threading.Timer(0.05, lambda: (os.write(writing, b"cd"), os.close(writing)))
    late.start()
    assert stream.peek(4) == b"abcd"
    stream.skip(3)
    assert stream.read_exactly(9) == b"d"
    late.join()


def test_a_non_blocking_pipe_is_waited_for(pipe: tuple[ByteStream, int]) -> None:
    stream, writing = pipe
    os.set_blocking(stream.fileno(), False)
    late = threading.Timer(0.05, lambda: (os.write(writing, b"late"), os.close(writing)))
    late.start()
    cpu_s = time.process_time()
    assert stream.read_exactly(4) == b"late"
    assert time.process_time() - cpu_s < 0.04  # it slept, it did not spin
    late.join()


def test_a_file_knows_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "naïve-日本 %d.bin"
    path.write_bytes(b"0123456789")
    stream = open_bytes(path)
    assert (stream.name, stream.size) == (str(path), 10)
    stream.skip(4)
    assert stream.remaining == 6
    stream.skip(100)
    assert stream.remaining == 0
    stream.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FileNotFoundError(2, "No such file"), "no such file"),
        (PermissionError(13, "Permission denied"), "permission denied"),
        (OSError(40, "Too many levels of symbolic links"), "Too many levels"),
    ],
)
def test_what_cannot_be_opened(error: OSError, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(io, "FileIO", refuse)
    with pytest.raises(AudioError, match=f"^some/where.wav: .*{reason}"):
        open_bytes("some/where.wav")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"nothing\.wav: no such file$"):
        open_bytes(tmp_path / "nothing.wav")
    with pytest.raises(AudioError, match=r"is a directory, not an audio file$"):
        open_bytes(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(AudioError, match="permission denied"):
        open_bytes(path)


def test_a_read_error_names_the_place(pipe: tuple[ByteStream, int], monkeypatch: pytest.MonkeyPatch) -> None:
    stream, writing = pipe
    os.write(writing, b"abc")
    os.close(writing)
    stream.read_exactly(3)

    class Broken:
        def read(self, limit: int) -> bytes:
            raise OSError(5, "Input/output error")

    file = stream._file
    monkeypatch.setattr(stream, "_file", Broken())
    with pytest.raises(AudioError, match="stdin: reading failed after 3 bytes \\(Input/output error\\)"):
        stream.read_available(10)
    monkeypatch.setattr(stream, "_file", file)


def test_a_terminal_or_a_closed_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(AudioError, match="stdin: is closed"):
        open_bytes("-")
    controller, terminal = os.openpty()
    with os.fdopen(terminal) as file:
        monkeypatch.setattr("sys.stdin", file)
        with pytest.raises(AudioError, match="stdin: is a terminal"):
            open_bytes("-")
    os.close(controller)
