"""The sample recordings are what their README says, and each reference fits its recording."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import soundfile

from diarnorm.resources import samples_dir
from diarnorm.rttm import read_rttm, read_uem
from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE
from diarnorm.turns import Turn

CONVERSATIONS = tomllib.loads((samples_dir() / "conversations.toml").read_text("utf-8"))


def read_sample(name: str) -> tuple[np.ndarray, list[Turn]]:
    samples, rate = soundfile.read(samples_dir() / f"{name}.flac")
    assert rate == SAMPLE_RATE
    assert samples.ndim == 1
    assert read_uem(samples_dir() / f"{name}.uem") == {name: [(0.0, len(samples) / rate)]}
    return samples, read_rttm(samples_dir() / f"{name}.rttm").get(name, [])


def speakers_per_hop(turns: list[Turn], num_samples: int) -> np.ndarray:
    active = np.zeros(num_samples // HOP_SAMPLES, int)
    for turn in turns:
        active[round(turn.start * 100) : round(turn.end * 100)] += 1
    return active


def level_db(power: np.ndarray) -> float:
    return 10 * np.log10(power.mean())


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_reference_fits_the_recording(name: str) -> None:
    samples, turns = read_sample(name)
    conversation = CONVERSATIONS[name]
    assert {turn.speaker for turn in turns} == set(conversation["speakers"])
    assert 2 <= len(conversation["speakers"]) <= 4
    assert 30 <= len(samples) / SAMPLE_RATE <= 60
    assert max(turn.end for turn in turns) < len(samples) / SAMPLE_RATE
    active = speakers_per_hop(turns, len(samples))
    power = np.square(samples[: len(active) * HOP_SAMPLES]).reshape(-1, HOP_SAMPLES).mean(axis=1)
    assert level_db(power[active > 0]) == pytest.approx(conversation["level_dbfs"], abs=0.5)
    assert level_db(power[active > 0]) - level_db(power[active == 0]) > 10
    assert 0.02 < (active > 1).sum() / (active > 0).sum() < 0.1
    shifted = np.roll(active, 100)  # one second late, the reference no longer fits
    assert level_db(power[shifted > 0]) - level_db(power[shifted == 0]) < 5


def test_pauses_of_a_speaker_are_closed() -> None:
    for name in CONVERSATIONS:
        last: dict[str, float] = {}
        for turn in read_sample(name)[1]:
            assert turn.start - last.get(turn.speaker, -1.0) >= 0.3 - 1e-9
            last[turn.speaker] = turn.end


def test_silence_is_silent() -> None:
    samples, turns = read_sample("silence")
    assert len(samples) == 10 * SAMPLE_RATE
    assert not samples.any()
    assert turns == []


def test_names_and_size() -> None:
    assert any(not name.isascii() for name in CONVERSATIONS)
    assert sum(path.stat().st_size for path in Path(samples_dir()).iterdir() if path.is_file()) < 3_000_000
