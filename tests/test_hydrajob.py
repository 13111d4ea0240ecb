"""What Hydra is told, read back by Hydra itself; commands in the processes of a launcher."""

import base64
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diarnorm.commands import evaluate, train
from diarnorm.hydrajob import NO_SLASH, HydraCommand, one_folder, quoted

ROOT = Path(__file__).resolve().parents[1]


@given(text=st.text(alphabet="\\\"'ab ,=~[]{}$:", max_size=12).filter(lambda text: "${" not in text))
@example(text="C:\\")
@example(text='\\"')
@example(text='a\\\\"b\\')
@example(text="")
@settings(deadline=None, max_examples=200)
def test_any_text_survives_in_quotes(text: str) -> None:
    parser = OverridesParser.create()
    assert parser.parse_override(f"key={quoted(text)}").value() == text
    (several,) = parser.parse_overrides([f"key=[{quoted(text)},{quoted('next')}]"])
    assert several.value() == [text, "next"]


@pytest.mark.parametrize(
    ("changes", "folder"),
    [
        ("", ""),
        ("seed=1,workers=2", "seed=1,workers=2"),
        ("models=[a/b,c],models=null,seed=1", f"models=[a{NO_SLASH}b,c],seed=1"),
        ("models=a_b", "models=a_b"),
        ("models=null,models=rms", "models=rms"),
        ("data.speech=null,seed=1", "data.speech=null,seed=1"),
    ],
)
def test_changes_as_the_name_of_one_folder(changes: str, folder: str) -> None:
    assert one_folder(changes) == folder


@given(names=st.sets(st.text(alphabet="/_.ab", max_size=6), min_size=2))
@example(names={"a/b", "a_b"})
@settings(deadline=None, max_examples=200)
def test_other_values_have_other_folders(names: set[str]) -> None:
    folders = {one_folder(f"data.clips={name},train.seed=0") for name in names}
    assert len(folders) == len(names)
    assert not any("/" in folder for folder in folders)


@pytest.mark.parametrize("command", [evaluate.COMMAND, train.COMMAND], ids=lambda command: command.name)
def test_a_job_that_is_sent_to_another_process_can_name_its_folder(command: HydraCommand) -> None:
    """A launcher resolves the folder there, before the job itself is called."""
    code = (
        "import base64, pickle, sys; job = pickle.loads(base64.b64decode(sys.argv[1])); "
        "from omegaconf import OmegaConf; "
        "folder = OmegaConf.create({'dir': '${one_folder:a/b}', 'samples': '${samples_dir:}'}).dir; "
        "print(folder, job.__self__.name, job.__name__)"
    )
    sent = base64.b64encode(pickle.dumps(command.job)).decode()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    words = [sys.executable, "-c", code, sent]
    run = subprocess.run(words, env=environment, check=False, capture_output=True, encoding="utf-8")
    assert run.stdout == f"a{NO_SLASH}b {command.name} job\n", run.stderr
