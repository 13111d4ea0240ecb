"""`diarnorm train recipe=NAME key=value ...`: Hydra in front of the trainer.

A recipe is a folder with `recipe.yaml`: one that travels with the package, by name, or one of the user's, by path.
Hydra ends here: below, configuration is dataclasses.
"""

import difflib
import errno
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
OPTIONS = ("-m", "--multirun", "--cfg", "--resolve")
"""What is taken of Hydra's command line beside overrides."""
SHOWN = ("job", "hydra", "all")
"""Values of `--cfg`: what part of the configuration to print instead of training."""
ADVICE = ("set the environment", "To append to your", "full_key", "object_type", "reference_type")
ADVICE += ("Config search path", "provider=", "schema=", "See https://hydra.cc")
"""Beginnings of lines in Hydra's errors that do not fit this command."""


class JobFailed(BaseException):
    """Carries what went wrong in a job. No `Exception`: Hydra would report those itself, in lines of its own."""


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
        try:
            folder, rest = _split_recipe(argv)
            _check_words(rest, folder)
            _run_hydra(folder, rest)
        except JobFailed as failed:
            raise failed.args[0] from None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            hint = "choose one with hydra.run.dir=FOLDER"
            raise ValueError(f"the changes are too long for the name of a folder: {hint}") from None
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


def _check_words(words: Sequence[str], folder: Path) -> None:
    """Refuse options that do not exist, and choices that a group does not have, before Hydra is asked."""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word.startswith("-") and word not in OPTIONS:
            close = difflib.get_close_matches(word, OPTIONS, n=1)
            hint = f"did you mean {close[0]}?" if close else "options are -m, --cfg job, --help and --debug"
            raise ValueError(f"unknown option {word}; {hint}")
        if word == "--cfg" and after not in SHOWN:
            raise ValueError(f"--cfg {after} is not known: give --cfg and one of {', '.join(SHOWN)}")
    for group in sorted(path.name for path in configs_dir().iterdir() if path.is_dir()):
        known = sorted({path.stem for root in (configs_dir(), folder) for path in (root / group).glob("*.yaml")})
        for word in words:
            asked = re.fullmatch(rf"\+{{0,2}}{group}=([\w,./-]*)", word)
            for name in asked[1].split(",") if asked else ():
                if name not in known:
                    raise ValueError(f"{group}={name} is not known: choose one of {', '.join(known)}")


def _run_hydra(folder: Path, arguments: list[str]) -> None:
    import hydra
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store("schema", node=_schema(), provider="diarnorm")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach `main`, which says them in one sentence
    options, overrides = _options_first(arguments)
    overrides += [f"hydra.searchpath=[{_quoted(str(configs_dir()))}]", f"hydra.job.name={_quoted(folder.name)}"]
    for group in ("job_logging", "hydra_logging"):  # no lines on stdout, no empty log file; warnings reach the terminal
        if not any(word.startswith(f"hydra/{group}=") for word in overrides):
            overrides.append(f"hydra/{group}=none")
    before = sys.argv
    sys.argv = ["diarnorm train", *options, f"--config-dir={folder}", "--config-name=recipe", *overrides]
    try:
        hydra.main(version_base="1.3", config_path=None, config_name=None)(job)()
    finally:
        sys.argv = before


def _options_first(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options with their values, and overrides: Hydra does not take the two in any order."""
    options: list[str] = []
    overrides: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        (options if word.startswith("-") or before == "--cfg" else overrides).append(word)
    return options, overrides


def _quoted(text: str) -> str:
    """`text` in Hydra's grammar, whatever is in it."""
    return '"' + text.replace('"', '\\"') + '"'


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


def job(config: Any) -> dict[str, float]:
    """`train` as Hydra calls it: alone, it fails past Hydra; in a sweep Hydra goes on with the next."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra_config = HydraConfig.get()
    sweep = hydra_config.mode == RunMode.MULTIRUN
    if sweep:
        print(f"{hydra_config.sweep.dir}/{hydra_config.sweep.subdir}", file=sys.stderr)
    try:
        return train(config)
    except Exception as error:
        if sweep:
            raise
        raise JobFailed(error) from error


def train(config: Any) -> dict[str, float]:
    """Train by a configuration that Hydra composed; the development figures."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from diarnorm.checkpoint import from_plain
    from diarnorm.runconfig import RunConfig

    hydra_config = HydraConfig.get()
    if None in (hydra_config.runtime.choices.get("norm"), hydra_config.runtime.choices.get("frontend")):
        raise ValueError("norm and frontend cannot be removed: norm=none and frontend=none stand for no normalisation")
    values: Any = OmegaConf.to_container(config, resolve=True)
    for key in _keys(values):
        if key not in _keys(asdict(RunConfig())):
            raise ValueError(f"{key} is no key of a run{_nearest_key(key)}")
    run = from_plain(RunConfig, values)
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


def _one_sentence(error: Exception) -> str:
    """An error of Hydra, OmegaConf or ours without advice that does not fit this command, and with the nearest fix."""
    text = f"{error}\n{error.__cause__ or ''}"
    override = getattr(error, "override", None)  # of Hydra's parser, which does not always name it
    if override is not None and override not in text:
        text = f"{override}: {text}"
    text = text.replace("LexerNoViableAltException: ", "")
    lines = [line.strip() for line in text.splitlines() if line.strip(" ^")]
    kept = [line.rstrip(".") for line in dict.fromkeys(lines) if not line.startswith(ADVICE)]
    return "; ".join(kept[:8]) + _fix(text)


def _fix(text: str) -> str:
    """What to do about an error of Hydra, where it can be told."""
    if "missing EQUAL" in text:
        return "; give KEY=VALUE"
    if "hydra.cc/docs" in text:
        return "; a value with characters such as , = ~ needs quotes of its own: 'data.speech=\"~/a=b,c\"'"
    wrong = re.search(r"Could not override '([^']+)'", text)
    return "" if wrong is None else _nearest_key(wrong[1])


def _nearest_key(wrong: str) -> str:
    """What a key that does not exist may have meant: one much like it, or one whose last part is much like its last."""
    from diarnorm.runconfig import RunConfig

    keys = _keys(asdict(RunConfig()))
    near = difflib.get_close_matches(wrong, keys, n=1, cutoff=0.75)
    if not near and "." in wrong:
        lasts = {key.rpartition(".")[2]: key for key in reversed(keys)}
        near = [lasts[last] for last in difflib.get_close_matches(wrong.rpartition(".")[2], lasts, n=1)]
    return f"; did you mean {near[0]}?" if near and near[0] != wrong else ""


def _keys(values: dict[str, Any], prefix: str = "") -> list[str]:
    nested = (_keys(v, f"{prefix}{k}.") if isinstance(v, dict) else [f"{prefix}{k}"] for k, v in values.items())
    return [key for keys in nested for key in keys]
