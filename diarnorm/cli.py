"""The `diarnorm` command: which module does what, and what an error becomes.

Commands are imported when they are asked for, and torch only once there is audio to work on: `--help` and mistakes
in the arguments answer at once.

Exit codes: 0; 2 for a user's mistake (arguments, files); 1 for the program's, and for output that cannot be written;
128 + the signal's number when stopped by one (130 is Ctrl-C, 143 SIGTERM, 141 a reader of the output that went away).
"""

import difflib
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import Any, NamedTuple, TextIO

from diarnorm.commands.arguments import USER_ERROR
from diarnorm.files import naming

OK, PROGRAM_ERROR, INTERRUPTED, BROKEN_PIPE = 0, 1, 130, 141


class Command(NamedTuple):
    """A module with `main(argv) -> exit code`, and a line for the overview."""

    module: str
    summary: str


COMMANDS = {
    "stream": Command("diarnorm.commands.stream", "who speaks when in files or a pipe, as RTTM, live"),
    "demo": Command("diarnorm.commands.demo", "diarize the sample recordings and score them"),
    "score": Command("diarnorm.commands.score", "DER of RTTM files against a reference"),
    "info": Command("diarnorm.commands.info", "what a model file says about itself"),
    "train": Command("diarnorm.commands.train", "train a model by a recipe"),
    "curves": Command("diarnorm.commands.curves", "training runs side by side, as a table and a picture"),
    "evaluate": Command("diarnorm.commands.evaluate", "compare models on sets of recordings, with intervals"),
    "robustness": Command("diarnorm.commands.robustness", "what damaged audio costs models, factor by factor"),
    "simulate": Command("diarnorm.commands.simulate", "make conversations with references, and count real ones"),
    "corrupt": Command("diarnorm.commands.corrupt", "damage a recording on purpose, by so much"),
    "bench": Command("diarnorm.bench.streaming", "speed, latency and memory on this machine"),
    "claims": Command("diarnorm.claims.command", "put what is said about norms to the test"),
    "convert": Command("diarnorm.commands.convert", "put another norm under a model's weights, exactly"),
    "build-native": Command("diarnorm.commands.build_native", "compile a faster norm=rms for this machine's CPU"),
}

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of output rather than of what the user named."""
STDOUT = "standard output"
"""What errors call it, where others have the path of a file."""


class StandardOutput:
    """Standard output, all of it, with errors that say that it was standard output."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text."""
        with naming(STDOUT):
            return self._stream.write(text)

    def flush(self) -> None:
        """Hand on what is buffered."""
        with naming(STDOUT):
            self._stream.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. What goes wrong becomes one sentence and a code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words and words[0] in COMMANDS else ""
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        if sys.stdout is None:
            return _run(name, words)
        with redirect_stdout(StandardOutput(sys.stdout)) as output:
            code = _run(name, words)
            output.flush()
        return code
    except KeyboardInterrupt as interrupt:
        return 128 + getattr(interrupt, "signal_number", INTERRUPTED - 128)
    except Exception as error:
        if "--debug" in words[: words.index("--") if "--" in words else None]:
            traceback.print_exc()
        code, sentence = explain(error)
        if sentence is not None:
            print(f"{f'diarnorm {name}'.strip()}: {sentence}", file=sys.stderr)
        if isinstance(error, OSError) and error.filename == STDOUT:
            _drop_stdout()
        return code


def _run(name: str, words: list[str]) -> int:
    """The command called `name`, or what is said where there is none."""
    if name:
        try:
            return import_module(COMMANDS[name].module).main(words[1:])
        except SystemExit as stop:  # argparse: --help, and errors it has printed
            return stop.code if isinstance(stop.code, int) else OK
    if words[:1] in (["-h"], ["--help"]):
        print(overview())
        return OK
    if words[:1] == ["--version"]:
        import diarnorm

        print(f"diarnorm {diarnorm.__version__}")
        return OK
    print(f"diarnorm: {_what_is_wrong(words)} (diarnorm --help lists the commands)", file=sys.stderr)
    return USER_ERROR


def overview() -> str:
    """The text of `diarnorm --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: diarnorm COMMAND ...",
            "",
            "Who spoke when, live. Commands:",
            *lines,
            "",
            "diarnorm COMMAND --help says more; diarnorm --version prints the version.",
            "Exit codes: 0; 2 a mistake in arguments or files; 1 an error of the program or of writing its output;",
            "130 interrupted. --debug adds the traceback to an error.",
        ]
    )


def _what_is_wrong(words: list[str]) -> str:
    if not words:
        return "no command given"
    close = difflib.get_close_matches(words[0], COMMANDS, n=1)
    return f"{words[0]!r} is no command" + (f"; did you mean {close[0]}?" if close else "")


def explain(error: Exception) -> tuple[int, str | None]:
    """Exit code and sentence for an error; no sentence where the reader of the output has gone.

    >>> explain(ValueError("channel 3 asked for, the input has 2"))
    (2, 'channel 3 asked for, the input has 2')
    """
    if isinstance(error, BrokenPipeError) and error.filename == STDOUT:
        return BROKEN_PIPE, None
    if isinstance(error, ValueError):
        return USER_ERROR, str(error)
    if isinstance(error, OSError) and error.errno in DISK_ERRORS and error.filename is None:
        return PROGRAM_ERROR, f"a file cannot be written or read: {error.strerror} (--debug shows which)"
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        is_output = error.errno in DISK_ERRORS or error.filename == STDOUT
        return PROGRAM_ERROR if is_output else USER_ERROR, f"{error.filename}: {error.strerror}"
    return PROGRAM_ERROR, f"internal error, {type(error).__name__}: {error} (--debug shows where)"


def _drop_stdout() -> None:
    """Let what is still buffered for a broken standard output go nowhere, so that Python's exit stays quiet."""
    with suppress(AttributeError, OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
