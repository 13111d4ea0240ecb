"""Audio in: files and pipes as float32 blocks at their own rate, with what is odd about them said once.

wav is read by `wavstream`, the same way from a file and from a pipe; flac, ogg, opus, mp3 and the rest of
what libsndfile knows are read from files by soundfile. Memory does not grow with the length. `Mono16k` turns
the blocks into what the model hears.
"""

import os
import shlex
from collections.abc import Callable, Iterator
from types import TracebackType

import numpy as np
import soundfile
from jaxtyping import Float32

from diarnorm.audio.bytestream import STDIN, AudioError, ByteStream, open_bytes
from diarnorm.audio.filetype import is_adts, looks_like
from diarnorm.audio.mono import Mono16k, check_channels, check_rate
from diarnorm.audio.pcm import RAW_FORMATS, Encoding
from diarnorm.audio.wavstream import PcmLayout, UnknownEncodingError, is_chunk_id, is_wav, read_wav_header

__all__ = ["RAW_FORMATS", "STDIN", "AudioError", "AudioReader", "Mono16k", "open_audio", "read_mono"]

BLOCK_SAMPLES = 16_384
"""Longest block; a pipe gives shorter ones, as they arrive."""
DECODE_SAMPLES = 4096
"""Samples asked from libsndfile at a time, always: the last bit of an MP3 depends on it."""
MP3_SHARE = 0.98
"""An MP3 without a table of contents is only estimated in length: this share must be there, or it is cut."""
TAG_BYTES = 4096
"""Tags at the end of an MP3 that are no audio."""
HEAD_BYTES = 512
"""Bytes that are looked at to tell what a file is."""
MAX_SAMPLES = 2**62
"""A length from here on is libsndfile's mark for an unknown one."""
JUNK_BYTES = 65_536
"""This much after the end of a wav's data, unless it is a chunk, is reported."""

Blocks = Iterator[Float32[np.ndarray, "samples channels"]]


class AudioReader:
    """Blocks of one input, to be read once, front to back; closes with the context.

    Attributes:
        name: path, or "stdin".
        sample_rate: Hz.
        num_channels: columns of a block.
        num_samples: per channel as far as the input tells before it is read, else None; a guess for some MP3.
        encoding: in words.
        warnings: what is odd about the input; complete once all blocks are read.
    """

    def __init__(
        self,
        name: str,
        *,
        sample_rate: int,
        num_channels: int,
        num_samples: int | None,
        encoding: str,
        close: Callable[[], None],
    ):
        try:
            check_rate(sample_rate)
            check_channels(num_channels)
        except ValueError as error:
            raise AudioError(f"{name}: {error}") from error
        self.name = name
        self.sample_rate = sample_rate
        self.num_channels = num_channels
        self.num_samples = num_samples
        self.encoding = encoding
        self.warnings: list[str] = []
        self.blocks: Blocks = iter(())
        self._close = close

    def __iter__(self) -> Blocks:
        """Float32 blocks [samples, channels] at the input's rate; full scale is 1."""
        return self.blocks

    def __enter__(self) -> "AudioReader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self._close()


def open_audio(
    source: str | os.PathLike[str],
    *,
    rate: int | None = None,
    format: str | None = None,  # noqa: A002 - the word every audio tool has for it
    block_samples: int = BLOCK_SAMPLES,
) -> AudioReader:
    """Open a file, or standard input for `"-"`.

    Args:
        source: path of a wav, flac, ogg, opus, mp3 ...; a pipe carries wav, or raw samples.
        rate: Hz, with `format` only.
        format: "s16le" or "f32le": the input is headerless mono samples.
        block_samples: longest block.

    Raises:
        AudioError: the input cannot be read as audio.
        ValueError: `rate` and `format` do not fit.
    """
    if (rate is None) != (format is None):
        raise ValueError(f"rate {rate} and format {format}: raw samples need both, a file with a header neither")
    if format is not None and format not in RAW_FORMATS:
        raise ValueError(f"format {format!r} of raw samples; choose from {', '.join(RAW_FORMATS)}")
    if block_samples < 1:
        raise ValueError(f"block_samples {block_samples}; 1 or more is needed")
    stream = open_bytes(source)
    try:
        if format is not None and rate is not None:
            return _open_raw(stream, RAW_FORMATS[format], rate, block_samples)
        return _open_with_header(stream, block_samples)
    except BaseException:
        stream.close()
        raise


def read_mono(source: str | os.PathLike[str]) -> tuple[Float32[np.ndarray, " samples"], list[str]]:
    """All samples at 16 kHz, as a stream gets them, and what is odd about the input.

    Raises:
        AudioError: the input cannot be read as audio.
    """
    with open_audio(source) as reader:
        mono = Mono16k(reader.sample_rate)
        samples = np.concatenate([*(mono.push(block) for block in reader), mono.finish()])
        return samples, [*reader.warnings, *mono.warnings]


def _open_raw(stream: ByteStream, encoding: Encoding, rate: int, block_samples: int) -> AudioReader:
    if is_wav(stream.peek(12)):
        raise stream.error("starts with a wav header; leave out rate and format")
    return _pcm_reader(stream, PcmLayout(encoding, rate, num_channels=1), block_samples)


def _open_with_header(stream: ByteStream, block_samples: int) -> AudioReader:
    head = stream.peek(HEAD_BYTES if stream.size is not None else 12)
    if not head:
        raise stream.error("is empty (0 bytes)")
    if not is_wav(head):
        return _open_soundfile(stream, head, block_samples)
    try:
        layout = read_wav_header(stream)
    except UnknownEncodingError:
        if stream.size is None:
            raise
        return _open_soundfile(stream, head, block_samples)
    return _pcm_reader(stream, layout, block_samples)


def _pcm_reader(stream: ByteStream, layout: PcmLayout, block_samples: int) -> AudioReader:
    lengths = [length for length in (layout.data_bytes, stream.remaining) if length is not None]
    reader = AudioReader(
        stream.name,
        sample_rate=layout.sample_rate,
        num_channels=layout.num_channels,
        num_samples=min(lengths) // layout.frame_bytes if lengths else None,
        encoding=f"{'raw' if layout.stated_bytes is None else 'wav'} {layout.encoding.name}",
        close=stream.close,
    )
    reader.blocks = _read_pcm(stream, layout, block_samples, reader.warnings)
    return reader


def _read_pcm(stream: ByteStream, layout: PcmLayout, block_samples: int, warnings: list[str]) -> Blocks:
    """Decode until the stated length or the end of the input, whichever comes first."""
    start, pending = stream.position, b""
    while (limit := _next_bytes(layout, stream.position - start, block_samples)) > 0:
        data = stream.read_available(limit)
        if not data:
            break
        pending += data
        if whole := len(pending) // layout.frame_bytes * layout.frame_bytes:
            yield layout.encoding.decode(pending[:whole]).reshape(-1, layout.num_channels)
            pending = pending[whole:]
    warnings += _end_warnings(stream, layout, stream.position - start)


def _next_bytes(layout: PcmLayout, num_read: int, block_samples: int) -> int:
    """Bytes of the next block, fewer where the stated length ends."""
    block_bytes = block_samples * layout.frame_bytes
    return block_bytes if layout.data_bytes is None else min(block_bytes, layout.data_bytes - num_read)


def _end_warnings(stream: ByteStream, layout: PcmLayout, num_bytes: int) -> list[str]:
    """At most one line on how the samples ended after `num_bytes`."""
    num_samples, stray = divmod(num_bytes, layout.frame_bytes)
    if layout.stated_bytes is not None and layout.data_bytes is None:
        return [
            f"the wav header does not tell the length ({layout.stated_bytes} bytes): "
            f"read to the end, {num_samples} samples"
        ]
    if layout.data_bytes is not None and num_bytes < layout.data_bytes:
        promised = layout.data_bytes // layout.frame_bytes
        return [f"the wav header promises {promised} samples, the data end after {num_samples}"]
    if stray:
        return [f"the last {stray} of {num_bytes} bytes are no whole sample: ignored"]
    if (stream.remaining or 0) > JUNK_BYTES and not is_chunk_id(stream.peek(4)):
        return [f"{stream.remaining} bytes after the data the wav header tells of: ignored"]
    return []


def _open_soundfile(stream: ByteStream, head: bytes, block_samples: int) -> AudioReader:
    kind = looks_like(head)
    if stream.size is None:
        raise stream.error(f"looks like {kind}; a pipe carries wav: ... | ffmpeg -i - -f wav - | diarnorm ...")
    os.lseek(stream.fileno(), 0, os.SEEK_SET)
    try:
        if is_adts(head):
            raise soundfile.SoundFileError  # libsndfile would hunt for MP3 frames in it
        file = soundfile.SoundFile(stream.fileno(), closefd=False)
    except soundfile.SoundFileError as error:
        raise stream.error(f"looks like {kind} and cannot be read; {conversion(stream.name)}") from error
    try:
        return _soundfile_reader(stream, file, block_samples)
    except BaseException:
        file.close()
        raise


def conversion(name: str) -> str:
    """Advice for a file in a format that is not read."""
    return f"convert it with: ffmpeg -i {shlex.quote(name)} -ar 16000 -ac 1 out.wav"


def _soundfile_reader(stream: ByteStream, file: soundfile.SoundFile, block_samples: int) -> AudioReader:
    def close() -> None:
        file.close()
        stream.close()

    reader = AudioReader(
        stream.name,
        sample_rate=file.samplerate,
        num_channels=file.channels,
        num_samples=file.frames if 0 <= file.frames < MAX_SAMPLES else None,
        encoding=f"{file.format.lower()} {file.subtype}",
        close=close,
    )
    reader.blocks = _read_soundfile(stream, file, reader, block_samples)
    return reader


def _read_soundfile(stream: ByteStream, file: soundfile.SoundFile, reader: AudioReader, block_samples: int) -> Blocks:
    """Decode block by block; a damaged or cut file ends where decoding fails, with a warning."""
    num_samples = 0
    try:
        while len(block := file.read(DECODE_SAMPLES, dtype="float32", always_2d=True)) > 0:
            num_samples += len(block)
            yield from (block[start : start + block_samples] for start in range(0, len(block), block_samples))
    except soundfile.SoundFileError as error:
        if num_samples == 0:
            raise AudioError(f"{reader.name}: {reader.encoding} cannot be decoded: damaged") from error
    is_mp3 = "MPEG" in reader.encoding
    seconds = f"{num_samples / reader.sample_rate:.3f} s"
    if reader.num_samples is not None and num_samples < (MP3_SHARE if is_mp3 else 1) * reader.num_samples:
        reader.warnings.append(
            f"damaged or cut: {num_samples} of {reader.num_samples} samples could be decoded, {seconds}"
        )
    elif is_mp3 and stream.size is not None:
        unread = stream.size - os.lseek(stream.fileno(), 0, os.SEEK_CUR)
        if unread > (1 - MP3_SHARE) * stream.size + TAG_BYTES:
            reader.warnings.append(
                f"MP3 of unclear length: {unread} of {stream.size} bytes are left after {seconds}; "
                f"{conversion(stream.name)}"
            )
