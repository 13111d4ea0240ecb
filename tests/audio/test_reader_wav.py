"""wav through `open_audio`: every encoding and every wrong header, from files and from live pipes."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.io.wavfile
import soundfile

from diarnorm.audio.reader import AudioError, AudioReader, open_audio
from tests.wavbytes import (
    chunk,
    fmt,
    fmt_extensible,
    pcm16,
    pcm24,
    read,
    riff,
    save,
    speechlike,
    stdin_of,
    wav16,
)

X = speechlike(48_000)
RAW = pcm16(X).tobytes()
X16 = pcm16(X) / np.float32(32768)
FORM = fmt(1, 16)
BASE = wav16(X)

# --- wav: encodings


SUBTYPES = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"]
FORMATS = [
    (form, subtype, channels) for form in ("WAV", "WAVEX", "RF64") for subtype in SUBTYPES for channels in (1, 2)
]
COMPRESSED = [("WAV", "IMA_ADPCM", 1), ("WAV", "IMA_ADPCM", 2), ("WAV", "MS_ADPCM", 2), ("WAV", "GSM610", 1)]


@pytest.mark.parametrize(("form", "subtype", "num_channels"), FORMATS + COMPRESSED)
def test_wavs_equal_libsndfile(form: str, subtype: str, num_channels: int, tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    samples = np.stack([X, X[::-1]], axis=1)[:, :num_channels]
    soundfile.write(path, samples, 22_050, format=form, subtype=subtype)
    expected, _ = soundfile.read(path, dtype="float32", always_2d=True)
    found, reader = read(path)
    np.testing.assert_array_equal(found, expected)
    assert (reader.sample_rate, reader.num_channels, reader.num_samples) == (22_050, num_channels, len(found))
    assert reader.warnings == []


def test_pcm16_equals_scipy(tmp_path: Path) -> None:
    path = save(tmp_path, BASE)
    rate, counts = scipy.io.wavfile.read(path)
    found, reader = read(path)
    assert reader.sample_rate == rate
    np.testing.assert_array_equal(found[:, 0] * 32768, counts)


U8 = np.clip(np.round(X * 128 + 128), 0, 255).astype("u1").tobytes()
S24_IN_32 = (np.round(X * 2**23).astype("<i4") << 8).tobytes()


@pytest.mark.parametrize(
    ("form", "data", "step"),
    [
        (fmt(1, 8), U8, 2**-7),
        (fmt(1, 16), RAW, 2**-15),
        (fmt(1, 24), pcm24(X), 2**-23),
        (fmt_extensible(1, 32, valid=24), S24_IN_32, 2**-23),
        (fmt(1, 32), np.round(X * 2**31).astype("<i4").tobytes(), 2**-24),
        (fmt(3, 32, extra=b"\0\0"), X.astype("<f4").tobytes(), 2**-24),
        (fmt(3, 64, extra=b"\0\0"), X.astype("<f8").tobytes(), 2**-24),
    ],
)
def test_samples_are_right_to_half_a_step(form: bytes, data: bytes, step: float, tmp_path: Path) -> None:
    found, _ = read(save(tmp_path, riff(form, chunk(b"data", data))))
    assert np.abs(found[:, 0] - X).max() <= 0.5 * step + 1e-9


def test_extensible_24_bit_stereo_at_48_khz(tmp_path: Path) -> None:
    x = speechlike(48_000, 48_000)
    both = np.stack([x, -0.5 * x], axis=1)
    found, reader = read(
        save(tmp_path, riff(fmt_extensible(1, 24, rate=48_000, channels=2), chunk(b"data", pcm24(both))))
    )
    assert (reader.sample_rate, reader.num_channels) == (48_000, 2)
    np.testing.assert_allclose(found, both, atol=2**-24 + 1e-9)


def test_floats_above_one_are_kept_and_full_scale_is_minus_one(tmp_path: Path) -> None:
    loud = (20 * X).astype("<f4")
    found, _ = read(save(tmp_path, riff(fmt(3, 32, extra=b"\0\0"), chunk(b"data", loud.tobytes()))))
    assert np.abs(found).max() > 5
    np.testing.assert_array_equal(found[:, 0], loud)
    found, _ = read(save(tmp_path, wav16(np.array([-1.0, 1.0]))))
    assert found[:, 0].tolist() == [-1.0, 32767 / 32768]


# --- wav: headers of the field, from a file and from a pipe

LIST = chunk(b"LIST", b"INFOISFT\x0e\0\0\0Lavf60.16.100\0")
NO_LENGTH = "the wav header does not tell the length"
HEADERS = {
    "plain": (BASE, 1.0, ""),
    "ffmpeg": (riff(FORM, LIST, chunk(b"data", RAW, 0xFFFFFFFF), size=0xFFFFFFFF), 1.0, NO_LENGTH),
    "sox": (riff(FORM, chunk(b"data", RAW, 0x7FFFF000), size=0x7FFFF024), 1.0, NO_LENGTH),
    "size 0": (riff(FORM, chunk(b"data", RAW, 0), size=0), 1.0, NO_LENGTH),
    "size 0 of Python's wave": (riff(FORM, chunk(b"data", RAW, 0), size=36), 1.0, NO_LENGTH),
    "cut": (
        riff(FORM, chunk(b"data", RAW[: len(RAW) // 2], len(RAW)), size=36 + len(RAW)),
        0.5,
        "promises 48000 samples, the data end after 24000",
    ),
    "cut inside a sample": (
        riff(FORM, chunk(b"data", RAW[: len(RAW) // 2 + 1], len(RAW), pad=False), size=36 + len(RAW)),
        0.5,
        "promises 48000 samples, the data end after 24000",
    ),
    "stray byte": (riff(FORM, chunk(b"data", RAW + b"\1", pad=False)), 1.0, "no whole sample: ignored"),
    "stray byte, no length": (
        riff(FORM, chunk(b"data", RAW + b"\1", 0xFFFFFFFF, pad=False)), 1.0, NO_LENGTH,
    ),
    "odd chunks": (
        riff(
            FORM,
            chunk(b"LIST", b"INFOICMT\x03\0\0\0abc"),
            chunk(b"data", RAW),
            chunk(b"LGWV", b"x" * 33),
            chunk(b"id3 ", b"ID3" + b"\xff" * 200),
        ),
        1.0,
        "",
    ),
    "odd chunk without padding": (
        riff(FORM, chunk(b"LIST", b"INFOICMT\x03\0\0\0abc", pad=False), chunk(b"data", RAW)), 1.0, "",
    ),
    "big chunk before": (riff(FORM, chunk(b"pad ", bytes(130_308)), chunk(b"data", RAW)), 1.0, ""),
    "extensible": (riff(fmt_extensible(1, 16), chunk(b"data", RAW)), 1.0, ""),
    "no samples": (riff(FORM, chunk(b"data", b"")), 0.0, ""),
}  # fmt: skip


def check_header(found: np.ndarray, reader: AudioReader, share: float, warning: str) -> None:
    np.testing.assert_array_equal(found[:, 0], X16[: int(share * len(X16))])
    if warning:
        assert len(reader.warnings) == 1
        assert warning in reader.warnings[0]
    else:
        assert reader.warnings == []


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_files(name: str, tmp_path: Path) -> None:
    data, share, warning = HEADERS[name]
    found, reader = read(save(tmp_path, data))
    check_header(found, reader, share, warning)
    assert reader.num_samples == len(found)


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_pipes(name: str) -> None:
    data, share, warning = HEADERS[name]
    with stdin_of(data):
        found, reader = read("-", block_samples=1000)
    check_header(found, reader, share, warning)
    assert reader.name == "stdin"
    assert reader.num_samples in (None, 48_000, 0)
    assert (reader.num_samples is None) == (warning == NO_LENGTH)


def test_libsndfile_alone_would_lose_a_file_of_size_0(tmp_path: Path) -> None:
    path = save(tmp_path, HEADERS["size 0"][0])
    lost, _ = soundfile.read(path)
    assert len(lost) == 0
    assert len(read(path)[0]) == 48_000


def test_data_beyond_the_stated_length_is_mentioned(tmp_path: Path) -> None:
    zeros = bytes(100_000)
    found, reader = read(save(tmp_path, riff(FORM, chunk(b"data", RAW)) + zeros))
    assert len(found) == 48_000
    assert reader.warnings == ["100000 bytes after the data the wav header tells of: ignored"]
    assert read(save(tmp_path, riff(FORM, chunk(b"data", RAW)) + bytes(100)))[1].warnings == []
    assert read(save(tmp_path, riff(FORM, chunk(b"data", RAW), chunk(b"id3 ", zeros))))[1].warnings == []


def test_a_real_shell_pipe_and_a_named_pipe(tmp_path: Path) -> None:
    path = save(tmp_path, BASE)
    code = (
        "import sys; from diarnorm.audio.reader import open_audio\n"
        "with open_audio(sys.argv[1]) as reader: print(sum(len(b) for b in reader), reader.warnings)"
    )
    shell = 'cat "$1" | "$2" -c "$3" - && "$2" -c "$3" <(cat "$1")'
    run = subprocess.run(
        ["bash", "-c", shell, "bash", str(path), sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (run.stdout, run.stderr) == ("48000 []\n48000 []\n", "")


@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
def test_ffmpeg_writing_into_a_pipe(tmp_path: Path) -> None:
    command = ["ffmpeg", "-v", "quiet", "-i", str(save(tmp_path, BASE)), "-f", "wav", "-"]
    with stdin_of(subprocess.run(command, capture_output=True, check=True).stdout):
        check_header(*read("-"), 1.0, NO_LENGTH)


@pytest.mark.skipif(shutil.which("sox") is None, reason="sox is not installed")
def test_sox_writing_into_a_pipe(tmp_path: Path) -> None:
    command = ["sox", str(save(tmp_path, BASE)), "-t", "wav", "-"]
    with stdin_of(subprocess.run(command, capture_output=True, check=True).stdout):
        found, _ = read("-")
    np.testing.assert_array_equal(found[:, 0], X16)


# --- pipes are live


@pytest.mark.parametrize("raw", [False, True])
def test_blocks_come_out_before_the_pipe_ends(raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    first_seen = threading.Event()
    seen_in_time: list[bool] = []
    head = b"" if raw else riff(FORM, chunk(b"data", b"", 0xFFFFFFFF), size=0xFFFFFFFF)

    def write() -> None:
        with os.fdopen(writing, "wb", buffering=0) as file:
            file.write(head[:20])
            file.write(head[20:] + RAW[:3201])  # 1600 samples and a half
            seen_in_time.append(first_seen.wait(timeout=20))
            file.write(RAW[3201:])

    thread = threading.Thread(target=write)
    thread.start()
    with os.fdopen(reading, "rb", buffering=0) as file:
        monkeypatch.setattr("sys.stdin", file)
        options = {"rate": 16_000, "format": "s16le"} if raw else {}
        found = []
        with open_audio("-", **options) as reader:  # pyright: ignore[reportArgumentType]
            for block in reader:
                found.append(block)
                if sum(map(len, found)) >= 1600:
                    first_seen.set()
    thread.join()
    assert seen_in_time == [True]
    np.testing.assert_array_equal(np.concatenate(found)[:, 0], X16)


@pytest.mark.parametrize(("name", "dtype"), [("s16le", "<i2"), ("f32le", "<f4")])
@pytest.mark.parametrize("stray", [0, 1])
def test_raw_samples(name: str, dtype: str, stray: int, tmp_path: Path) -> None:
    samples = pcm16(X) if dtype == "<i2" else X.astype(dtype)
    expected = X16 if dtype == "<i2" else samples
    data = samples.tobytes() + b"\1" * stray
    path = save(tmp_path, data, "x.raw")
    for source, num_samples in (("-", None), (path, 48_000)):
        with stdin_of(data):
            found, reader = read(source, rate=8000, format=name, block_samples=999)
        np.testing.assert_array_equal(found[:, 0], expected)
        assert (reader.sample_rate, reader.num_channels, reader.num_samples) == (8000, 1, num_samples)
        size = len(data)
        assert reader.warnings == [f"the last 1 of {size} bytes are no whole sample: ignored"] * stray


def test_raw_samples_may_be_none_at_all() -> None:
    with stdin_of(b""):
        found, reader = read("-", rate=16_000, format="s16le")
    assert (found.shape, reader.warnings) == ((0, 1), [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 16_000}, "raw samples need both"),
        ({"format": "s16le"}, "raw samples need both"),
        ({"rate": 16_000, "format": "s24be"}, "format 's24be' of raw samples; choose from s16le, f32le"),
        ({"block_samples": 0}, "block_samples 0; 1 or more"),
    ],
)
def test_options_that_do_not_fit(options: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        open_audio(save(tmp_path, BASE), **options)


def test_a_wav_declared_raw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"x\.wav: starts with a wav header; leave out rate and format"):
        open_audio(save(tmp_path, BASE), rate=16_000, format="s16le")
