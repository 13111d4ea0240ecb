"""The command line as a whole: which commands and options there are, and what an error becomes."""

import errno
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import diarnorm
from diarnorm import cli
from diarnorm.commands import corrupt, curves, demo, info, score, simulate, stream

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = {
    stream: "--channel --chunk-ms --debug --device --format --help --json --max-speakers --model --norm --output "
    "--quiet --rate --threads",
    score: "--collar --debug --help --json --skip-overlap --strict --uem",
    info: "--debug --help --json",
    curves: "--debug --family-by --help --output",
    corrupt: "--debug --help --list --rttm --rttm-out --seed",
    demo: "--debug --help --model --output --real-time --threads",
    simulate: "--cache-dir --compare --config --debug --device --duration --help --json --noise --num --output --rooms "
    "--seed --silence --speakers --split --threads --uem",
}


@pytest.mark.parametrize("module", OPTIONS, ids=lambda module: module.__name__)
def test_options_are_frozen(module: object) -> None:
    parser = module.make_parser()  # pyright: ignore[reportAttributeAccessIssue]
    options = [option for action in parser._actions for option in action.option_strings if option != "-h"]
    assert sorted(options) == OPTIONS[module].split()  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("module", OPTIONS, ids=lambda module: module.__name__)
def test_every_option_is_explained(module: object) -> None:
    parser = module.make_parser()  # pyright: ignore[reportAttributeAccessIssue]
    assert all(action.help for action in parser._actions)
    unit = {"--chunk-ms": "millisecond", "--rate": "Hz", "--collar": "seconds", "--threads": "CPU threads"}
    for option, action in parser._option_string_actions.items():
        assert unit.get(option, "") in action.help
        if action.nargs is None and option not in ("--norm", "--rate", "--format", "--uem", "--output", "--family-by"):
            assert "(default: " in parser.format_help().replace("\n", " ") or action.default is not None


def test_commands_exist_and_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(cli.COMMANDS) == [
        "stream",
        "demo",
        "score",
        "info",
        "train",
        "curves",
        "evaluate",
        "robustness",
        "simulate",
        "corrupt",
        "bench",
        "claims",
        "convert",
        "build-native",
    ]
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert find_spec(command.module) is not None
        assert f"  {name}" in text
        assert command.summary in text


@pytest.mark.parametrize("name", ["stream", "demo", "score", "info"])
def test_help_goes_to_standard_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"usage: diarnorm {name} ")
    assert err == ""


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"diarnorm {diarnorm.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ([], "diarnorm: no command given (diarnorm --help lists the commands)"),
        (["strem"], "diarnorm: 'strem' is no command; did you mean stream? (diarnorm --help lists the commands)"),
        (["stream"], "diarnorm stream: no files given (diarnorm stream --help lists the options)"),
        (["stream", "--jsn", "x"], "diarnorm stream: unknown option --jsn; did you mean --json?"),
        (["stream", "-dash.wav"], "diarnorm stream: unknown option -dash.wav; a file of that name goes after --"),
        (["stream", "--js", "x.wav"], "diarnorm stream: unknown option --js"),
        (["stream", "x.wav", "--chunk-ms", "100"], "chunk_ms=100 is not a multiple of 80 ms: give 80 or 160"),
        (["stream", "x.wav", "--chunk-ms", "1.5"], "argument --chunk-ms: '1.5' is not a whole number"),
        (["stream", "x.wav", "--max-speakers", "0"], "max_speakers=0 is out of range: give 1 to 64"),
        (["stream", "x.wav", "--channel", "-1"], "argument --channel: -1 is out of range: give 0 or more"),
        (["stream", "x.wav", "--rate", "8000"], "--rate and --format belong together"),
        (["stream", "x.wav", "--format", "mp3"], "invalid choice: 'mp3' (choose from"),
        (["stream", "x.wav", "--model", "nosuch"], "no shipped model is called 'nosuch' (shipped: "),
        (["stream", "x.wav", "--model", "no.safetensors"], "no.safetensors: no such file"),
        (["score", "ref.rttm"], "the following arguments are required: HYP"),
        (["score", "a", "b", "--collar", "-1"], "-1.0 is out of range: give seconds, 0 or more"),
        (["score", "a", "b", "--collar", "x"], "argument --collar: 'x' is not a number"),
        (["corrupt"], "diarnorm corrupt: no arguments given"),
        (["corrupt", "a.wav", "dc.offset=1"], "give IN, OUT and at least one FAMILY.NAME=SEVERITY, in this order"),
        (["corrupt", "a.wav", "b.mp3", "dc.offset=1"], "OUT b.mp3 must be a file that ends in .wav"),
        (["corrupt", "a.wav", "b.wav", "dc.offset=1", "--rttm-out", "b.rttm"], "--rttm-out needs --rttm"),
        (["corrupt", "a.wav", "b.wav", "dc.ofset=1"], "no corruption is called 'dc.ofset'; did you mean dc.offset"),
        (["corrupt", "nosuch.wav", "b.wav", "dc.offset=1"], "nosuch.wav: no such file"),
        (["info", "nosuch"], "no shipped model is called 'nosuch'"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_sentence(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


STDOUT, INTERNAL, SHOWS = "standard output", "internal error", "(--debug shows where)"


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ValueError("channel 3 asked for"), 2, "diarnorm info: channel 3 asked for\n"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x.rttm"), 2, "diarnorm info: x.rttm: No such file\n"),
        (OSError(errno.ENOSPC, "No space left", "out/x.rttm"), 1, "diarnorm info: out/x.rttm: No space left\n"),
        (OSError(errno.ENOSPC, "No space left", STDOUT), 1, "diarnorm info: standard output: No space left\n"),
        (
            OSError(errno.ENOSPC, "No space left"),
            1,
            "diarnorm info: a file cannot be written or read: No space left (--debug shows which)\n",
        ),
        (OSError(errno.ENOMEM, "No memory"), 1, f"diarnorm info: {INTERNAL}, OSError: [Errno 12] No memory {SHOWS}\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe", STDOUT), 141, ""),
        (
            BrokenPipeError(errno.EPIPE, "Broken pipe"),
            1,
            f"diarnorm info: {INTERNAL}, BrokenPipeError: [Errno 32] Broken pipe {SHOWS}\n",
        ),
        (KeyboardInterrupt(), 130, ""),
        (KeyError("x"), 1, "diarnorm info: internal error, KeyError: 'x' (--debug shows where)\n"),
    ],
)
def test_an_error_becomes_a_code_and_a_sentence(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(info, "main", fail)
    assert cli.main(["info"]) == code
    assert capsys.readouterr().err == sentence
    cli.main(["info", "--", "--debug"])
    assert "Traceback" not in capsys.readouterr().err
    cli.main(["info", "--debug"])
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, Exception)


FAST = [["--help"], ["stream", "--help"], ["score", "--help"], ["demo", "--help"], ["info", "--help"], ["strem"]]
FAST += [["stream", "--jsn"], ["stream", "x.wav", "--chunk-ms", "1"], ["score", "x"], ["stream", "nosuch.wav"]]
FAST += [
    ["simulate", "--help"],
    ["simulate", "x"],
    ["simulate", "nosuch", "--output", "o"],
    ["bench", "train", "--help"],
    ["corrupt", "--help"],
    ["corrupt", "x.wav", "y.mp3", "dc.offset=1"],
]


@pytest.mark.parametrize("argv", FAST, ids=" ".join)
def test_help_and_mistakes_load_nothing_heavy_and_are_quick(argv: list[str], loudness_model: Path) -> None:
    model = ["--model", str(loudness_model)] if argv == ["stream", "nosuch.wav"] else []
    heavy = {"torch", "pyannote.core", "hydra", "rich", "pandas", "scipy"}
    code = f"""import resource, sys
from diarnorm.cli import main
main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, file=sys.stderr)
sys.exit(len({heavy!r} & set(sys.modules)))"""
    command = [sys.executable, "-c", code, *argv, *model]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    # Processor time, so that a busy machine does not fail the test; the process's own, so that no other counts.
    assert float(run.stderr.splitlines()[-1]) < 0.5


def test_python_dash_m_is_the_command() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for module in ("diarnorm", "diarnorm.cli"):
        command = [sys.executable, "-m", module, "--version"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout == f"diarnorm {diarnorm.__version__}\n"
