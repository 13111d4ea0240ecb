"""Model files: round trips, the norm they name, plain metadata, and what is refused with which words."""

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from diarnorm.checkpoint import Checkpoint, from_plain, load_checkpoint, save_checkpoint
from diarnorm.frontend import FrontEndConfig
from diarnorm.model import Model, ModelConfig
from diarnorm.modelfile import METADATA_KEY, as_json
from diarnorm.norms import NORMS
from diarnorm.stream import Diarizer
from diarnorm.turns import TurnConfig
from tests.tiny import ENCODER, MEMORY, make_checkpoint, two_voices


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a model may be written; not ASCII, with blanks."""
    return tmp_path / "modèle 日本.safetensors"


def read_raw(path: Path) -> tuple[dict, dict]:
    """Metadata and tensors as they lie in the file."""
    with safe_open(str(path), framework="pt") as file:
        names = file.keys()
        return json.loads(file.metadata()[METADATA_KEY]), {name: file.get_tensor(name) for name in names}


def rewrite(path: Path, facts: dict, tensors: dict) -> None:
    """The same file with other contents."""
    safetensors.torch.save_file(tensors, str(path), metadata={METADATA_KEY: json.dumps(facts)})


# ---- round trips ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_round_trip_keeps_everything(path: Path, norm: str) -> None:
    checkpoint = replace(make_checkpoint(norm), chunk=6, chunks=(6, 12), training={"hours": 61.5, "who": ["a", "ü"]})
    save_checkpoint(path, checkpoint, dtype=torch.float32)
    loaded = load_checkpoint(path, norm=norm)
    assert loaded.model.config == checkpoint.model.config
    assert (loaded.turns, loaded.chunk, loaded.chunks) == (checkpoint.turns, 6, (6, 12))
    assert loaded.training == checkpoint.training
    saved = checkpoint.model.state_dict()
    assert loaded.model.state_dict().keys() == saved.keys()
    for name, value in loaded.model.state_dict().items():
        assert value.dtype == saved[name].dtype
        assert torch.equal(value, saved[name]), name


def test_a_loaded_model_gives_the_same_turns(path: Path) -> None:
    save_checkpoint(path, make_checkpoint(), dtype=torch.float32)
    samples = torch.from_numpy(two_voices(20 * 1280))[None]
    with torch.inference_mode():
        expected, _ = make_checkpoint().model(samples, chunk=4)
        found, _ = Diarizer.from_pretrained(path).model(samples, chunk=4)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("norm", NORMS)
def test_half_precision_is_the_default_and_close(path: Path, norm: str) -> None:
    checkpoint = make_checkpoint(norm)
    save_checkpoint(path, checkpoint)
    _, stored = read_raw(path)
    loaded = load_checkpoint(path).model.state_dict()
    for name, value in checkpoint.model.state_dict().items():
        if value.is_floating_point():
            assert stored[name].dtype == torch.float16
            torch.testing.assert_close(loaded[name], value, rtol=2.0**-11, atol=2.0**-25)
        else:
            assert torch.equal(loaded[name], value)
    assert path.stat().st_size < 2.2 * sum(v.numel() for v in loaded.values()) + 16_000


def test_loaded_models_are_ready_to_use(path: Path) -> None:
    save_checkpoint(path, replace(make_checkpoint(), model=make_checkpoint().model.train()))
    loaded = load_checkpoint(path).model
    assert not any(module.training for module in loaded.modules())
    assert {tensor.device.type for tensor in loaded.state_dict().values()} == {"cpu"}
    assert {tensor.dtype for tensor in loaded.parameters()} == {torch.float32}


def test_saving_leaves_the_model_alone(path: Path) -> None:
    model = make_checkpoint().model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save_checkpoint(path, replace(make_checkpoint(), model=model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_default_checkpoint_round_trips(path: Path) -> None:
    save_checkpoint(path, Checkpoint(Model()))
    loaded = load_checkpoint(path)
    assert (loaded.turns, loaded.chunk, loaded.chunks) == (TurnConfig(), 12, (6, 12, 25))
    assert loaded.model.config == ModelConfig()


def test_values_beyond_half_precision_are_kept(path: Path) -> None:
    checkpoint = make_checkpoint("batch")
    variance = checkpoint.model.encoder.final_norm.running_var
    assert isinstance(variance, torch.Tensor)
    variance[3] = 1e6
    save_checkpoint(path, checkpoint)
    assert torch.equal(load_checkpoint(path).model.state_dict()["encoder.final_norm.running_var"], variance)


def test_running_statistics_never_updated_are_told_once(path: Path) -> None:
    save_checkpoint(path, Checkpoint(Model(ModelConfig(encoder=replace(ENCODER, norm="batch"), memory=MEMORY))))
    never = r"statistics of BatchNorm encoder.blocks.0.convolution.norm were never updated"
    with pytest.warns(RuntimeWarning, match=never) as told:
        load_checkpoint(path)
    assert len(told) == 1
    save_checkpoint(path, make_checkpoint("batch"))
    load_checkpoint(path)  # warnings are errors here


# ---- the norm ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trained", NORMS)
@pytest.mark.parametrize("wanted", NORMS)
def test_another_norm_is_refused_by_both_names(path: Path, trained: str, wanted: str) -> None:
    save_checkpoint(path, make_checkpoint(trained))
    if trained == wanted:
        assert load_checkpoint(path, norm=wanted).model.config.encoder.norm == wanted
        return
    with pytest.raises(ValueError, match=rf"trained with norm={trained}, not norm={wanted}: a norm cannot be swapped"):
        load_checkpoint(path, norm=wanted)


def test_the_file_wins_over_the_defaults(path: Path) -> None:
    config = ModelConfig(FrontEndConfig("frame", floor=1.5), replace(ENCODER, eps=1e-3, norm="layer"), MEMORY)
    save_checkpoint(path, Checkpoint(Model(config)))
    loaded = load_checkpoint(path).model
    assert loaded.config == config
    assert loaded.encoder.blocks[0].get_submodule("norms.0").eps == 1e-3  # pyright: ignore[reportAttributeAccessIssue]


# ---- metadata ---------------------------------------------------------------------------------------------


def assert_plain(value: object) -> None:
    """Dicts, lists, strings, finite numbers, booleans, None: nothing that needs a class to be read."""
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            assert_plain(part)
        return
    assert type(value) in (str, int, float, bool, type(None))
    assert not isinstance(value, float) or math.isfinite(value)


def test_metadata_is_plain_json_that_names_the_norm(path: Path) -> None:
    checkpoint = make_checkpoint("layer")
    save_checkpoint(path, checkpoint)
    facts, _ = read_raw(path)
    assert_plain(facts)
    assert facts["norm"] == facts["model"]["encoder"]["norm"] == "layer"
    assert facts["model"] == json.loads(json.dumps(asdict(checkpoint.model.config)))
    assert facts["turns"] == asdict(checkpoint.turns)


def test_a_memory_without_a_cap_comes_back(path: Path) -> None:
    checkpoint = make_checkpoint()
    endless = checkpoint.under(replace(MEMORY, cap_frames=math.inf), checkpoint.turns)
    save_checkpoint(path, endless)
    assert read_raw(path)[0]["model"]["memory"]["cap_frames"] == "inf"
    loaded = load_checkpoint(path)
    assert loaded.model.config == endless.model.config
    assert loaded.model.memory.config.cap_frames == math.inf


@pytest.mark.parametrize("bad", [{"model": torch.zeros(1)}, {"figures": {"der": np.float32(9.5)}}, {"who": {"a"}}])
def test_records_that_are_not_plain_are_refused(path: Path, bad: dict) -> None:
    with pytest.raises((ValueError, TypeError)):
        save_checkpoint(path, replace(make_checkpoint(), training=bad))
    assert not path.exists()


# ---- what is not a model ----------------------------------------------------------------------------------


def assert_refused(path: Path, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_models_are_refused(path: Path) -> None:
    assert_refused(path, "no such file")
    assert_refused(path.parent, "cannot be read")
    for content in (b"", b"RIFF", np.random.default_rng(0).bytes(5000)):
        path.write_bytes(content)
        assert_refused(path, "is not a model")
    torch.save({"weight": torch.zeros(3)}, path)
    assert_refused(path, "is not a model")
    safetensors.torch.save_file({"weight": torch.zeros(3)}, str(path))
    assert_refused(path, "not a diarnorm model")
    safetensors.torch.save_file({"weight": torch.zeros(3)}, str(path), metadata={"format": "pt"})
    assert_refused(path, "not a diarnorm model")


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_truncated_file_is_refused(path: Path, share: float) -> None:
    save_checkpoint(path, make_checkpoint())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert_refused(path, "damaged|is not a model")


def test_a_newer_format_is_refused(path: Path) -> None:
    save_checkpoint(path, make_checkpoint())
    facts, tensors = read_raw(path)
    rewrite(path, {**facts, "format": 2}, tensors)
    assert_refused(path, "has format 2, this version reads 1: update diarnorm")


def test_missing_and_unexpected_tensors_are_refused(path: Path) -> None:
    save_checkpoint(path, make_checkpoint())
    facts, tensors = read_raw(path)
    rewrite(path, facts, {name: value for name, value in tensors.items() if name != "encoder.entry.weight"})
    assert_refused(path, r"missing \['encoder.entry.weight'\], unexpected \[\]")
    rewrite(path, facts, {**tensors, "extra": torch.zeros(1)})
    assert_refused(path, r"missing \[\], unexpected \['extra'\]")


def test_tensors_of_another_size_are_refused(path: Path) -> None:
    save_checkpoint(path, make_checkpoint())
    facts, tensors = read_raw(path)
    rewrite(path, facts, {**tensors, "encoder.entry.bias": torch.zeros(7)})
    assert_refused(path, r"does not fit its own configuration: .*encoder.entry.bias")


def test_unknown_options_are_refused_by_name(path: Path) -> None:
    save_checkpoint(path, make_checkpoint())
    facts, tensors = read_raw(path)
    facts["model"]["encoder"]["nrom"] = "rms"
    rewrite(path, facts, tensors)
    with pytest.raises(ValueError, match=r"EncoderConfig has no field nrom: known are dim, num_blocks"):
        load_checkpoint(path)


# ---- plain values to dataclasses --------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """An inner value."""

    size: int = 1
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tree:
    """An outer value."""

    leaf: Leaf = Leaf()
    leaves: tuple[Leaf, ...] = ()
    share: float = 0.5
    name: str | None = None
    kind: ClassVar[str] = "tree"


@pytest.mark.parametrize(
    "tree",
    [
        Tree(),
        Tree(Leaf(3, ("a", "b")), (Leaf(1), Leaf(2, ("c",))), 0.0, "x"),
    ],
)
def test_plain_values_become_dataclasses_again(tree: Tree) -> None:
    assert from_plain(Tree, json.loads(json.dumps(asdict(tree)))) == tree
    assert from_plain(Tree, {}) == Tree()


def test_unknown_fields_are_refused_at_any_depth() -> None:
    with pytest.raises(ValueError, match=r"Tree has no field shape: known are leaf, leaves, share, name"):
        from_plain(Tree, {"shape": 1})
    with pytest.raises(ValueError, match=r"Leaf has no field sise: known are size, names"):
        from_plain(Tree, {"leaf": {"sise": 1}})
    with pytest.raises(ValueError, match=r"Leaf has no field sise"):
        from_plain(Tree, {"leaves": [{"sise": 1}]})
    with pytest.raises(ValueError, match=r"Tree has no field kind: known are leaf, leaves, share, name$"):
        from_plain(Tree, {"kind": "bush"})


def test_a_file_with_unknown_fields_is_named(path: Path) -> None:
    save_checkpoint(path, make_checkpoint())
    facts, tensors = read_raw(path)
    for part in ("model", "turns"):
        rewrite(path, facts | {part: facts[part] | {"shape": 1}}, tensors)
        with pytest.raises(ValueError, match=r"modèle 日本.safetensors does not fit this version .*has no field shape"):
            load_checkpoint(path)


def test_figures_that_are_no_numbers_do_not_cost_the_model(path: Path) -> None:
    record = {"gap": {"train_mode": math.nan}, "best": [math.inf, -math.inf, 0.25]}
    save_checkpoint(path, replace(make_checkpoint(), training=record))
    assert load_checkpoint(path).training == {"gap": {"train_mode": "nan"}, "best": ["inf", "-inf", 0.25]}
    assert math.isnan(from_plain(Tree, as_json({"share": math.nan})).share)


ENDLESS = ModelConfig(memory=replace(MEMORY, cap_frames=math.inf))


@pytest.mark.parametrize("config", [ModelConfig(), TurnConfig(), ModelConfig(encoder=ENCODER, memory=MEMORY), ENDLESS])
def test_configurations_survive_json(config: ModelConfig | TurnConfig) -> None:
    assert from_plain(type(config), json.loads(json.dumps(as_json(asdict(config)), allow_nan=False))) == config
