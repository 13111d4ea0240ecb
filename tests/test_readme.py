"""Every code block of README.md runs.

`bash` and `python` blocks run in the order of the page, in one folder that holds the checkout's folders. What
would install something is rehearsed: `make` with -n, `python3 -m venv` makes an empty folder, `pip install`
checks that what it is given exists. Only `powershell` blocks are left out. `text` blocks are not code, but
the tree under "Files" must name what is there.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NOT_RUN = {"powershell", "text"}
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


class Block(NamedTuple):
    """A fenced block: its first line in the page, language, text, and the heading it stands under."""

    line: int
    language: str
    text: str
    heading: str


def read_blocks(page: str) -> list[Block]:
    """All fenced blocks of a page of Markdown."""
    blocks: list[Block] = []
    heading = ""
    for match in re.finditer(r"^#+ ([^\n]*)$|^```(\S*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if match[1] is not None:
            heading = match[1]
        else:
            blocks.append(Block(page[: match.start()].count("\n") + 1, match[2], match[3], heading))
    return blocks


BLOCKS = read_blocks((ROOT / "README.md").read_text("utf-8"))
RUN = [block for block in BLOCKS if block.language not in NOT_RUN]


def check_pip(arguments: list[str]) -> str | None:
    """What is wrong with the arguments of a `pip install`; None if nothing is."""
    if arguments[:1] != ["install"]:
        return f"pip {arguments[:1]} is not known here"
    if "--index-url" in arguments:
        place = arguments.index("--index-url")
        if arguments[place + 1] != CPU_WHEELS:
            return f"{arguments[place + 1]} is not {CPU_WHEELS}"
        arguments = arguments[:place] + arguments[place + 2 :]
    known = {re.split(r"[<>=~!\[]", requirement)[0] for requirement in PROJECT["dependencies"]}
    for target in (argument for argument in arguments[1:] if argument != "-e"):
        extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", target)
        if extras is None and target not in known:
            return f"{target} is neither this project nor a dependency of it"
        unknown = set((extras[1] or "").split(",") if extras else ()) - {
            "",
            *PROJECT["optional-dependencies"],
        }
        if unknown:
            return f"no extra is called {', '.join(sorted(unknown))}"
    return None


WRITTEN = ("talks", "turns")
"""Folders that blocks write to; whoever has some in the checkout keeps them as they are."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkout's folders, and `bin/` with the commands that the blocks find."""
    folder = tmp_path_factory.mktemp("readme")
    for path in ROOT.iterdir():
        if path.is_dir() and not path.name.startswith(".") and path.name not in WRITTEN:
            (folder / path.name).symlink_to(path)
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    python, make = sys.executable, shutil.which("make") or "make-is-missing"
    venv = 'if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin"; : > "$3/bin/activate"; else'
    scripts = {
        "diarnorm": f'exec "{python}" -m diarnorm.cli "$@"',
        "python": f'exec "{python}" "$@"',
        "python3": f'{venv} exec "{python}" "$@"; fi',
        "pip": f'exec "{python}" "{Path(__file__).resolve()}" "$@"',
        "make": f'exec "{make}" -n -C "{ROOT}" "$@"',
    }
    for name, script in scripts.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (bin_folder / name).chmod(0o755)
    return folder


def run_block(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a block in the folder; its output is captured."""
    commands = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    command = [*commands[block.language], block.text]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


def test_every_block_names_its_language() -> None:
    assert RUN
    assert {block.language for block in BLOCKS} <= {"bash", "python", *NOT_RUN}


@pytest.mark.parametrize("block", RUN, ids=[f"line{block.line}-{block.language}" for block in RUN])
def test_block_runs(block: Block, folder: Path) -> None:
    run = run_block(block, folder)
    assert run.returncode == 0, f"README.md:{block.line}\n{run.stdout}\n{run.stderr}"


def test_files_block_names_what_is_there() -> None:
    (tree,) = [block.text for block in BLOCKS if block.heading == "Files"]
    names = [line.split()[0] for line in tree.splitlines() if line and not line.startswith(" ")]
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {"diarnorm/", "configs/", "recipes/", "data_samples/", "tests/"} <= set(names)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("bash", "false\ntrue\n", ""),
        ("bash", "make nosuch\n", "nosuch"),
        ("bash", "pip install '.[nosuch]'\n", "no extra is called nosuch"),
        ("bash", "pip install torch --index-url https://example.org\n", "is not https"),
        ("bash", "pip install nosuch\n", "nosuch is neither"),
        ("python", "from diarnorm import timebase\ntimebase.nosuch\n", "nosuch"),
    ],
)
def test_a_broken_block_fails(language: str, text: str, message: str, folder: Path) -> None:
    page = f"## Start\n\n```{language}\n{text}```\n"
    (block,) = read_blocks(page)
    assert block == Block(3, language, text, "Start")
    run = run_block(block, folder)
    assert run.returncode != 0
    assert message in run.stdout + run.stderr


if __name__ == "__main__":
    sys.exit(check_pip(sys.argv[1:]))
