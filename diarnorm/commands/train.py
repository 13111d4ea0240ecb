"""`diarnorm train recipe=NAME key=value ...`: Hydra in front of the trainer.

A recipe is a folder with `recipe.yaml`: one that travels with the package, by name, or one of the user's, by path.
Hydra ends here: below, configuration is dataclasses.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diarnorm.commands.recipefile import EXCLUDED, excluding, find_recipe, swept_keys
from diarnorm.hydrajob import HydraCommand
from diarnorm.resources import cache_dir, configs_dir, model_names, model_path

PATH_KEYS = ("data.speech", "data.clips", "data.teacher", "data.cache_dir", "data.store", "train.init_from")
RECIPE = "recipe"
"""Name of the file that makes a folder a recipe of a training."""
FIRST_SPEAKS_S = 5.0
"""How much later than the first process of a machine the others end after a mistake: torchrun stops all at the first
end, and the first has to say what was wrong."""

USAGE = """usage: diarnorm train [recipe=NAME|FOLDER] [GROUP=OPTION ...] [KEY=VALUE ...] [-m]

Trains a model. recipe=base is the shipped model's, recipe=smoke tries everything in seconds.
  diarnorm train recipe=smoke
  diarnorm train recipe=base norm=layer data.speech=corpus/utterances.tsv
  diarnorm train -m norm=rms,layer,batch train.seed=0,1,2
  torchrun --nproc-per-node 2 -m diarnorm train recipe=base
Groups: norm=rms|layer|batch|none, frontend=none|ema|frame|pcen. `diarnorm train --cfg job` shows every key with its
value. Values with commas, = or spaces: 'data.speech="/data/a=b,c"'. The outcome goes to runs/RECIPE/CHANGES; the same
command goes on where a run stopped."""


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm train` with these arguments; the exit code. A user's mistake is one sentence and 2."""
    if any(word in ("-h", "--help") for word in argv):
        print(USAGE)
        return 0
    folder, config = find_recipe(RECIPE, ["recipe=base", *argv], COMMAND.name)
    rest = [word for word in argv if not word.startswith("recipe=")]
    rest += _name_folders(rest)
    if "WORLD_SIZE" not in os.environ:
        return COMMAND.run(rest, folder, config, folder.name)
    from diarnorm.training.distributed import local_rank, process_group, rank, silent_others

    with process_group(), silent_others():
        others = [] if rank() == 0 else ["hydra.output_subdir=null"]  # the first process alone writes
        code = COMMAND.run([*rest, *others], folder, config, folder.name)
        if code and local_rank() > 0:
            time.sleep(FIRST_SPEAKS_S)
        return code


def _name_folders(words: Sequence[str]) -> list[str]:
    """Overrides by which every run of a sweep has a folder of its own.

    Where data lies and how many threads work is left out of the name, unless a sweep goes over just that.
    """
    from omegaconf import OmegaConf

    keys = OmegaConf.select(OmegaConf.load(configs_dir() / "run.yaml"), EXCLUDED)
    swept = swept_keys(words)
    return [excluding(keys, swept)] if swept & set(keys) else []


def _run_config() -> type:
    from diarnorm.training.config import RunConfig

    return RunConfig


def train(config: Any) -> dict[str, float]:
    """Train by a configuration that Hydra composed; the development figures."""
    from hydra.core.hydra_config import HydraConfig

    from diarnorm.checkpoint import from_plain
    from diarnorm.training.config import RunConfig

    hydra_config = HydraConfig.get()
    if None in (hydra_config.runtime.choices.get("norm"), hydra_config.runtime.choices.get("frontend")):
        raise ValueError("norm and frontend cannot be removed: norm=none and frontend=none stand for no normalisation")
    values = COMMAND.values(config)
    from_plain(RunConfig, values)  # refuses what is out of range before any voice is made
    run = from_plain(RunConfig, absolute_paths(values, Path(hydra_config.runtime.cwd)))
    from diarnorm.training.trainer import Trainer

    return Trainer(run, hydra_config.runtime.output_dir).run()


def absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Relative paths mean the folder in which the command was typed; missing synthetic voices are made."""
    from diarnorm.simulation.synthetic import SYNTHETIC, speech_source
    from diarnorm.training.distributed import first_of_machine

    if values["data"]["speech"] == SYNTHETIC:
        with first_of_machine():
            values["data"]["speech"] = str(speech_source(SYNTHETIC, cache_dir()))
    for part, _, key in (name.partition(".") for name in PATH_KEYS):
        path = values[part][key]
        if path and not (key == "init_from" and path in model_names()):
            values[part][key] = _absolute(path, folder)
    rooms = values["data"]["simulator"]["rooms"]
    rooms["measured"] = [_absolute(path, folder) for path in rooms["measured"]]
    recordings = values["data"]["recordings"]
    for split in ("train", "dev"):
        recordings[split] = _absolute_set(recordings[split], folder)
    if values["train"]["init_from"] in model_names():
        values["train"]["init_from"] = str(model_path(values["train"]["init_from"]))
    return values


def _absolute(path: str, folder: Path) -> str:
    return str((folder / Path(path).expanduser()).resolve())


def _absolute_set(given: Any, folder: Path) -> Any:
    """A set of recordings with absolute paths; what is no path is left to its reader."""
    if isinstance(given, dict):
        return {key: value if key == "region_s" else _absolute_set(value, folder) for key, value in given.items()}
    if isinstance(given, list):
        return [_absolute_set(each, folder) for each in given]
    return _absolute(given, folder) if isinstance(given, str) and given else given


SETS = ("data.recordings.train", "data.recordings.dev")
"""Keys whose values may have keys of their own, which `diarnorm.evaluation.sources` knows."""
COMMAND = HydraCommand("train", "a run", _run_config, train, "'data.speech=\"~/a=b,c\"'", SETS)
