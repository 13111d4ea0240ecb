"""What a report says of itself: what was done, how it is scored, and what made it."""

import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from diarnorm.resources import code_sha256, commit, processor
from diarnorm.robustness.columns import FALLS
from diarnorm.robustness.intervals import FEW
from diarnorm.robustness.records import measuring_code
from diarnorm.robustness.study import Study


def made_by() -> dict[str, Any]:
    """Version, commit and machine that make the report, and the hash of the code that measured."""
    import diarnorm

    return {
        "diarnorm": diarnorm.__version__,
        "commit": commit(),
        "torch": version("torch"),
        "processor": processor(),
        "num_cores": os.cpu_count(),
        "code_sha256": code_sha256(*measuring_code()),
    }


def _asked(settings: Mapping[str, Any]) -> str:
    """What was asked of a model, where it is not its own."""
    return ", ".join(f"{key} {value}" for key, value in settings.items() if value and key != "device") or "as it comes"


def conventions(study: Study) -> list[str]:
    """What was done and how it is scored, in lines."""
    config, made = study.config, made_by()
    sets = ", ".join(f"{name} ({len(names)} recordings)" for name, names in study.recordings.items())
    return [
        f"sets: {sets or 'none'}; collar {config.collar_s:g} s on each side, overlap "
        f"{'left out' if config.skip_overlap else 'scored'}; seed {config.seed}",
        f"made by diarnorm {made['diarnorm']}, commit {made['commit']}, torch {made['torch']}, on {made['processor']}, "
        f"{made['num_cores']} cores, device {config.device}; code that measures {made['code_sha256'][:12]}",
        "change: pooled DER of the changed recordings less that of the clean ones, in points; 95 % interval by paired "
        f"bootstrap over recordings ({config.num_resamples} resamples), of fewer than {FEW} by Student's distribution; "
        "so are all other intervals, but that of the recovery, a median, always by bootstrap",
        "a margin is about how much the DER grows; holds: the whole interval is within it; fails: all of it is beyond; "
        f"undecided: the recordings do not tell; {FALLS}: all of the interval is below 0",
        "false speech: speech of the model where nobody speaks; labels added: against the clean run, mean and most",
        "drift: mean of 1 - cosine between the speaker embeddings of the same frames, where somebody speaks",
        "the same labels: share of the speech after the first change, outside of changes, in which one label alone "
        f"speaks in both runs, with the same one; asked for: {100 * config.same_labels_share:g} %",
        "level: RMS about the mean; speech level: active speech level after ITU-T P.56; medians over recordings",
        "recovery: median time from the end of a change, or of the slope of a jump of the level, until the activity of "
        f"every slot stays within {config.recovery_distance:g} of the clean run's for {config.recovery_hold_s:g} s",
        f"speech in silence that was put in is counted from {config.edge_s:g} s after its start to {config.edge_s:g} s "
        "before its end",
        *(
            f"model {name}: norm {facts['norm']}, front end {facts['frontend']}, {_asked(facts['settings'])}, "
            f"sha256 {facts['sha256'][:12]}"
            for name, facts in study.models.items()
        ),
        *(
            f"peer {name}: another program, which got the same damaged samples as files; {facts['command']}"
            for name, facts in study.peers.items()
        ),
    ]
