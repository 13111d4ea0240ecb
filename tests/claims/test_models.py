"""Experiments on trained models: attention under bursts, BatchNorm's modes, quality from results of an evaluation."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diarnorm.checkpoint import Checkpoint, save_checkpoint
from diarnorm.claims import bursts, modes
from diarnorm.claims.bursts import BurstConfig, Effect
from diarnorm.claims.evidence import Measure, unbounded
from diarnorm.claims.modes import ALONE, CHUNKS, EVAL, ModesConfig
from diarnorm.claims.quality import QualityConfig, evidence_of, norm_of, quality
from diarnorm.claims.registry import chosen
from diarnorm.claims.rules import judge
from diarnorm.evaluation.causes import Causes
from diarnorm.evaluation.results import Heading, Result, Shard, write_shard
from diarnorm.evaluation.scores import Components, FileScore
from diarnorm.evaluation.scoring import score
from diarnorm.fbank import fbank_offline
from diarnorm.stream import Diarizer
from diarnorm.training.batchgap import copy_in_mode
from diarnorm.training.develop import DevelopmentSet
from diarnorm.turns import Turn
from tests.tiny import QUICK_TURNS, make_checkpoint, make_model, noise, two_voices

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- bursts -----------------------------------------------------------------------------------------------


def test_bursts_report_a_pull_for_each_norm(tmp_path: Path) -> None:
    models = {}
    for norm in ("rms", "none"):
        models[norm] = str(tmp_path / f"{norm}.safetensors")
        save_checkpoint(models[norm], make_checkpoint(norm, talkative=False))
    config = BurstConfig(models=models, levels_db=(20.0,), longest_s=6.0)
    found = bursts.bursts(config)
    names = [f"pull_{kind}_{norm}" for kind in ("plosive", "slam") for norm in ("rms", "none")]
    assert [measure.name for measure in found.measures] == names
    assert len({measure.value for measure in found.measures}) == 4  # a slam is not a plosive
    assert set(names) < {criterion.measure for criterion in chosen((6,))[0].criteria}
    assert all(measure.value > 0 for measure in found.measures)
    assert [row[0] for row in found.tables[0].rows] == [
        f"{norm} ({norm}), {kind} of +20 dB" for norm in ("rms", "none") for kind in ("plosive", "slam")
    ]
    assert [len(table.columns) for table in found.tables[1:]] == [3, 3]  # models of two blocks
    assert "plosive 3, slam 3. Models: rms 1, none 1." in found.notes[0]  # the samples in which somebody speaks


@pytest.mark.parametrize("events", [((2.0, 2.4),), ((5.3, 5.5),)])
def test_a_burst_that_is_not_there_pulls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: tuple[tuple[float, float], ...]
) -> None:
    """Nor does one in what is left after the last whole chunk, which is 0.96 s."""
    monkeypatch.setattr(bursts, "corrupt", lambda sound, spec, seed: replace(sound, events=events))
    save_checkpoint(tmp_path / "rms.safetensors", make_checkpoint("rms", chunk=12))
    config = BurstConfig(models=str(tmp_path / "rms.safetensors"), bursts=("slam",), levels_db=(20.0,), longest_s=5.5)
    found = bursts.bursts(config)
    assert [(each.value, each.low, each.high) for each in found.measures] == [(1.0, 1.0, 1.0)]
    assert found.tables[0].rows[0][2] == found.tables[0].rows[0][3]


def test_recordings_without_a_marked_frame_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = iter([(), ((2.0, 2.4),), ()])
    monkeypatch.setattr(bursts, "corrupt", lambda sound, spec, seed: replace(sound, events=next(marks, ())))
    save_checkpoint(tmp_path / "rms.safetensors", make_checkpoint("rms"))
    config = BurstConfig(models=str(tmp_path / "rms.safetensors"), bursts=("slam",), levels_db=(20.0,), longest_s=5.0)
    assert bursts.bursts(config).measures[0].value == 1.0
    with pytest.raises(ValueError, match="bursts mark no frame of any recording"):
        bursts.bursts(config)  # no marks are left


def test_a_recording_counts_once_however_many_models() -> None:
    effects = [Effect(value, (value,), Components(), Components()) for value in (1.0, 2.0, 4.0)]
    config = BurstConfig(models="x", bursts=("slam",), levels_db=(20.0,))
    one = bursts.evidence_of({"a": "rms"}, {("a", "slam", 20.0): effects}, config)
    two = bursts.evidence_of(
        {"a": "rms", "b": "rms"}, {("a", "slam", 20.0): effects, ("b", "slam", 20.0): effects}, config
    )
    assert two.measures == one.measures
    other = [replace(each, pull=each.pull + 2.0) for each in effects]
    mixed = bursts.evidence_of(
        {"a": "rms", "b": "rms"}, {("a", "slam", 20.0): effects, ("b", "slam", 20.0): other}, config
    )
    assert mixed.measures[0].value == pytest.approx(one.measures[0].value + 1.0)


# ---- BatchNorm's modes ------------------------------------------------------------------------------------


def test_train_mode_of_one_recording_does_not_depend_on_the_others() -> None:
    model = copy_in_mode(make_model("batch"), train_mode=True)
    mel = 10 + 3 * noise(2, 8 * 24, 80)
    both, alone = modes.encode(model, mel, ALONE), modes.encode(model, mel[:1], ALONE)
    assert torch.equal(both[:1], alone)
    together = modes.encode(copy_in_mode(make_model("batch"), train_mode=True), mel, modes.ALL)
    assert not torch.allclose(together[:1], alone, atol=1e-3)


def test_eval_mode_in_chunks_is_eval_mode() -> None:
    model, mel = copy_in_mode(make_model("batch"), train_mode=False), 10 + 3 * noise(2, 8 * 24, 80)
    assert torch.allclose(modes.encode(model, mel, CHUNKS), modes.encode(model, mel, EVAL), atol=1e-5)
    trained = copy_in_mode(make_model("batch"), train_mode=True)
    assert not torch.allclose(modes.encode(trained, mel, CHUNKS), modes.encode(model, mel, EVAL), atol=1e-2)


def test_modes_of_a_model_file(corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "batch.safetensors"
    save_checkpoint(path, Checkpoint(make_model("batch", talkative=False), training={}))
    config = ModesConfig(models=[str(path)], speech=str(corpus), conversations=2, duration_s=6.0)
    found = modes.batchnorm_modes(config)
    assert [measure.name for measure in found.measures] == ["der_of_train_mode"]
    assert len(found.tables[0].rows[0]) == 5
    save_checkpoint(path, make_checkpoint("rms"))
    with pytest.raises(ValueError, match="batch has no BatchNorm: give models trained with norm=batch"):
        modes.batchnorm_modes(config)
    with pytest.raises(ValueError, match="no model to run"):
        modes.batchnorm_modes(ModesConfig())


def batch_config(corpus: Path, folder: Path, **changes: Any) -> ModesConfig:
    """Four conversations through a tiny model with BatchNorm, by name with these changes."""
    path = folder / "batch.safetensors"
    save_checkpoint(path, Checkpoint(make_model("batch", talkative=False), QUICK_TURNS, training={}))
    variants = {name: {"path": str(path), **values} for name, values in changes.items()}
    return ModesConfig(models=variants, speech=str(corpus), conversations=4, duration_s=6.0)


def test_a_conversation_counts_once_however_many_models(corpus: Path, tmp_path: Path) -> None:
    one = modes.batchnorm_modes(batch_config(corpus, tmp_path, a={}))
    two = modes.batchnorm_modes(batch_config(corpus, tmp_path, a={}, b={}))
    assert two.measures == one.measures
    assert one.measures[0].low < one.measures[0].value < one.measures[0].high


def test_modes_know_how_many_speakers_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    speakers: list[int] = []

    def keep(reference: Any, hypothesis: dict[str, list[Turn]]) -> Any:
        speakers.extend(len({turn.speaker for turn in turns}) for turns in hypothesis.values())
        return score(reference, hypothesis)

    monkeypatch.setattr(modes, "score", keep)
    mel = fbank_offline(torch.from_numpy(two_voices(96 * 1280))[None])
    conversations = DevelopmentSet(mel, {"one": [Turn(0.0, 7.0, "a")]})
    for max_speakers in (None, 1):
        modes.errors(conversations, Diarizer(make_checkpoint("batch", talkative=True)), EVAL, max_speakers)
    assert speakers[0] > speakers[1] == 1


def test_modes_are_those_of_the_model_as_it_is_asked_for(corpus: Path, tmp_path: Path) -> None:
    deaf = {"turns": {"onset": 1.0, "offset": 1.0}}
    rows = modes.batchnorm_modes(batch_config(corpus, tmp_path, own={}, deaf=deaf)).tables[0].rows
    assert rows[1][1:] == ("100 %",) * 4
    assert rows[0][1] != "100 %"
    with pytest.raises(ValueError, match="fast asks for chunk_ms=480, but chunks are 960 ms here: leave it out"):
        modes.batchnorm_modes(batch_config(corpus, tmp_path, fast={"chunk_ms": 480}))
    with pytest.raises(ValueError, match="told has oracle_memory, which is not done here: leave it out"):
        modes.batchnorm_modes(batch_config(corpus, tmp_path, told={"oracle_memory": True}))
    (tmp_path / "turns").mkdir()
    with pytest.raises(ValueError, match="turns is a folder, not a model that runs: give model files"):
        modes.batchnorm_modes(ModesConfig(models=[str(tmp_path / "turns")]))


# ---- quality ----------------------------------------------------------------------------------------------


def result(model: str, recording: str, error_s: float, speech_s: float = 10.0) -> Result:
    errors = Components(miss_s=error_s, speech_s=speech_s)
    scored = FileScore(recording, errors, errors, errors, 0.0, 1, 1, speech_s, Causes(miss_rest_s=error_s))
    return Result("set", recording, model, speech_s, 1.0, (scored,), None, missing=False, notes=())


def test_quality_pairs_recordings_over_seeds() -> None:
    hard = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 8.0}
    results = [
        result(f"{norm}-{seed}", name, error + (0.1 if norm == "rms" else 0.0) + 0.2 * seed)
        for norm in ("rms", "layer")
        for seed in (0, 1, 2)
        for name, error in hard.items()
    ]
    difference, over_seeds = evidence_of(results, "x").measures
    assert (over_seeds.low, over_seeds.high) == (pytest.approx(1.0), pytest.approx(1.0))
    assert difference.value == pytest.approx(1.0)  # 0.1 s of 10
    assert (difference.low, difference.high) == (pytest.approx(1.0), pytest.approx(1.0))  # the same for every recording
    rows = {row[0]: row for row in evidence_of(results, "x").tables[0].rows}
    assert rows["layer"][1:3] == ("3", "4")
    assert rows["layer"][3].startswith("44.5 (")


def test_quality_has_an_interval_over_seeds() -> None:
    """Seeds that lie apart leave open what recordings alone would confirm."""
    by_seed = {"0": -0.61, "1": 0.11, "2": -1.24}  # points
    results = [
        result(f"{norm}-{seed}", name, 3.0 + (points / 10 if norm == "rms" else 0.0))
        for seed, points in by_seed.items()
        for norm in ("rms", "layer")
        for name in "abcd"
    ]
    evidence = evidence_of(results, "x")
    found = {measure.name: measure for measure in evidence.measures}
    assert found["rms_less_layer"].high < 1.0
    seeds = found["rms_less_layer_seeds"]
    assert seeds.value == pytest.approx(-0.58)
    # Student's t with 2 degrees of freedom, 4.3027, times 0.6755 / sqrt(3)
    assert (seeds.low, seeds.high) == (pytest.approx(-2.258, abs=1e-3), pytest.approx(1.098, abs=1e-3))
    assert evidence.tables[1].rows == (("0", "-0.61"), ("1", "0.11"), ("2", "-1.24"))
    assert judge(chosen((12,))[0], found).verdict == "conditional"


def test_quality_of_one_seed_or_of_models_that_do_not_pair_is_conditional() -> None:
    one = evidence_of([result(f"{norm}-0", name, 1.0) for norm in ("rms", "layer") for name in "ab"], "x")
    assert one.measures[1] == unbounded("rms_less_layer_seeds", 0.0)
    apart = evidence_of([result(model, name, 1.0) for model in ("rms-0", "layer-1") for name in "ab"], "x")
    assert len(apart.measures) == len(apart.tables) == 1
    assert apart.notes[1:] == ("Left out, over seeds, since no other is their like: rms-0, layer-1.",)
    for evidence in (one, apart):
        measures = {measure.name: measure for measure in evidence.measures}
        assert judge(chosen((12,))[0], measures).verdict == "conditional"


def test_a_single_recording_or_conversation_bounds_nothing() -> None:
    (difference, _) = evidence_of([result("rms-0", "a", 1.0), result("layer-0", "a", 2.0)], "x").measures
    assert difference == unbounded("rms_less_layer", -10.0)
    files = [Components(miss_s=1.0, speech_s=10.0)]
    assert modes.der_difference("der_of_train_mode", files, files) == Measure(
        "der_of_train_mode", 0.0, -math.inf, math.inf
    )


def write_results(folder: Path, models: dict[str, float], of: int = 1, left_out: Sequence[int] = ()) -> None:
    """What `of` jobs of an evaluation of two recordings leave behind; models by what they err more than 1 and 5 s."""
    recordings = {"a": 1.0, "b": 5.0}
    heading = Heading({}, {name: {} for name in models}, {"set": {"recordings": list(recordings)}})
    results = [result(model, name, recordings[name] + models[model]) for _, name, model in heading.places]
    for number in set(range(of)) - set(left_out):
        write_shard(Shard(heading, number, of, tuple(results[number::of])), folder)


def test_quality_leaves_out_models_that_are_no_seeds(tmp_path: Path) -> None:
    """A model of another front end has the norm in its name, too."""
    write_results(tmp_path, {"rms-0": 0.0, "layer-0": 0.0, "rms_none": 2.0, "post": 9.0}, of=4)
    of_all = quality(QualityConfig(str(tmp_path)))
    of_seeds = quality(QualityConfig(str(tmp_path), names="-[0-9]$"))
    found = [each.measures[0].value for each in (of_all, of_seeds)]
    assert found == [pytest.approx(10.0), 0.0]  # 1 s of 10 in the mean of two models
    assert of_all.notes[1:] == (
        "Left out, since their names are not of one norm: post.",
        "Left out, over seeds, since no other is their like: rms_none.",
    )
    assert of_seeds.notes[1:] == ("Left out by the names asked for: rms_none, post.",)
    with pytest.raises(ValueError, match=r"names=\( is no regular expression"):
        QualityConfig(names="(")


def test_quality_takes_the_whole_of_one_evaluation(tmp_path: Path) -> None:
    models = {"rms-0": 0.0, "layer-0": 1.0}
    write_results(tmp_path / "part", models, of=4, left_out=[2])
    with pytest.raises(ValueError, match=r"1 of 4 shards are missing: run shard=2/4 first"):
        quality(QualityConfig(str(tmp_path / "part")))
    for name in ("one", "other"):
        write_results(tmp_path / "two" / name, {**models, name: 0.0})
    with pytest.raises(ValueError, match=r"is of another evaluation .* models differ in"):
        quality(QualityConfig(str(tmp_path / "two")))


@pytest.mark.parametrize(
    ("name", "norm"),
    [("rms-none", "rms"), ("frontend=none,norm=layer", "layer"), ("none-1", "none"), ("rms-layer", None), ("a", None)],
)
def test_the_norm_in_a_name(name: str, norm: str | None) -> None:
    assert norm_of(name) == norm


def test_quality_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="x has no model with layer in its name"):
        evidence_of([result("rms", "a", 1.0)], "x")
    with pytest.raises(ValueError, match="models of both norms need the same recordings"):
        evidence_of([result("rms", "a", 1.0), result("layer", "b", 1.0)], "x")
