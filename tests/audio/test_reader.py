"""Files of all formats in blocks of any length, in bounded memory, and what is refused in which words."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from diarnorm.audio.reader import AudioError, Mono16k, open_audio, read_mono
from tests.wavbytes import chunk, fmt, pcm16, read, riff, save, speechlike, stdin_of, wav16

SECONDS = 3
X = speechlike(SECONDS * 16_000)
RAW = pcm16(X).tobytes()
X16 = pcm16(X) / np.float32(32768)
FORM = fmt(1, 16)
BASE = wav16(X)


def to_mono(samples: np.ndarray, rate: int) -> np.ndarray:
    stream = Mono16k(rate)
    return np.concatenate([stream.push(samples), stream.finish()])


def test_a_whole_file_at_once(tmp_path: Path) -> None:
    samples, warnings = read_mono(save(tmp_path, BASE))
    np.testing.assert_array_equal(samples, X16)
    assert (samples.dtype, warnings) == (np.float32, [])
    broken = np.stack([X16, X16], axis=1)
    broken[100] = np.nan
    soundfile.write(tmp_path / "broken.wav", broken, 16_000, subtype="FLOAT")
    samples, warnings = read_mono(tmp_path / "broken.wav")
    np.testing.assert_array_equal(np.flatnonzero(samples != X16), [100])
    assert samples[100] == 0
    assert warnings[0].startswith("samples not finite or beyond 1e+06: 2 replaced by 0, the first at 0.006 s")
    soundfile.write(tmp_path / "phone.wav", X16[::2], 8000, subtype="PCM_16")
    assert len(read_mono(tmp_path / "phone.wav")[0]) == len(X16)


# --- the other formats


@pytest.mark.parametrize(
    ("format_", "subtype", "tolerance"),
    [
        ("FLAC", "PCM_16", 0.0),
        ("FLAC", "PCM_24", 0.0),
        ("OGG", "VORBIS", 0.05),
        ("OGG", "OPUS", 0.1),
        ("MP3", "MPEG_LAYER_III", 0.05),
        ("AIFF", "PCM_16", 0.0),
        ("W64", "FLOAT", 0.0),
        ("AU", "ULAW", 0.0),
        ("CAF", "PCM_16", 0.0),
    ],
)
@pytest.mark.parametrize("name", ["x.bin", "x.raw", "naïve-日本 k=v,1#%d.wav"])
def test_other_formats_equal_libsndfile(
    format_: str, subtype: str, tolerance: float, name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    samples = np.stack([X, -X], axis=1)
    soundfile.write(target := io.BytesIO(), samples, 16_000, format=format_, subtype=subtype)
    path.write_bytes(target.getvalue())
    with soundfile.SoundFile(io.BytesIO(path.read_bytes())) as file:
        expected = file.read(dtype="float32", always_2d=True)
    found, reader = read(path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7 if format_ == "MP3" else 0)
    assert (reader.sample_rate, reader.num_channels, reader.num_samples) == (16_000, 2, len(found))
    assert reader.warnings == []
    if tolerance:
        assert np.abs(found[:48_000, 0] - X).max() < tolerance


@pytest.mark.parametrize(("format_", "subtype"), [("FLAC", "PCM_16"), ("MP3", "MPEG_LAYER_III")])
def test_a_file_cut_in_the_middle_gives_what_is_there(format_: str, subtype: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    soundfile.write(path, X, 16_000, format=format_, subtype=subtype)
    whole, _ = read(path)
    data = path.read_bytes()
    found, reader = read(save(tmp_path, data[: len(data) * 2 // 3]), block_samples=1000)
    assert 20_000 < len(found) < 40_000
    np.testing.assert_array_equal(found, whole[: len(found)])
    assert reader.warnings == [
        f"damaged or cut: {len(found)} of 48000 samples could be decoded, {len(found) / 16_000:.3f} s"
    ]


def test_an_mp3_without_a_table_of_contents_is_not_shortened_silently(tmp_path: Path) -> None:
    """libsndfile guesses its length from the first frame and stops there."""
    path = tmp_path / "x"
    soundfile.write(path, X, 16_000, format="MP3", subtype="MPEG_LAYER_III")
    data = path.read_bytes()
    contents = data.index(b"\xff\xf3", 4)  # the first frame holds the number of frames
    assert b"Info" in data[:contents] or b"Xing" in data[:contents]
    for joined in (data[contents:], data + data):
        found, reader = read(save(tmp_path, joined))
        assert 20_000 < len(found) <= 48_000
        assert len(reader.warnings) == 1
        assert f"bytes are left after {len(found) / 16_000:.3f} s; convert it with: ffmpeg" in reader.warnings[0]
    assert read(path)[1].warnings == read(save(tmp_path, data + bytes(128)))[1].warnings == []


# --- any block, any length, the same samples


@pytest.mark.parametrize("format_", ["WAV", "FLAC", "OGG", "MP3"])
def test_the_length_of_blocks_changes_nothing(format_: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    soundfile.write(path, np.stack([X, X[::-1]], axis=1), 44_100, format=format_)
    whole, reader = read(path, block_samples=10**6)
    mono = to_mono(whole, reader.sample_rate)
    for block_samples in (777, 16_384):
        stream = Mono16k(44_100)
        with open_audio(path, block_samples=block_samples) as blocks:
            parts = [stream.push(block) for block in blocks]
        np.testing.assert_array_equal(np.concatenate([*parts, stream.finish()]), mono)


@pytest.mark.parametrize("num_samples", [0, 1, 2, 159, 160, 161, 399, 400, 401, 559, 560, 561])
def test_short_files(num_samples: int, tmp_path: Path) -> None:
    found, reader = read(save(tmp_path, wav16(X[:num_samples])))
    np.testing.assert_array_equal(found[:, 0], X16[:num_samples])
    assert reader.num_samples == num_samples


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 32_000, 44_100, 48_000, 96_000])
def test_one_sound_at_any_rate(rate: int, tmp_path: Path) -> None:
    """Sines in closed form below 3.4 kHz: what comes out is the same signal at the same times."""

    def sound(at_rate: int) -> np.ndarray:
        t = np.arange(2 * at_rate) / at_rate
        return sum(0.1 * np.sin(2 * np.pi * f * t + f) for f in (200.0, 1100.0, 3300.0)) * np.hanning(len(t))

    found, reader = read(save(tmp_path, wav16(sound(rate), rate)))
    mono = to_mono(found, reader.sample_rate)
    assert len(mono) == 32_000
    np.testing.assert_allclose(mono, sound(16_000), atol=2e-4)


# --- what is refused


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"this is not audio\n" * 50, r"looks like text .* ffmpeg -i \S+x\.wav -ar 16000 -ac 1 out\.wav"),
        (b"<!DOCTYPE html><html>" + b" " * 900, "looks like HTML"),
        (b"\xff\xf1\x50\x80\x1a\xdf\xfc" + bytes(range(256)) * 20, "looks like AAC .* ffmpeg -i"),
        (b"\0\0\0\x20ftypM4A " + bytes(900), r"looks like MP4/M4A \(AAC\) .* ffmpeg -i"),
        (b"fLaC" + bytes(900), "looks like FLAC .* ffmpeg -i"),
        (bytes(900), "no known kind of audio"),
        (riff(FORM), "without a data chunk"),
        (riff(chunk(b"data", RAW), FORM), "the data chunk comes before the format chunk"),
        (riff(fmt(0x161, 16), chunk(b"data", RAW)), "looks like wav of an unknown encoding"),
        (riff(fmt(1, 16, rate=0), chunk(b"data", RAW)), "sample rate 0 Hz; a whole number from 4000 to"),
        (riff(fmt(1, 16, rate=1), chunk(b"data", RAW)), "sample rate 1 Hz"),
        (riff(fmt(1, 16, rate=2**31), chunk(b"data", RAW)), "sample rate 2147483648 Hz"),
        (riff(fmt(1, 16, channels=65), chunk(b"data", RAW)), "65 channels; 1 to 64 are possible"),
        (riff(fmt(1, 16, channels=0), chunk(b"data", RAW)), "0 channels"),
    ],
)
def test_what_is_no_audio_is_refused_in_one_sentence(data: bytes, reason: str, tmp_path: Path) -> None:
    path = save(tmp_path, data)
    with pytest.raises(AudioError, match=reason) as caught:
        open_audio(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"nothing\.wav: no such file"):
        open_audio(tmp_path / "nothing.wav")
    with pytest.raises(AudioError, match="is a directory, not an audio file"):
        open_audio(str(tmp_path))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"stdin: is empty \(0 bytes\)"),
        (b"fLaC" + bytes(900), r"stdin: looks like FLAC; a pipe carries wav: .*ffmpeg -i - -f wav -"),
        (riff(fmt(0x11, 4), chunk(b"data", RAW)), "stdin: wav of format 0x0011 with 4 bits .*ffmpeg -i - -f"),
    ],
)  # fmt: skip
def test_pipes_that_carry_no_wav(data: bytes, reason: str) -> None:
    with stdin_of(data), pytest.raises(AudioError, match=reason):
        open_audio("-")


def test_a_flac_with_an_absurd_rate_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.flac"
    soundfile.write(path, X, 1000, format="FLAC")
    with pytest.raises(AudioError, match=r"x\.flac: sample rate 1000 Hz"):
        open_audio(path)


# --- memory

READ_AND_TELL_MEMORY = """
import resource, sys
from diarnorm.audio.reader import Mono16k, open_audio, read_mono
total = 0
with open_audio(sys.argv[1]) as reader:
    stream = Mono16k(reader.sample_rate)
    for block in reader:
        total += len(stream.push(block))
    total += len(stream.finish())
print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform == "linux" else 1024))
"""


def sparse_wav(path: Path, minutes: int) -> Path:
    """Digital silence at 16 kHz that takes no space on disk."""
    size = minutes * 60 * 32_000
    with path.open("wb") as file:
        file.write(riff(FORM, chunk(b"data", b"", size), size=36 + size))
        file.truncate(44 + size)
    return path


def test_memory_does_not_grow_with_the_length(tmp_path: Path) -> None:
    peaks_kib = []
    for minutes in (3, 60):
        path = sparse_wav(tmp_path / f"{minutes}.wav", minutes)
        run = subprocess.run(
            [sys.executable, "-c", READ_AND_TELL_MEMORY, str(path)],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        num_samples, peak_kib = map(int, run.stdout.split())
        assert num_samples == minutes * 60 * 16_000
        peaks_kib.append(peak_kib)
    assert peaks_kib[1] - peaks_kib[0] < 10 * 1024  # an hour as float32 is 225 MiB
    assert peaks_kib[0] > 10 * 1024
