"""Hard noises: what people do beside speaking, and people who are not part of the conversation."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from diarnorm.simulation.conversation import CLIP
from diarnorm.simulation.noises import NoiseConfig
from diarnorm.simulation.planner import SimulatorConfig, plan_conversation
from diarnorm.simulation.render import render
from diarnorm.simulation.speech import CLIPS, Speech, load_speech
from diarnorm.simulation.synthetic import write_tree
from tests.simulation.test_render import CLEAN
from tests.voices import dry_tracks, load_tree

SILENT = NoiseConfig(
    quiet_probability=0, coloured_probability=0, clip_probability=0, babble_probability=0, burst_probability=0
)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    return load_tree(tmp_path_factory.mktemp("speech"), num_speakers=6, num_utterances=2, noise=1e-4)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    folder = tmp_path_factory.mktemp("clips")
    for number, name in enumerate(("06_sneeze", "laughter", "rain")):
        write_tree(folder / "made", 1, 2, 1.0, first_speaker=number)
        (folder / "made" / f"s{number}").rename(folder / name)
    (folder / "made").rmdir()
    return load_speech(folder, config=CLIPS, cache_dir=folder / "cache")


def config_with(**noise: object) -> SimulatorConfig:
    return dataclasses.replace(CLEAN, noise=dataclasses.replace(SILENT, **noise))


def test_people_make_the_sounds_of_the_folders_that_are_named(speech: Speech, clips: Speech) -> None:
    config = config_with(people=("*sneeze", "laugh*"), people_probability=1.0, people_interval_s=4.0)
    heard, gaps = set(), []
    for seed in range(12):
        plan = plan_conversation(speech, config, seed, duration_s=40.0, num_speakers=2, clips=clips)
        rows = plan.pieces.bank == CLIP
        assert (plan.pieces.row[rows] == plan.num_rows - 1).all()
        files = np.searchsorted(clips.offset[0], plan.pieces.offset[rows], side="right") - 1
        heard |= {clips.speakers[clips.speaker[i]] for i in files}
        starts = plan.pieces.start[rows] / 16_000
        gaps += np.diff(starts).tolist()
        without = plan_conversation(speech, config_with(), seed, duration_s=40.0, num_speakers=2, clips=clips)
        np.testing.assert_array_equal(plan.segments, without.segments)  # nothing of it is in the reference
    assert heard == {"06_sneeze", "laughter"}
    assert min(gaps) >= 1.0  # one after the other
    assert 3.5 < np.mean(gaps) < 6.5


def test_people_are_as_loud_as_asked(speech: Speech, clips: Speech) -> None:
    config = config_with(people=("laughter",), people_probability=1.0, people_snr_db=(10.0, 10.0))
    plan = plan_conversation(speech, config, 3, duration_s=30.0, num_speakers=2, clips=clips)
    tracks = dry_tracks([plan], speech, clips)
    speaking = plan.activity()
    frames = np.square(tracks[:, : speaking.shape[0] * 1280]).reshape(len(tracks), -1, 1280).mean(-1)
    said = frames[:2].sum(0)[(speaking > 0.99).any(1)].mean()
    loud = frames[-1][frames[-1] > 0.1 * frames[-1].max()].mean()
    assert 10 * np.log10(said / loud) == pytest.approx(10.0, abs=2.0)


def test_only_some_conversations_have_them(speech: Speech, clips: Speech) -> None:
    config = config_with(people=("laughter",), people_probability=0.4, background_probability=0.4)
    rows = []
    for seed in range(60):
        plan = plan_conversation(speech, config, seed, duration_s=20.0, num_speakers=2, clips=clips)
        rows.append(plan.num_rows - plan.num_speakers)
    assert [rows.count(n) > 5 for n in (0, 1, 2)] == [True, True, True]
    assert 0.5 < np.mean(rows) < 1.1


def test_background_talk_is_well_below_the_conversation_and_pauses(speech: Speech) -> None:
    config = config_with(background_probability=1.0, background_snr_db=(25.0, 25.0), background_voices=(1, 1))
    ratios, shares = [], []
    plans = [plan_conversation(speech, config, seed, duration_s=30.0, num_speakers=2) for seed in range(10)]
    for plan in plans:
        frames = np.square(dry_tracks([plan], speech).reshape(plan.num_rows, -1, 1280)).mean(-1)
        said = frames[: plan.num_speakers].sum(0)[(plan.activity() > 0.99).any(1)].mean()
        behind = frames[-1]
        talking = behind > 0.05 * behind.max()
        ratios.append(10 * np.log10(said / behind[talking].mean()))
        shares.append(talking.mean())
    assert np.mean(ratios) == pytest.approx(25.0, abs=1.5)
    assert 0.3 < np.mean(shares) < 0.8
    assert render(plans[:1], speech).samples.isfinite().all()


def test_where_nobody_else_is_there_nobody_talks_behind(speech: Speech) -> None:
    plan = plan_conversation(speech, config_with(background_probability=1.0), 0, duration_s=5.0, num_speakers=6)
    assert plan.num_rows == plan.num_speakers


def test_names_that_match_no_folder_are_refused(speech: Speech, clips: Speech, tmp_path: Path) -> None:
    config = config_with(people=("cough*",))
    with pytest.raises(ValueError, match=r"noise.people=\['cough\*'\] matches .*\(there: 06_sneeze, laughter, rain\)"):
        plan_conversation(speech, config, clips=clips)
    with pytest.raises(ValueError, match=r"\(there: no clips\)"):
        plan_conversation(speech, config)
