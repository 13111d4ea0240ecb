"""A development set of recordings: the figures are those of the diarizer and the scorer on the same files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch

from diarnorm.checkpoint import Checkpoint
from diarnorm.evaluation.recordings import Recording, Region
from diarnorm.evaluation.scoring import score
from diarnorm.stream import Diarizer
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.training.develop import CHUNK
from diarnorm.training.devrecordings import RecordedSet
from diarnorm.training.tune import Tuner
from diarnorm.turns import Turn, TurnConfig
from tests.tiny import MEMORY, QUICK_TURNS, make_model, two_voices

pytestmark = pytest.mark.usefixtures("one_thread")

KEY = "data.recordings.dev"
PARTS = {"long": (0, 250_123), "short": (30_000, 30_000 + 77_000), "odd": (60_000, 60_000 + 1_280 * 24 + 700)}
"""Samples of `two_voices`; none is a whole number of chunks, one ends within a mel frame."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    folder, voices, found = tmp_path_factory.mktemp("dev"), two_voices(), []
    for name, (start, end) in PARTS.items():
        samples = voices[start:end]
        soundfile.write(folder / f"{name}.wav", samples, SAMPLE_RATE)
        length_s = len(samples) / SAMPLE_RATE
        turns = (Turn(0.2, 0.6 * length_s, "a"), Turn(0.5 * length_s, length_s + 0.5, "b"))
        found.append(Recording(name, folder / f"{name}.wav", length_s, turns, None))
    return [replace(found[0], region=((1.0, 4.3), (6.0, 99.0))), *found[1:]]


def diarized(recordings: list[Recording], turns: TurnConfig, duration_s: float | None = None) -> dict[str, list[Turn]]:
    diarizer = Diarizer(Checkpoint(make_model(talkative=True), turns, CHUNK, (CHUNK,)))
    found = {}
    for each in recordings:
        assert each.audio is not None
        samples, rate = soundfile.read(each.audio, dtype="float32")
        samples = samples if duration_s is None else samples[: round(duration_s * rate)]
        stream = diarizer.stream(rate)
        found[each.name] = [*stream.push(samples), *stream.finish()]
    return found


@pytest.mark.parametrize("turns", [QUICK_TURNS, TurnConfig(onset=0.3, offset=0.2, min_on_frames=3)])
def test_figures_are_those_of_the_diarizer_on_the_files(recordings: list[Recording], turns: TurnConfig) -> None:
    turns = replace(turns, confirm_frames=MEMORY.confirm_frames)
    figures = RecordedSet.read(KEY, recordings, 600.0).evaluate(make_model(talkative=True), turns)
    reference = {each.name: list(each.reference) for each in recordings}
    lengths_s = {each.name: each.duration_s or 0.0 for each in recordings}
    uem: dict[str, Region] = {name: ((0.0, length_s),) for name, length_s in lengths_s.items()}
    uem["long"] = ((1.0, 4.3), (6.0, lengths_s["long"]))
    found = diarized(recordings, turns)
    assert len({turn.speaker for spoken in found.values() for turn in spoken}) >= 2
    expected = score(reference, found, uem)
    parts = expected.pooled
    for name, seconds in (("der", parts.error_s), ("miss", parts.miss_s), ("confusion", parts.confusion_s)):
        assert figures[name] == pytest.approx(100 * seconds / parts.speech_s, abs=1e-6)
    assert figures["merged"] == pytest.approx(100 * expected.merged.error_s / parts.speech_s, abs=1e-6)
    assert figures["count_error"] == expected.mean_count_error
    assert figures["miss"] > 0


def test_recordings_of_another_rate_give_nearly_the_same(recordings: list[Recording], tmp_path: Path) -> None:
    again = []
    for each in recordings:
        assert each.audio is not None
        samples, _ = soundfile.read(each.audio, dtype="float32")
        twice = np.stack([soxr.resample(samples, SAMPLE_RATE, 44_100)] * 2, axis=1)
        soundfile.write(tmp_path / f"{each.name}.flac", twice, 44_100, subtype="PCM_24")
        again.append(replace(each, audio=tmp_path / f"{each.name}.flac"))
    one, other = (RecordedSet.read(KEY, each, 600.0) for each in (recordings, again))
    for a, b in zip(one.mel, other.mel, strict=True):
        assert (a - b).abs()[:, 8:-8, :60].mean() < 0.05


def test_only_the_beginning_is_heard_and_scored(recordings: list[Recording]) -> None:
    short = RecordedSet.read(KEY, recordings, 4.0)
    assert short.num_samples == (64_000, 64_000, 31_420)
    assert short.uem["long"] == ((1.0, 4.0),)
    assert max(turn.end for turns in short.reference.values() for turn in turns) <= 4.0
    turns = replace(QUICK_TURNS, confirm_frames=MEMORY.confirm_frames)
    found = diarized(recordings, turns, 4.0)
    expected = score(short.reference, found, short.uem).pooled
    figures = short.evaluate(make_model(talkative=True), turns)
    assert figures["der"] == pytest.approx(100 * expected.error_s / expected.speech_s, abs=1e-6)
    assert list(RecordedSet.read(KEY, recordings, 0.9).reference) == ["short", "odd"]


def test_an_ignored_end_is_found(recordings: list[Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its mask, the silence that fills the last chunk is heard."""
    exact = RecordedSet.read(KEY, recordings[2:], 600.0).encode(make_model(talkative=True))[0]
    monkeypatch.setattr(
        "diarnorm.training.devrecordings._heard", lambda num_frames, _: torch.ones(1, num_frames, dtype=torch.bool)
    )
    spoiled = RecordedSet.read(KEY, recordings[2:], 600.0).encode(make_model(talkative=True))[0]
    assert not torch.allclose(exact[0, :25], spoiled[0, :25], atol=1e-4)


def test_silence_is_refused(recordings: list[Recording]) -> None:
    with pytest.raises(ValueError, match=r"data.recordings.dev: nobody speaks where its first 0.1 s are scored"):
        RecordedSet.read(KEY, recordings, 0.1)
    with pytest.raises(ValueError, match="nobody speaks"):
        RecordedSet.read(KEY, [replace(each, reference=()) for each in recordings], 600.0)
    one = RecordedSet.read(KEY, [replace(recordings[0], reference=()), *recordings[1:]], 600.0)
    assert one.evaluate(make_model(talkative=True))["der"] > 0


def test_thresholds_can_be_tuned_on_recordings(recordings: list[Recording]) -> None:
    recorded = RecordedSet.read(KEY, recordings, 5.0)
    tuner = Tuner(Checkpoint(make_model(talkative=True), QUICK_TURNS, CHUNK, (CHUNK,)), recorded)
    before = tuner.best.der
    best = tuner.run(1)
    assert best.der < before
    model = make_model(talkative=True)
    model.memory.config = best.memory
    assert best.figures == recorded.evaluate(model, best.turns)
