"""Loading speech: samples against soundfile, speeds against a tone's pitch, the cache, users' mistakes."""

import os
import pickle
import threading
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import soundfile

from diarnorm.manifest import Entry, read_entries
from diarnorm.simulation import speech as speech_module
from diarnorm.simulation.planner import SimulatorConfig, plan_conversation
from diarnorm.simulation.speech import CLIPS, SpeechConfig, cache_key, load_speech, prepare_all
from diarnorm.simulation.synthetic import write_tree
from diarnorm.simulation.warps import Warp, warp_voice
from diarnorm.timebase import SAMPLE_RATE
from tests.voices import FACTORS, load_tree


def peak_hz(samples: np.ndarray) -> float:
    """Frequency of the strongest bin of a windowed spectrum."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * SAMPLE_RATE / len(samples))


def write_manifest(folder: Path, text: str) -> Path:
    manifest = folder / "list.tsv"
    manifest.write_text(text, encoding="utf-8")
    return manifest


def test_samples_are_those_of_the_files(tmp_path: Path) -> None:
    speech = load_tree(tmp_path, num_speakers=2, num_utterances=2)
    assert speech.speakers == ("s0", "s1")
    assert speech.num_classes == 6
    natural = FACTORS.index((1, 1))
    for index, path in enumerate(speech.paths):
        expected, _ = soundfile.read(path, dtype="int16")
        np.testing.assert_array_equal(speech.utterance(index, natural), expected)
        assert Path(path).parent.name == speech.speakers[speech.speaker[index]]


def test_speed_moves_pitch_and_length(tmp_path: Path) -> None:
    (tmp_path / "tree" / "one").mkdir(parents=True)
    tone = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE)
    soundfile.write(tmp_path / "tree" / "one" / "tone.wav", tone, SAMPLE_RATE)
    config = SpeechConfig(speed_factors=((17, 20), (1, 1), (23, 20)))
    speech = load_speech(tmp_path / "tree", config=config, cache_dir=tmp_path)
    for factor, (p, q) in enumerate(config.speed_factors):
        samples = speech.utterance(0, factor)
        assert abs(len(samples) - 2 * SAMPLE_RATE * q / p) <= 1
        assert peak_hz(samples) == pytest.approx(1000 * p / q, abs=1)


def test_other_rates_and_channels_become_16_khz_mono(tmp_path: Path) -> None:
    (tmp_path / "tree" / "one").mkdir(parents=True)
    tone = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(2 * 44_100) / 44_100)
    soundfile.write(tmp_path / "tree" / "one" / "tone.flac", np.stack([tone, tone], axis=1), 44_100)
    speech = load_speech(tmp_path / "tree", config=CLIPS, cache_dir=tmp_path)
    assert speech.length[0, 0] == 2 * SAMPLE_RATE
    assert peak_hz(speech.utterance(0, 0)) == pytest.approx(1000, abs=1)
    assert speech.level[0] == pytest.approx(0.3 / 2**0.5, rel=0.01)


def test_damaged_samples_are_silence_and_the_rest_is_speech(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=1, num_utterances=1)
    samples, _ = soundfile.read(tree / "s0" / "0.wav", dtype="float32")
    whole = load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache")
    samples[[5000, 9000, 9001]] = (np.nan, np.inf, -1e20)
    soundfile.write(tree / "s0" / "0.wav", samples, SAMPLE_RATE, subtype="FLOAT")
    damaged = load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache")
    expected = whole.utterance(0, 0).copy()
    expected[[5000, 9000, 9001]] = 0
    np.testing.assert_array_equal(damaged.utterance(0, 0), expected)
    assert damaged.level[0] == pytest.approx(whole.level[0], rel=0.01)
    assert len(damaged.piece_utterance) == len(whole.piece_utterance) > 0


def test_second_load_decodes_nothing_and_a_changed_file_does(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=1, num_utterances=1)
    first = load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache")
    with mock.patch("soundfile.read", side_effect=AssertionError):
        second = load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache")
    np.testing.assert_array_equal(first.samples, second.samples)
    soundfile.write(tree / "s0" / "0.wav", np.zeros(SAMPLE_RATE), SAMPLE_RATE)
    assert load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache").length[0, 0] == SAMPLE_RATE


def test_a_file_of_the_same_size_is_another(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=1, num_utterances=1)
    path = tree / "s0" / "0.wav"
    size = path.stat().st_size
    before = load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache").utterance(0, 0).copy()
    soundfile.write(path, np.roll(before, 4000), SAMPLE_RATE, subtype="PCM_16")
    assert path.stat().st_size == size
    after = load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache").utterance(0, 0)
    np.testing.assert_array_equal(after, np.roll(before, 4000))


def test_a_corpus_may_move_and_its_folders_may_not_change_places(tmp_path: Path) -> None:
    manifest = "path\tspeaker\na/0.wav\tanna\nb/0.wav\tbert\n"
    for name in ("one", "two", "swapped"):
        folders = ("b", "a") if name == "swapped" else ("a", "b")
        for number, folder in enumerate(folders):
            path = tmp_path / name / folder / "0.wav"
            path.parent.mkdir(parents=True)
            soundfile.write(path, np.full(1600, number / 4), SAMPLE_RATE)
            os.utime(path, ns=(0, number))
        write_manifest(tmp_path / name, manifest)
    keys = [cache_key(read_entries(tmp_path / name / "list.tsv"), CLIPS) for name in ("one", "two", "swapped")]
    assert keys[0] == keys[1] != keys[2]


def test_nothing_is_left_of_what_cannot_be_decoded(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=2, num_utterances=2)
    (tree / "s1" / "1.wav").write_bytes(b"no audio")
    with pytest.raises(ValueError, match=r"1\.wav cannot be decoded"):
        load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_slow_disk_keeps_the_decoder_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more files are held in memory than `AHEAD` allows, and they come in order."""
    started, lock = [], threading.Lock()

    def decode(path: Path) -> np.ndarray:
        with lock:
            started.append(path)
        return np.full(int(path.stem), 0.25, np.float32)

    monkeypatch.setattr(speech_module, "decode", decode)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    entries = [Entry(tmp_path / f"{number}.wav", "anna", "x", "") for number in range(50)]
    lengths = []
    for taken, prepared in enumerate(prepare_all(entries, CLIPS), start=1):
        lengths.append(len(prepared.copies[0]))
        assert len(started) <= taken + 2 * speech_module.AHEAD
    assert lengths == list(range(50))


def test_manifest_gives_split_source_and_gender(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", num_speakers=3, num_utterances=1)
    manifest = write_manifest(
        tmp_path,
        "path\tspeaker\tsplit\tsource\tdur\tgender\n"
        "tree/s0/0.wav\tanna\ttrain\tx\t4\tF\n"
        "tree/s1/0.wav\tbert\ttrain\ty\t4\tM\n"
        "tree/s2/0.wav\tcarl\tdev\ty\t4\tM\n",
    )
    speech = load_speech(manifest, split="train", config=CLIPS, cache_dir=tmp_path / "cache")
    assert speech.speakers == ("anna", "bert")
    assert [speech.sources[i] for i in speech.speaker_source] == ["x", "y"]
    assert speech.speaker_gender == ("F", "M")


def test_pickling_leaves_the_samples_on_disk(tmp_path: Path) -> None:
    speech = load_tree(tmp_path, num_speakers=2, num_utterances=2)
    assert len(speech.samples)
    pickled = pickle.dumps(speech)
    assert len(pickled) < speech.samples.nbytes / 10
    np.testing.assert_array_equal(pickle.loads(pickled).samples, speech.samples)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path\tname\nx.wav\tanna\n", r"lacks the column\(s\) \['speaker'\]"),
        ("path\tspeaker\tsplit\nx.wav\tanna\tdev\n", "no rows of split 'train'"),
        ("path\tspeaker\tsplit\nx.wav\tanna\ttrain\n", "x.wav"),
    ],
)
def test_mistakes_in_a_manifest_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_speech(write_manifest(tmp_path, text), split="train", cache_dir=tmp_path / "cache")


def test_files_in_no_folder_are_clips_and_no_speakers(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=1, num_utterances=1)
    soundfile.write(tree / "door.wav", np.full(SAMPLE_RATE, 0.25), SAMPLE_RATE)
    with pytest.raises(ValueError, match=r"lie in no speaker's folder, the first is .*door\.wav"):
        load_speech(tree, cache_dir=tmp_path / "cache")
    assert load_speech(tree, config=CLIPS, cache_dir=tmp_path / "cache").speakers == ("door.wav", "s0")


def test_missing_empty_and_broken_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        load_speech(tmp_path / "nothing")
    (tmp_path / "tree" / "one").mkdir(parents=True)
    with pytest.raises(ValueError, match="no audio files"):
        load_speech(tmp_path / "tree")
    (tmp_path / "tree" / "one" / "a.wav").write_bytes(b"no audio")
    with pytest.raises(ValueError, match=r"a\.wav cannot be decoded"):
        load_speech(tmp_path / "tree", cache_dir=tmp_path / "cache")


def test_the_key_of_the_default_configuration_stays(tmp_path: Path) -> None:
    """Caches that exist are found again; only a configuration that asks for warps has another key."""
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(1600), SAMPLE_RATE, subtype="PCM_16")
    os.utime(path, ns=(0, 1_700_000_000_123_456_789))
    entries = [Entry(path, "anna", "x", "F", "bert")]
    assert cache_key(entries, SpeechConfig()) == "3065de5561d21ae6b313"
    assert cache_key(entries, SpeechConfig(warps=(Warp(pitch=1.1),))) != "3065de5561d21ae6b313"


def test_warps_are_further_voices(tmp_path: Path) -> None:
    tree = write_tree(tmp_path / "tree", num_speakers=2, num_utterances=1)
    config = SpeechConfig(speed_factors=((9, 10), (1, 1)), warps=(Warp(pitch=1.2), Warp(tract=0.9)))
    speech = load_speech(tree, config=config, cache_dir=tmp_path)
    assert (speech.num_factors, speech.num_classes, speech.natural_factor) == (4, 8, 1)
    assert [speech.voice_name(1, factor) for factor in range(4)] == ["s1_x0.9", "s1", "s1_p1.2", "s1_t0.9"]
    assert [speech.tempo(factor) for factor in range(4)] == [(9, 10), (1, 1), (1, 1), (1, 1)]
    natural = speech.utterance(0, 1) / 32_768
    expected = warp_voice(natural.astype(np.float32), Warp(pitch=1.2))
    np.testing.assert_allclose(speech.utterance(0, 2) / 32_768, expected, atol=2e-4)
    again = load_speech(tree, config=config, cache_dir=tmp_path)
    np.testing.assert_array_equal(again.samples, speech.samples)
    plans = [plan_conversation(speech, SimulatorConfig(speed_probability=1.0), i, num_speakers=2) for i in range(12)]
    assert {factor for plan in plans for factor in plan.factor.tolist()} == {0, 1, 2, 3}
    own = [plan_conversation(speech, SimulatorConfig(speed_probability=0.0), i, num_speakers=2) for i in range(4)]
    assert {factor for plan in own for factor in plan.factor.tolist()} == {1}
    for plan in plans[:3]:
        np.testing.assert_array_equal(plan.speaker_class, plan.speaker * 4 + plan.factor)


def test_a_manifest_says_who_may_be_the_same(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", num_speakers=3, num_utterances=1)
    manifest = write_manifest(
        tmp_path,
        "path\tspeaker\tsame_as\ntree/s0/0.wav\tanna\tcarl, zoe\ntree/s1/0.wav\tbert\t\ntree/s2/0.wav\tcarl\tanna\n",
    )
    speech = load_speech(manifest, config=CLIPS, cache_dir=tmp_path / "cache")
    assert speech.same_person == (("anna", "carl"), ("anna", "zoe"))
    for seed in range(20):
        plan = plan_conversation(speech, SimulatorConfig(), seed, duration_s=4, num_speakers=2)
        assert not {"anna", "carl"} <= set(plan.names)
    with pytest.raises(ValueError, match="num_speakers is 3; the speech allows 1 to 2"):
        plan_conversation(speech, SimulatorConfig(), 0, num_speakers=3)
