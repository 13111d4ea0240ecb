"""`diarnorm train recipe=NAME key=value ...`: Hydra in front of the trainer.

A recipe is a folder with `recipe.yaml`: one that travels with the package, by name, or one of the user's, by path.
Hydra ends here: below, configuration is dataclasses.
"""

import difflib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from diarnorm.resources import configs_dir, recipes_dir

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
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        folder, rest = _split_recipe(argv)
        _run_hydra(folder, rest)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if "--debug" in argv:
            raise
        print(f"diarnorm train: {_one_sentence(error)}", file=sys.stderr)
        return 2
    return 0


def _split_recipe(argv: Sequence[str]) -> tuple[Path, list[str]]:
    """The recipe's folder, and the other arguments."""
    names = [word.removeprefix("recipe=") for word in argv if word.startswith("recipe=")]
    name = names[-1] if names else "base"
    rest = [word for word in argv if not word.startswith("recipe=") and word != "--debug"]
    for folder in (recipes_dir() / name, Path(name).resolve()):
        if (folder / "recipe.yaml").is_file():
            return folder, rest
    known = ", ".join(sorted(path.parent.name for path in recipes_dir().glob("*/recipe.yaml")))
    raise ValueError(f"recipe={name} is neither a recipe ({known}) nor a folder with a recipe.yaml")


def _run_hydra(folder: Path, arguments: list[str]) -> None:
    import hydra
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store("schema", node=_schema(), provider="diarnorm")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach `main`, which says them in one sentence
    search = f"hydra.searchpath=[{configs_dir().as_uri()}]"
    before = sys.argv
    sys.argv = ["diarnorm train", f"--config-dir={folder}", "--config-name=recipe", *arguments, search]
    sys.argv += [f"hydra.job.name={folder.name}"]
    try:
        hydra.main(version_base="1.3", config_path=None, config_name=None)(train)()
    finally:
        sys.argv = before


def _schema() -> Any:
    """`RunConfig` as OmegaConf's typed configuration, unlocked: frozen dataclasses arrive read-only."""
    from omegaconf import DictConfig, OmegaConf

    from diarnorm.runconfig import RunConfig

    def unlock(node: DictConfig) -> None:
        OmegaConf.set_readonly(node, None)
        for key in node:
            if isinstance(node._get_node(key), DictConfig) and not OmegaConf.is_missing(node, key):
                unlock(node[key])

    schema = OmegaConf.structured(RunConfig)
    unlock(schema)
    return schema


def train(config: Any) -> dict[str, float]:
    """One job of Hydra: its composed configuration in, the development figures out."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from diarnorm.checkpoint import from_plain
    from diarnorm.runconfig import RunConfig

    hydra_config = HydraConfig.get()
    if None in (hydra_config.runtime.choices.get("norm"), hydra_config.runtime.choices.get("frontend")):
        raise ValueError("norm=null and frontend=null are no choices: norm=none and frontend=none leave them out")
    run = from_plain(RunConfig, OmegaConf.to_container(config, resolve=True))  # pyright: ignore[reportArgumentType]
    run = _absolute_paths(run, Path(hydra_config.runtime.cwd))
    from diarnorm.train import Trainer

    return Trainer(run, hydra_config.runtime.output_dir).run()


def _absolute_paths(run: Any, folder: Path) -> Any:
    """Relative paths mean the folder in which the command was typed; missing synthetic voices are made."""
    from diarnorm.synthetic import write_tree
    from diarnorm.train import default_cache_dir

    paths = {key: getattr(run.data, key) for key in PATH_KEYS}
    if paths["speech"] == SYNTHETIC:
        tree = default_cache_dir() / "synthetic"
        for split, speakers in (("train", 8), ("dev", 4)):
            if not (tree / split).exists():
                write_tree(tree / split, num_speakers=speakers)
        paths["speech"] = str(tree)
    absolute = {key: str((folder / value).resolve()) for key, value in paths.items() if value is not None}
    return replace(run, data=replace(run.data, **absolute))


def _one_sentence(error: Exception) -> str:
    """An error of Hydra, OmegaConf or ours without advice that does not fit this command, with the nearest fix."""
    advice = ("set the environment", "To append to your", "full_key", "object_type", "reference_type", "Config search")
    text = f"{error}\n{error.__cause__ or ''}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = [line.rstrip(".") for line in dict.fromkeys(lines) if not line.startswith((*advice, "provider=", "schema="))]
    return "; ".join(kept[:8]) + _nearest_key(text)


def _nearest_key(text: str) -> str:
    """What a key that does not exist may have meant."""
    wrong = re.search(r"Could not override '([^']+)'", text)
    if wrong is None:
        return ""
    from diarnorm.runconfig import RunConfig

    near = difflib.get_close_matches(wrong[1], _keys(asdict(RunConfig())), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _keys(values: dict[str, Any], prefix: str = "") -> list[str]:
    nested = (_keys(v, f"{prefix}{k}.") if isinstance(v, dict) else [f"{prefix}{k}"] for k, v in values.items())
    return [key for keys in nested for key in keys]
