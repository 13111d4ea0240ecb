"""Synthetic voices: their pitch and their words, measured; a corpus whose splits share nobody."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from diarnorm.simulation.synthetic import make_corpus, voice, write_tree


def pitch_of(samples: np.ndarray) -> float:
    """Frequency whose multiples carry the most energy, in Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples)))) ** 2
    candidates = np.arange(70.0, 420.0, 0.5)
    energy = [spectrum[np.rint(f * np.arange(1, 9) * len(samples) / 16_000).astype(int)].sum() for f in candidates]
    return float(candidates[int(np.argmax(energy))])


@pytest.mark.parametrize("pitch_hz", [90.0, 140.0, 215.0, 365.0])
def test_a_voice_has_its_pitch_and_its_words(pitch_hz: float) -> None:
    samples, speech = voice(pitch_hz, 6.0, seed=1)
    assert samples.shape == (96_000,)
    assert samples.dtype == np.float32
    assert pitch_of(samples) == pytest.approx(pitch_hz, abs=1.0)
    power = np.square(samples.astype(float)).reshape(-1, 160).mean(axis=1)
    assert power[speech].min() > 100 * power[~speech].max()
    assert 0.5 < speech.mean() < 0.8
    assert not speech[:10].any()
    assert not speech[-10:].any()
    assert np.abs(samples).max() < 1


def test_voices_are_the_same_whenever_made() -> None:
    assert np.array_equal(voice(100, 2.0, 3)[0], voice(100, 2.0, 3)[0])
    assert not np.array_equal(voice(100, 2.0, 3)[1], voice(100, 2.0, 4)[1])


def test_a_tree_has_its_speakers(tmp_path: Path) -> None:
    write_tree(tmp_path, num_speakers=2, num_utterances=3, duration_s=1.5, first_speaker=4)
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.wav"))
    assert files == [f"s{speaker}/{number}.wav" for speaker in (4, 5) for number in range(3)]
    samples, rate = soundfile.read(tmp_path / "s5" / "0.wav")
    assert (len(samples), rate) == (24_000, 16_000)
    assert pitch_of(samples) == pytest.approx(90 + 25 * 5, abs=2.0)


def test_a_corpus_shares_no_speaker_and_is_made_once(corpus: Path) -> None:
    speakers = {split: {path.name for path in (corpus / split).iterdir()} for split in ("train", "dev")}
    assert [len(names) for names in speakers.values()] == [8, 4]
    assert not speakers["train"] & speakers["dev"]
    assert sorted(path.name for path in corpus.iterdir()) == ["dev", "train"]
    mark = corpus / "train" / "s0" / "0.wav"
    before = mark.stat().st_mtime_ns
    assert make_corpus(corpus) == corpus
    assert mark.stat().st_mtime_ns == before


def test_two_processes_may_make_one_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is done between our look and our move."""

    def slow(folder: Path, num_speakers: int, *, first_speaker: int) -> Path:
        write_tree(folder.parent / folder.name.partition(".")[0], 1, 1, 1.0)
        return write_tree(folder, 1, 1, 1.0, first_speaker=first_speaker)

    monkeypatch.setattr("diarnorm.simulation.synthetic.write_tree", slow)
    make_corpus(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev", "train"]
    assert [path.name for path in (tmp_path / "dev").iterdir()] == ["s0"]  # the other's
