"""Measured rooms: alignment against known delays, energy, what a conversation in one sounds like, mistakes."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import soundfile
import torch

from diarnorm.simulation.acoustics import RoomConfig
from diarnorm.simulation.conversation import ROOM_SAMPLES
from diarnorm.simulation.filters import track_filters
from diarnorm.simulation.noises import NoiseConfig
from diarnorm.simulation.planner import SimulatorConfig, plan_conversation
from diarnorm.simulation.render import render
from diarnorm.simulation.rooms import align, load_rooms
from diarnorm.simulation.speech import Speech
from tests.simulation.test_render import CLEAN, contrast_db, frame_energy
from tests.voices import imagined_speech, load_tree


def response(delay: int, decay: float, length: int, seed: int) -> np.ndarray:
    """Direct sound of 1 after `delay` samples of faint noise, then a decaying tail."""
    rng = np.random.default_rng(seed)
    out = 1e-3 * rng.standard_normal(length)
    out[delay:] += 0.3 * rng.standard_normal(length - delay) * np.exp(-np.arange(length - delay) / decay)
    out[delay] = 1.0
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rooms")
    (folder / "sub").mkdir()
    soundfile.write(folder / "b.wav", response(700, 800.0, 30_000, 1), 16_000, subtype="FLOAT")
    stereo = np.stack([response(1500, 600.0, 20_000, 2), response(3000, 600.0, 20_000, 3)], axis=1)
    soundfile.write(folder / "sub" / "c.flac", 0.5 * stereo, 48_000)
    return folder


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    return load_tree(tmp_path_factory.mktemp("speech"), num_speakers=4, num_utterances=3, noise=1e-4)


def test_direct_sound_comes_first_at_unit_energy(folder: Path) -> None:
    rooms = load_rooms((str(folder),))
    assert rooms.names == ("b:0", "c:0", "c:1")
    assert rooms.responses.shape == (3, ROOM_SAMPLES)
    np.testing.assert_allclose(np.square(rooms.responses).sum(1), 1, rtol=1e-5)
    assert np.abs(rooms.responses).argmax(1).max() <= 4  # resampling rounds the edge of the two at 48 kHz
    original, _ = soundfile.read(folder / "b.wav")
    kept = original[700 : 700 + 9000]
    found = rooms.responses[0, :9000]
    np.testing.assert_allclose(found / found[0], kept / kept[0], atol=1e-5)
    assert abs(rooms.responses[0, -1]) < 1e-6  # cut, but not torn off


def test_a_single_file_and_order_of_places(folder: Path) -> None:
    places = (str(folder / "sub" / "c.flac"), str(folder / "b.wav"))
    assert load_rooms(places).names == ("c:0", "c:1", "b:0")
    assert load_rooms(places) is load_rooms(places)


def test_samples_are_convolved_with_the_response(folder: Path, speech: Speech) -> None:
    rooms = RoomConfig(measured=(str(folder),), measured_probability=1.0, speaker_eq_probability=0.0)
    config = dataclasses.replace(CLEAN, rooms=rooms)
    plan = plan_conversation(speech, config, 7, duration_s=6.0, num_speakers=2)
    assert plan.rooms.measured is not None
    spectrum = track_filters([plan], 32_768, torch.device("cpu"))
    found = torch.fft.irfft(spectrum, 32_768)[0].numpy()[256:]
    expected = load_rooms(rooms.measured).responses[plan.rooms.measured[0]]
    assert np.corrcoef(found[: len(expected)], expected)[0, 1] > 0.999
    dry = dataclasses.replace(
        plan, rooms=plan.rooms._replace(measured=None, direct=plan.rooms.tail, tail=plan.rooms.direct)
    )
    one = plan.segments[plan.segments[:, 0] == 0]
    wet, plain = (render([p], speech).samples[0].numpy().astype(np.float64) for p in (plan, dry))
    alone = np.concatenate([np.r_[one[0, 1] : one[0, 1] + 100]])
    assert np.abs(wet[alone]).max() > 0
    convolved = scipy.signal.fftconvolve(plain, expected)[: len(plain)]
    if (plan.rooms.measured == plan.rooms.measured[0]).all():
        assert np.corrcoef(convolved, wet)[0, 1] > 0.999


def test_labels_stay_on_the_sound(folder: Path, speech: Speech) -> None:
    rooms = RoomConfig(measured=(str(folder),), measured_probability=1.0)
    plans = [
        plan_conversation(speech, dataclasses.replace(CLEAN, rooms=rooms), [3, i], duration_s=10.0, num_speakers=2)
        for i in range(6)
    ]
    mixture = render(plans, speech)
    energy, activity = frame_energy(mixture.samples), mixture.activity.amax(-1).numpy()
    aligned = contrast_db(energy, activity)
    assert aligned > 8
    for shift in (-2, -1, 1, 2):
        assert contrast_db(energy, np.roll(activity, shift, axis=1)) < aligned


def test_some_conversations_are_in_measured_rooms_and_nothing_else_changes(folder: Path) -> None:
    speech, quiet = imagined_speech(), NoiseConfig()
    plain = SimulatorConfig(noise=quiet)
    some = dataclasses.replace(plain, rooms=RoomConfig(measured=(str(folder),), measured_probability=0.4))
    used, shared = [], []
    for seed in range(60):
        without, with_rooms = (plan_conversation(speech, c, seed, duration_s=5, num_speakers=3) for c in (plain, some))
        np.testing.assert_array_equal(without.pieces.start, with_rooms.pieces.start)
        assert without.channel.level_db == with_rooms.channel.level_db
        measured = with_rooms.rooms.measured
        used.append(measured is not None)
        if measured is None:
            assert with_rooms.digest() == without.digest()
        else:
            assert with_rooms.digest() != without.digest()
            assert 0 <= measured.min() <= measured.max() < 3
            assert not with_rooms.rooms.direct.any()
            shared.append(len(set(measured)) == 1)
    assert 0.2 < np.mean(used) < 0.6
    assert 0.3 < np.mean(shared) < 0.9
    elsewhere = dataclasses.replace(some, rooms=dataclasses.replace(some.rooms, measured=(str(folder / "."),)))
    first, second = (plan_conversation(speech, c, 1, duration_s=5).digest() for c in (some, elsewhere))
    assert first == second  # wherever the files lie


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing does not exist; give a file or a folder of impulse responses"):
        load_rooms((str(tmp_path / "nothing"),))
    with pytest.raises(ValueError, match="has no audio files"):
        load_rooms((str(tmp_path),))
    (tmp_path / "x.wav").write_bytes(b"no audio")
    with pytest.raises(ValueError, match=r"x\.wav cannot be decoded"):
        load_rooms((str(tmp_path),))
    with pytest.raises(ValueError, match=r"x is no impulse response: it is silent"):
        align(np.zeros(100, np.float32), "x")
