"""`diarnorm train recipe=NAME key=value ...`: Hydra in front of the trainer.

A recipe is a folder with `recipe.yaml`: one that travels with the package, by name, or one of the user's, by path.
Hydra ends here: below, configuration is dataclasses.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from diarnorm.hydrajob import HydraCommand
from diarnorm.resources import recipes_dir

SYNTHETIC = "synthetic"
"""Value of `data.speech` that stands for voices made on the spot."""
PATH_KEYS = ("speech", "clips", "teacher", "cache_dir")

USAGE = """usage: diarnorm train [recipe=NAME|FOLDER] [GROUP=OPTION ...] [KEY=VALUE ...] [-m]

Trains a model. recipe=base is the shipped model's, recipe=smoke tries everything in a minute.
  diarnorm train recipe=smoke
  diarnorm train recipe=base norm=layer data.speech=corpus/utterances.tsv
  diarnorm train -m norm=rms,layer,batch train.seed=0,1,2
Groups: norm=rms|layer|batch|none, frontend=none|ema|frame|pcen. `diarnorm train --cfg job` shows every key with its
value. Values with commas, = or spaces: 'data.speech="/data/a=b,c"'. The outcome goes to runs/RECIPE/CHANGES; the same
command goes on where a run stopped."""


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm train` with these arguments; the exit code. A user's mistake is one sentence and 2."""
    if any(word in ("-h", "--help") for word in argv):
        print(USAGE)
        return 0
    try:
        folder, rest = _split_recipe(argv)
    except ValueError as error:
        print(f"diarnorm train: {error}", file=sys.stderr)
        return 2
    return COMMAND.run(rest, folder, "recipe", folder.name)


def _split_recipe(argv: Sequence[str]) -> tuple[Path, list[str]]:
    """The recipe's folder, and the other arguments."""
    names = [word.removeprefix("recipe=") for word in argv if word.startswith("recipe=")]
    name = names[-1] if names else "base"
    rest = [word for word in argv if not word.startswith("recipe=")]
    for folder in (recipes_dir() / name, Path(name).resolve()):
        if (folder / "recipe.yaml").is_file():
            return folder, rest
    known = ", ".join(sorted(path.parent.name for path in recipes_dir().glob("*/recipe.yaml")))
    raise ValueError(f"recipe={name} is neither a recipe ({known}) nor a folder with a recipe.yaml")


def _run_config() -> type:
    from diarnorm.runconfig import RunConfig

    return RunConfig


def train(config: Any) -> dict[str, float]:
    """Train by a configuration that Hydra composed; the development figures."""
    from hydra.core.hydra_config import HydraConfig

    from diarnorm.checkpoint import from_plain
    from diarnorm.runconfig import RunConfig

    hydra_config = HydraConfig.get()
    if None in (hydra_config.runtime.choices.get("norm"), hydra_config.runtime.choices.get("frontend")):
        raise ValueError("norm and frontend cannot be removed: norm=none and frontend=none stand for no normalisation")
    run = from_plain(RunConfig, COMMAND.values(config))
    run = _absolute_paths(run, Path(hydra_config.runtime.cwd))
    from diarnorm.train import Trainer

    return Trainer(run, hydra_config.runtime.output_dir).run()


def _absolute_paths(run: Any, folder: Path) -> Any:
    """Relative paths mean the folder in which the command was typed; missing synthetic voices are made."""
    from diarnorm.synthetic import make_corpus
    from diarnorm.train import default_cache_dir

    paths = {key: getattr(run.data, key) for key in PATH_KEYS}
    if paths["speech"] == SYNTHETIC:
        paths["speech"] = str(make_corpus(default_cache_dir() / "synthetic"))
    absolute = {
        key: str((folder / Path(value).expanduser()).resolve()) for key, value in paths.items() if value is not None
    }
    return replace(run, data=replace(run.data, **absolute))


COMMAND = HydraCommand("train", "a run", _run_config, train, "'data.speech=\"~/a=b,c\"'")
