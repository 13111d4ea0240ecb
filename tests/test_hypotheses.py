"""Models by name, path and folder; hypotheses are made once, and again when anything they depend on changes."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from diarnorm import hypotheses
from diarnorm.hypotheses import Candidate, Settings, diarize, file_sha256, find_candidates, given_turns
from diarnorm.resources import model_path
from diarnorm.rttm import read_rttm
from diarnorm.stream import Diarizer
from tests.evalset import save_rttm, save_set
from tests.loudness import save_loudness_model

pytestmark = pytest.mark.usefixtures("one_thread")
OWN = Settings(chunk_ms=None, max_speakers=None, turns=(), device="cpu")


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
    found = diarize(candidate, audio, tmp_path / "out" / "a_one.rttm", OWN)
    with_python = Diarizer.from_pretrained(candidate.path)(audio)
    expected = [time for segment in with_python.itersegments() for time in (segment.start, segment.end)]
    assert len(expected) == 4
    assert [time for turn in found.turns for time in (turn.start, turn.end)] == pytest.approx(expected, abs=1e-3)
    assert read_rttm(tmp_path / "out" / "a_one.rttm") == {"a_one": list(found.turns)}
    assert found.busy_s is not None
    assert 0 < found.busy_s < 10


def test_it_is_kept_while_everything_is_the_same(tmp_path: Path, candidate: Candidate, runs: list[Path]) -> None:
    audio, rttm = save_set(tmp_path, ["a_one"]) / "a_one.wav", tmp_path / "out" / "a_one.rttm"
    first = diarize(candidate, audio, rttm, OWN)
    assert diarize(candidate, audio, rttm, OWN) == first
    audio.touch()  # the bytes count, not the time
    assert diarize(replace(candidate, name="another name"), audio, rttm, OWN) == first
    assert len(runs) == 1


@pytest.mark.parametrize("change", ["model", "audio", "chunk", "turns", "speakers", "rttm", "record", "gone"])
def test_it_is_made_again_when_something_changes(
    tmp_path: Path, candidate: Candidate, runs: list[Path], change: str
) -> None:
    audio, rttm, settings = save_set(tmp_path, ["a_one"]) / "a_one.wav", tmp_path / "a.hyp.rttm", OWN
    first = diarize(candidate, audio, rttm, settings)
    if change == "model":
        other = save_loudness_model(tmp_path / "other.safetensors", speaks_always=True)
        candidate = Candidate("loudness", other, file_sha256(other))
    elif change == "audio":
        (save_set(tmp_path / "other", ["a_two"]) / "a_two.wav").replace(audio)
    elif change == "rttm":
        save_rttm(rttm, [("by_hand", 0, 1)])
    elif change == "record":
        rttm.with_suffix(".json").write_text(json.dumps({"key": {}})[:-2])
    elif change == "gone":
        rttm.unlink()
    else:
        changes = {"chunk": {"chunk_ms": 480}, "turns": {"turns": (("min_off_frames", 20),)}}
        settings = replace(settings, **changes.get(change, {"max_speakers": 2}))
    again = diarize(candidate, audio, rttm, settings)
    assert len(runs) == 2
    assert (again.turns == first.turns) == (change in ("speakers", "chunk", "rttm", "record", "gone"))


def test_turns_are_changed_as_asked(tmp_path: Path, candidate: Candidate) -> None:
    """The pause of 1 s between the two turns is bridged by 20 frames (1.6 s), and no padding starts the first later."""
    audio = save_set(tmp_path, ["a_one"]) / "a_one.wav"
    own = diarize(candidate, audio, tmp_path / "own.rttm", OWN).turns
    bridged = diarize(candidate, audio, tmp_path / "b.rttm", replace(OWN, turns=(("min_off_frames", 20),))).turns
    unpadded = diarize(candidate, audio, tmp_path / "u.rttm", replace(OWN, turns=(("pad_frames", 0),))).turns
    assert [(turn.start, turn.end) for turn in bridged] == [(own[0].start, own[1].end)]
    assert unpadded[0].start == pytest.approx(own[0].start + 0.08)


def test_nothing_is_left_of_a_recording_that_fails(tmp_path: Path, candidate: Candidate) -> None:
    audio, rttm = save_set(tmp_path, ["a_one"]) / "a_one.wav", tmp_path / "out" / "a_one.rttm"
    audio.write_bytes(b"text")
    with pytest.raises(ValueError, match="a_one"):
        diarize(candidate, audio, rttm, OWN)
    assert not list(tmp_path.glob("out/*"))
