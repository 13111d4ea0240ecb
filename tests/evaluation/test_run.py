"""Evaluations: scores by hand, the same seconds in one process, in several, and in shards; failures; what is kept."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from diarnorm.evaluation import hypotheses
from diarnorm.evaluation import run as evaluation
from diarnorm.evaluation.comparison import compare
from diarnorm.evaluation.config import EvaluateConfig, group_of, parse_shard
from diarnorm.evaluation.labels import LabelScore
from diarnorm.evaluation.results import Result, Shard, find_shards, merge, shards_beside, write_shard
from diarnorm.evaluation.run import clip, evaluate
from diarnorm.evaluation.scoring import read_recordings, score
from diarnorm.turns import Turn
from tests.evalset import REFERENCES, duration_of, save_rttm, save_set, turns
from tests.loudness import save_loudness_model

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, loudness_model: Path) -> Path:
    """A set, a part of it as another, and two models."""
    folder = tmp_path_factory.mktemp("evaluation")
    save_set(folder / "all")
    save_set(folder / "few", ["a_two", "b_two"], "flac")
    save_loudness_model(folder / "always.safetensors", speaks_always=True)
    (folder / "loudness.safetensors").symlink_to(loudness_model)
    return folder


def configure(**changes: Any) -> EvaluateConfig:
    sets = {"all": "all", "few": "few"}
    return EvaluateConfig(**{"models": ["loudness.safetensors", "always.safetensors"], "sets": sets, **changes})


def seconds(shard: Shard) -> list[dict[str, Any]]:
    """Everything that was measured but the time it took."""
    return [asdict(replace(result, busy_s=None)) for result in shard.results]


@pytest.fixture(scope="module")
def alone(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Shard:
    """The evaluation in this process."""
    return evaluate(configure(), tmp_path_factory.mktemp("alone"), folder)


def test_every_model_is_scored_on_every_recording(alone: Shard) -> None:
    assert [result.place for result in alone.results] == alone.heading.places
    assert len(alone.results) == 2 * (5 + 2)
    assert alone.is_whole
    for result in alone.results:
        assert result.duration_s == pytest.approx(duration_of(REFERENCES[result.recording]))
        assert result.busy_s is not None
        assert [score.uri for score in result.scores] == [result.recording] * 2
    errors = {result.place: result.scores[0].errors for result in alone.results}
    speech_s = sum(end - start for _, start, end in REFERENCES["b_two"])
    assert errors["few", "b_two", "always"].speech_s == pytest.approx(speech_s)
    assert errors["all", "b_silent", "loudness"].error_s == 0
    assert errors["all", "b_silent", "always"].false_alarm_s > 2
    assert errors["all", "a_one", "loudness"].error_s < errors["all", "a_one", "always"].error_s


def test_three_processes_give_the_same_seconds(alone: Shard, folder: Path, tmp_path: Path) -> None:
    several = evaluate(configure(workers=3), tmp_path, folder)
    assert seconds(several) == seconds(alone)
    assert several.heading == alone.heading


def test_shards_add_up_to_the_same_seconds(alone: Shard, folder: Path, tmp_path: Path) -> None:
    for number in reversed(range(4)):
        machine = tmp_path / f"machine{number % 2}"
        shard = evaluate(configure(shard=f"{number}/4"), machine, folder)
        assert len(shards_beside(shard, machine)) < 4
        write_shard(shard, machine)
    merged = merge(find_shards(tmp_path))
    assert seconds(merged) == seconds(alone)
    ours, theirs = (compare(merge([shard])).rows for shard in (merged, alone))
    assert [replace(row, rtf=None) for row in ours] == [replace(row, rtf=None) for row in theirs]


def test_a_second_run_uses_what_is_there(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = evaluate(configure(sets={"few": "few"}), tmp_path, folder)
    kept = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.rttm"))
    assert kept == [f"hypotheses/{m}/few/{name}.rttm" for m in ("always", "loudness") for name in ("a_two", "b_two")]
    (tmp_path / kept[1]).unlink()
    ran: list[str] = []
    original = hypotheses._run
    monkeypatch.setattr(hypotheses, "_run", lambda *given: ran.append(given[1].stem) or original(*given))
    again = evaluate(configure(sets={"few": "few"}), tmp_path, folder)
    assert ran == ["b_two"]
    same = [result.busy_s == old.busy_s for result, old in zip(again.results, first.results, strict=True)]
    assert same.count(False) == 1
    assert seconds(again) == seconds(first)


# ---- scores by hand, of turns that were given ---------------------------------------------------------------


def given(tmp_path: Path, reference: dict, hypothesis: dict, **changes: Any) -> dict[str, Result]:
    """Results by recording of turns alone, without any audio."""
    for side, recordings in (("ref", reference), ("hyp", hypothesis)):
        (tmp_path / side).mkdir()
        for name, spans in recordings.items():
            save_rttm(tmp_path / side / f"{name}.rttm", spans)
    config = EvaluateConfig(models="hyp", sets={"s": "ref"}, **changes)
    shard = evaluate(config, tmp_path / "run", tmp_path)
    assert merge([shard]).results == shard.results
    return {result.recording: result for result in shard.results} | {"": shard}  # pyright: ignore[reportReturnType]


TWO = [("A", 0, 10), ("B", 10, 20)]
LATE = [("x", 0, 10.2), ("y", 10.2, 20)]


def test_the_collar_is_on_each_side_as_nists(tmp_path: Path) -> None:
    """A boundary that is 0.2 s late: 1.00 %, 0.075 of 19.5 s with 0.125 s on each side, nothing with 0.25."""
    found = given(tmp_path, {"a": TWO}, {"a": LATE}, collars_s=(0.0, 0.125, 0.25))["a"]
    ders = [score.errors.der for score in found.scores]
    assert ders == pytest.approx([0.01, 0.075 / 19.5, 0.0], abs=1e-9)
    assert [score.scored_s for score in found.scores] == pytest.approx([20, 19.5, 19.0])
    assert found.scores[0].merged.der == 0.5


def test_a_missing_hypothesis_and_an_empty_reference(tmp_path: Path) -> None:
    reference = {"both": [], "missed": [("A", 0, 10)], "silent": [], "found": [("A", 0, 10)]}
    results = given(tmp_path, reference, {"both": [], "silent": [("x", 0, 10)], "found": [("x", 0, 10)], "new": []})
    heading = results.pop("").heading  # pyright: ignore[reportAttributeAccessIssue]
    errors = {name: result.scores[0].errors for name, result in results.items()}
    assert (errors["missed"].der, errors["missed"].miss_s, results["missed"].missing) == (1.0, 10, True)
    assert (errors["silent"].der, errors["silent"].false_alarm_s) == (None, 10)
    assert errors["both"].der == 0
    assert sum(e.error_s for e in errors.values()) / sum(e.speech_s for e in errors.values()) == 1.0
    assert heading.sets["s"]["notes"] == [
        "no UEM given; scored region: union of the extents of reference and hypothesis",
        "missed: no hypothesis by hyp; all of its speech counts as missed",
        "new: hypothesis by hyp without a reference, not scored",
    ]


@pytest.mark.parametrize(
    ("source", "der", "region"),
    [
        ("ref", 1 / 3, "union of the extents of reference and hypothesis"),
        ({"audio": "ref", "region_s": [0, 30]}, 1 / 3, "0 to 30 s"),
        ({"audio": "ref", "region_s": [5, 20]}, 0.0, "5 to 20 s"),
        ({"audio": "ref", "uem": "x.uem"}, 0.0, "UEM"),
    ],
)
def test_false_alarms_outside_the_reference_count_without_a_uem(
    tmp_path: Path, source: Any, der: float, region: str
) -> None:
    (tmp_path / "x.uem").write_text("a 1 5 20\n")
    reference, hypothesis = [("s1", 5, 10), ("s0", 10, 20)], [("s1", 0, 10), ("s0", 10, 20)]
    save_rttm(tmp_path / "ref" / "a.rttm", reference)
    save_rttm(tmp_path / "hyp" / "a.rttm", hypothesis)
    shard = evaluate(EvaluateConfig(models="hyp", sets={"s": source}), tmp_path, tmp_path)
    assert shard.results[0].scores[0].errors.der == pytest.approx(der)
    assert shard.heading.sets["s"]["region"] == region
    warned = [note for note in shard.heading.sets["s"]["notes"] if "no UEM given" in note]
    assert warned == ([f"no UEM given; scored region: {region}"] if source == "ref" else [])


def test_scores_are_those_of_diarnorm_score(folder: Path, alone: Shard, tmp_path: Path) -> None:
    """Recordings that are there are scored from their start to their end."""
    evaluate(configure(models="always.safetensors", sets={"all": "all"}), tmp_path, folder)
    reference = {name: turns(spans) for name, spans in REFERENCES.items()}
    durations_s = {name: duration_of(spans) for name, spans in REFERENCES.items()}
    hypothesis = read_recordings(tmp_path / "hypotheses" / "always" / "all", [])
    expected = score(reference, hypothesis, durations_s=durations_s, collar_s=0.25)
    found = {result.recording: result.scores[1] for result in alone.results if result.place[::2] == ("all", "always")}
    assert found == {file.uri: file for file in expected.files}


def test_labels_are_scored_in_long_recordings_only(tmp_path: Path) -> None:
    long = [("A", 0, 10), ("B", 10, 20), ("A", 500, 510), ("B", 510, 600)]
    labels = [("x", 0, 10), ("y", 10, 20), ("x", 500, 510), ("z", 510, 600)]
    found = given(tmp_path, {"long": long, "short": TWO}, {"long": labels, "short": LATE}, long_s=600.0)
    assert found["long"].labels == LabelScore(600.0, 1, 2, 1)
    assert found["short"].labels is None


def test_turns_outside_the_region_do_not_count_for_labels(tmp_path: Path) -> None:
    long = [("A", 0, 100), ("A", 200, 300)]
    for name, spans in (("ref", long), ("hyp", [("x", 0, 100), ("y", 200, 300)])):
        save_rttm(tmp_path / name / "a.rttm", spans)
    sets = {"s": {"audio": "ref", "region_s": [0, 150]}}
    config = EvaluateConfig(models="hyp", sets=sets, long_s=150.0)
    assert evaluate(config, tmp_path, tmp_path).results[0].labels == LabelScore(150.0, 0, 0, 0)
    assert clip([Turn(1, 5, "A")], [(6, 7)]) == []


def test_what_is_not_scored_is_no_pause(tmp_path: Path) -> None:
    """Of talk throughout 600 s are left out; the same without the talk there is a pause, also one that is cut short."""
    talk = [(at // 30 % 2, at, at + 30) for at in range(0, 1500, 30)]
    (tmp_path / "x.uem").write_text("".join(f"{name} 1 0 300\n{name} 1 900 1500\n" for name in ("talk", "pause")))
    recordings = {"talk": talk, "pause": [turn for turn in talk if not 270 <= turn[1] < 600]}
    for side, labels in (("ref", "AB"), ("hyp", "xy")):
        for name, spans in recordings.items():
            save_rttm(tmp_path / side / f"{name}.rttm", [(labels[who], start, end) for who, start, end in spans])
    config = EvaluateConfig(models="hyp", sets={"s": {"audio": "ref", "uem": "x.uem"}}, long_s=900.0)
    found = {result.recording: result.labels for result in evaluate(config, tmp_path, tmp_path).results}
    assert found == {"talk": LabelScore(900.0, 0, 0, 0), "pause": LabelScore(900.0, 0, 2, 2)}


# ---- failures -----------------------------------------------------------------------------------------------


def test_a_recording_that_fails_does_not_stop_the_others(tmp_path: Path, loudness_model: Path) -> None:
    save_set(tmp_path / "set", ["a_one", "a_two"])
    bad = save_set(tmp_path / "set", ["b_one"], "flac") / "b_one.flac"
    header = bad.read_bytes()[:200]
    bad.write_bytes(header + bytes(20_000))
    config = EvaluateConfig(models=str(loudness_model), sets={"s": "set"})
    with pytest.raises(ValueError, match=r"b_one.flac.*; 1 of 3 failed, the others are kept"):
        evaluate(config, tmp_path / "run", tmp_path)
    kept = tmp_path / "run" / "hypotheses" / "loudness" / "s"
    assert sorted(path.name for path in kept.glob("*.rttm")) == ["a_one.rttm", "a_two.rttm"]


def test_errors_of_the_program_are_raised(
    tmp_path: Path, loudness_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of our making")

    save_set(tmp_path / "set", ["a_one"])
    monkeypatch.setattr(evaluation, "diarize", fail)
    with pytest.raises(ZeroDivisionError):
        evaluate(EvaluateConfig(models=str(loudness_model), sets={"s": "set"}), tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"workers": 0}, "workers=0 is out of range"),
        ({"shard": "4/4"}, "shard=4/4 is none: give K/N with K from 0 to N - 1"),
        ({"shard": "one"}, "shard=one is none"),
        ({"collars_s": ()}, "collars_s is empty"),
        ({"collars_s": (0.0, -0.25)}, "collars_s=-0.25 is out of range"),
        ({"collars_s": (0.0, 0.0)}, "has a collar twice"),
        ({"chunk_ms": 500}, "chunk_ms=500 is not a multiple of 80 ms: give 480 or 560"),
        ({"max_speakers": 0}, "max_speakers=0 is out of range"),
        ({"pause_s": 0.0}, "pause_s=0.0 is out of range"),
        ({"num_resamples": 0}, "num_resamples=0 is out of range"),
        ({"group_by": "("}, r"group_by=\( is no regular expression"),
        ({"group_by": "a"}, "group_by=a has 0 groups: give speakers, none, or an expression"),
    ],
)
def test_a_value_out_of_range(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        configure(**changes)


def test_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no recordings to evaluate on: give a folder of them as sets"):
        evaluate(EvaluateConfig(), tmp_path, tmp_path)


def test_sets_that_would_share_a_folder(tmp_path: Path) -> None:
    """Hypotheses about recordings of one name would take each other's place."""
    config = EvaluateConfig(models="rms", sets={"a b": "x", "other": "y", "a_b": "z"})
    with pytest.raises(ValueError, match="two sets would both write to a folder a_b: give one another name"):
        evaluate(config, tmp_path, tmp_path)


def test_groups() -> None:
    assert parse_shard("0/1") == (0, 1)
    assert group_of("sim3_07", 3, "^sim(.)_") == "3"
    assert group_of("talk", 3, "^sim(.)_") == "other"
    assert group_of("talk", 3, "none") is None
