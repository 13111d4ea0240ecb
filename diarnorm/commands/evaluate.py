"""`diarnorm evaluate models=[...] sets.NAME=FOLDER ...`: Hydra in front of the evaluation; shards are merged."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diarnorm.commands.recipefile import find_recipe, unnamed, values_of
from diarnorm.hydrajob import HydraCommand

if TYPE_CHECKING:
    from diarnorm.evaluation.results import Shard

RECIPE = "evaluation"
"""Name of the file that makes a folder a recipe of an evaluation."""
UNNAMED = ("models", "workers", "shard", "strict")
"""Keys that do not name the folder of the outcome, unless a sweep goes over them; neither do those of sets."""

USAGE = """usage: diarnorm evaluate models=[NAME|PATH|FOLDER,...] sets.NAME=FOLDER [KEY=VALUE ...] [-m]
       diarnorm evaluate recipe=NAME|FOLDER [KEY=VALUE ...]
       diarnorm evaluate merge=FOLDER

Runs models on sets of recordings and compares them: DER with its parts, the DER of the merged output, JER, speakers
miscounted, speed, with intervals and paired differences, and where the errors come from, as Markdown, CSV, JSON and
pictures.
  diarnorm evaluate sets.mine=FOLDER
  diarnorm evaluate models=[rms,path.safetensors] sets.real=real/ sets.sim=simulated/ workers=4
  diarnorm evaluate sets.mine=FOLDER chunk_ms=480 turns.min_off_frames=6 memory.birth=0.5
  diarnorm evaluate sets.mine=FOLDER 'models={own: rms, sum: {path: rms, memory: {cap_frames: inf}}}'
  diarnorm evaluate recipe=samples
A model is a shipped name, a model file, or a folder of RTTM files from elsewhere; models={a: PATH, b: PATH} names them,
and {path: PATH, chunk_ms: ..., max_speakers: ..., turns: {...}, memory: {...}} is one under settings of its own; with
oracle_memory: true its memory is told by the reference whom it hears, which shows what errors of remembering cost.
A set is a folder of recordings with NAME.rttm beside each (and UEM files where only parts are scored), a list of
recordings, or its parts: sets.x.audio=FOLDER sets.x.rttm=FOLDER sets.x.uem=FILE, or sets.x.region_s=[0,30].
Everything goes to runs/evaluate/CHANGES; hypotheses that are there are used again while model, recording and settings
stay. More than one machine: -m shard=0/4,1/4,2/4,3/4 with a launcher of Hydra's; the job that finishes last writes the
table, and merge=FOLDER does where the jobs' folders were brought together. `diarnorm evaluate --cfg job` shows every
key with its value."""


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm evaluate` with these arguments; the exit code. A user's mistake is one sentence and 2."""
    if any(word in ("-h", "--help") for word in argv):
        print(USAGE)
        return 0
    merges = values_of("merge", argv)
    if merges:
        if len(merges) > 1 or any(not word.startswith(("merge=", "--debug")) for word in argv):
            raise ValueError("merge=FOLDER goes alone: models, sets and settings stand in the results")
        from diarnorm.evaluation.results import find_shards

        folder = Path(merges[0]).expanduser()
        finish(find_shards(folder), folder)
        return 0
    folder, config = find_recipe(RECIPE, argv, COMMAND.name)
    words = [word for word in argv if not word.startswith("recipe=")]
    return COMMAND.run(
        [*words, unnamed(words, UNNAMED)], folder, config, folder.name if config == RECIPE else COMMAND.name
    )


def _evaluate_config() -> type:
    from diarnorm.evaluation.config import EvaluateConfig

    return EvaluateConfig


def evaluate_job(config: Any) -> dict[str, float]:
    """Evaluate by a configuration that Hydra composed; the DER of every model on every set, if all shards are done."""
    from hydra.core.hydra_config import HydraConfig

    from diarnorm.checkpoint import from_plain
    from diarnorm.evaluation.config import EvaluateConfig
    from diarnorm.evaluation.results import shards_beside, write_shard
    from diarnorm.evaluation.run import evaluate

    runtime = HydraConfig.get().runtime
    run_dir = Path(runtime.output_dir)
    checked = from_plain(EvaluateConfig, COMMAND.values(config))
    shard = evaluate(checked, run_dir, Path(runtime.cwd))
    gone = write_shard(shard, run_dir)
    if gone is not None:
        said = f"the results of another evaluation that were in {run_dir} are gone: {gone}"
        print(f"diarnorm evaluate: {said}", file=sys.stderr)
    shards = shards_beside(shard, run_dir)
    if len(shards) < shard.of:
        print(f"shard {checked.shard} is done; {len(shards)} of {shard.of} are there", file=sys.stderr)
        return {}
    return finish(shards, run_dir, strict=checked.strict)


def finish(shards: "Sequence[Shard]", folder: Path, *, strict: bool = False) -> dict[str, float]:
    """Merge shards, print the table of what is pooled, write all tables and pictures; the DERs, by set and model.

    Raises:
        ValueError: shards that are missing or do not belong together; with `strict`, a missing hypothesis.
    """
    from diarnorm.evaluation.comparison import compare
    from diarnorm.evaluation.figures import NO_MATPLOTLIB, draw, draw_causes, has_matplotlib
    from diarnorm.evaluation.results import merge
    from diarnorm.evaluation.rows import POOLED
    from diarnorm.evaluation.tables import notes_of, pooled_table, write_tables

    comparison = compare(merge(shards))
    paths = write_tables(comparison, folder)
    if has_matplotlib():
        for picture, name in ((draw, "evaluation.png"), (draw_causes, "causes.png")):
            picture(comparison, folder / name)
            paths.append(folder / name)
    else:
        print(f"diarnorm evaluate: {NO_MATPLOTLIB}", file=sys.stderr)
    for note in notes_of(comparison):
        print(f"diarnorm evaluate: {note}", file=sys.stderr)
    print(pooled_table(comparison))
    print(f"written: {', '.join(str(path) for path in paths)}", file=sys.stderr)
    if strict and comparison.missing:
        first, *others = comparison.missing
        raise ValueError(f"no hypothesis for {first}" + (f" and {len(others)} others" if others else ""))
    pooled = comparison.of_kind(POOLED, comparison.collars_s[0])
    return {f"{row.set_name}.{row.model}": row.der for row in pooled if row.der is not None}


COMMAND = HydraCommand(
    "evaluate", "an evaluation", _evaluate_config, evaluate_job, "'sets.mine=\"~/a=b,c\"'", free=("models", "sets")
)
