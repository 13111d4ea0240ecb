"""Models by name, path and folder; hypotheses are made once, and again when anything they depend on changes."""

import json
import os
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
import torch

from diarnorm.evaluation import hypotheses, oracle
from diarnorm.evaluation.hypotheses import Candidate, Settings, diarize, find_candidates, given_turns
from diarnorm.files import file_sha256
from diarnorm.resources import code_sha256, model_path
from diarnorm.rttm import read_rttm
from diarnorm.stream import Diarizer
from tests.evalset import save_rttm, save_set
from tests.loudness import save_loudness_model

pytestmark = pytest.mark.usefixtures("one_thread")
OWN = Settings()


def test_models_are_names_paths_and_folders(tmp_path: Path, loudness_model: Path) -> None:
    os.link(loudness_model, tmp_path / "m.safetensors")
    save_rttm(tmp_path / "other" / "x.rttm", [("a", 0, 1)])
    found = find_candidates(["rms", "m.safetensors", "other"], tmp_path, OWN)
    assert [(each.name, each.path) for each in found] == [
        ("rms", model_path("rms")),
        ("m", tmp_path / "m.safetensors"),
        ("other", tmp_path / "other"),
    ]
    assert [each.is_network for each in found] == [True, True, False]
    assert found[1].sha256 == file_sha256(loudness_model)
    assert [each.name for each in find_candidates({"x": "rms", "y": "./other"}, tmp_path, OWN)] == ["x", "y"]
    assert find_candidates("rms", tmp_path, OWN) == find_candidates(["rms"], tmp_path, OWN)


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path, loudness_model: Path) -> None:
    for name in ("p", "q"):
        (tmp_path / name).mkdir()
        os.link(loudness_model, tmp_path / name / "model.safetensors")
    found = find_candidates(["p/model.safetensors", "q/../q/model.safetensors", "rms"], tmp_path, OWN)
    assert [each.name for each in found] == ["p_model", "q_model", "rms"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], r"models=\[\] names no model"),
        (None, "models=None names no model"),
        ([3], "names no model"),
        (5, "models=5 names no model: give models="),
        (True, "models=True names no model"),
        ("", "models= names no model"),
        ({}, "models={} names no model"),
        ("nosuch", "no shipped model is called 'nosuch'"),
        ("no.safetensors", "no.safetensors: no such file"),
        ("./no", "no: no such file"),
        ("text.safetensors", "text.safetensors is not a model"),
        (["rms", "rms"], "two models are called .*rms: give them names"),
        ({"a/b": "rms", "a:b": "rms"}, "two models are called a_b"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, given: object, reason: str) -> None:
    (tmp_path / "text.safetensors").write_text("text")
    with pytest.raises(ValueError, match=reason):
        find_candidates(given, tmp_path, OWN)


def test_changes_must_fit_the_models_own_turns(tmp_path: Path, loudness_model: Path) -> None:
    changed = replace(OWN, turns=(("pad_frames", 4),))  # the model has min_off_frames=6
    with pytest.raises(ValueError, match="turns of loudness with these changes: min_off_frames=6 is less than twice"):
        find_candidates([str(loudness_model)], tmp_path, changed)


def test_a_variant_has_settings_of_its_own(tmp_path: Path) -> None:
    of_all = replace(OWN, chunk_ms=480, memory=(("birth", 0.3), ("floor", 0.7)))
    variant = {"path": "rms", "memory": {"cap_frames": "inf", "birth": 0.4}, "turns": {"onset": 0.6}}
    plain, own = find_candidates({"plain": "rms", "own": variant}, tmp_path, of_all)
    assert plain.settings == of_all
    assert (plain.path, plain.sha256) == (own.path, own.sha256)
    assert own.settings == Settings(480, None, (("onset", 0.6),), (("birth", 0.4), ("floor", 0.7), ("cap_frames", inf)))
    assert own.settings.plain()["memory"] == {"birth": 0.4, "floor": 0.7, "cap_frames": "inf"}


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ({"path": "rms", "memory": {"cap": 3}}, "MemoryChanges has no field cap: known are cap_frames, "),
        ({"path": "rms", "memory": {"cap_frames": "high"}}, "'high' of type 'str' could not be converted to Float"),
        ({"path": "rms", "memory": {"cap_frames": 1}}, "memory of x with these changes: cap_frames=1 is too low"),
        ({"path": "rms", "memory": {"birth": 5}}, "memory of x with these changes: memory.birth=5.* is out of range"),
        ({"path": "rms", "turns": {"onset": 0.1}}, "turns of x with these changes: thresholds need"),
        ({"path": "rms", "chunk_ms": 500}, "chunk_ms=500 is not a multiple of 80 ms"),
        ({"path": "rms", "device": "cuda"}, "Variant has no field device"),
        ({"memory": {"cap_frames": 30}}, "has no path: give {path: "),
        ({"path": "other", "chunk_ms": 480}, "x is a folder of turns that are made: leave out all but its path"),
    ],
)
def test_a_variant_that_cannot_be(tmp_path: Path, variant: dict, reason: str) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=reason):
        find_candidates({"x": variant}, tmp_path, OWN)


def test_given_turns_may_lie_in_a_folder_of_the_sets_name(tmp_path: Path) -> None:
    save_rttm(tmp_path / "x.rttm", [("a", 0, 1)])
    save_rttm(tmp_path / "sim" / "x.rttm", [("a", 0, 2)])
    candidate = Candidate("other", tmp_path, None)
    assert given_turns(candidate, "real", [])["x"][0].end == 1
    assert given_turns(candidate, "sim", [])["x"][0].end == 2


@pytest.fixture
def candidate(loudness_model: Path) -> Candidate:
    return Candidate("loudness", loudness_model, file_sha256(loudness_model))


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Recordings that a model really ran on."""
    ran: list[Path] = []
    original = hypotheses._run

    def run(diarizer: Diarizer, audio: Path, settings: Settings) -> tuple:
        ran.append(audio)
        return original(diarizer, audio, settings)

    monkeypatch.setattr(hypotheses, "_run", run)
    return ran


def test_a_hypothesis_is_what_the_model_says(tmp_path: Path, candidate: Candidate) -> None:
    audio = save_set(tmp_path, ["a_one"]) / "a_one.wav"
    found = diarize(candidate, audio, tmp_path / "out" / "a_one.rttm")
    with_python = Diarizer.from_pretrained(candidate.path)(audio)
    expected = [time for segment in with_python.itersegments() for time in (segment.start, segment.end)]
    assert len(expected) == 4
    assert [time for turn in found.turns for time in (turn.start, turn.end)] == pytest.approx(expected, abs=1e-3)
    assert read_rttm(tmp_path / "out" / "a_one.rttm") == {"a_one": list(found.turns)}
    assert found.busy_s is not None
    assert 0 < found.busy_s < 10


def test_it_is_kept_while_everything_is_the_same(tmp_path: Path, candidate: Candidate, runs: list[Path]) -> None:
    audio, rttm = save_set(tmp_path, ["a_one"]) / "a_one.wav", tmp_path / "out" / "a_one.rttm"
    first = diarize(candidate, audio, rttm)
    assert diarize(candidate, audio, rttm) == first
    audio.touch()  # the bytes count, not the time
    assert diarize(replace(candidate, name="another name"), audio, rttm) == first
    assert len(runs) == 1


@pytest.mark.parametrize(
    "change", ["model", "audio", "chunk", "turns", "memory", "speakers", "code", "rttm", "record", "gone"]
)
def test_it_is_made_again_when_something_changes(
    tmp_path: Path, candidate: Candidate, runs: list[Path], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    audio, rttm = save_set(tmp_path, ["a_one"]) / "a_one.wav", tmp_path / "a.hyp.rttm"
    first = diarize(candidate, audio, rttm)
    if change == "model":
        other = save_loudness_model(tmp_path / "other.safetensors", speaks_always=True)
        candidate = Candidate("loudness", other, file_sha256(other))
    elif change == "audio":
        (save_set(tmp_path / "other", ["a_two"]) / "a_two.wav").replace(audio)
    elif change == "code":
        monkeypatch.setattr(hypotheses, "code_sha256", lambda *_: "of other sources")
    elif change == "rttm":
        save_rttm(rttm, [("by_hand", 0, 1)])
    elif change == "record":
        rttm.with_suffix(".json").write_text(json.dumps({"key": {}})[:-2])
    elif change == "gone":
        rttm.unlink()
    else:
        changes = {"chunk": {"chunk_ms": 480}, "turns": {"turns": (("min_off_frames", 20),)}}
        changes["memory"] = {"memory": (("cap_frames", inf),)}
        candidate = replace(candidate, settings=replace(OWN, **changes.get(change, {"max_speakers": 2})))
    again = diarize(candidate, audio, rttm)
    assert len(runs) == 2
    assert (again.turns == first.turns) == (change in ("speakers", "chunk", "memory", "code", "rttm", "record", "gone"))


def test_they_are_made_again_when_the_code_that_makes_them_changes(tmp_path: Path, candidate: Candidate) -> None:
    """Beside the code of turns: how a model is loaded and told; of the latter only a memory that is told knows."""
    audio = save_set(tmp_path, ["a_one"]) / "a_one.wav"
    told = replace(candidate, settings=replace(OWN, oracle_memory=True))
    for each, code in ((candidate, hypotheses.CODE), (told, (*hypotheses.CODE, *hypotheses.ORACLE_CODE))):
        assert hypotheses._key(each, audio, ())["code_sha256"] == code_sha256(*code) != code_sha256()
    assert [Path(hypotheses.__file__).parent.parent / name for name in (*hypotheses.CODE, *hypotheses.ORACLE_CODE)] == [
        Path(hypotheses.__file__),
        Path(oracle.__file__),
    ]


def test_a_recording_is_hashed_once_for_all_models(
    tmp_path: Path, candidate: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []

    def count(path: Path) -> str:
        hashed.append(path)
        return file_sha256(path)

    monkeypatch.setattr(hypotheses, "file_sha256", count)
    audio = save_set(tmp_path, ["a_one"]) / "a_one.wav"
    for name in ("one", "two", "three"):
        diarize(replace(candidate, name=name), audio, tmp_path / name / "a_one.rttm")
    assert hashed.count(audio) == 1


def test_turns_are_changed_as_asked(tmp_path: Path, candidate: Candidate) -> None:
    """The pause of 1 s between the two turns is bridged by 20 frames (1.6 s), and no padding starts the first later."""
    audio = save_set(tmp_path, ["a_one"]) / "a_one.wav"
    own = diarize(candidate, audio, tmp_path / "own.rttm").turns
    far = replace(candidate, settings=replace(OWN, turns=(("min_off_frames", 20),)))
    near = replace(candidate, settings=replace(OWN, turns=(("pad_frames", 0),)))
    bridged = diarize(far, audio, tmp_path / "b.rttm").turns
    unpadded = diarize(near, audio, tmp_path / "u.rttm").turns
    assert [(turn.start, turn.end) for turn in bridged] == [(own[0].start, own[1].end)]
    assert unpadded[0].start == pytest.approx(own[0].start + 0.08)


def test_the_memory_is_changed_as_asked(candidate: Candidate) -> None:
    """The rules of the memory, and of turns what follows from them; weights and all else stay."""
    changed = replace(OWN, memory=(("cap_frames", inf), ("confirm_frames", 7.0)))
    own = hypotheses._load(candidate.path, str(candidate.sha256), OWN).checkpoint
    found = hypotheses._load(candidate.path, str(candidate.sha256), changed).checkpoint
    memory = replace(own.model.config.memory, cap_frames=inf, confirm_frames=7.0)
    assert found.model.config == replace(own.model.config, memory=memory)
    assert found.model.memory.config == memory
    assert found.turns == replace(own.turns, confirm_frames=7.0)
    weights = found.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in own.model.state_dict().items())


def test_nothing_is_left_of_a_recording_that_fails(tmp_path: Path, candidate: Candidate) -> None:
    audio, rttm = save_set(tmp_path, ["a_one"]) / "a_one.wav", tmp_path / "out" / "a_one.rttm"
    audio.write_bytes(b"text")
    with pytest.raises(ValueError, match="a_one"):
        diarize(candidate, audio, rttm)
    assert not list(tmp_path.glob("out/*"))
