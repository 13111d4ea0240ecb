"""Crops of recordings: labels against pyannote and against the samples, parts of files against whole files."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from pyannote.core import Annotation, Segment, Timeline

from diarnorm.timebase import FRAME_SAMPLES, SAMPLE_RATE, frames_to_seconds
from diarnorm.training import crops
from diarnorm.training.crops import CropSource, as_spans, as_turns, read_part
from diarnorm.turns import Turn
from tests.loudness import noise_bursts

NAMES = {"anna": 0, "ben": 1, "carl": 2}
RATES = (8_000, 11_025, 16_000, 22_050, 44_100, 48_000)


def random_turns(rng: np.random.Generator, duration_s: float, num: int = 40) -> list[Turn]:
    """Turns of three people to the millisecond, overlapping one another's and their own."""
    starts = rng.uniform(0, duration_s, num).round(3)
    lengths = (0.02 + rng.exponential(1.5, num)).round(3)
    names = rng.choice(list(NAMES), num)
    return [Turn(float(a), float(a + b), str(who)) for a, b, who in zip(starts, lengths, names, strict=True)]


def source_of(turns: list[Turn], duration_s: float, region: list[tuple[float, float]] | None = None) -> CropSource:
    num_samples = round(duration_s * SAMPLE_RATE)
    return CropSource("x", Path("x.wav"), as_spans(region, num_samples), as_turns(turns, NAMES, num_samples))


def shares_by_pyannote(turns: list[Turn], stretches: list[tuple[float, float]], num_frames: int) -> np.ndarray:
    """Share of each frame of the stretches, one after another, per name."""
    shares = np.zeros((num_frames, len(NAMES)))
    annotation = Annotation()
    for number, turn in enumerate(turns):
        annotation[Segment(turn.start, turn.end), number] = turn.speaker
    at_s = 0.0
    for start_s, end_s in stretches:
        for frame in range(num_frames):
            low, high = start_s + frames_to_seconds(frame) - at_s, start_s + frames_to_seconds(frame + 1) - at_s
            low, high = max(low, start_s), min(high, end_s)
            if high <= low:
                continue
            for name, number in NAMES.items():
                spoken = annotation.crop(Timeline([Segment(low, high)])).label_timeline(name).support()
                shares[frame, number] += spoken.duration() / frames_to_seconds(1)
        at_s += end_s - start_s
    return shares


def check_labels(source: CropSource, turns: list[Turn], first_s: float, stretches: list[tuple[float, float]]) -> None:
    num_frames = 50
    labels = source.labels(round(first_s * SAMPLE_RATE), num_frames * FRAME_SAMPLES)
    expected = shares_by_pyannote(turns, stretches, num_frames)
    assert sorted(labels.speakers) == sorted(np.flatnonzero(expected.sum(axis=0) > 0))
    np.testing.assert_allclose(labels.activity, expected[:, labels.speakers], atol=2e-4)
    first = [np.flatnonzero(expected[:, who] > 0)[0] for who in labels.speakers]
    assert first == sorted(first)


@pytest.mark.parametrize("seed", range(6))
def test_shares_of_frames_are_those_of_pyannote(seed: int) -> None:
    rng = np.random.default_rng(seed)
    turns = random_turns(rng, 20.0)
    first_s = round(float(rng.uniform(0, 16)), 3)
    check_labels(source_of(turns, 20.0), turns, first_s, [(first_s, first_s + 4.0)])


def test_a_crop_goes_on_in_the_next_scored_stretch() -> None:
    """Nothing between two stretches is heard; the cut may lie within a frame."""
    turns = random_turns(np.random.default_rng(9), 30.0)
    source = source_of(turns, 20.0, [(12.05, 15.0), (2.0, 4.2), (14.0, 16.0), (19.0, 25.0)])
    assert source.num_samples == round((2.2 + 3.95 + 1.0) * SAMPLE_RATE)
    check_labels(source, turns, 1.0, [(3.0, 4.2), (12.05, 14.85)])


def test_labels_that_are_a_frame_late_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = crops.frame_shares
    monkeypatch.setattr(crops, "frame_shares", lambda segments, n: exact(segments + FRAME_SAMPLES, n))
    turns = random_turns(np.random.default_rng(0), 20.0)
    with pytest.raises(AssertionError):
        check_labels(source_of(turns, 20.0), turns, 3.0, [(3.0, 7.0)])


def test_own_overlaps_count_once_and_turns_after_the_end_not_at_all() -> None:
    turns = [Turn(0.0, 1.0, "anna"), Turn(0.5, 1.5, "anna"), Turn(1.5, 2.0, "anna"), Turn(3.5, 9.0, "ben")]
    source = source_of(turns, 4.0)
    assert source.turns.tolist() == [[0, 0, 32_000], [1, 56_000, 64_000]]
    assert source.labels(0, 64_000).activity.max() == 1.0
    assert source.num_speakers == 2
    assert source_of(turns, 4.0, [(0.0, 3.0)]).num_speakers == 1


def test_a_recording_without_turns_is_silent() -> None:
    labels = source_of([], 4.0).labels(100, 50 * FRAME_SAMPLES)
    assert labels.speakers.shape == (0,)
    assert labels.activity.shape == (50, 0)


def save(path: Path, samples: np.ndarray, rate: int) -> np.ndarray:
    """Write 16 bits; what a reader of the whole file gets at 16 kHz."""
    soundfile.write(path, samples, rate)
    whole, _ = soundfile.read(path, dtype="float32", always_2d=True)
    mono = whole.mean(axis=1)
    return mono if rate == SAMPLE_RATE else soxr.resample(mono, rate, SAMPLE_RATE, quality="HQ")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ending", ["wav", "flac"])
def test_a_part_is_that_of_the_whole_file(tmp_path: Path, rate: int, ending: str) -> None:
    rng = np.random.default_rng(rate)
    path = tmp_path / f"x.{ending}"
    whole = save(path, 0.1 * rng.standard_normal((5 * rate, 2)), rate)
    for first, length in ((0, 16_000), (1, 999), (31_234, 16_001), (64_000, 16_000), (79_999, 1)):
        part = read_part(path, first, length)
        assert len(part) == length
        np.testing.assert_allclose(part, whole[first : first + length], atol=2e-5)


def test_only_the_part_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of a minute, a second at 44.1 kHz."""
    save(tmp_path / "x.flac", 0.1 * np.random.default_rng(0).standard_normal(60 * 44_100), 44_100)
    lengths: list[int] = []
    read = soundfile.SoundFile.read

    def counting(self: soundfile.SoundFile, *arguments: object, **options: object) -> np.ndarray:
        block = read(self, *arguments, **options)  # pyright: ignore[reportArgumentType]
        lengths.append(len(block))
        return block

    monkeypatch.setattr(soundfile.SoundFile, "read", counting)
    read_part(tmp_path / "x.flac", 480_000, 16_000)
    assert sum(lengths) < 1.3 * 44_100


@pytest.mark.parametrize("rate", RATES)
def test_what_is_labelled_is_what_is_loud(tmp_path: Path, rate: int) -> None:
    """Samples and labels of a crop belong together at any rate: a frame is as loud as its share says."""
    bursts = [(1.003, 1.517), (2.24, 2.803), (4.5, 6.011)]
    path = tmp_path / "x.wav"
    soundfile.write(path, noise_bursts(bursts, 8.0, rate), rate)
    spans, turns = as_spans(None, 128_000), as_turns([Turn(a, b, "anna") for a, b in bursts], NAMES, 128_000)
    source = CropSource("x", path, spans, turns)
    for first in (0, 7_777, 40_001):
        samples = source.samples(first, 50 * FRAME_SAMPLES)
        power = np.square(samples.reshape(50, FRAME_SAMPLES)).mean(axis=1)
        loud = power / np.median(power[power > 1e-4])
        np.testing.assert_allclose(loud, source.labels(first, 50 * FRAME_SAMPLES).activity[:, 0], atol=0.17)


def test_a_crop_ends_in_silence_where_the_scored_time_does(tmp_path: Path) -> None:
    path = tmp_path / "x.wav"
    soundfile.write(path, np.full(32_000, 0.25), SAMPLE_RATE)
    source = CropSource("x", path, np.array([[1_000, 2_000], [5_000, 5_500]]), np.zeros((0, 3), dtype=np.int64))
    samples = source.samples(0, 2_560)
    assert (samples[:1_500] == 0.25).all()
    assert (samples[1_500:] == 0).all()


def test_damaged_samples_are_zeros(tmp_path: Path) -> None:
    samples = np.full(1_600, 0.5, dtype=np.float32)
    samples[[100, 200, 300]] = np.nan, np.inf, 1e30
    soundfile.write(tmp_path / "x.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    part = read_part(tmp_path / "x.wav", 50, 1_000)
    assert np.flatnonzero(part == 0).tolist() == [50, 150, 250]
    assert (np.delete(part, [50, 150, 250]) == 0.5).all()


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no audio")
    with pytest.raises(ValueError, match=r"text.wav cannot be decoded .*; convert it to WAV or FLAC, or remove it"):
        read_part(tmp_path / "text.wav", 0, 100)
    with pytest.raises(ValueError, match=r"gone.wav cannot be decoded"):
        read_part(tmp_path / "gone.wav", 0, 100)
    soundfile.write(tmp_path / "short.wav", np.zeros(16_000), SAMPLE_RATE)
    with pytest.raises(ValueError, match=r"short.wav ends at 1.000 s, before the 1.500 s that its header promises"):
        read_part(tmp_path / "short.wav", 8_000, 16_000)
