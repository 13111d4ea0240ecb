"""Runs with recordings: which batches are theirs, whose classes are whose, what a run without speech needs."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from diarnorm.modelfile import read_header
from diarnorm.simulation.speech import load_speech
from diarnorm.training.config import RunConfig
from diarnorm.training.corpus import RecordingsConfig, is_recorded
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.devrecordings import RecordedSet
from diarnorm.training.rundata import RunData
from diarnorm.training.trainer import Trainer
from tests.standins import write_recordings
from tests.tiny_run import tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folders(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Recordings of training speakers and of held-out speakers."""
    folder = tmp_path_factory.mktemp("recordings")
    for split, seeds in (("train", range(3)), ("dev", range(10, 12))):
        write_recordings(folder / split, load_speech(corpus, split=split, cache_dir=corpus.parent), seeds)
    return str(folder / "train"), str(folder / "dev")


def with_recordings(config: RunConfig, folders: tuple[str, str], share: float = 0.5, **changes: object) -> RunConfig:
    recordings = RecordingsConfig(train=folders[0], dev=folders[1], **changes)  # pyright: ignore[reportArgumentType]
    return replace(config, data=replace(config.data, recordings=recordings, recorded_share=share))


def without_speech(corpus: Path, folders: tuple[str, str], norm: str = "rms", **changes: object) -> RunConfig:
    config = with_recordings(tiny_run(corpus, norm, tune_rounds=1), folders, tune=True, dev_duration_s=4.0)
    return replace(config, data=replace(config.data, speech=None, **changes))


def test_batches_of_recordings_stand_among_simulated_ones(corpus: Path, folders: tuple[str, str]) -> None:
    config = with_recordings(tiny_run(corpus, num_steps=12), folders)
    data, plain = RunData(config), RunData(tiny_run(corpus, num_steps=12))
    assert data.speech is not None
    assert data.corpus is not None
    first_class = data.speech.num_classes
    assert data.num_classes == first_class + len(data.corpus.speakers)
    assert data.speakers == [*data.speech.speakers, *data.corpus.speakers]
    recorded = [is_recorded(0, number, 0.5) for number in range(12)]
    assert 2 <= sum(recorded) <= 10
    for number, is_one in enumerate(recorded):
        item, simulated = data.batches[number], plain.batches[number]
        used = item["speaker_class"][item["speaker_class"] >= 0]
        assert item["mel"].shape == simulated["mel"].shape
        if is_one:
            assert ((used >= first_class) & (used < data.num_classes)).all()
        else:  # as without recordings
            assert all(torch.equal(item[name], simulated[name]) for name in item)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (1.0, 12)])
def test_one_kind_alone(corpus: Path, folders: tuple[str, str], share: float, expected: int) -> None:
    data = RunData(with_recordings(tiny_run(corpus, num_steps=12), folders, share))
    assert data.batches.recorded is not None
    same = [torch.equal(data.batches[n]["mel"], data.batches.recorded[n]["mel"]) for n in range(12)]
    assert sum(same) == expected


def test_recordings_are_the_development_set_and_tuned_on_if_asked_for(corpus: Path, folders: tuple[str, str]) -> None:
    config = with_recordings(tiny_run(corpus), folders)
    data = RunData(config)
    assert isinstance(data.development(), RecordedSet)
    assert list(data.development().reference) == ["talk10", "talk11"]
    assert isinstance(data.tuning_set(), DevelopmentSet)
    assert isinstance(RunData(with_recordings(tiny_run(corpus), folders, tune=True)).tuning_set(), RecordedSet)


@pytest.mark.parametrize("norm", ["rms", "batch"])
def test_a_run_on_recordings_alone(corpus: Path, folders: tuple[str, str], tmp_path: Path, norm: str) -> None:
    """To its end, and resumed; BatchNorm is compared with itself on recordings, too."""
    config = without_speech(corpus, folders, norm)
    figures = Trainer(config, tmp_path / "run").run()
    record = read_header(tmp_path / "run" / "model.safetensors").facts["training"]
    assert record["after_tuning"]["der"] <= record["before_tuning"]["der"]
    assert record["development"] == {name: round(value, 2) for name, value in figures.items()}
    assert record["speakers"] == len(RunData(config).speakers) > 0
    assert ("batch_norm_loss" in record) == (norm == "batch")
    other = replace(config, data=replace(config.data, recordings=replace(config.data.recordings, train=folders[1])))
    with pytest.raises(ValueError, match=r"data.speech or data.recordings.train now has (other speakers|\d+ voices)"):
        Trainer(other, tmp_path / "run")


def test_labels_that_train_and_dev_share_are_told(
    corpus: Path, folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    RunData(with_recordings(tiny_run(corpus), folders))
    assert "share" not in capsys.readouterr().err
    RunData(with_recordings(tiny_run(corpus), (folders[0], folders[0])))
    assert capsys.readouterr().err.count("data.recordings.train and .dev share") == 1
    RunData(with_recordings(tiny_run(corpus), (folders[0], folders[0]), labels="recording"))
    assert "share" not in capsys.readouterr().err


def test_recordings_of_which_nothing_is_scored_are_told(
    corpus: Path, folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folders[0], tmp_path / "train")
    config = with_recordings(tiny_run(corpus), (str(tmp_path / "train"), folders[1]))
    RunData(config)
    assert "nothing that is scored" not in capsys.readouterr().err
    (tmp_path / "train" / "talk1.flac").unlink()
    soundfile.write(tmp_path / "train" / "talk1.wav", np.zeros(0), 16_000)
    data = RunData(config)
    assert "1 recordings have nothing that is scored (talk1): nothing is learned from" in capsys.readouterr().err
    assert data.corpus is not None
    assert [source.name for source in data.corpus.sources] == ["talk0", "talk2"]


def test_what_a_run_without_speech_needs(corpus: Path, folders: tuple[str, str]) -> None:
    config = without_speech(corpus, folders)
    with pytest.raises(ValueError, match=r"data.teacher needs the utterances it is about"):
        replace(config, data=replace(config.data, teacher="x"))
    with pytest.raises(ValueError, match=r"say data.recordings.tune=true, or train.tune_rounds=0"):
        replace(config, data=replace(config.data, recordings=replace(config.data.recordings, tune=False)))
    with pytest.raises(ValueError, match=r"give recordings as data.recordings.dev"):
        replace(config, data=replace(config.data, recordings=RecordingsConfig(train=folders[0])))
