"""Arguments of the commands: a parser whose errors are one sentence, and values that are checked before torch loads."""

import argparse
import difflib
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NoReturn

USER_ERROR = 2


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Help that ends with the default where there is one worth naming."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if any(action.default is no for no in (None, False, argparse.SUPPRESS)) or not action.option_strings:
            return action.help
        return f"{action.help} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """Parser of one command."""

    def __init__(self, name: str, description: str, epilog: str | None = None) -> None:
        super().__init__(
            prog=f"diarnorm {name}",
            description=description,
            epilog=epilog,
            formatter_class=Formatter,
            allow_abbrev=False,
        )

    def add_debug(self) -> None:
        """`--debug`, which `cli` looks at."""
        self.add_argument("--debug", action="store_true", help="show the traceback of an error")

    def parse_files(self, argv: Sequence[str], name: str) -> argparse.Namespace:
        """Parse options and the file names of the positional `name` in any order; all after `--` are file names."""
        words = list(argv)
        at = words.index("--") if "--" in words else len(words)
        options = self.parse_intermixed_args(words[:at])
        files = [*getattr(options, name), *words[at + 1 :]]
        if not files:
            self.error(f"no {name} given")
        setattr(options, name, files)
        return options

    def error(self, message: str) -> NoReturn:
        """Print one sentence, exit with 2."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message = f"unknown option {unknown}{self._hint(unknown.split()[0])}"
        self.exit(USER_ERROR, f"{self.prog}: {message} ({self.prog} --help lists the options)\n")

    def _hint(self, word: str) -> str:
        close = difflib.get_close_matches(word, self._option_string_actions, n=1)
        return f"; did you mean {close[0]}?" if close else "; a file of that name goes after --"


def checked(convert: Callable[[str], Any], check: Callable[[Any], Any]) -> Callable[[str], Any]:
    """An argument's type: `convert` the word, then `check` it; a ValueError of the check is what the user reads."""

    def parse(word: str) -> Any:
        try:
            value = convert(word)
        except ValueError as error:
            kind = "whole number" if convert is int else "number"
            raise argparse.ArgumentTypeError(f"{word!r} is not a {kind}") from error
        try:
            check(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        return value

    return parse


def at_least(low: int) -> Callable[[str], int]:
    """Whole numbers from `low` on."""

    def check(value: int) -> None:
        if value < low:
            raise ValueError(f"{value} is out of range: give {low} or more")

    return checked(int, check)


def seconds(word: str) -> float:
    """A number of seconds, 0 or more."""

    def check(value: float) -> None:
        if not (isfinite(value) and value >= 0):
            raise ValueError(f"{value} is out of range: give seconds, 0 or more")

    return checked(float, check)(word)
