"""Files that say what simulated conversations are like: the keys of `data.simulator`, or a recipe with them in it."""

import difflib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diarnorm.simulation.planner import SimulatorConfig

CONFIG_HELP = (
    "YAML with what else is different, in the keys of `data.simulator` in training; or a recipe.yaml, of which "
    "`data.simulator` counts"
)


def read_simulator(path: Path) -> "SimulatorConfig":
    """The simulator's configuration as a file changes its defaults.

    A file with the key `data` is a recipe, of which what stands below `data.simulator` counts: the file itself is read,
    not what it builds upon.

    Raises:
        ValueError: no keys, one that does not exist, or a value of the wrong type or out of range.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    from diarnorm.checkpoint import from_plain
    from diarnorm.hydrajob import unlocked_schema
    from diarnorm.simulation.planner import SimulatorConfig

    try:
        values = _simulator_keys(OmegaConf.load(path))
        typed = OmegaConf.merge(unlocked_schema(SimulatorConfig), values)
        plain: Any = OmegaConf.to_container(typed, resolve=True)
        return from_plain(SimulatorConfig, plain)
    except OmegaConfBaseException as error:
        raise ValueError(f"{path}: {_refused(error)}") from error
    except (YAMLError, OSError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


def _simulator_keys(loaded: Any) -> Any:
    from omegaconf import DictConfig, OmegaConf

    if isinstance(loaded, DictConfig) and "data" in loaded:
        loaded = OmegaConf.select(loaded, "data.simulator", default=OmegaConf.create())
    if not isinstance(loaded, DictConfig):
        raise ValueError("it has no keys: write KEY: VALUE lines, such as close_gap_s: 0.5")
    return loaded


def _refused(error: Any) -> str:
    """An error of OmegaConf in a sentence: the key, with the nearest that exists or what is wrong with its value."""
    from omegaconf.errors import ConfigKeyError

    if not isinstance(error, ConfigKeyError) or not is_dataclass(error.object_type):
        return ": ".join(filter(None, (error.full_key, str(error).splitlines()[0])))
    near = difflib.get_close_matches(str(error.key), [field.name for field in fields(error.object_type)], n=1)
    return f"{error.full_key} is no key of data.simulator" + (f"; did you mean {near[0]}?" if near else "")
