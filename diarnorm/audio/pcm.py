"""Sample encodings: how bytes become float32 samples in [-1, 1).

Integers are divided by their full scale (int16 -32768 -> exactly -1.0), floats are kept as they are, also
above 1.0. 32-bit integers and doubles are rounded to float32. mu-law and A-law follow ITU-T G.711.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, UInt8


@dataclass(frozen=True)
class Encoding:
    """One sample encoding: `name` in words, `sample_bytes` per sample and channel, `decode` from bytes."""

    name: str
    sample_bytes: int
    decode: Callable[[bytes], Float32[np.ndarray, " values"]]


def decode_u8(data: bytes) -> Float32[np.ndarray, " values"]:
    """Unsigned 8 bit, 128 is zero."""
    return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128


def decode_s16(data: bytes) -> Float32[np.ndarray, " values"]:
    """Signed 16 bit."""
    return np.frombuffer(data, "<i2").astype(np.float32) / 32768


def decode_s24(data: bytes) -> Float32[np.ndarray, " values"]:
    """Signed 24 bit in 3 bytes."""
    triples = np.frombuffer(data, np.uint8).reshape(-1, 3)
    padded = np.zeros((len(triples), 4), np.uint8)
    padded[:, 1:] = triples
    return decode_s32(padded.tobytes())


def decode_s32(data: bytes) -> Float32[np.ndarray, " values"]:
    """Signed 32 bit, also 20 or 24 valid bits in the upper part."""
    return np.frombuffer(data, "<i4").astype(np.float32) / np.float32(2**31)


def decode_f32(data: bytes) -> Float32[np.ndarray, " values"]:
    """IEEE float."""
    return np.frombuffer(data, "<f4").astype(np.float32)


def decode_f64(data: bytes) -> Float32[np.ndarray, " values"]:
    """IEEE double; beyond float32's range it becomes infinite."""
    with np.errstate(over="ignore"):
        return np.frombuffer(data, "<f8").astype(np.float32)


def _mulaw_table() -> Float64[np.ndarray, "256"]:
    code = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = _segments(code)
    magnitude = ((mantissa * 8 + 132) << exponent) - 132
    return np.where(code & 0x80, -magnitude, magnitude) / 32768


def _alaw_table() -> Float64[np.ndarray, "256"]:
    code = np.arange(256, dtype=np.uint8) ^ np.uint8(0x55)
    exponent, mantissa = _segments(code)
    magnitude = np.where(exponent == 0, mantissa * 16 + 8, (mantissa * 16 + 264) << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude) / 32768


def _segments(code: UInt8[np.ndarray, "256"]) -> tuple[np.ndarray, np.ndarray]:
    """Exponent and mantissa of G.711 codes, as int64."""
    return (code >> 4 & 7).astype(np.int64), (code & 15).astype(np.int64)


def _decode_table(table: Float64[np.ndarray, "256"]) -> Callable[[bytes], Float32[np.ndarray, " values"]]:
    values = table.astype(np.float32)
    return lambda data: values[np.frombuffer(data, np.uint8)]


PCM_U8 = Encoding("8-bit PCM", 1, decode_u8)
PCM_S16 = Encoding("16-bit PCM", 2, decode_s16)
PCM_S24 = Encoding("24-bit PCM", 3, decode_s24)
PCM_S32 = Encoding("32-bit PCM", 4, decode_s32)
FLOAT_32 = Encoding("32-bit float", 4, decode_f32)
FLOAT_64 = Encoding("64-bit float", 8, decode_f64)
MULAW = Encoding("mu-law", 1, _decode_table(_mulaw_table()))
ALAW = Encoding("A-law", 1, _decode_table(_alaw_table()))

RAW_FORMATS = {"s16le": PCM_S16, "f32le": FLOAT_32}
"""Headerless samples that can be read, by the name ffmpeg gives them."""
