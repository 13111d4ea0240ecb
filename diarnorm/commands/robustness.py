"""`diarnorm robustness models=[...] sets.NAME=FOLDER ...`: Hydra in front of the robustness report."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diarnorm.commands.recipefile import find_recipe, unnamed
from diarnorm.hydrajob import HydraCommand
from diarnorm.resources import configs_dir

RECIPE = "conditions"
"""Name of the file that makes a folder a recipe of a robustness report."""
UNNAMED = ("models", "peers", "peer_limit_s", "workers", "players", "player_s", "batch_s")
"""Keys that do not name the folder of the outcome, unless a sweep goes over them, nor do those of sets and peers."""

USAGE = """usage: diarnorm robustness models=[NAME|PATH|FOLDER,...] sets.NAME=FOLDER [KEY=VALUE ...]
       diarnorm robustness recipe=NAME|FOLDER [KEY=VALUE ...]

Damages recordings on purpose, one thing at a time and each at several severities, and reports what that costs each
model: change of the DER with its interval against a margin, speech where nobody speaks, labels added, drift of
embeddings, level of the residual stream, attention on the damage, time to recover. As Markdown, JSON, pictures, and one
HTML page with sounds to listen to.
  diarnorm robustness sets.mine=FOLDER
  diarnorm robustness sets.mine=FOLDER 'corruptions=[loudness,"dc.offset=0.1","loudness.swing=12 noise.pink=10"]'
  diarnorm robustness recipe=robustness models=[checkpoints/norm_study] sets.simulated=FOLDER workers=4
A model is a shipped name, a model file, or a folder of model files; models={a: FILE, b: FILE} names them. A set is a
folder of recordings with NAME.rttm beside each; `diarnorm evaluate --help` has the rest. `diarnorm corrupt --list`
shows the corruptions; a name without a severity stands for three. alone=["silence.hum_50=20"] does it to silence, where
there must be no turns. Other programs hear the same beside the models:
  diarnorm robustness sets.mine=FOLDER 'peers.other="python other.py {wavs} {rttms}"'
Everything goes to runs/robustness/CHANGES; what is measured there is used again while model, recording, settings and
code stay, so that the same command goes on where one stopped. `diarnorm robustness --cfg job` shows every key with its
value."""


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm robustness` with these arguments; the exit code. A user's mistake is one sentence and 2."""
    if any(word in ("-h", "--help") for word in argv):
        print(USAGE)
        return 0
    folder, config = find_recipe(RECIPE, argv, COMMAND.name)
    words = [word for word in argv if not word.startswith("recipe=")]
    job_name = COMMAND.name if folder == configs_dir() else folder.name
    return COMMAND.run([*words, unnamed(words, UNNAMED)], folder, config, job_name)


def _config() -> type:
    from diarnorm.robustness.config import RobustnessConfig

    return RobustnessConfig


def robustness_job(config: Any) -> dict[str, float]:
    """A report by a configuration that Hydra composed; the DER of every model on every clean set."""
    from hydra.core.hydra_config import HydraConfig

    from diarnorm.checkpoint import from_plain
    from diarnorm.robustness.config import RobustnessConfig
    from diarnorm.robustness.publish import publish
    from diarnorm.robustness.study import study
    from diarnorm.robustness.summary import pooled_ders

    runtime = HydraConfig.get().runtime
    run_dir, folder = Path(runtime.output_dir), Path(runtime.cwd)
    done = study(from_plain(RobustnessConfig, COMMAND.values(config)), run_dir, folder)
    printed, paths, notes = publish(done, run_dir, folder)
    for note in notes:
        print(f"diarnorm robustness: {note}", file=sys.stderr)
    print(printed)
    print(f"written: {', '.join(str(path) for path in paths)}", file=sys.stderr)
    return pooled_ders(done)


COMMAND = HydraCommand(
    "robustness",
    "a robustness report",
    _config,
    robustness_job,
    "'corruptions=[\"dc.offset=0.1\"]'",
    free=("models", "sets", "peers"),
)
