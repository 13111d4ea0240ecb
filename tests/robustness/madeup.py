"""A study without audio: records written by hand, for what comes after the measuring."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from diarnorm.evaluation.scores import Components
from diarnorm.robustness.conditions import find_conditions
from diarnorm.robustness.config import Margin, RobustnessConfig
from diarnorm.robustness.records import Record
from diarnorm.robustness.study import Study

NAMES = tuple(f"r{number}" for number in range(8))
SPEECH_S = 10.0
CORRUPTIONS = ("loudness.swing=6", "loudness.swing=20", "dc.offset=0.1", "silence.middle=10", "burst.slam=15")
KINDS = {"a": ("none", "rms"), "b": ("frame", "rms"), "c": ("none", "layer <ln>"), "d": ("none", "rms")}
"""Front end and norm of each model; `a` and `d` are two seeds of the same."""

BLANK = Record(
    key="",
    model="a",
    set_name="x",
    recording="r0",
    condition="clean",
    duration_s=12.0,
    level_dbfs=-30.0,
    speech_level_db=-26.0,
    dc=0.0,
    errors=Components(0.5, 0.3, 0.2, SPEECH_S),
    merged=Components(0.5, 0.25, 3.0, SPEECH_S),
    halves=(),
    num_turns=3,
    turns="0.500 1.000 speaker_1; 2.000 3.280 speaker_2; 4.000 5.000 speaker_1",
    num_speakers=2,
    event_s=0.0,
    event_speech_s=0.0,
    inserted_s=9.0,
    inserted_speech_s=0.0,
    drift=0.0,
    rms=(1.0, 2.0),
    event_rms=None,
    attention=None,
    clean_attention=None,
    uniform_attention=None,
    recovery_s=(),
)


def config(**changes: Any) -> RobustnessConfig:
    """What the study asked for."""
    asked = RobustnessConfig(
        models=list(KINDS),
        sets={"x": "x"},
        corruptions=CORRUPTIONS,
        alone=("nothing", "silence.hum_50=20"),
        margins=(Margin("dc", 0.3),),
        quiet=("silence",),
        same_labels=("silence",),
        players=(),
        num_resamples=200,
    )
    return replace(asked, **changes)


def with_peer(study: Study, errors: Components = BLANK.errors) -> Study:
    """The same with `<peer>`, which has these errors under every change of samples, and those of `a` else."""
    nothing = {"drift": None, "rms": (), "event_rms": None, "attention": None, "clean_attention": None}
    nothing |= {"model": "<peer>", "uniform_attention": None, "recovery_s": ()}
    records = dict(study.records)
    for condition in study.conditions:
        unchanged = condition.is_clean or condition.is_alone
        for place, each in study.records.items():
            if place[0] == "a" and place[3] == condition.name and not condition.spec.on_features.links:
                own = replace(each, errors=each.errors if unchanged else errors, **nothing)
                records["<peer>", *place[1:]] = own
    return replace(study, records=records, peers={"<peer>": {"command": "p.py {wavs}", "files": {}}})


def made_up(changes: Mapping[tuple[str, str], Mapping[str, Any]] | None = None, **asked: Any) -> Study:
    """Records that are all alike, but for `changes` by model and condition; a change may be a function of the number
    of the recording.
    """
    conditions = tuple(find_conditions(config(**asked)))
    records: dict[tuple[str, str, str, str], Record] = {}
    for model in KINDS:
        for condition in conditions:
            names, set_name = (("silence",), "silence") if condition.is_alone else (NAMES, "x")
            for number, name in enumerate(names):
                values = dict((changes or {}).get((model, condition.name), {}))
                values = {key: value(number) if callable(value) else value for key, value in values.items()}
                place = {"model": model, "set_name": set_name, "recording": name, "condition": condition.name}
                blank = (
                    replace(BLANK, num_turns=0, errors=Components(), merged=Components()) if len(names) == 1 else BLANK
                )
                records[model, set_name, name, condition.name] = replace(blank, **place, **values)
    facts = {
        name: {"sha256": name * 64, "norm": norm, "frontend": frontend, "settings": {}}
        for name, (frontend, norm) in KINDS.items()
    }
    return Study(config(**asked), conditions, facts, {"x": NAMES}, records, ("x: a note",))
