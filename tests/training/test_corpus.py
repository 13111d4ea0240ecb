"""Batches of recordings: functions of seed and step, the same kind of items as simulated ones, labels in order."""

import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from diarnorm.evaluation.recordings import Recording
from diarnorm.fbank import fbank_offline
from diarnorm.simulation.speech import CLIPS, load_speech
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.training.batches import CurriculumStage, SimulatedBatches
from diarnorm.training.corpus import (
    Corpus,
    RecordedBatches,
    RecordingsConfig,
    check_crowds,
    is_recorded,
    make_corpus,
    most_heard,
    notes_on,
)
from diarnorm.training.crops import CropLabels
from diarnorm.turns import Turn
from tests.loudness import noise_bursts
from tests.voices import load_tree

pytestmark = pytest.mark.usefixtures("one_thread")

STAGES = (
    CurriculumStage(0, crop_s=4.0, batch_size=4, max_speakers=2, speaker_probabilities=(0.5, 0.5)),
    CurriculumStage(10, crop_s=8.0, batch_size=2, max_speakers=4),
)
TURNS = {
    "one": [("anna", 1.0, 3.5), ("ben", 3.0, 6.0), ("anna", 7.0, 9.0), ("carl", 8.5, 9.5)],
    "two": [("ben", 0.5, 2.0), ("dora", 4.0, 11.0)],
    "none": [],
}
LENGTHS_S = {"one": 12.0, "two": 24.0, "none": 6.0}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> list[Recording]:
    """Noise that is loud where somebody speaks; one at 44.1 kHz."""
    folder, found = tmp_path_factory.mktemp("recordings"), []
    for name, spans in TURNS.items():
        rate = 44_100 if name == "two" else SAMPLE_RATE
        samples = noise_bursts([(start, end) for _, start, end in spans], LENGTHS_S[name], rate)
        soundfile.write(folder / f"{name}.flac", samples, rate)
        turns = tuple(Turn(start, end, who) for who, start, end in spans)
        found.append(Recording(name, folder / f"{name}.flac", LENGTHS_S[name], turns, None))
    return found


def batches_of(corpus: Corpus, seed: int = 1, **options: object) -> RecordedBatches:
    return RecordedBatches(corpus, seed=seed, num_steps=20, stages=STAGES, **options)  # pyright: ignore[reportArgumentType]


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_a_batch_depends_on_seed_and_step_alone(recordings: list[Recording]) -> None:
    batches = batches_of(make_corpus(recordings))
    first = batches[5]
    _ = batches[6], torch.rand(3)
    assert same(first, batches[5])
    assert same(first, pickle.loads(pickle.dumps(batches))[5])
    assert same(first, batches_of(make_corpus(recordings))[5])
    assert not same(first, batches[6])
    assert not same(first, batches_of(make_corpus(recordings), seed=2)[5])
    with pytest.raises(IndexError):
        _ = batches[20]


def test_items_are_like_those_of_simulated_conversations(recordings: list[Recording], tmp_path: Path) -> None:
    simulated = SimulatedBatches(load_tree(tmp_path), seed=1, num_steps=20, stages=STAGES)
    recorded = batches_of(make_corpus(recordings))
    for step in (0, 10):
        one, other = simulated[step], recorded[step]
        assert list(one) == list(other)
        for name, value in one.items():
            assert (value.shape, value.dtype) == (other[name].shape, other[name].dtype), name
            assert torch.isfinite(other[name]).all()


def test_labels_and_samples_are_those_of_the_crop(recordings: list[Recording]) -> None:
    """Against a count of samples, and the mel frames of the samples of the file."""
    corpus = make_corpus(recordings)
    batches = batches_of(corpus, first_class=100)
    assert corpus.speakers == ("anna", "ben", "carl", "dora")
    seen: Counter[str] = Counter()
    items = {step: batches[step] for step in range(10, 20)}
    assert all((item["source"] == -1).all() for item in items.values())
    for step, item in items.items():
        for row, crop in enumerate(batches.crops(step)):
            name = corpus.sources[crop.source].name
            seen[name] += 1
            length = round(LENGTHS_S[name] * SAMPLE_RATE)
            speaks = np.zeros((len(corpus.speakers), length + 200_000))
            for who, start, end in TURNS[name]:
                speaks[corpus.speakers.index(who), round(start * SAMPLE_RATE) : round(end * SAMPLE_RATE)] = 1
            cut = speaks[:, crop.first : crop.first + 8 * SAMPLE_RATE]
            shares = cut.reshape(len(cut), 100, 1280).mean(axis=2)
            present = [int(who) for who in np.argsort(cut.argmax(axis=1), kind="stable") if cut[who].any()]
            classes = item["speaker_class"][row].tolist()
            assert classes == [100 + who for who in present] + [-1] * (4 - len(present))
            np.testing.assert_allclose(item["activity"][row, :, : len(present)].T, shares[present], atol=1e-6)
            assert not item["activity"][row, :, len(present) :].any()
            if name != "two":
                samples, _ = soundfile.read(corpus.sources[crop.source].audio, dtype="float32")
                samples = np.pad(samples, (0, 200_000))[crop.first : crop.first + 8 * SAMPLE_RATE]
                mel = fbank_offline(torch.from_numpy(samples)[None])[0].half()
                torch.testing.assert_close(item["mel"][row], mel, rtol=0, atol=0.02)
    assert set(seen) == set(TURNS)


def test_every_second_is_as_likely_as_any_other(recordings: list[Recording]) -> None:
    batches = RecordedBatches(make_corpus(recordings), seed=3, num_steps=500, stages=STAGES[:1])
    counts = Counter(batches.corpus.sources[crop.source].name for step in range(500) for crop in batches.crops(step))
    total = sum(LENGTHS_S.values())
    for name, length_s in LENGTHS_S.items():
        share = length_s / total
        assert counts[name] / 2000 == pytest.approx(share, abs=4 * (share * (1 - share) / 2000) ** 0.5)


def test_the_rows_of_all_processes_are_those_of_one(recordings: list[Recording]) -> None:
    corpus = make_corpus(recordings)
    whole = batches_of(corpus)
    shares = [batches_of(corpus, share=(number, 2)) for number in range(2)]
    for step in (3, 12):
        parts = [batches[step] for batches in shares]
        assert same(whole[step], {name: torch.cat([part[name] for part in parts]) for name in whole[step]})


def test_only_what_is_scored_is_heard(recordings: list[Recording]) -> None:
    region = ((6.5, 9.8), (0.0, 2.5))
    corpus = make_corpus([replace(recordings[0], region=region), replace(recordings[1], region=((30.0, 40.0),))])
    assert [source.name for source in corpus.sources] == ["one"]
    assert corpus.duration_s == pytest.approx(5.8)
    item = batches_of(corpus)[0]
    assert not set(item["speaker_class"].flatten().tolist()) - {-1, 0, 2}  # ben speaks outside only
    with pytest.raises(ValueError, match="no scored time"):
        batches_of(make_corpus([replace(recordings[1], region=((30.0, 40.0),))]))


def test_labels_may_mean_something_in_their_recording_only(recordings: list[Recording]) -> None:
    corpus = make_corpus(recordings, "recording")
    assert corpus.speakers == ("one/anna", "one/ben", "one/carl", "two/ben", "two/dora")
    ben = [set(source.turns[:, 0].tolist()) for source in corpus.sources]
    assert ben == [{0, 1, 2}, {3, 4}, set()]
    assert [set(s.turns[:, 0].tolist()) for s in make_corpus(recordings).sources] == [{0, 1, 2}, {1, 3}, set()]


def test_those_who_say_least_lose_their_labels() -> None:
    activity = np.array([[0.5, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 1, 0.25]], dtype=np.float32)
    kept = most_heard(CropLabels(np.array([7, 3, 9, 1, 4]), activity), 3)
    assert kept.speakers.tolist() == [3, 9, 1]
    assert kept.activity.tolist() == activity[:, [1, 2, 3]].tolist()


def test_crowds_are_refused_or_told_of(recordings: list[Recording]) -> None:
    corpus = make_corpus(recordings)
    check_crowds("data.recordings.train", corpus, STAGES[1:], 3)
    with pytest.raises(
        ValueError, match=r"one.flac: its reference has 3 speakers, data.stages\[0\].max_speakers=2: give"
    ):
        check_crowds("data.recordings.train", corpus, STAGES, 8)
    with pytest.raises(
        ValueError, match=r"model.memory.num_slots=1: give 3, leave the recording out of data.recordings"
    ):
        check_crowds("data.recordings.train", corpus, STAGES, 1)
    crowd, short = notes_on(corpus, STAGES)
    assert crowd.startswith("1 of 3 recordings have more than 2 speakers (3 in one)")
    assert short == "1 of 3 recordings are shorter than a crop of 8 s (none): their crops end in silence"
    assert notes_on(corpus, [replace(STAGES[1], crop_s=5.0)]) == []


def samples_of(monkeypatch: pytest.MonkeyPatch, batches: RecordedBatches, step: int) -> torch.Tensor:
    """The samples from which a batch's features are made."""
    given: list[torch.Tensor] = []

    def keeping(samples: torch.Tensor) -> torch.Tensor:
        given.append(samples.clone())
        return fbank_offline(samples)

    with monkeypatch.context() as patch:
        patch.setattr("diarnorm.training.corpus.fbank_offline", keeping)
        _ = batches[step]
    return given[0]


def test_gain_and_noise_are_as_loud_as_they_say(
    recordings: list[Recording], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make_corpus(recordings[1:2])
    plain = samples_of(monkeypatch, batches_of(corpus), 0)
    quieter = samples_of(monkeypatch, batches_of(corpus, config=RecordingsConfig(gain_db=(-20.0, -20.0))), 0)
    torch.testing.assert_close(quieter, 0.1 * plain)
    louder = samples_of(monkeypatch, batches_of(corpus, config=RecordingsConfig(gain_db=(40.0, 40.0))), 0)
    torch.testing.assert_close(louder, (100 * plain).clamp(-1, 1))
    (tmp_path / "hiss").mkdir()
    soundfile.write(tmp_path / "hiss" / "hiss.wav", noise_bursts([(0.5, 2.5)], 3.0), SAMPLE_RATE)
    clips = load_speech(tmp_path, config=CLIPS, cache_dir=tmp_path / "cache")
    config = RecordingsConfig(noise_probability=1.0, noise_snr_db=(10.0, 10.0))
    batches = batches_of(corpus, config=config, clips=clips)
    noise = samples_of(monkeypatch, batches, 0) - plain
    activity = batches[0]["activity"].amax(dim=-1)
    assert torch.equal(activity, batches_of(corpus)[0]["activity"].amax(dim=-1))
    spoken = [row for row in range(4) if (activity[row] > 0.5).any()]
    assert len(spoken) >= 2
    for row in spoken:
        speech = plain[row].reshape(50, 1280)[activity[row] > 0.5]
        hissing = noise[row][noise[row].abs() > 1e-3]  # the clip's own pauses are 60 dB below
        snr_db = 10 * torch.log10(speech.square().mean() / hissing.square().mean())
        assert float(snr_db) == pytest.approx(10.0, abs=0.5)
    assert len({crop.noise.first for crop in batches.crops(0) if crop.noise is not None}) == 4


def test_the_share_of_recorded_batches() -> None:
    drawn = [is_recorded(3, step, 0.3) for step in range(2000)]
    assert np.mean(drawn) == pytest.approx(0.3, abs=0.04)
    assert drawn == [is_recorded(3, step, 0.3) for step in range(2000)]
    assert drawn != [is_recorded(4, step, 0.3) for step in range(2000)]
    assert not any(is_recorded(3, step, 0.0) for step in range(100))
    assert all(is_recorded(3, step, 1.0) for step in range(100))
