"""Wav files put together byte by byte, so that headers can be as wrong as in the field, and pipes."""

import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np

from diarnorm.audio.reader import AudioReader, open_audio

GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")


def speechlike(num_samples: int, rate: int = 16_000, seed: int = 0) -> np.ndarray:
    """Float64 [num_samples], peak about 0.4: harmonics of a wobbling 130-Hz voice, syllables, some noise."""
    t = np.arange(num_samples) / rate
    phase = 2 * np.pi * np.cumsum(130 * (1 + 0.03 * np.sin(2 * np.pi * 2.3 * t))) / rate
    voice = sum(np.sin(k * phase) / k for k in range(1, 20))
    noise = np.random.default_rng(seed).standard_normal(num_samples)
    return (0.15 * voice * (0.05 + np.clip(np.sin(2 * np.pi * 2 * t), 0, 1)) + 0.002 * noise) * 0.9


def pcm16(x: np.ndarray) -> np.ndarray:
    """Rounded to int16; [n, channels] stays so."""
    return np.clip(np.round(np.asarray(x) * 32768), -32768, 32767).astype("<i2")


def pcm24(x: np.ndarray) -> bytes:
    """Rounded to 24 bits, packed in 3 bytes."""
    values = np.clip(np.round(np.asarray(x) * 2**23), -(2**23), 2**23 - 1).astype("<i4")
    return values.reshape(-1, 1).view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def chunk(name: bytes, payload: bytes, size: int | None = None, pad: bool = True) -> bytes:
    """One chunk; `size` overrides the stated length, `pad=False` leaves odd ones odd."""
    padding = b"\0" if pad and len(payload) % 2 else b""
    return name + struct.pack("<I", len(payload) if size is None else size) + payload + padding


def fmt(tag: int, bits: int, *, rate: int = 16_000, channels: int = 1, extra: bytes = b"") -> bytes:
    """A format chunk."""
    frame = channels * bits // 8
    return chunk(
        b"fmt ",
        struct.pack("<HHIIHH", tag, channels, rate, min(rate * frame, 2**32 - 1), frame, bits) + extra,
    )


def fmt_extensible(tag: int, bits: int, *, valid: int | None = None, rate: int = 16_000, channels: int = 1) -> bytes:
    """A format chunk of WAVE_FORMAT_EXTENSIBLE."""
    extra = struct.pack("<HHIH", 22, bits if valid is None else valid, 0, tag) + GUID_TAIL
    return fmt(0xFFFE, bits, rate=rate, channels=channels, extra=extra)


def riff(*chunks: bytes, size: int | None = None, name: bytes = b"RIFF") -> bytes:
    """The whole file."""
    body = b"WAVE" + b"".join(chunks)
    return name + struct.pack("<I", len(body) if size is None else size) + body


def wav16(x: np.ndarray, rate: int = 16_000) -> bytes:
    """An ordinary PCM16 wav of float samples [n] or [n, channels]."""
    channels = 1 if x.ndim == 1 else x.shape[1]
    return riff(fmt(1, 16, rate=rate, channels=channels), chunk(b"data", pcm16(x).tobytes()))


def save(folder: Path, data: bytes, name: str = "x.wav") -> Path:
    """Write a file."""
    path = folder / name
    path.write_bytes(data)
    return path


@contextmanager
def pipe_of(data: bytes) -> Iterator[int]:
    """File descriptor of the reading end of a pipe that gets `data` and then ends."""
    reading, writing = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(writing, "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield reading
    finally:
        os.close(reading)
        thread.join()


@contextmanager
def stdin_of(data: bytes) -> Iterator[None]:
    """Standard input is a pipe that gets `data` and then ends."""
    with (
        pipe_of(data) as reading,
        os.fdopen(reading, "rb", buffering=0, closefd=False) as file,
        mock.patch("sys.stdin", file),
    ):
        yield


def read(source: str | Path, **options: int | str) -> tuple[np.ndarray, AudioReader]:
    """All samples [n, channels], and the reader for what it says."""
    with open_audio(source, **options) as reader:  # pyright: ignore[reportArgumentType]
        blocks = list(reader)
    assert all(block.dtype == np.float32 and len(block) > 0 for block in blocks)
    return np.concatenate([np.zeros((0, reader.num_channels), np.float32), *blocks]), reader
