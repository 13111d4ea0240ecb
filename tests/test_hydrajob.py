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

from diarnorm.commands.evaluate import COMMAND
from diarnorm.hydrajob import one_folder, quoted

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
        ("models=[a/b,c],models=null,seed=1", "models=[a_b,c],seed=1"),
        ("models=null,models=rms", "models=rms"),
        ("data.speech=null,seed=1", "data.speech=null,seed=1"),
    ],
)
def test_changes_as_the_name_of_one_folder(changes: str, folder: str) -> None:
    assert one_folder(changes) == folder


def test_a_job_that_is_sent_to_another_process_can_name_its_folder() -> None:
    """A launcher resolves the folder there, before the job itself is called."""
    code = (
        "import base64, pickle, sys; job = pickle.loads(base64.b64decode(sys.argv[1])); "
        "from omegaconf import OmegaConf; "
        "print(OmegaConf.create({'dir': '${one_folder:a/b}', 'samples': '${samples_dir:}'}).dir, job.__name__)"
    )
    sent = base64.b64encode(pickle.dumps(COMMAND.job)).decode()
    command, environment = [sys.executable, "-c", code, sent], {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert run.stdout == "a_b job\n", run.stderr
