"""The header of a wav, read once from front to back, so that it works on a pipe as on a file.

Understood: RIFF, RF64 and BW64; PCM of 8, 16, 24 and 32 bits, float of 32 and 64 bits, mu-law and A-law,
plain or as WAVE_FORMAT_EXTENSIBLE; any chunk before the samples. A program that writes a wav into a pipe
cannot know the length and leaves 0, 0x7FFFF000 (sox), 0xFFFFFFFF (ffmpeg) or another huge number in the
header: `PcmLayout.data_bytes` is None then, and the samples go on to the end of the input.

Sources: Microsoft "Multiple channel audio data and WAVE files" (2007); EBU Tech 3306 (RF64).
"""

import struct
from dataclasses import dataclass

from diarnorm.audio.bytestream import AudioError, ByteStream
from diarnorm.audio.pcm import ALAW, FLOAT_32, FLOAT_64, MULAW, PCM_S16, PCM_S24, PCM_S32, PCM_U8, Encoding

MIN_PIPE_BYTES = 0x7FFFF000
"""From here on a 32-bit size in a header is not believed unless a file really is that long."""
PLACEHOLDER_BYTES = (0x7FFFF000, 0xFFFFFFFF)
"""Sizes that sox and ffmpeg write when they do not know: never believed."""
MAX_FMT_BYTES = 4096
"""Longest format chunk that is read; real ones have 16 to 40 bytes."""
EXTENSIBLE = 0xFFFE
"""Format tag of WAVE_FORMAT_EXTENSIBLE: the encoding is in the first two bytes of the sub-format."""
SUBFORMAT_TAILS = (
    bytes.fromhex("000000001000800000aa00389b71"),  # KSDATAFORMAT_SUBTYPE_*
    bytes.fromhex("00002107d3118644c8c1ca000000"),  # the ambisonic B-format variants
)
NO_DATA = "wav without a data chunk: the input ends inside its header"
INTEGERS = {1: PCM_U8, 2: PCM_S16, 3: PCM_S24, 4: PCM_S32}
FLOATS = {4: FLOAT_32, 8: FLOAT_64}
ENCODINGS = {1: INTEGERS, 3: FLOATS, 6: {1: ALAW}, 7: {1: MULAW}}
"""Encoding by format tag and bytes per sample."""


class UnknownEncodingError(AudioError):
    """A wav whose samples are compressed or packed in a way this parser does not decode."""


@dataclass(frozen=True)
class PcmLayout:
    """How the samples lie in a wav or a raw stream from here on.

    Attributes: `encoding`, `sample_rate` (Hz), `num_channels`, `data_bytes` (None: to the end of the input)
    and `stated_bytes` (what the header says, believed or not; None without a header).
    """

    encoding: Encoding
    sample_rate: int
    num_channels: int
    data_bytes: int | None = None
    stated_bytes: int | None = None

    @property
    def frame_bytes(self) -> int:
        """Bytes of one sample of all channels."""
        return self.encoding.sample_bytes * self.num_channels


def is_wav(head: bytes) -> bool:
    """Whether these first bytes (12 or more) open a RIFF, RF64 or BW64 file."""
    return head[:4] in (b"RIFF", b"RF64", b"BW64")


def read_wav_header(stream: ByteStream) -> PcmLayout:
    """Consume the header up to the first sample.

    Raises:
        UnknownEncodingError: the samples are not PCM, float, mu-law or A-law.
        AudioError: not a wav, no samples, samples before their format, or a damaged header.
    """
    opening = stream.read_exactly(12)
    if len(opening) < 12:
        raise stream.error(NO_DATA)
    riff, riff_bytes, kind = struct.unpack("<4sI4s", opening)
    if kind != b"WAVE":
        raise stream.error(f"is a RIFF file of type {_printable(kind)!r}, not a wav")
    long_bytes, form = None, None
    while len(head := stream.read_exactly(8)) == 8:
        chunk, size = struct.unpack("<4sI", head)
        if not is_chunk_id(chunk):
            raise stream.error(f"damaged wav header: no chunk name at byte {stream.position - 8}")
        if chunk == b"data":
            stated = size if long_bytes is None or size != 0xFFFFFFFF else long_bytes
            return _start_of_data(stream, form, riff_bytes, stated)
        if chunk == b"fmt ":
            form = _read_format(stream, size)
        elif chunk == b"ds64" and riff != b"RIFF" and size >= 16:
            long_bytes = struct.unpack("<QQ", stream.read_exactly(16).ljust(16, b"\0"))[1]
            stream.skip(size - 16)
        else:
            stream.skip(size)
        _skip_padding(stream, size)
    raise stream.error(NO_DATA)


def _read_format(stream: ByteStream, size: int) -> tuple[Encoding, int, int]:
    """Encoding, rate and channels of a format chunk of `size` bytes."""
    body = stream.read_exactly(min(size, MAX_FMT_BYTES))
    stream.skip(size - len(body))
    if len(body) < 16:
        raise stream.error(f"damaged wav header: a format chunk of {len(body)} bytes, 16 are needed")
    tag, num_channels, rate, _, frame_bytes, bits = struct.unpack("<HHIIHH", body[:16])
    if tag == EXTENSIBLE and len(body) >= 40 and body[26:40] in SUBFORMAT_TAILS:
        tag = struct.unpack("<H", body[24:26])[0]
    if num_channels == 0:
        raise stream.error("damaged wav header: 0 channels")
    sample_bytes = -(-bits // 8)
    if frame_bytes % num_channels == 0 and frame_bytes // num_channels > sample_bytes:
        sample_bytes = frame_bytes // num_channels  # 24 bits in a container of 4 bytes
    encoding = ENCODINGS.get(tag, {}).get(sample_bytes)
    if encoding is None:
        raise UnknownEncodingError(
            f"{stream.name}: wav of format 0x{tag:04X} with {bits} bits cannot be decoded; "
            "pass it through: ffmpeg -i - -f wav -"
        )
    return encoding, rate, num_channels


def _start_of_data(stream: ByteStream, form: tuple[Encoding, int, int] | None, riff_bytes: int, size: int) -> PcmLayout:
    if form is None:
        raise stream.error("damaged wav header: the data chunk comes before the format chunk")
    known = _is_true_zero(stream, riff_bytes) if size == 0 else _is_believable(stream, size)
    return PcmLayout(*form, data_bytes=size if known else None, stated_bytes=size)


def _is_true_zero(stream: ByteStream, riff_bytes: int) -> bool:
    """Whether a data chunk of 0 bytes is empty: nothing follows, or a chunk that the file's size covers."""
    covered = stream.position < riff_bytes + 8 < MIN_PIPE_BYTES
    following = stream.peek(4)
    return not following or (covered and is_chunk_id(following))


def _is_believable(stream: ByteStream, size: int) -> bool:
    """Whether `size` is a length, not the mark of a writer that did not know it."""
    if size in PLACEHOLDER_BYTES or size >= 2**63:
        return False
    remaining = stream.remaining
    return size < MIN_PIPE_BYTES or (size >= 2**32 if remaining is None else size <= remaining)


def _skip_padding(stream: ByteStream, size: int) -> None:
    """Chunks of odd length are padded to an even one; some writers forget: a chunk's name is left alone."""
    if size % 2 and not stream.peek(1).isalnum():
        stream.skip(1)


def is_chunk_id(name: bytes) -> bool:
    """Whether these 4 bytes can name a chunk."""
    return len(name) == 4 and all(0x20 <= byte < 0x7F for byte in name) and name != b"    "


def _printable(name: bytes) -> str:
    return name.decode("latin-1").strip("\0 ")
