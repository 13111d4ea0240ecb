"""Studies that train: cells that are watched, kept, shared and gone on with; and what outcomes come to."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from diarnorm.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from diarnorm.claims import cells, finetuning, placement, rates, start
from diarnorm.claims.cells import Cell, GridConfig, Outcome, StudyConfig, failures, gradient_size, run_cell, run_cells
from diarnorm.claims.conditions import in_words, with_conditions
from diarnorm.claims.evidence import Evidence, geometric, unbounded
from diarnorm.claims.finetuning import FinetuneConfig, freeze
from diarnorm.claims.records import Record, load_all, save
from diarnorm.conformer import EncoderConfig
from diarnorm.evaluation.scores import Components
from diarnorm.model import Model, ModelConfig
from diarnorm.stream import Diarizer
from diarnorm.training.config import DataConfig
from diarnorm.training.corpus import RecordingsConfig
from diarnorm.training.develop import DevelopmentSet
from diarnorm.training.skips import NothingFiniteError
from diarnorm.training.trainer import Trainer
from diarnorm.turns import TurnConfig
from tests.tiny import QUICK_TURNS, make_checkpoint
from tests.tiny_run import ENCODER, MEMORY, tiny_run

pytestmark = pytest.mark.usefixtures("one_thread")


def study(corpus: Path, **grid: Any) -> StudyConfig:
    """A grid over runs of three steps."""
    run = tiny_run(corpus, num_steps=3, eval_every=3, checkpoint_every=1)
    return StudyConfig(run.model, run.loss, run.data, run.train, GridConfig(depths=(2,), seeds=(0,), **grid))


def outcome(last_loss: float, first_loss: float = 2.0, **facts: Any) -> Outcome:
    return Outcome(facts, first_loss, last_loss, 2.0, 3.0, 50.0, (first_loss, last_loss))


def with_deaf(outcomes: list[Outcome]) -> list[Outcome]:
    """With a run for each depth and seed that ends at 1.6."""
    kinds = {(o.facts.get("depth", 6), o.facts["seed"]) for o in outcomes}
    first = {"placement": "pre", "norm": "deaf", "lr": 1e-3}
    return [outcome(1.6, **{"depth": depth, **first, "seed": seed}) for depth, seed in sorted(kinds)] + outcomes


def values(evidence: Evidence) -> dict[str, float]:
    return {measure.name: measure.value for measure in evidence.measures}


def test_a_cell_is_the_trainers_run_and_is_watched(corpus: Path, tmp_path: Path) -> None:
    config = study(corpus, norms=("rms",))
    _, cell = placement.cells(config)
    assert cell.run.model.encoder.num_blocks == 2
    found = run_cell(cell, tmp_path / "cell")
    Trainer(cell.run, tmp_path / "plain").run()
    told = [line.split(",") for line in (tmp_path / "plain" / "log.csv").read_text("utf-8").splitlines()]
    births, speech = told[0].index("births"), told[0].index("speech")
    assert found.losses == tuple(pytest.approx(float(row[births]) + float(row[speech])) for row in told[1:])
    assert found.first_loss == found.losses[0]
    assert found.last_loss == pytest.approx(sum(found.losses) / 3)
    assert 0 < found.gradient_at_start < math.inf
    assert found.der > 0
    assert cells.read_outcome(tmp_path / "cell" / "outcome.json") == found
    assert not (tmp_path / "cell" / "last.pt").exists()


def test_a_cell_goes_on_where_it_stopped(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, cell = placement.cells(study(corpus, norms=("layer",)))
    whole = run_cell(cell, tmp_path / "whole")
    step = cells.WatchedTrainer._train_step

    def interrupted(self: cells.WatchedTrainer, batches: Any) -> dict[str, float]:
        if self.step == 2:
            raise KeyboardInterrupt
        return step(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(cells.WatchedTrainer, "_train_step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_cell(cell, tmp_path / "parts")
    assert run_cell(cell, tmp_path / "parts") == whole


def test_a_folder_of_other_settings_is_refused(corpus: Path, tmp_path: Path) -> None:
    _, cell = placement.cells(study(corpus, norms=("rms",)))
    (tmp_path / "cell.json").write_text("{}", "utf-8")
    with pytest.raises(ValueError, match="is of a run with other settings: remove it"):
        run_cell(cell, tmp_path)


def test_a_finished_cell_counts_only_under_its_own_settings(corpus: Path, tmp_path: Path) -> None:
    config = study(corpus, norms=("rms",))
    all_cells = placement.cells(config)
    first = run_cells(all_cells, tmp_path, "0/1")
    longer = replace(config, train=replace(config.train, num_steps=4))
    with pytest.raises(ValueError, match=r"norm=.* is of a run with other settings: remove it, or .*--output"):
        run_cells(placement.cells(longer), tmp_path, "0/1")
    other_voices = replace(config, data=replace(config.data, speech="synthetic"))
    with pytest.raises(ValueError, match="is of a run with other settings"):
        run_cells(placement.cells(other_voices), tmp_path, "1/2")  # though another part has its cells
    kept = replace(
        config,
        data=replace(config.data, store="features", cache_dir=None),
        train=replace(config.train, workers=2, threads=2, device="auto"),
    )
    assert run_cells(placement.cells(kept), tmp_path, "0/1") == first


def test_the_gradient_ratio_is_the_median(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,births\n1,3.0\n2,1.0\n", "utf-8")
    (tmp_path / "gradients.csv").write_text("1,1.0,2.0\n2,1.0,4.0\n3,1.0,inf\n", "utf-8")
    cell = Cell({"norm": "rms"}, StudyConfig())
    assert cells._outcome(cell, tmp_path, 50.0, stopped=False).gradient_ratio == 3.0


def test_parts_share_the_cells_and_the_last_one_sees_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def fake(cell: Cell, folder: Path) -> None:
        ran.append(cell.name)
        folder.mkdir()
        text = json.dumps(asdict(outcome(1.0, **cell.facts)))
        (folder / "outcome.json").write_text(text, "utf-8")

    monkeypatch.setattr(cells, "run_cell", fake)
    all_cells = placement.cells(StudyConfig(grid=GridConfig(norms=("rms", "none"), placements=("pre", "post"))))
    assert len(all_cells) == 8  # two of them deaf; without a norm there is nothing to place after
    assert run_cells(all_cells, tmp_path, "0/2") is None
    found = run_cells(all_cells, tmp_path, "1/2")
    assert found is not None
    assert [each.facts for each in found] == [cell.facts for cell in all_cells]
    assert sorted(ran) == sorted(cell.name for cell in all_cells)
    run_cells(all_cells, tmp_path, "0/1")
    assert len(ran) == 8


def test_a_run_that_stops_is_an_outcome(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, cell = placement.cells(study(corpus, norms=("rms",)))

    def stop(self: Trainer) -> dict[str, float]:
        step = self._train_step(next(iter(self.data.steps(0))))
        with self._log() as log:
            assert log is not None
            log.add(1, 0.0, 1.0, {**step, "births": math.nan}, {})
        raise NothingFiniteError("21 steps")

    monkeypatch.setattr(Trainer, "run", stop)
    found = run_cell(cell, tmp_path)
    assert found.last_loss == found.der == math.inf
    others = [outcome(1.5, norm="deaf"), replace(found, last_loss=0.1, first_loss=2.0)]
    assert failures([found, *others], ()) == [True, True, False]


def test_who_fails() -> None:
    ends = ((6, 0.4), (6, 0.8), (6, 1.0), (24, 1.2), (24, 1.3), (24, math.inf))
    outcomes = [outcome(1.4, norm="deaf", depth=6), outcome(1.5, norm="deaf", depth=24)]
    outcomes += [outcome(last, norm="rms", depth=depth) for depth, last in ends]
    # half of the way between 0.4 and 1.4 is 0.9; at depth 24, between 1.2 and 1.5, it is 1.35
    assert failures(outcomes, ("depth",)) == [True, True, False, False, True, False, False, True]
    none_learns = [outcome(1.5, norm="deaf"), outcome(1.5, norm="rms"), outcome(3.0, norm="rms")]
    assert failures(none_learns, ()) == [True, True, True]
    with pytest.raises(ValueError, match="no deaf run of depth=6 came to its end: give a lower rate, too"):
        failures([outcome(math.inf, norm="deaf", depth=6), outcome(1.0, norm="rms", depth=6)], ("depth",))


def test_a_model_that_died_is_seen_though_its_loss_fell() -> None:
    """Losses of runs that were looked at: Muon at 0.25, whose models stay silent, beside one that learns."""
    dead = [outcome(last, first_loss=3.13, norm="rms") for last in (1.48, 1.78)]
    found = failures([outcome(1.48, 3.13, norm="deaf"), outcome(0.90, 3.13, norm="rms"), *dead], ())
    assert found == [True, False, True, True]


def test_a_deaf_run_hears_nothing_to_its_end(corpus: Path, tmp_path: Path) -> None:
    config = study(corpus, norms=("layer", "rms"), learning_rates=(4e-3, 2e-3))
    (cell,) = cells.deaf_cells(config, (2,))
    assert cell.facts == {"depth": 2, "placement": "pre", "norm": "deaf", "lr": 2e-3, "seed": 0}
    assert cell.run == config.run("layer", "pre", 2, 2e-3, 0)
    run_cell(replace(cell, keep=True), tmp_path)
    model = load_checkpoint(tmp_path / "model.safetensors").model.eval()
    mel = torch.randn(2, 1, 8 * 24, 80)
    heard, other = (model.encoder(model.frontend(each)[0], chunk=12)[0] for each in mel)
    assert torch.equal(heard, other)


@pytest.mark.parametrize(("study_of", "depths"), [(placement, (6, 24)), (rates, (6,))])
def test_every_kind_has_its_deaf_run(study_of: Any, depths: tuple[int, ...]) -> None:
    grid = GridConfig(norms=("rms", "batch"), depths=depths, learning_rates=(1e-3, 2e-3), seeds=(0, 1, 2))
    all_cells = study_of.cells(StudyConfig(grid=grid))
    assert len({cell.name for cell in all_cells}) == len(all_cells)
    kinds = [tuple(cell.facts[name] for name in study_of.KIND) for cell in all_cells]
    deaf = [kind for kind, cell in zip(kinds, all_cells, strict=True) if cell.facts["norm"] == "deaf"]
    assert sorted(deaf) == sorted(set(kinds))


def test_placement_is_judged_at_the_greatest_depth() -> None:
    outcomes = [
        outcome(bad if where == "post" and depth == 24 and rate > 1e-3 else 0.5,
                depth=depth, placement=where, norm=norm, lr=rate, seed=0)
        for bad in (1.9,) for depth in (6, 24) for where in ("pre", "post")
        for norm in ("rms", "layer") for rate in (1e-3, 4e-3)
    ]  # fmt: skip
    outcomes = with_deaf(outcomes)
    evidence = placement.evidence_of(outcomes)
    post, _, *gradients = evidence.measures
    assert post.low < 10 < post.high  # 2 of 4 against none
    assert values(evidence) == {
        "post_diverged": 50.0,
        "pre_diverged": 0.0,
        "gradient_ratio_post": pytest.approx(2.0),
        "gradient_ratio_pre": pytest.approx(2.0),
    }

    first = {"rms": 2.0, "layer": 4.0}
    first["deaf"] = 100.0  # counts for nothing
    several = placement.evidence_of([replace(o, gradient_at_start=first[o.facts["norm"]]) for o in outcomes])
    assert several.measures[2] == geometric("gradient_ratio_post", [2.0, 4.0])  # however many learning rates
    assert gradients[0].low == gradients[0].high


def test_shares_that_are_all_alike_are_not_certain() -> None:
    outcomes = [
        outcome(0.5, depth=24, placement=where, norm="rms", lr=rate, seed=0)
        for where in ("pre", "post") for rate in (1e-3, 4e-3, 8e-3)
    ]  # fmt: skip
    none_diverged = placement.evidence_of(with_deaf(outcomes)).measures[0]
    assert none_diverged.low < 0.0 == none_diverged.value < 10.0 < none_diverged.high


def test_the_largest_stable_rate_is_that_before_the_first_failure() -> None:
    limits = {"batch": 8.0, "rms": 2.0, "none": 1.0}
    outcomes = [
        outcome(0.5 if rate <= limit else 1.9, norm=norm, lr=rate, seed=seed)
        for norm, limit in limits.items()
        for rate in (1.0, 2.0, 4.0, 8.0)
        for seed in (0, 1)
    ]
    found = rates.evidence_of(with_deaf(outcomes))
    assert values(found) == {"batch_over_none": pytest.approx(8.0), "batch_over_rms": pytest.approx(4.0)}
    assert any("batch: stable to the end of the range" in note for note in found.notes)
    assert all((each.low, each.high) == (pytest.approx(each.value / 2), math.inf) for each in found.measures)


@pytest.mark.parametrize(
    ("batch", "other", "low", "high"),
    [
        (4.0, 1.0, 2.0, 8.0),
        (8.0, 1.0, 4.0, math.inf),
        (4.0, 8.0, 0.0, 1.0),
        (0.5, 2.0, 0.0, 0.5),
        (4.0, 0.5, 4.0, math.inf),
    ],
)
def test_a_rate_lies_between_the_stable_one_and_the_next(batch: float, other: float, low: float, high: float) -> None:
    found = rates.ratio_of([batch] * 2, [other] * 2, "none", [1.0, 2.0, 4.0, 8.0])
    assert (found.name, found.value) == ("batch_over_none", pytest.approx(batch / other))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_starts_set_gamma_and_beta_and_nothing_else() -> None:
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=EncoderConfig(dim=16, num_blocks=1, num_heads=2, norm="layer")))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        start.start_from(model, 3.0, 0.5, seed=1)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    norms = {f"encoder.blocks.0.norms.{i}" for i in range(4)} | {
        "encoder.final_norm",
        "encoder.blocks.0.convolution.norm",
    }
    assert changed == {f"{norm}.{part}" for norm in norms for part in ("weight", "bias")}
    assert model.state_dict()["encoder.final_norm.weight"].unique().tolist() == [3.0]
    assert 0.1 < model.state_dict()["encoder.final_norm.bias"].std() < 1.0


def test_a_start_reaches_the_run(corpus: Path, tmp_path: Path) -> None:
    config = study(corpus, norms=("layer",), scales=(1.0, 30.0), offsets=(0.0, 1.0))
    usual, large, shifted = (run_cell(cell, tmp_path / cell.name) for cell in start.cells(config))
    assert len({usual.first_loss, large.first_loss, shifted.first_loss}) == 3
    found = values(start.evidence_of([usual, large, shifted]))
    assert found["gamma_30"] == pytest.approx(large.last_loss / usual.last_loss)
    assert found["beta_1"] == pytest.approx(shifted.last_loss / usual.last_loss)


def test_directions_and_sizes_of_a_start_are_told_apart_and_seeds_count_once() -> None:
    ratios = {0.03: 1.5, 0.3: 1.1, 1.0: 1.0, 3.0: 0.9, 30.0: 2.0}
    outcomes = [
        outcome((2.0 if norm == "rms" else 1.0) * ratio * (1.1 if norm == "rms" and ratio != 1 else 1.0) ** seed,
                norm=norm, gamma=gamma, beta=0.0, seed=seed)
        for norm in ("rms", "layer") for gamma, ratio in ratios.items() for seed in (0, 1, 2)
    ]  # fmt: skip
    found = {measure.name: measure for measure in start.evidence_of(outcomes).measures}
    assert found.keys() == {"gamma_0.03", "gamma_0.3", "gamma_3", "gamma_30"}
    for gamma in (0.03, 0.3, 3.0, 30.0):
        of_seeds = [ratios[gamma] * 1.1 ** (seed / 2) for seed in (0, 1, 2)]
        measure = found[f"gamma_{gamma:g}"]
        assert (measure.value, measure.low, measure.high) == pytest.approx(
            [getattr(geometric("", of_seeds), key) for key in ("value", "low", "high")]
        )


def test_frozen_is_all_but_the_norms_of_the_encoder() -> None:
    model = Model(ModelConfig(encoder=EncoderConfig(dim=16, num_blocks=1, num_heads=2)))
    freeze(model)
    free = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert len(free) == 6
    assert all("norm" in name and name.startswith("encoder.") for name in free)


def test_evidence_of_a_study_says_how_its_runs_were_trained(corpus: Path) -> None:
    run = tiny_run(corpus, num_steps=3, warmup_steps=0, decay_from=1.0)
    grid = GridConfig(depths=(1, 2), seeds=(0, 4))
    config = StudyConfig(run.model, run.loss, run.data, run.train, grid)
    stage = run.data.stages[0]
    assert with_conditions(Evidence("x", (), notes=("More.",)), config).notes == (
        f"Models with D = {run.model.encoder.dim} and 1 or 2 blocks; 3 steps of adamw, without warm-up, then at the "
        f"highest rate to the end; batches of {stage.batch_size} conversations of {stage.crop_s:g} s with up to "
        f"{stage.max_speakers} speakers, speakers of a corpus; seeds 0, 4.",
        "More.",
    )
    pretrained = FinetuneConfig(run.model, run.loss, replace(run.data, speech="synthetic"), run.train, grid)
    assert in_words(pretrained).startswith("Models that start from layer; 3 steps")
    assert "voices that the program makes" in in_words(pretrained)


def test_finetuning_compares_four_arms_from_the_same_weights(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = layer_model(tmp_path / "given.safetensors", seed=0)
    run = tiny_run(corpus, num_steps=3, eval_every=3, checkpoint_every=3)
    grid = GridConfig(seeds=(0, 1), learning_rates=(1e-3,))
    config = FinetuneConfig(run.model, run.loss, run.data, run.train, grid, str(given))
    thresholds: list[TurnConfig] = []
    errors = finetuning.evaluated

    def keep(conversations: DevelopmentSet, diarizer: Diarizer, mode: str) -> Any:
        thresholds.append(diarizer.turn_config)
        return errors(conversations, diarizer, mode)

    monkeypatch.setattr(finetuning, "evaluated", keep)
    found = finetuning.finetuning(config, tmp_path / "study")
    assert found is not None
    own = {replace(each, confirm_frames=QUICK_TURNS.confirm_frames) for each in thresholds}  # which is the memory's
    assert own == {QUICK_TURNS}  # those of the model that was given, which no arm keeps
    assert len(thresholds) == 9
    assert values(found).keys() == {"naive_der", "exact_der", "frozen_der"}
    rows = {row[0]: row for row in found.tables[0].rows}
    assert rows["none"][1] == "0 %"
    assert float(rows["exact"][1].removesuffix(" %")) < 0.01 < float(rows["naive"][1].removesuffix(" %"))
    first = {
        arm: cells.read_outcome(tmp_path / "study" / f"arm={arm},seed=0" / "outcome.json").first_loss for arm in rows
    }
    assert first["exact"] == pytest.approx(first["none"], abs=5e-3)  # float16 on the way
    folder = tmp_path / "study" / "arm=exact,seed=1"
    assert [path.name for path in sorted(folder.iterdir()) if path.suffix in (".pt", ".safetensors")] == [
        "model.safetensors"
    ]
    encoders = {arm: load_checkpoint(folder.parent / f"arm={arm},seed=0/model.safetensors").model.config.encoder
                for arm in rows}  # fmt: skip
    assert {arm: encoder.norm for arm, encoder in encoders.items()} == dict.fromkeys(rows, "rms") | {"none": "layer"}
    assert [encoders[arm].conv_norm for arm in ("naive", "exact")] == [None, "layer"]


def test_finetuning_needs_a_model_with_layer_norm_and_speech(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "rms.safetensors", make_checkpoint("rms"))
    with pytest.raises(ValueError, match=r"rms.safetensors has norm=rms: give a model trained with norm=layer"):
        finetuning.finetuning(FinetuneConfig(pretrained=str(tmp_path / "rms.safetensors")), tmp_path)
    recordings = DataConfig(speech=None, recordings=RecordingsConfig(train="a", dev="b", tune=True))
    with pytest.raises(ValueError, match=r"data\.speech=null leaves nothing to simulate: give a manifest"):
        finetuning.finetuning(FinetuneConfig(data=recordings), tmp_path)


def layer_model(path: Path, seed: int) -> Path:
    """A tiny model with LayerNorm whose offsets are not 0."""
    torch.manual_seed(seed)
    model = Model(ModelConfig(encoder=replace(ENCODER, norm="layer"), memory=MEMORY))
    with torch.no_grad():
        start.start_from(model, 1.0, 0.5, seed)
    save_checkpoint(path, Checkpoint(model, QUICK_TURNS))
    return path


def arms(**stopped: int) -> list[Outcome]:
    """Outcomes of fine-tuning, two seeds; those of `arm=seed` stopped after a step."""
    found = []
    for arm in finetuning.ARMS:
        for seed in (0, 1):
            facts: dict[str, Any] = {"arm": arm, "seed": seed}
            whole = Outcome(facts, 2.0, 1.0, 1.0, 1.0, 50.0 + seed, (2.0,) + (1.0,) * 19)
            cut = replace(whole, last_loss=math.inf, der=math.inf, losses=(2.0,))
            found.append(cut if stopped.get(arm) == seed else whole)
    return found


def scored(outcomes: list[Outcome], **more_s: float) -> dict[tuple[str, int], list[Components] | None]:
    """Three conversations of each arm and seed, some arms with so many more seconds of errors in each."""
    return {
        (arm := o.facts["arm"], seed := o.facts["seed"]): None if math.isinf(o.der) else [
            Components(miss_s=miss_s + seed + more_s.get(arm, 0.0), speech_s=10.0) for miss_s in (1.0, 3.0, 8.0)
        ]
        for o in outcomes
    }  # fmt: skip


def test_differences_of_fine_tuning_are_paired_by_conversation() -> None:
    files = scored(arms(), naive=0.2)
    files["frozen", 1] = [Components(miss_s=s, speech_s=10.0) for s in (9.0, 4.0, 2.0)]  # those of none, turned round
    found = finetuning.evidence_of(arms(), dict.fromkeys(finetuning.ARMS, 0.0), files, scored(arms())["none", 0] or [])
    naive, exact, frozen = found.measures
    assert (naive.name, naive.value) == ("naive_der", pytest.approx(2.0))
    assert (naive.low, naive.high) == (pytest.approx(2.0), pytest.approx(2.0))  # though conversations are far apart
    assert (exact.value, exact.low, exact.high) == (0.0, 0.0, 0.0)
    assert frozen.value == pytest.approx(0.0)
    assert frozen.low < -10 < 10 < frozen.high
    assert "which has 40 % itself" in found.notes[1]


def test_a_seed_whose_own_norm_stopped_is_left_out(tmp_path: Path) -> None:
    errors: dict[str, float] = dict.fromkeys(finetuning.ARMS, 0.0)
    one_stopped = arms(none=1, naive=1)
    found = finetuning.evidence_of(one_stopped, errors, scored(one_stopped, exact=0.1), [Components(speech_s=1.0)])
    assert values(found) == {"naive_der": 0.0, "exact_der": pytest.approx(1.0), "frozen_der": 0.0}
    assert found.notes[-1].startswith("Without seed 1, whose run with its own norm stopped")
    assert [row[4] for row in found.tables[0].rows] == ["0, -"] * 4
    save(Record(found, "", "", 0.0, ()), tmp_path)  # is JSON
    assert load_all(tmp_path)["finetuning"].evidence == found
    swapped = finetuning.evidence_of(arms(naive=1), errors, scored(arms(naive=1)), [Components(speech_s=1.0)])
    assert swapped.measures[0] == unbounded("naive_der", math.inf)
    assert [row[4] for row in swapped.tables[0].rows] == ["0, 0", "0, never", "0, 0", "0, 0"]


def test_starts_whose_usual_one_stopped_are_left_out(tmp_path: Path) -> None:
    outcomes = [
        outcome(loss, norm="rms", gamma=gamma, beta=0.0, seed=seed)
        for (gamma, seed), loss in {(1.0, 0): 1.0, (3.0, 0): 2.0, (1.0, 1): math.inf, (3.0, 1): math.inf}.items()
    ]
    found = start.evidence_of(outcomes)
    assert found.measures == (geometric("gamma_3", [2.0]),)
    assert found.notes[-1] == "Left out, since the run from gamma 1 stopped itself: rms, seed 1."
    save(Record(found, "", "", 0.0, ()), tmp_path)


def test_another_pretrained_model_is_not_trained_on_from_the_first_ones_start(tmp_path: Path) -> None:
    found = {}
    for seed, name in enumerate("ab"):
        starts = finetuning._starts(layer_model(tmp_path / f"{name}.safetensors", seed), tmp_path / "starts")
        for path, model, _ in starts.values():
            saved, made = load_checkpoint(path).model.state_dict(), model.state_dict()
            assert all(torch.allclose(saved[key].float(), made[key].float(), atol=1e-2) for key in made)
        found[name] = starts
    assert found["a"]["naive"][0] != found["b"]["naive"][0]
    again = finetuning._starts(tmp_path / "a.safetensors", tmp_path / "starts")
    assert {arm: start[0] for arm, start in again.items()} == {arm: start[0] for arm, start in found["a"].items()}


def test_gradients_of_matrices_count() -> None:
    layer = torch.nn.Linear(2, 2)
    layer.weight.grad, layer.bias.grad = torch.full((2, 2), 3.0), torch.full((2,), 100.0)
    assert gradient_size(layer) == 6.0
