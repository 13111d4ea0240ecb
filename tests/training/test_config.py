"""Configurations of runs: what is out of range is refused by its key, what is not is kept to the last digit."""

import json
import math
from dataclasses import asdict, replace
from typing import Any

import pytest

from diarnorm.checkpoint import from_plain
from diarnorm.checks import check_range
from diarnorm.training.batches import CurriculumStage
from diarnorm.training.config import RunConfig


def with_value(key: str, value: Any) -> RunConfig:
    """The default run with one key changed."""

    def changed(config: Any, parts: list[str]) -> Any:
        name, *rest = parts
        return replace(config, **{name: changed(getattr(config, name), rest) if rest else value})

    return changed(RunConfig(), key.split("."))


@pytest.mark.parametrize(
    ("key", "legal", "illegal"),
    [
        ("model.encoder.eps", 1e-12, 0.0),
        ("model.encoder.eps", 1e-3, -1e-5),
        ("model.encoder.eps", 1e-3, math.nan),
        ("model.encoder.num_blocks", 1, 0),
        ("model.encoder.left_context", 0, -1),
        ("model.encoder.dropout", 0.0, 1.5),
        ("model.memory.num_slots", 4, 0),
        ("model.memory.dropout", 0.5, -0.1),
        ("train.learning_rate", 1e-9, 0.0),
        ("train.learning_rate", 1.0, math.inf),
        ("train.clip", 0.1, 0.0),
        ("train.num_steps", 1, 0),
        ("train.accumulate", 2, 0),
        ("train.decay_from", 1.0, -0.1),
        ("train.rollout_from", 2.0, -0.1),
        ("loss.speech", 0.0, -0.5),
        ("loss.scale", 1.0, 0.0),
        ("loss.delay_frames", 1.0, 0.0),
        ("loss.no_delay", 1.0, 1.5),
        ("loss.decoded", 1.0, 0.0),
        ("train.eval_every", 1, 0),
        ("train.checkpoint_every", 1, -1),
        ("train.dev_conversations", 1, 0),
        ("train.dev_duration_s", 1.0, 0.9),
        ("train.tune_rounds", 0, -1),
        ("train.tune_conversations", 1, 0),
        ("train.tune_duration_s", 1.0, 0.5),
        ("train.tune_default_share", 1.0, 1.1),
        ("train.threads", 1, 0),
        ("train.workers", 0, -1),
        ("train.warmup_steps", 0, -1),
        ("train.weight_decay", 0.0, -0.1),
        ("train.seed", 0, -1),
        ("train.final_share", 1.0, 1.1),
        ("train.ema_decay", 1.0, 2.0),
        ("train.rollout_share", 0.0, -0.5),
        ("train.chunks", (1,), (12, 0)),
    ],
)
def test_ranges_are_refused_by_key(key: str, legal: Any, illegal: Any) -> None:
    with_value(key, legal)
    with pytest.raises(ValueError, match=rf"^{key}=\S+ is out of range: give a number (above|of at least) [01]"):
        with_value(key, illegal)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, r"data.stages\[1\].batch_size=0 is out of range"),
        ({"crop_s": 1.9}, r"data.stages\[1\].crop_s=1.9 .* at least 2, the largest of train.chunks=\[12, 12, 6, 25\]"),
        ({"speaker_probabilities": ()}, r"data.stages\[1\].speaker_probabilities=\(\): give one or more"),
        ({"speaker_probabilities": (0.5, -0.1)}, r"data.stages\[1\].speaker_probabilities=\(0.5, -0.1\): give"),
        (
            {"max_speakers": 9, "speaker_probabilities": (0,) * 8 + (1,)},
            r"data.stages\[1\].speaker_probabilities asks for 9 speakers .* model.memory.num_slots=8: shorten it, or",
        ),
        ({"from_step": 0}, r"data.stages start at from_step=\[0, 0\]: the first must start at 0, each later"),
        ({"speaker_probabilities": (0.0, 0.0)}, r"the sum of data.stages\[1\].speaker_probabilities=0.0 is out of"),
    ],
)
def test_stages_are_refused_by_number(changes: dict[str, Any], message: str) -> None:
    stage = replace(CurriculumStage(from_step=5), **changes)
    with pytest.raises(ValueError, match=message):
        with_value("data.stages", (CurriculumStage(), stage))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model.encoder.norm", "rsm", "norm=rsm is not known: choose one of rms, layer, batch, none"),
        ("model.encoder.conv_norm", "False", "conv_norm=False is not known"),
        ("model.encoder.num_heads", 3, r"dim=128 must be a multiple of 2 \* num_heads"),
        ("model.encoder.num_heads", 0, "num_heads"),
        ("model.memory.num_heads", 5, "model.memory.dim=96 must be a multiple of its num_heads=5"),
        ("train.chunks", (), "train.chunks is empty"),
        ("train.optimizer", "sgd", "train.optimizer=sgd is not known: choose one of adamw, muon"),
        ("train.precision", "fp16", "train.precision=fp16 is not known: choose one of fp32, bf16"),
        ("data.speech", "", "data.speech is empty"),
    ],
)
def test_other_values_are_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        with_value(key, value)


def test_a_run_survives_json() -> None:
    run = with_value("data.stages", (CurriculumStage(), CurriculumStage(7, 60.0, 4, 5, (0.1, 1 / 3, 0.2))))
    run = replace(run, train=replace(run.train, learning_rate=1 / 3, chunks=(3, 7)))
    assert from_plain(RunConfig, json.loads(json.dumps(asdict(run)))) == run


def test_check_range_at_its_bounds() -> None:
    check_range("x", 0, low=0)
    check_range("x", 1, low=0, high=1)
    check_range("x", 1e-300, above=0)
    with pytest.raises(ValueError, match=r"^x=0 is out of range: give a number of at least 0.1$"):
        check_range("x", 0, low=0.1)
    with pytest.raises(ValueError, match=r"^x=0 .* of at least -1 and of at most -0.1$"):
        check_range("x", 0, low=-1, high=-0.1)
    with pytest.raises(ValueError, match=r"^x=0 .* above 0$"):
        check_range("x", 0, above=0)
    with pytest.raises(ValueError, match=r"^x=nan .* of at least 0$"):
        check_range("x", math.nan, low=0)
