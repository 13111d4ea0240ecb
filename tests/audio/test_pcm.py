"""Decoded samples against libsndfile's and against the definition."""

import io

import numpy as np
import pytest
import soundfile

from diarnorm.audio import pcm


@pytest.mark.parametrize(
    ("subtype", "encoding"),
    [
        ("PCM_U8", pcm.PCM_U8),
        ("PCM_16", pcm.PCM_S16),
        ("PCM_24", pcm.PCM_S24),
        ("PCM_32", pcm.PCM_S32),
        ("FLOAT", pcm.FLOAT_32),
        ("DOUBLE", pcm.FLOAT_64),
        ("ULAW", pcm.MULAW),
        ("ALAW", pcm.ALAW),
    ],
)
def test_every_encoding_equals_libsndfile(subtype: str, encoding: pcm.Encoding) -> None:
    data = np.random.default_rng(0).integers(0, 256, 24 * 2000, dtype=np.uint8).tobytes()
    if encoding in (pcm.FLOAT_32, pcm.FLOAT_64):
        dtype = "<f4" if encoding is pcm.FLOAT_32 else "<f8"
        data = np.random.default_rng(0).standard_normal(4000).astype(dtype).tobytes()
    expected, _ = soundfile.read(
        io.BytesIO(data), dtype="float32", format="RAW", subtype=subtype, samplerate=8000, channels=1,
        endian="LITTLE",
    )  # fmt: skip
    decoded = encoding.decode(data)
    assert decoded.dtype == np.float32
    assert len(decoded) == len(data) // encoding.sample_bytes
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize("encoding", [pcm.MULAW, pcm.ALAW])
def test_companded_codes_are_all_right(encoding: pcm.Encoding) -> None:
    codes = np.arange(256, dtype=np.uint8).tobytes()
    subtype = "ULAW" if encoding is pcm.MULAW else "ALAW"
    expected, _ = soundfile.read(
        io.BytesIO(codes), dtype="int16", format="RAW", subtype=subtype, samplerate=8000, channels=1
    )
    np.testing.assert_array_equal(encoding.decode(codes) * 32768, expected)


def test_full_scale_is_minus_one() -> None:
    assert pcm.PCM_S16.decode(b"\x00\x80").item() == -1.0
    assert pcm.PCM_S16.decode(b"\xff\x7f").item() == 32767 / 32768
    assert pcm.PCM_S24.decode(b"\x00\x00\x80").item() == -1.0
    assert pcm.PCM_S32.decode(b"\x00\x00\x00\x80").item() == -1.0
    assert pcm.PCM_U8.decode(b"\x00\x80").tolist() == [-1.0, 0.0]


def test_doubles_beyond_float32_become_infinite() -> None:
    decoded = pcm.FLOAT_64.decode(np.array([1e300, -1e300, 2.5]).astype("<f8").tobytes())
    assert decoded.tolist() == [np.inf, -np.inf, 2.5]
