"""Headers of wavs: all forms, all the wrong lengths, and the broken ones."""

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diarnorm.audio.bytestream import AudioError, ByteStream
from diarnorm.audio.pcm import ALAW, FLOAT_32, FLOAT_64, MULAW, PCM_S16, PCM_S24, PCM_S32, PCM_U8, Encoding
from diarnorm.audio.wavstream import UnknownEncodingError, read_wav_header
from tests.wavbytes import chunk, fmt, fmt_extensible, pipe_of, riff, save

SAMPLES = bytes(range(100))


@contextmanager
def piped(data: bytes) -> Iterator[ByteStream]:
    """A stream on the reading end of a pipe that gets `data`."""
    with pipe_of(data) as reading:
        yield ByteStream(io.FileIO(reading, closefd=False), "stdin")


@contextmanager
def filed(data: bytes, folder: Path) -> Iterator[ByteStream]:
    """A stream on a regular file that holds `data`."""
    path = save(folder, data)
    stream = ByteStream(io.FileIO(path), str(path))
    try:
        yield stream
    finally:
        stream.close()


@pytest.mark.parametrize(
    ("form", "encoding"),
    [
        (fmt(1, 8), PCM_U8),
        (fmt(1, 16), PCM_S16),
        (fmt(1, 24), PCM_S24),
        (fmt(1, 32), PCM_S32),
        (fmt(3, 32, extra=b"\0\0"), FLOAT_32),
        (fmt(3, 64, extra=b"\0\0"), FLOAT_64),
        (fmt(6, 8, extra=b"\0\0"), ALAW),
        (fmt(7, 8, extra=b"\0\0"), MULAW),
        (fmt_extensible(1, 16), PCM_S16),
        (fmt_extensible(1, 32, valid=24), PCM_S32),
        (fmt_extensible(3, 32), FLOAT_32),
        (fmt_extensible(7, 8), MULAW),
        (chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 16000, 64000, 4, 24)), PCM_S32),  # 24 bits in 4 bytes
        (chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 16000, 0, 0, 16)), PCM_S16),  # frame size left out
        (chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 12)), PCM_S16),  # 12 bits in 2 bytes
    ],
)
def test_formats(form: bytes, encoding: Encoding, tmp_path: Path) -> None:
    with filed(riff(form, chunk(b"data", SAMPLES)), tmp_path) as stream:
        layout = read_wav_header(stream)
        assert layout.encoding is encoding
        assert (layout.sample_rate, layout.num_channels, layout.data_bytes) == (16000, 1, 100)
        assert stream.read_exactly(1000) == SAMPLES


FORM = fmt(1, 16)


@pytest.mark.parametrize(
    "before",
    [
        chunk(b"LIST", b"INFOISFT\x0e\0\0\0Lavf60.16.100\0"),
        chunk(b"LIST", b"INFOICMT\x03\0\0\0abc"),
        chunk(b"LIST", b"INFOICMT\x03\0\0\0abc", pad=False),
        chunk(b"LIST", b"INFOICMT\x03\0\0\0abc", pad=False) + b" ",
        chunk(b"pad ", bytes(130_308)),
        chunk(b"fact", b"\x32\0\0\0") + chunk(b"bext", bytes(602)) + chunk(b"junk", b""),
    ],
)
def test_chunks_before_the_samples_are_skipped(before: bytes, tmp_path: Path) -> None:
    data = riff(FORM, before, chunk(b"data", SAMPLES), chunk(b"id3 ", b"ID3" * 50))
    for opened in (filed(data, tmp_path), piped(data)):
        with opened as stream:
            layout = read_wav_header(stream)
            assert layout.data_bytes == 100
            assert stream.read_exactly(100) == SAMPLES


@pytest.mark.parametrize("stated", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFDB, 0xFFFFFFFF])
@pytest.mark.parametrize("riff_size", [0, 36, 0x7FFFF024, 0xFFFFFFFF])
def test_lengths_of_pipes_are_not_believed(stated: int, riff_size: int, tmp_path: Path) -> None:
    data = riff(FORM, chunk(b"data", SAMPLES, stated), size=riff_size)
    for opened in (filed(data, tmp_path), piped(data)):
        with opened as stream:
            layout = read_wav_header(stream)
            assert (layout.data_bytes, layout.stated_bytes) == (None, stated)
            assert stream.read_exactly(1000) == SAMPLES


@pytest.mark.parametrize("after", [b"", chunk(b"LIST", b"INFOICMT\x04\0\0\0abcd")])
def test_an_empty_data_chunk_is_empty(after: bytes, tmp_path: Path) -> None:
    data = riff(FORM, chunk(b"data", b""), after)
    for opened in (filed(data, tmp_path), piped(data)):
        with opened as stream:
            assert read_wav_header(stream).data_bytes == 0


@pytest.mark.parametrize(("stated", "expected"), [(3_000_000_000, 3_000_000_000), (0x7FFFF000, None)])
def test_a_huge_length_is_believed_where_the_file_has_it(stated: int, expected: int | None, tmp_path: Path) -> None:
    """Unless it is what sox writes into a pipe: a recording saved from there may be longer."""
    path = tmp_path / "big.wav"
    with path.open("wb") as file:
        file.write(riff(FORM, chunk(b"data", b"", stated)))
        file.truncate(3_100_000_000)  # a sparse file: takes no space
    stream = ByteStream(io.FileIO(path), str(path))
    assert read_wav_header(stream).data_bytes == expected
    stream.close()


@pytest.mark.parametrize("name", [b"RF64", b"BW64"])
@pytest.mark.parametrize(("stated", "expected"), [(100, 100), (0, None), (2**64 - 1, None)])
def test_rf64(name: bytes, stated: int, expected: int | None, tmp_path: Path) -> None:
    sizes = chunk(b"ds64", struct.pack("<QQQI", 0, stated, 50, 0))
    data = riff(sizes, FORM, chunk(b"data", SAMPLES, 0xFFFFFFFF), size=0xFFFFFFFF, name=name)
    for opened in (filed(data, tmp_path), piped(data)):
        with opened as stream:
            assert read_wav_header(stream).data_bytes == expected
            assert stream.read_exactly(1000) == SAMPLES


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"RIFF", "without a data chunk"),
        (riff(), "without a data chunk"),
        (riff(FORM), "without a data chunk"),
        (riff(FORM)[:-3], "a format chunk of 13 bytes"),
        (riff(FORM, chunk(b"LIST", b"abcd", 0xFFFFFFFF)), "without a data chunk"),
        (riff(chunk(b"data", SAMPLES), FORM), "the data chunk comes before the format chunk"),
        (riff(chunk(b"fmt ", b"\1\0\1\0"), chunk(b"data", SAMPLES)), "a format chunk of 4 bytes"),
        (riff(fmt(1, 16, channels=0), chunk(b"data", SAMPLES)), "0 channels"),
        (riff(FORM, b"\0\1\2\3\4\5\6\7" * 9), "no chunk name at byte 36"),
        (b"RIFF\x10\0\0\0AVI " + bytes(99), "a RIFF file of type 'AVI', not a wav"),
    ],
)
def test_broken_headers_name_path_and_reason(data: bytes, reason: str, tmp_path: Path) -> None:
    with filed(data, tmp_path) as stream, pytest.raises(AudioError) as caught:
        read_wav_header(stream)
    assert str(caught.value).startswith(f"{tmp_path / 'x.wav'}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", [fmt(0x11, 4), fmt(0x55, 0), fmt(1, 64), fmt(3, 16), fmt_extensible(0x161, 16)])
def test_encodings_of_other_decoders(form: bytes) -> None:
    with (
        piped(riff(form, chunk(b"data", SAMPLES))) as stream,
        pytest.raises(UnknownEncodingError, match="stdin: "),
    ):
        read_wav_header(stream)
