"""Studies of a few recordings: scores against a stream and the scorer, what is kept, and what is left out."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import soundfile

from diarnorm.audio.reader import read_mono
from diarnorm.evaluation.recordings import Recording
from diarnorm.evaluation.scoring import score_recording
from diarnorm.files import file_sha256
from diarnorm.resources import sources_of_turns
from diarnorm.robustness import records as records_module
from diarnorm.robustness import runner
from diarnorm.robustness import study as study_module
from diarnorm.robustness.conditions import Condition
from diarnorm.robustness.config import RobustnessConfig
from diarnorm.robustness.corruption import Sound, corrupt, parse
from diarnorm.robustness.records import AFTERWARDS, BEFORE, NAME, Record, measuring_code
from diarnorm.robustness.runner import Item
from diarnorm.robustness.scored import Rules, measure_turns
from diarnorm.robustness.study import Study, batches, find_models, study
from diarnorm.robustness.summary import rows_of
from diarnorm.stream import Diarizer
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.turns import Turn
from tests.evalset import REFERENCES, save_rttm, save_set, turns
from tests.imports import reached_from
from tests.loudness import save_loudness_model

pytestmark = pytest.mark.usefixtures("one_thread")

PACKAGE = Path(runner.__file__).parent.parent
CORRUPTIONS = ("loudness.swing=12", "silence.middle=2", "loudness.turns=12", "features.offset=-4.605", "damage.nan=60")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, loudness_model: Path) -> Path:
    """A set, and two models: one that hears loudness, one that hears somebody always."""
    folder = tmp_path_factory.mktemp("robustness")
    save_set(folder / "all")
    (folder / "models" / "deep").mkdir(parents=True)
    save_loudness_model(folder / "models" / "deep" / "model.safetensors", speaks_always=True)
    (folder / "models" / "loud.safetensors").symlink_to(loudness_model)
    return folder


def configure(**changes: Any) -> RobustnessConfig:
    config = RobustnessConfig(
        models="models",
        sets={"all": "all"},
        corruptions=CORRUPTIONS,
        alone=("nothing", "silence.lsb=3"),
        alone_s=4.0,
        halves=("loudness",),
        num_resamples=100,
    )
    return replace(config, **changes)


@pytest.fixture(scope="module")
def done(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The study in this process."""
    return study(configure(), tmp_path_factory.mktemp("done"), folder)


def samples_of(folder: Path, name: str) -> np.ndarray:
    return soundfile.read(folder / "all" / f"{name}.wav", dtype="float32")[0]


def test_everything_is_there_but_what_cannot_be_done(done: Study) -> None:
    assert list(done.models) == ["deep", "loud"]
    places = {(model, name, condition.name) for model, _, name, condition in _expected(done)}
    assert places == {(place[0], place[2], place[3]) for place in done.records}
    assert ("loud", "b_silent", "loudness.turns=12") not in places  # nobody's turns to step at
    assert ("loud", "b_silent", "loudness.swing=12") in places
    assert "all: nobody speaks in b_silent: left out of loudness.turns=12" in done.notes


def _expected(done: Study) -> list[tuple[str, str, str, Any]]:
    found = []
    for model in done.models:
        for condition in done.conditions:
            names = ["silence"] if condition.is_alone else list(REFERENCES)
            names = [name for name in names if not (condition.needs_turns and not REFERENCES[name])]
            found += [(model, "all", name, condition) for name in names]
    return found


@pytest.mark.parametrize("condition", ["clean", *(word for word in CORRUPTIONS if "features" not in word)])
def test_scores_are_those_of_a_stream_on_the_changed_samples(done: Study, folder: Path, condition: str) -> None:
    diarizer = Diarizer.from_pretrained(folder / "models" / "loud.safetensors")
    for name in ("a_two", "b_two"):
        sound = Sound(samples_of(folder, name), tuple(turns(REFERENCES[name])))
        spec = parse([] if condition == "clean" else condition.split())
        sound = corrupt(sound, spec, crc32(f"0 {name}".encode()))
        stream = diarizer.stream()
        found = stream.push(sound.samples) + stream.finish()
        region = [(0.0, len(sound.samples) / SAMPLE_RATE)]
        expected = score_recording(name, sound.turns, found, region, 0.0, False)
        record = done.records["loud", "all", name, condition]
        assert (record.errors, record.merged) == (expected.errors, expected.merged)
        assert record.num_turns == len(found) > 0
        assert record.num_speakers == expected.num_hypothesis_speakers


def test_changed_features_change_the_result(done: Study) -> None:
    ours = [done.records["loud", "all", name, "features.offset=-4.605"] for name in REFERENCES]
    clean = [done.records["loud", "all", name, "clean"] for name in REFERENCES]
    assert [each.errors for each in ours] != [each.errors for each in clean]
    assert all(each.level_dbfs == before.level_dbfs for each, before in zip(ours, clean, strict=True))


def test_clean_runs_do_not_drift_and_changed_ones_do(done: Study) -> None:
    for (_, set_name, _, condition), record in done.records.items():
        if condition == "clean":
            assert record.drift == pytest.approx(0.0, abs=1e-6)
        elif condition == "loudness.swing=12":
            assert record.drift is not None
            assert record.drift > 1e-4
        elif set_name == "silence":
            assert (record.drift, record.errors.speech_s) == (None, 0.0)
        assert len(record.rms) == 1  # blocks


def test_halves_add_up_to_the_whole_where_one_speaks_throughout(done: Study) -> None:
    record = done.records["loud", "all", "b_one", "loudness.swing=12"]
    assert sum(half.speech_s for half in record.halves) == pytest.approx(record.errors.speech_s)
    assert not done.records["loud", "all", "b_one", "silence.middle=2"].halves


@pytest.mark.parametrize("words", ["silence.start=3", "silence.middle=2", "silence.gaps=1", "silence.end=2"])
def test_halves_are_those_of_the_recording_as_it_was(words: str) -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.01, 24 * SAMPLE_RATE).astype(np.float32)
    sound = Sound(noise, (Turn(1.0, 7.0, "a"), Turn(14.0, 15.0, "b"), Turn(20.0, 22.0, "a")))
    spec, rules = parse([words]), Rules(0.0, False, 0.5, 0.2, 1.0)
    changed = corrupt(sound, spec, 0)
    for heard in (sound, changed):
        found = measure_turns(heard, heard.turns, None, Condition(spec, with_halves=True), rules)
        assert [half.speech_s for half in found["halves"]] == pytest.approx([6.0, 3.0])
        assert [half.error_s for half in found["halves"]] == pytest.approx([0.0, 0.0])


def test_silence_that_is_put_in_is_seen(done: Study) -> None:
    ours = done.records["loud", "all", "b_two", "silence.middle=2"]
    always = done.records["deep", "all", "b_two", "silence.middle=2"]
    assert ours.duration_s == pytest.approx(8.0)
    assert ours.event_s == always.event_s == pytest.approx(1.0)  # without half a second at both ends
    assert ours.event_speech_s == 0.0
    assert always.event_speech_s == pytest.approx(1.0)
    assert ours.attention is not None
    assert ours.clean_attention is None  # these frames are not in the clean recording


def test_a_second_study_computes_nothing(
    done: Study, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = study(configure(corruptions=("dc.step=0.1",)), tmp_path, folder)
    lines = (tmp_path / NAME).read_text("utf-8").splitlines()
    gone = [line for line in lines if json.loads(line)["model"] == "loud" and json.loads(line)["condition"] == "clean"]
    kept = "\n".join(line for line in lines if line not in gone)
    (tmp_path / NAME).write_text(f"{kept}\n{gone[0][:50]}", "utf-8")  # and the last line is cut
    did: list[tuple[str, tuple[str, ...]]] = []
    original = runner.do_job

    def count(job: Any) -> list[Record]:
        did.append((job.condition.name, tuple(each.name for each in job.models)))
        return original(job)

    monkeypatch.setattr(runner, "do_job", count)
    assert study(configure(corruptions=("dc.step=0.1",)), tmp_path, folder).records == first.records
    assert did == [("clean", ("loud",))]
    study(configure(corruptions=("dc.step=0.1",)), tmp_path, folder)
    assert len(did) == 1
    study(configure(corruptions=("dc.step=0.1",), seed=1), tmp_path, folder)
    assert len(did) == 1 + 4  # what is clean, what is changed, and silence twice
    monkeypatch.setattr(records_module, "code_sha256", lambda *_: "of other sources")
    study(configure(corruptions=("dc.step=0.1",), seed=1), tmp_path, folder)
    assert len(did) == 1 + 2 * 4


def test_a_recording_that_fails_takes_no_others_along(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in one batch with the others, which are done again without it; then nothing is left to do for them."""
    save_set(tmp_path / "set", ["a_two", "b_one"], "flac")
    bad = tmp_path / "set" / "b_one.flac"
    bad.write_bytes(bad.read_bytes()[:200] + bytes(20_000))
    save_set(tmp_path / "set", ["a_one"])
    asked = configure(models=str(folder / "models"), sets={"s": "set"}, corruptions=("dc.offset=0.1",), alone=())
    sizes: list[int] = []
    original = runner.do_job

    def count(job: Any) -> list[Record]:
        sizes.append(len(job.items))
        return original(job)

    monkeypatch.setattr(runner, "do_job", count)
    for tried in ([3, 3, 1, 1, 1, 1, 1, 1], [3, 3, 1, 1]):
        with pytest.raises(ValueError, match=r"b_one\.flac.*; 2 of 6 recordings under a condition failed, the others"):
            study(asked, tmp_path / "out", tmp_path)
        assert sizes == tried
        sizes.clear()
    lines = [json.loads(line) for line in (tmp_path / "out" / NAME).read_text("utf-8").splitlines()]
    assert {(each["model"], each["recording"], each["condition"]) for each in lines} == {
        (model, name, condition)
        for model in ("deep", "loud")
        for name in ("a_one", "a_two")
        for condition in ("clean", "dc.offset=0.1")
    }


def test_recordings_are_hashed_once_for_all_models_peers_and_conditions(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []

    def count(path: Path) -> str:
        hashed.append(path)
        return file_sha256(path)

    monkeypatch.setattr(study_module, "file_sha256", count)
    monkeypatch.setattr(study_module, "run_jobs", lambda jobs, *_: asked.extend(jobs))
    asked: list[Any] = []
    command = f"{sys.executable} x {{wavs}} {{rttms}}"
    with pytest.raises(KeyError):  # nothing was done
        study(configure(peers={"one": command, "two": command}), tmp_path, folder)
    assert sorted(path.stem for path in hashed) == sorted(REFERENCES)
    keys = [key for job in asked for own in job.keys.values() for key in own]
    assert len(keys) == len(set(keys)) > 4 * 5 * 5  # each differs: by model or peer, recording and condition


def test_records_are_measured_again_when_their_recording_changes(folder: Path, tmp_path: Path) -> None:
    """Sound, reference or region; not where it lies."""

    def keys(name: str, region_s: list[float] | None = None) -> set[str]:
        given = {"audio": name} | ({} if region_s is None else {"region_s": region_s})
        few = configure(models=["models/loud.safetensors"], corruptions=(), alone=("nothing",), sets={"s": given})
        return {record.key for record in study(few, tmp_path / "out", folder).records.values()}

    for name in ("here", "there", "longer", "said"):
        save_set(folder / name, ["a_one"])
    soundfile.write(folder / "longer" / "a_one.wav", np.zeros(70_000, np.float32), SAMPLE_RATE)
    save_rttm(folder / "said" / "a_one.rttm", [("anna", 1.0, 2.0)])
    found = [keys("here"), keys("there"), keys("longer"), keys("said"), keys("here", [0.0, 2.0])]
    assert found[0] == found[1]
    silence = set.intersection(*found)
    assert len(silence) == 1
    assert len(set.union(*found)) == 1 + 4


def test_records_outlive_changes_of_reports_alone() -> None:
    """All that measuring imports counts, but what changes no number; and nothing else."""
    in_the_key = {"robustness.conditions", "robustness.config", "robustness.records"}
    in_the_key |= {
        "evaluation.config",
        "evaluation.recordings",
        "evaluation.sources",
        "evaluation.oracle",
    }  # the last is refused
    no_number = {"checks", "files", "resources", "evaluation.pool", "evaluation.progress", "evaluation.causes"}
    no_number |= {"simulation.limits", "simulation.tracks", "manifest"}  # refuses; a constant; rooms, none taken
    reached = reached_from(
        "robustness.runner", without=in_the_key | no_number, ends={"training.develop"}
    )  # which makes turns of activity; what it imports for more does not matter
    counted = {path for path in sources_of_turns(PACKAGE, measuring_code()) if path.suffix == ".py"}
    empty = {path for path in (*reached, *counted) if path.name == "__init__.py" and path.parent.name != "kernels"}
    assert reached - empty == counted - empty
    assert {"scored.py", "dc.py", "runner.py", "scoring.py", "channel.py", "develop.py", "memory.py"} <= {
        path.name for path in counted
    }
    for name in AFTERWARDS | BEFORE:  # each is there, and left out
        path = PACKAGE / "robustness" / f"{name}.py"
        assert path.exists()
        assert path not in counted
    assert not {path for path in reached if path.stem in AFTERWARDS}


def test_small_batches_and_two_processes_give_the_same(done: Study, folder: Path, tmp_path: Path) -> None:
    again = study(configure(batch_s=7.0, workers=2, corruptions=CORRUPTIONS[:2]), tmp_path, folder)
    assert len(again.records) == 2 * (3 * 5 + 2)
    for place, record in again.records.items():
        theirs = done.records[place]
        assert (record.errors, record.merged, record.num_turns) == (theirs.errors, theirs.merged, theirs.num_turns)
        assert record.drift == pytest.approx(theirs.drift, abs=1e-5)


def test_the_region_moves_with_what_is_put_in(folder: Path, tmp_path: Path) -> None:
    source = {"audio": "all/b_one.wav", "rttm": "all/b_one.rttm", "region_s": [0.0, 3.5]}
    config = configure(sets={"x": source}, corruptions=("silence.start=1",), alone=(), models="models/loud.safetensors")
    records = study(config, tmp_path, folder).records
    clean, later = (records["loud", "x", "b_one", name] for name in ("clean", "silence.start=1"))
    assert later.errors.speech_s == pytest.approx(clean.errors.speech_s)
    unmoved = study(replace(config, sets={"x": {**source, "region_s": [0.0, 2.0]}}), tmp_path, folder).records
    assert unmoved["loud", "x", "b_one", "silence.start=1"].errors.speech_s == pytest.approx(1.0)


def test_recordings_are_decoded_once_for_all_conditions(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.samples_of.cache_clear()
    runner._clean_side.cache_clear()
    read: list[str] = []

    def counted(path: Path) -> Any:
        read.append(Path(path).stem)
        return read_mono(path)

    monkeypatch.setattr(runner, "read_mono", counted)
    words = ("loudness.gain=-20", "dc.offset=0.1")
    study(configure(corruptions=words, alone=(), models="models/loud.safetensors"), tmp_path, folder)
    assert sorted(read) == sorted(REFERENCES)
    (samples,) = runner.samples_of((Item(None, 1.0),))
    with pytest.raises(ValueError, match="read-only"):
        samples[0] = 1.0


def test_batches_hold_recordings_of_like_length() -> None:
    lengths = [60.0, 1.0, 59.0, 2.0, 3.0, 500.0]
    recordings = [Recording(f"r{length:g}", None, length, (), None) for length in lengths]
    found = [[each.duration_s for each in group] for group in batches(recordings, 120.0)]
    assert found == [[1.0, 2.0, 3.0], [59.0, 60.0], [500.0]]


def test_models_of_a_folder(folder: Path) -> None:
    found = find_models(["models", "rms"], folder)
    assert list(found) == ["deep", "loud", "rms"]
    assert find_models(["rms"], folder) == ["rms"]
    with pytest.raises(ValueError, match="no model files"):
        find_models("all", folder)


def test_mistakes(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no recordings to change"):
        study(configure(sets={}), tmp_path, folder)
    with pytest.raises(ValueError, match="choose another"):
        study(configure(sets={"silence": "all"}), tmp_path, folder)
    with pytest.raises(ValueError, match="pictures of two sets would be called a_b"):
        study(configure(sets={"a/b": "all", "a_b": "all"}), tmp_path, folder)
    with pytest.raises(ValueError, match="no such file"):
        study(configure(models="nosuch.safetensors"), tmp_path, folder)


def lay_models(folder: Path, *paths: str) -> Path:
    """Empty model files: none is read before all have their names."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


def test_models_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    lay_models(tmp_path, "one/model.safetensors", "two/model.safetensors", "one/rms-0/model.safetensors")
    assert list(find_models(["one"], tmp_path)) == ["model", "rms-0"]
    lay_models(tmp_path, "two/rms-0/model.safetensors", "two/batch.safetensors", "rms.safetensors", "x/rms.safetensors")
    found = find_models(["one", "two/"], tmp_path)
    assert list(found) == ["one", "one_rms-0", "batch", "two", "two_rms-0"]
    assert Path(found["two_rms-0"]) == tmp_path / "two" / "rms-0" / "model.safetensors"
    assert find_models(["x", "rms", "two/batch.safetensors"], tmp_path) == {
        "x_rms": str(tmp_path / "x" / "rms.safetensors"),
        "rms": "rms",
        "batch": "two/batch.safetensors",
    }


def test_a_model_with_settings_of_its_own_stands_beside_a_folder(tmp_path: Path) -> None:
    lay_models(tmp_path, "x/a b.safetensors", "y/a_b.safetensors")
    variant = {"path": "rms", "chunk_ms": 480}
    assert find_models(["x", variant], tmp_path) == {"a b": str(tmp_path / "x" / "a b.safetensors"), "rms": variant}
    assert list(find_models(["x", "y"], tmp_path)) == ["x_a b", "y_a_b"]  # files of these names would be the same
    assert find_models(["x", None], tmp_path) == ["x", None]  # refused where models are found


@pytest.mark.parametrize("models", [["x", "x"], ["x", "z/x"], ["x", "rms", {"path": "rms"}]])
def test_two_models_of_one_name_are_refused(tmp_path: Path, models: list[Any]) -> None:
    lay_models(tmp_path, "x/a.safetensors", "z/x/a.safetensors")
    with pytest.raises(ValueError, match=r"two models are called (x_a|rms): give them names, models=\{NAME: PATH, "):
        find_models(models, tmp_path)


def test_turns_that_are_made_are_refused_at_once(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"models: made is a folder, .*/all: .* other programs are peers\.NAME"):
        study(configure(models={"made": "all"}), tmp_path, folder)
    assert not list(tmp_path.iterdir())


def test_speech_after_a_step_is_no_speech_in_silence(folder: Path, tmp_path: Path) -> None:
    corruptions = ("dc.step=0.1 silence.middle=2", "silence.middle=1")
    config = configure(corruptions=corruptions, alone=(), quiet=("silence",), models="models/loud.safetensors")
    done = study(config, tmp_path, folder)
    chain, short = (done.records["loud", "all", "b_two", name] for name in corruptions)
    assert chain.event_speech_s == 0.0  # a step is over at once
    assert (chain.inserted_s, chain.inserted_speech_s) == (pytest.approx(1.0), 0.0)
    assert (short.inserted_s, short.event_s) == (0.0, 0.0)  # its edges are all of it
    verdicts = {row.condition: row.quiet_verdict for row in rows_of(done)}
    assert verdicts == {"clean": None, corruptions[0]: "holds", corruptions[1]: "undecided"}
