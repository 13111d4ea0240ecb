"""Settings of the simulator that cannot be are refused by their key, those at the edge are not."""

import math
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from diarnorm.checkpoint import from_plain
from diarnorm.cli import main
from diarnorm.simulation.limits import KEY
from diarnorm.simulation.planner import SimulatorConfig, plan_conversation
from tests.voices import imagined_speech

PARTS = ("turns", "rooms", "noise", "channel")


def with_value(key: str, value: Any) -> SimulatorConfig:
    """The defaults with one key changed, as a file changes it."""
    part, _, name = key.rpartition(".")
    return from_plain(SimulatorConfig, {part: {name: value}} if part else {name: value})


def numbers() -> dict[str, Any]:
    """All numbers and ranges by their keys, with their defaults."""
    defaults = SimulatorConfig()
    found = {name: getattr(defaults, name) for name in ("level_sigma_db", "close_gap_s", "same_gender_probability")}
    for part in PARTS:
        config = getattr(defaults, part)
        assert is_dataclass(config)
        found |= {f"{part}.{field.name}": getattr(config, field.name) for field in fields(config)}
    empty = ("turns.silences", "rooms.measured", "noise.people")
    return {key: value for key, value in found.items() if key not in empty}


@pytest.mark.parametrize(
    ("key", "legal", "illegal"),
    [
        ("same_source_probability", 1.0, 1.1),
        ("close_gap_s", 0.0, -1.0),
        ("pad_s", 0.0, -0.1),
        ("level_limit_db", 0.1, 0.0),
        ("level_sigma_db", 0.0, -1.0),
        ("turns.turn_median_s", 0.1, 0.0),
        ("turns.overlap_shape", 0.1, 0.0),
        ("turns.transition_concentration", 0.1, 0.0),
        ("turns.dominance_concentration", 0.1, 0.0),
        ("turns.max_turn_s", 0.1, 0.0),
        ("turns.gap_mean_s", 0.0, -0.1),
        ("turns.max_overlap_share", 1.0, 1.5),
        ("turns.mid_turn_probability", 0.0, -0.5),
        ("rooms.dry_probability", 1.0, 2.0),
        ("rooms.rt60_s", [0.1, 0.1], [0.0, 0.0]),
        ("rooms.speaker_eq_db", 0.0, -3.0),
        ("noise.clip_probability", 1.0, 2.0),
        ("noise.bursts_per_s", 0.0, -1.0),
        ("noise.burst_log10_s", [-3.0, 2.0], [-3.1, 0.0]),
        ("noise.burst_log10_s", [-3.0, 2.0], [-2.0, 2.1]),
        ("noise.background_voices", [1, 1], [0, 3]),
        ("channel.level_db", [-90.0, 0.0], [-50.0, math.inf]),
        ("channel.level_db", [-90.0, 0.0], [math.nan, 0.0]),
        ("channel.band_limit_hz", [300.0, 300.0], [299.0, 4000.0]),
        ("channel.high_pass_hz", 3400.0, 3401.0),
        ("channel.hum_switch_s", [0.1, 0.1], [0.0, 1.0]),
        ("channel.drift_period_s", [0.1, 0.1], [0.0, 1.0]),
        ("channel.swing_interval_s", [0.0, 0.0], [-1.0, 1.0]),
    ],
)
def test_ranges_are_refused_by_key(key: str, legal: Any, illegal: Any) -> None:
    config = with_value(key, legal)
    plan_conversation(imagined_speech(), config, 1, duration_s=5.0)
    with pytest.raises(ValueError, match=rf"^{KEY}\.[\w.]+=\S+ is out of range: give a number (above|of|that) "):
        with_value(key, illegal)


@pytest.mark.unchecked
@pytest.mark.parametrize(("key", "default"), numbers().items())
def test_no_number_is_left_unchecked(key: str, default: Any) -> None:
    """NaN for every number; one end and three for every range, and the ends the other way round."""
    if not isinstance(default, tuple):
        with pytest.raises(ValueError, match=f"^{KEY}.{key}=nan is out of range"):
            with_value(key, math.nan)
        return
    for wrong in (list(default[:1]), [*default, default[-1]], []):
        with pytest.raises(ValueError, match=rf"^{KEY}.{key}=\[.*\](:| is no range:) give "):
            with_value(key, wrong)
    if len(default) == 2:
        with pytest.raises(ValueError, match=rf"^{KEY}.{key}=\[.*\] is no range: give \[LOW,HIGH\]"):
            with_value(key, list(default[::-1]))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("speaker_probabilities", []),
        ("speaker_probabilities", [0.0, 0.0]),
        ("speaker_probabilities", [0.5, -0.1]),
        ("speaker_probabilities", [0.5, math.inf]),
        ("turns.transitions", [0.0, 0.0, 0.0, 0.0]),
        ("turns.transitions", [0.5, 0.5, 0.5, math.nan]),
    ],
)
def test_shares_have_a_sum(key: str, value: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"^{KEY}.{key}=\[.*\] are no shares: give one or more numbers from 0 on"):
        with_value(key, value)


@pytest.mark.unchecked
def test_units_stand_in_the_advice() -> None:
    for key, value, end in (("noise.snr_db", 3 * [1.0], "in dB"), ("turns.mid_turn_s", [2.0, 1.0], "in s")):
        with pytest.raises(ValueError, match=rf"is no range: give \[LOW,HIGH\] {end}$"):
            with_value(key, value)


def test_a_training_refuses_them_before_it_reads_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["data.speech=nosuch", "data.simulator.noise.snr_db=[1,2,3]"]
    assert main(["train", "recipe=smoke", *words]) == 2
    sentence = "data.simulator.noise.snr_db=[1.0, 2.0, 3.0] is no range: give [LOW,HIGH] in dB\n"
    assert capsys.readouterr().err == f"diarnorm train: {sentence}"
