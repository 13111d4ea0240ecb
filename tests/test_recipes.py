"""Every command on the recipes' pages is one that diarnorm takes.

The `bash` blocks of a page run in an empty folder, in their order, with a `diarnorm` that only notes its words. What
Hydra configures is then composed and checked, but no job works: each leaves the folder of its run with an empty model,
which later blocks of the page find. All other commands are parsed.
"""

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from diarnorm.checkpoint import from_plain
from diarnorm.claims import command as claims
from diarnorm.cli import COMMANDS
from diarnorm.cli import main as diarnorm
from diarnorm.commands import evaluate, robustness, train
from tests.test_readme import ROOT, read_blocks

PAGES = {
    path.relative_to(ROOT / "recipes").as_posix(): path.read_text("utf-8")
    for path in [*ROOT.glob("recipes/*.md"), *ROOT.glob("recipes/*/README.md")]
}
STUDY = "norm_study/README.md"
NOTED = "noted"
PRELUDE = f"""
diarnorm() {{ printf '%s\\0' "$@" $'\\n' >> {NOTED}; }}
torchrun() {{ while [ "$1" != diarnorm ]; do shift; done; shift; diarnorm "$@"; }}
python() {{ :; }}
"""
"""Functions in place of the commands: `diarnorm` notes its words, `torchrun` those behind it, nothing is installed."""
PLUGIN = re.compile(r"hydra/launcher=|hydra\.launcher\.")
"""Launchers are plugins of Hydra, which need not be installed here."""


def words_of(block: str) -> list[list[str]]:
    """The words of every call of `diarnorm` in a block, as the shell gives them, here and now."""
    Path(NOTED).write_bytes(b"")
    subprocess.run(["bash", "-c", PRELUDE + block], check=False, capture_output=True, timeout=60)
    calls = Path(NOTED).read_bytes().decode().split("\0\n\0")[:-1]
    return [call.split("\0") for call in calls]


def leave_a_run(command: Any) -> Callable[[Any], dict[str, float]]:
    """A job that checks its configuration and leaves an empty model where it would have written."""

    def work(config: Any) -> dict[str, float]:
        from hydra.core.hydra_config import HydraConfig

        from_plain(command.config_class(), command.values(config))
        (Path(HydraConfig.get().runtime.output_dir) / "model.safetensors").touch()
        return {}

    return work


@pytest.fixture(autouse=True)
def _no_work(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, without any work, with the voices of the session; what Hydra leaves behind goes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(corpus.parent.parent))
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    for module in (train, evaluate, robustness):
        monkeypatch.setattr(module, "COMMAND", replace(module.COMMAND, work=leave_a_run(module.COMMAND)))
    # Every job of a sweep is composed twice otherwise.
    monkeypatch.setattr("hydra.plugins.sweeper.Sweeper.validate_batch_is_legal", lambda *_: None)
    monkeypatch.setattr(evaluate, "finish", lambda *_, **__: {})
    monkeypatch.setattr("diarnorm.evaluation.results.find_shards", lambda _: [])
    monkeypatch.setattr(claims, "_keep", lambda *_: None)
    monkeypatch.setattr(claims, "_report", lambda *_: None)


def check(words: list[str]) -> None:
    """Refuse a call that diarnorm would refuse before it reads a file."""
    words = [word for word in words if not PLUGIN.match(word)]
    if words[0] in ("train", "evaluate", "robustness", "claims"):
        assert diarnorm(words) == 0, shlex.join(words)
    else:
        import_module(COMMANDS[words[0]].module).make_parser().parse_args(words[1:])


def check_page(page: str) -> int:
    """Check the calls of all blocks of a page, one block after the other; how many calls there were."""
    num_calls = 0
    for block in read_blocks(page):
        calls = words_of(block.text) if block.language == "bash" else []
        for words in calls:
            check(words)
        typed = re.findall(r"^ *(?:torchrun .*-m )?diarnorm ", block.text, re.MULTILINE)
        assert len(calls) >= len(typed), f"line {block.line}: not all calls were made"
        num_calls += len(calls)
    return num_calls


@pytest.mark.parametrize("name", [name for name in PAGES if name != STUDY])
def test_every_command_of_a_page_is_taken(name: str) -> None:
    assert check_page(PAGES[name]) >= (1 if name.endswith("/README.md") else 0)


def test_pages_are_found() -> None:
    assert {"base/README.md", STUDY, "README.md", "choosing_a_norm.md"} <= PAGES.keys()


def test_the_study_evaluates_and_draws_the_runs_that_it_trained() -> None:
    """Its sweep over learning rates leaves runs beside them, which are not in the picture."""
    from omegaconf import OmegaConf

    page = PAGES[STUDY]
    assert check_page(page)
    (curves,) = [words for block in read_blocks(page) for words in words_of(block.text) if words[0] == "curves"]
    runs = [word for word in curves if word.startswith("runs/")]
    assert len(runs) == 11
    assert all(Path(run).is_dir() for run in runs)
    family_by = curves[curves.index("--family-by") + 1]
    families = [match[1] for match in (re.search(family_by, Path(run).name) for run in runs) if match]
    assert sorted(families) == ["batch"] * 3 + ["layer"] * 3 + ["none", "post"] + ["rms"] * 3
    models = OmegaConf.load(ROOT / "recipes/norm_study/evaluation.yaml").models.values()
    assert [path for path in models if not Path(path).is_file()] == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("train recipe=base norm=rmss", "norm=rmss is not known"),
        ("train recipe=nosuch", "recipe=nosuch is neither"),
        ("train recipe=base train.num_stepss=1", "num_stepss"),
        ("train recipe=base train.num_steps=-1", "num_steps=-1"),
        ("evaluate sets.real=FOLDER chunk_mss=480", "chunk_mss"),
        ("simulate corpus --outputt x", "unknown option --outputt"),
    ],
)
def test_a_wrong_command_is_refused(call: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((AssertionError, SystemExit)):
        check_page(f"```bash\ndiarnorm {call}\n```\n")
    assert message in capsys.readouterr().err
