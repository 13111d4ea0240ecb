"""What commands with `recipe=` and `sets.NAME=` share: where a recipe lies, and words that Hydra needs beside it."""

import re
from collections.abc import Sequence
from pathlib import Path

from diarnorm.hydrajob import quoted
from diarnorm.resources import configs_dir, recipes_dir, samples_dir


def values_of(key: str, argv: Sequence[str]) -> list[str]:
    """What stands behind `key=`, as often as it is given."""
    return [word.removeprefix(f"{key}=") for word in argv if word.startswith(f"{key}=")]


def find_recipe(name: str, argv: Sequence[str], default: str) -> tuple[Path, str]:
    """Folder and name of the configuration: `name`.yaml in the recipe that the words ask for, or `default` without one.

    Raises:
        ValueError: no such recipe.
    """
    asked = values_of("recipe", argv)
    if not asked:
        return configs_dir(), default
    for folder in (recipes_dir() / asked[-1], Path(asked[-1]).resolve()):
        if (folder / f"{name}.yaml").is_file():
            return folder, name
    known = ", ".join(sorted(path.parent.name for path in recipes_dir().glob(f"*/{name}.yaml")))
    article = "an" if name[0] in "aeiou" else "a"
    raise ValueError(f"recipe={asked[-1]} is neither a recipe ({known}) nor a folder with {article} {name}.yaml")


def unnamed(words: Sequence[str], keys: Sequence[str]) -> str:
    """The override that keeps `keys`, and all of sets and peers, out of the name of the outcome's folder."""
    named = [match[1] for match in (re.match(r"\+{0,2}((?:sets|peers)[^=]*)=", word) for word in words) if match]
    listed = ",".join(quoted(key) for key in (*keys, *named))
    return f"hydra.job.config.override_dirname.exclude_keys=[{listed}]"


def add_resolver() -> None:
    """`${samples_dir:}` in a configuration is the folder of the sample recordings, wherever it is installed."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("samples_dir", lambda: str(samples_dir()), replace=True)
