"""Commands that Hydra configures: from words to a checked configuration; every mistake becomes one sentence.

Hydra ends here and in the module of the command: below, configuration is dataclasses.
"""

import difflib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diarnorm.resources import configs_dir, samples_dir

OPTIONS = ("-m", "--multirun", "--cfg", "--resolve")
"""What is taken of Hydra's command line beside overrides."""
SHOWN = ("job", "hydra", "all")
"""Values of `--cfg`: what part of the configuration to print instead of working."""
ADVICE = ("set the environment", "To append to your", "full_key", "object_type", "reference_type")
ADVICE += ("Config search path", "provider=", "schema=", "See https://hydra.cc")
"""Beginnings of lines in Hydra's errors that do not fit these commands."""
NO_SLASH = "\N{DIVISION SLASH}"
"""What a slash is in the name of a folder: it looks like one, and stands for nothing else that is likely in a path."""
FULL_ERROR = "HYDRA_FULL_ERROR"
"""Environment variable by which Hydra raises errors instead of reporting them itself."""


class JobFailed(BaseException):
    """Carries what went wrong in a job. No `Exception`: Hydra would report those itself, in lines of its own."""


@dataclass(frozen=True)
class HydraCommand:
    """A command whose arguments are overrides of a configuration."""

    name: str
    """What is typed after `diarnorm`."""
    what: str
    """What its keys are keys of, in words."""
    config_class: Callable[[], type]
    """Gives the dataclass with all keys and their defaults, which may take torch to import."""
    work: Callable[[Any], dict[str, float]]
    """Does the job that Hydra composed a configuration for."""
    example: str
    """A key and value that need quotes, as the advice about quotes shows them."""
    free: tuple[str, ...] = ()
    """Keys below which the user chooses the names."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in a process that a launcher started: Hydra names the job's folder there before it calls `job`."""
        self.__dict__.update(state)
        add_resolvers()

    def run(self, words: Sequence[str], folder: Path, config: str, job_name: str) -> int:
        """Run with `words`, and the configuration called `config` in `folder`; the exit code.

        A user's mistake is one sentence on standard error and 2.
        """
        with_debug = "--debug" in words
        words = [word for word in words if word != "--debug"]
        try:
            check_words(words, folder)
            self._run_hydra(words, folder, config, job_name)
        except JobFailed as failed:
            return self._refused(failed.args[0], with_debug)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            hint = "choose one with hydra.run.dir=FOLDER"
            sentence = f"the changes are too long for the name of a folder: {hint}"
            return self._refused(ValueError(sentence), with_debug)
        except Exception as error:
            return self._refused(error, with_debug)
        return 0

    def _refused(self, error: Exception, with_debug: bool) -> int:
        """Say in one sentence what the user did wrong; raise what is not of their making."""
        from hydra.errors import HydraException
        from omegaconf.errors import OmegaConfBaseException

        if with_debug or not isinstance(error, HydraException | OmegaConfBaseException | ValueError):
            raise error
        print(f"diarnorm {self.name}: {self._one_sentence(error)}", file=sys.stderr)
        return 2

    def _run_hydra(self, words: list[str], folder: Path, config: str, job_name: str) -> None:
        import hydra
        from hydra.core.config_store import ConfigStore

        add_resolvers()
        schema = self.schema()
        ConfigStore.instance().store("schema", node=schema, provider="diarnorm")
        options, overrides = _options_first(words)
        overrides = [word for given in overrides for word in (*self._emptied(given, schema), given)]
        overrides += [f"hydra.searchpath=[{quoted(str(configs_dir()))}]", f"hydra.job.name={quoted(job_name)}"]
        for group in ("job_logging", "hydra_logging"):  # no lines on stdout, no empty log file; warnings are seen
            if not any(word.startswith(f"hydra/{group}=") for word in overrides):
                overrides.append(f"hydra/{group}=none")
        with _as_hydra_wants([f"diarnorm {self.name}", *options, *overrides]):
            hydra.main(version_base="1.3", config_path=str(folder), config_name=config)(self.job)()

    def _emptied(self, word: str, schema: Any) -> list[str]:
        """What goes before an override of a whole free key of any type: Hydra would merge a dict into the recipe's, and
        refuse a list for a dict."""
        from omegaconf import DictConfig, OmegaConf

        key = word.partition("=")[0]
        whole = key in self.free and not isinstance(OmegaConf.select(schema, key), DictConfig)
        return [f"{key}=null"] if whole else []

    def job(self, config: Any) -> dict[str, float]:
        """`work` as Hydra calls it: alone, it fails past Hydra; in a sweep Hydra goes on with the next."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        hydra_config = HydraConfig.get()
        sweep = hydra_config.mode == RunMode.MULTIRUN
        if sweep:
            print(f"{hydra_config.sweep.dir}/{hydra_config.sweep.subdir}", file=sys.stderr)
        try:
            return self.work(config)
        except Exception as error:
            if sweep:
                raise
            raise JobFailed(error) from error

    def schema(self) -> Any:
        """The dataclass as OmegaConf's typed configuration, in which `free` keys may have any keys of their own."""
        from omegaconf import DictConfig, OmegaConf

        schema = unlocked_schema(self.config_class())
        for key in self.free:
            if isinstance(free := OmegaConf.select(schema, key), DictConfig):
                OmegaConf.set_struct(free, False)
        return schema

    def values(self, config: Any) -> dict[str, Any]:
        """The configuration as plain values.

        Raises:
            ValueError: it has a key that the dataclass does not know.
        """
        from omegaconf import OmegaConf

        values: Any = OmegaConf.to_container(config, resolve=True)
        known = _keys(asdict(self.config_class()()))
        for key in _keys(values):
            if key not in known and not key.startswith(tuple(f"{free}." for free in self.free)):
                raise ValueError(f"{key} is no key of {self.what}{self.nearest_key(key)}")
        return values

    def nearest_key(self, wrong: str) -> str:
        """What a key that does not exist may have meant: one like it, or one whose last part is like its last."""
        keys = _keys(asdict(self.config_class()()), in_lists=True)
        near = difflib.get_close_matches(wrong, keys, n=1, cutoff=0.75)
        if not near and "." in wrong:
            lasts = {key.rpartition(".")[2]: key for key in reversed(keys)}
            near = [lasts[last] for last in difflib.get_close_matches(wrong.rpartition(".")[2], lasts, n=1)]
        return f"; did you mean {near[0]}?" if near and near[0] != wrong else ""

    def _one_sentence(self, error: Exception) -> str:
        """An error of Hydra, OmegaConf or ours without advice that does not fit, and with the nearest fix."""
        text, cause = str(error), str(error.__cause__ or "")
        text = text if cause in text else f"{text}\n{cause}"
        override = getattr(error, "override", None)  # of Hydra's parser, which does not always name it
        if override is not None and override not in text:
            text = f"{override}: {text}"
        text = text.replace("LexerNoViableAltException: ", "")
        lines = [line.strip() for line in text.splitlines() if line.strip(" ^")]
        kept = [line.rstrip(".") for line in dict.fromkeys(lines) if not line.startswith(ADVICE)]
        return "; ".join(kept[:8]) + self._fix(text)

    def _fix(self, text: str) -> str:
        """What to do about an error of Hydra, where it can be told."""
        if "missing EQUAL" in text:
            return "; give KEY=VALUE"
        if "hydra.cc/docs" in text:
            return f"; a value with characters such as , = ~ needs quotes of its own: {self.example}"
        wrong = re.search(r"Could not override '([^']+)'", text)
        part = re.search(r"Key '(\w+)' not in", text)  # in a list, where the rest of the key is not told
        hint = self.nearest_key(wrong[1]) if wrong else ""
        return hint if hint or not part else self.nearest_key(f".{part[1]}")


def unlocked_schema(config_class: type) -> Any:
    """A dataclass as OmegaConf's typed configuration, unlocked: frozen dataclasses arrive read-only."""
    from omegaconf import DictConfig, OmegaConf

    def unlock(node: Any) -> None:
        OmegaConf.set_readonly(node, None)
        for key in node:
            if isinstance(node._get_node(key), DictConfig) and not OmegaConf.is_missing(node, key):
                unlock(node[key])

    schema = OmegaConf.structured(config_class)
    unlock(schema)
    return schema


@contextmanager
def _as_hydra_wants(argv: list[str]) -> Iterator[None]:
    """Hydra's command line, and its errors as they are: they reach `run`, which says them in one sentence."""
    before, full_error = sys.argv, os.environ.get(FULL_ERROR)
    sys.argv, os.environ[FULL_ERROR] = argv, "1"
    try:
        yield
    finally:
        sys.argv = before
        if full_error is None:
            del os.environ[FULL_ERROR]
        else:
            os.environ[FULL_ERROR] = full_error


def check_words(words: Sequence[str], folder: Path) -> None:
    """Refuse options that do not exist, and choices that a group does not have, before Hydra is asked.

    Groups are the folders of `configs/`; the folder of the configuration may add choices.

    Raises:
        ValueError: naming the word and what there is.
    """
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


def quoted(text: str) -> str:
    """`text` in Hydra's grammar, whatever is in it."""
    escaped = re.sub(r'(\\*)("|\Z)', lambda found: 2 * found[1] + ('\\"' if found[2] else ""), text)
    return f'"{escaped}"'


def add_resolvers() -> None:
    """What configurations may ask for: `${samples_dir:}`, the folder of the sample recordings wherever it is installed,
    and `${one_folder:NAME}`, a name without folders in it."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("samples_dir", lambda: str(samples_dir()), replace=True)
    OmegaConf.register_new_resolver("one_folder", one_folder, replace=True)


def one_folder(name: str) -> str:
    """Changes, as Hydra joins them, as the name of one folder: paths in it are no paths (`NO_SLASH` stands between
    their parts, so that a/b and a_b differ), and a key that is emptied before it gets another value stands there with
    that value alone.

    >>> one_folder("models=null,models=a/b.safetensors,seed=1")
    'models=a∕b.safetensors,seed=1'
    """
    items = name.split(",")
    emptied = [f"{key}=null" for key, _, value in (item.partition("=") for item in items) if value != "null"]
    return ",".join(item for item in items if item not in emptied).replace("/", NO_SLASH)


def _options_first(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options with their values, and overrides: Hydra does not take the two in any order."""
    options: list[str] = []
    overrides: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        (options if word.startswith("-") or before == "--cfg" else overrides).append(word)
    return options, overrides


def _keys(values: dict[str, Any], prefix: str = "", *, in_lists: bool = False) -> list[str]:
    """Keys of nested dicts; `in_lists`, those of a list's first element, too."""
    keys: list[str] = []
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            keys += _keys(value, f"{key}.", in_lists=in_lists)
            continue
        keys.append(key)
        if in_lists and isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            keys += _keys(value[0], f"{key}[0].", in_lists=True)
    return keys
