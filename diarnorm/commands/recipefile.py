"""What commands with `recipe=` share: where a recipe lies, and how the folders of outcomes are named."""

import re
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

from diarnorm.hydrajob import quoted
from diarnorm.resources import configs_dir, recipes_dir

EXCLUDED = "hydra.job.config.override_dirname.exclude_keys"
"""Where Hydra is told what not to name a folder after."""


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
    for folder in (recipes_dir() / asked[-1], Path(asked[-1]).expanduser().resolve()):
        if (folder / f"{name}.yaml").is_file():
            return folder, name
    known = ", ".join(sorted(path.parent.name for path in recipes_dir().glob(f"*/{name}.yaml")))
    article = "an" if name[0] in "aeiou" else "a"
    raise ValueError(f"recipe={asked[-1]} is neither a recipe ({known}) nor a folder with {article} {name}.yaml")


def unnamed(words: Sequence[str], keys: Sequence[str]) -> str:
    """The override that keeps `keys`, and all of sets and peers, out of the name of the outcome's folder; but not those
    that a sweep goes over, since each of its jobs needs a folder of its own. Shards belong into one."""
    named = [match[1] for match in (re.match(r"\+{0,2}((?:sets|peers)[^=]*)=", word) for word in words) if match]
    return excluding([*keys, *named], swept_keys(words) - {"shard"})


def excluding(keys: Iterable[str], swept: Set[str]) -> str:
    """The override that keeps `keys` out of the name of the outcome's folder, unless a sweep goes over them."""
    return f"{EXCLUDED}=[{','.join(quoted(key) for key in keys if key not in swept)}]"


def swept_keys(words: Sequence[str]) -> set[str]:
    """Keys with several values, of which each is for a job of its own; none where Hydra cannot read the words."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    changes = [word for word in words if "=" in word and not word.startswith("-")]
    try:
        overrides = OverridesParser.create().parse_overrides(changes)
    except HydraException:
        return set()  # Hydra will say it
    return {override.key_or_group for override in overrides if override.is_sweep_override()}
