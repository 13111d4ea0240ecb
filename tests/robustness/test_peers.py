"""Peers: what a program hears, what is made of its answers, against seconds counted by hand; every way to go wrong."""

import os
import re
import signal
import sys
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
import soundfile

from diarnorm.evaluation.scores import Components
from diarnorm.robustness import peers
from diarnorm.robustness.config import RobustnessConfig
from diarnorm.robustness.corruption import Sound, corrupt, parse
from diarnorm.robustness.peers import Peer, find_peers, listen, words_of
from diarnorm.robustness.study import Study, study
from diarnorm.timebase import SAMPLE_RATE
from tests.evalset import save_set, turns

pytestmark = pytest.mark.usefixtures("one_thread")

LOUD = '''
"""Somebody, always the same, speaks wherever 10 ms are louder than -34 dBFS."""
import sys
from pathlib import Path
import numpy as np
import soundfile

wavs, rttms = map(Path, sys.argv[1:])
for path in wavs.iterdir():
    samples, rate = soundfile.read(path)
    frames = np.nan_to_num(samples[: len(samples) // 160 * 160]).reshape(-1, 160)
    loud = np.sqrt((frames**2).mean(axis=1)) > 0.02
    edges = np.flatnonzero(np.diff(loud, prepend=False, append=False)).reshape(-1, 2) / 100
    lines = [f"SPEAKER anything 1 {a} {b - a} <NA> <NA> one <NA> <NA>\\n" for a, b in edges]
    (rttms / f"{path.stem}.rttm").write_text("".join(lines))
with Path("calls.txt").open("a") as calls:
    print(*sorted(path.stem for path in wavs.iterdir()), file=calls)
'''
COMMAND = f"{sys.executable} loud.py {{wavs}} {{rttms}}"
CORRUPTIONS = ("loudness.gain=-20", "silence.middle=2", "loudness.swing=6", "features.offset=-4.605")


@pytest.fixture
def folder(tmp_path: Path, loudness_model: Path) -> Path:
    """A set, a model and a peer."""
    return lay_out(tmp_path, loudness_model)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, loudness_model: Path) -> Study:
    """Everything that `configure` asks for."""
    folder = lay_out(tmp_path_factory.mktemp("peers"), loudness_model)
    return study(configure(), folder / "out", folder)


def lay_out(folder: Path, model: Path) -> Path:
    save_set(folder / "all", ["a_two", "b_silent", "b_two"])
    (folder / "loud.safetensors").symlink_to(model)
    (folder / "loud.py").write_text(LOUD, "utf-8")
    return folder


def configure(**changes: object) -> RobustnessConfig:
    config = RobustnessConfig(
        models="loud.safetensors",
        sets={"all": "all"},
        peers={"energy": COMMAND},
        corruptions=CORRUPTIONS,
        alone=("nothing", "dc.offset=0.1"),
        alone_s=4.0,
        halves=("loudness.swing",),
        num_resamples=100,
    )
    return replace(config, **changes)


def test_figures_are_those_counted_by_hand(done: Study) -> None:
    assert done.columns == ["loud", "energy"]
    found = {
        (recording, condition): each
        for (model, _, recording, condition), each in done.records.items()
        if model == "energy"
    }
    expected = {
        ("a_two", "clean"): Components(0.0, 0.0, 1.0, 2.0),  # one label for two who speak a second each
        ("b_two", "clean"): Components(0.5, 0.0, 2.0, 4.0),  # anna's 1.5 s fit, half a second is overlap
        ("b_silent", "clean"): Components(0.0, 0.0, 0.0, 0.0),
        ("a_two", "loudness.gain=-20"): Components(2.0, 0.0, 0.0, 2.0),
        ("b_two", "silence.middle=2"): Components(0.5, 0.0, 2.0, 4.0),
    }
    for place, errors in expected.items():
        assert vars(found[place].errors) == pytest.approx(vars(errors), abs=1e-9), place
    clean, quiet = found["b_two", "clean"], found["b_two", "silence.middle=2"]
    assert (clean.num_turns, clean.num_speakers, clean.duration_s) == (2, 1, 6.0)
    assert (quiet.num_turns, quiet.duration_s) == (2, 8.0)  # it goes between two words
    assert (quiet.event_s, quiet.event_speech_s) == (pytest.approx(1.0), 0.0)
    halves = found["b_two", "loudness.swing=6"].halves  # of which the first ends at 3 s
    assert [half.speech_s for half in halves] == pytest.approx([2.5, 1.5])
    assert halves[0].miss_s == pytest.approx(0.5)


def test_nobody_speaks_in_silence_but_in_an_offset(folder: Path) -> None:
    done = study(configure(corruptions=(), sets={}), folder / "out", folder)
    silent, offset = (done.records["energy", "silence", "silence", name] for name in ("nothing", "dc.offset=0.1"))
    assert (silent.num_turns, silent.merged.false_alarm_s) == (0, 0.0)
    assert (offset.num_turns, offset.merged.false_alarm_s) == (1, pytest.approx(4.0))
    assert (folder / "calls.txt").read_text() == "silence\nsilence\n"


def test_what_a_peer_does_not_have_is_left_out(done: Study) -> None:
    of_peer = [each for each in done.records.values() if each.model == "energy"]
    for each in of_peer:
        assert (each.drift, each.rms, each.event_rms, each.attention, each.recovery_s) == (None, (), None, None, ())
    conditions = {each.condition for each in of_peer}
    of_model = {each.condition for each in done.records.values() if each.model == "loud"}
    assert of_model - conditions == {"features.offset=-4.605"}
    assert "energy" not in done.models
    assert done.peers["energy"]["command"] == COMMAND


def test_a_peer_gets_the_very_samples(tmp_path: Path) -> None:
    clean = Sound(np.float32(0.5) * np.sin(np.arange(32_000, dtype=np.float32)), tuple(turns([("a", 0.5, 1.5)])))
    for words in ("loudness.gain=20", "loudness.gain=-40", "damage.nan=60"):
        sound = corrupt(clean, parse([words]), crc32(b"x"))
        seen = tmp_path / words
        copy = f"import shutil, sys; shutil.copytree(sys.argv[1], {str(seen)!r}); open(sys.argv[2] + '/x y.rttm', 'w')"
        peer = Peer("copy", f'{sys.executable} -c "{copy}" {{wavs}} {{rttms}}', (), tmp_path)
        with pytest.raises(ValueError, match=r"it wrote no x_y\.rttm"):  # names of files have no spaces
            listen(peer, words, ["x y"], [sound.samples])
        samples, rate = soundfile.read(seen / "x_y.wav", dtype="float32")
        assert (rate, samples.dtype) == (SAMPLE_RATE, np.float32)
        np.testing.assert_array_equal(samples, sound.samples)
    assert np.isnan(samples).any()


def test_records_are_kept_until_command_or_file_change(folder: Path) -> None:
    calls = folder / "calls.txt"

    def again(command: str = COMMAND) -> tuple[Study, int]:
        done = study(configure(corruptions=("loudness.gain=-20",), peers={"energy": command}), folder / "out", folder)
        return done, len(calls.read_text().splitlines())

    first, num_calls = again()
    assert num_calls == 4  # clean, changed, and silence twice
    assert calls.read_text().startswith("a_two b_silent b_two\n")
    second, num_calls = again()
    assert (num_calls, second.records) == (4, first.records)
    (folder / "loud.py").write_text(LOUD.replace("0.02", "0.005"), "utf-8")
    third, num_calls = again()
    assert num_calls == 8
    assert third.records["energy", "all", "a_two", "loudness.gain=-20"].errors.miss_s == pytest.approx(0.0)
    of_model = {place: each for place, each in third.records.items() if place[0] == "loud"}
    assert of_model.items() <= first.records.items()
    assert again(COMMAND.replace("loud.py", "./loud.py"))[1] == 12


WRITE = """
import sys
from pathlib import Path
out = Path(sys.argv[2])
for path in Path(sys.argv[1]).iterdir():
    if path.stem != "a_two":
        (out / f"{path.stem}.rttm").touch()
"""
FAILURES = [
    ("sys.exit('first\\nlast words\\n')", "the command failed with 1; the last it said on standard error: last words"),
    ("print('out')", r"it wrote no a_two\.rttm; the last it said on standard error: nothing"),
    (
        "print('hm', file=sys.stderr); (out / 'a_two.rttm').write_text('SPEAKER a 1 x 1 <NA> <NA> s <NA> <NA>')",
        r"rttms/a_two\.rttm:1: onset must be a number of seconds, .* standard error: hm",
    ),
    (
        "(out / 'a_two.rttm').write_text(''.join(f'SPEAKER {u} 1 0 1 <NA> <NA> s <NA> <NA>\\n' for u in 'ab'))",
        r"a_two\.rttm is about several recordings, a, b",
    ),
]


@pytest.mark.parametrize(("code", "message"), FAILURES, ids=["fails", "nothing", "broken", "several"])
def test_a_peer_that_does_not_do_its_work_is_named(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(WRITE + code, "utf-8")
    peer = Peer("bad", f"{sys.executable} bad.py {{wavs}} {{rttms}}", (), tmp_path)
    with pytest.raises(ValueError, match=f"^peer bad on dc.offset=0.1: {message}$"):
        listen(peer, "dc.offset=0.1", ["b_one", "a_two"], [np.zeros(160, np.float32)] * 2)


def test_what_others_said_is_kept_when_a_peer_fails(folder: Path) -> None:
    bad = f"{sys.executable} -c 'import sys; sys.exit(9)' {{wavs}} {{rttms}}"
    few = configure(corruptions=("dc.offset=0.1",), alone=())
    with pytest.raises(ValueError, match=r"^peer bad on clean: .* failed with 9; .*: nothing; 6 of 18 recordings"):
        study(replace(few, peers={"bad": bad, "energy": COMMAND}), folder / "out", folder)
    assert len((folder / "calls.txt").read_text().splitlines()) == 2
    done = study(few, folder / "out", folder)
    assert len(done.records) == 2 * 2 * 3
    assert len((folder / "calls.txt").read_text().splitlines()) == 2


def test_a_program_that_is_gone_is_named(folder: Path) -> None:
    peer = Peer("gone", "./gone {wavs} {rttms}", (), folder)
    with pytest.raises(ValueError, match=r"^peer gone on clean: \./gone cannot be started \(No such file"):
        listen(peer, "clean", ["a"], [np.zeros(160, np.float32)])
    with pytest.raises(ValueError, match="two recordings are called a_b"):
        listen(peer, "clean", ["a/b", "a_b"], [np.zeros(160, np.float32)] * 2)


NEVER_ENDS = """
import os, signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("pids").write_text(f"{os.getpid()} {child.pid}")
print("still at it", file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_peer_that_never_ends_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "CLOSING_S", 0.1)
    (tmp_path / "slow.py").write_text(NEVER_ENDS, "utf-8")
    command = f"{sys.executable} slow.py {{wavs}} {{rttms}}"
    (peer,) = find_peers({"slow": command}, [], tmp_path, limit_s=5.0)
    with pytest.raises(ValueError, match=r"^peer slow on clean: the command was stopped after 5 s .*: still at it$"):
        listen(peer, "clean", ["a"], [np.zeros(160, np.float32)])
    own, started_by_it = map(int, (tmp_path / "pids").read_text().split())
    os.kill(started_by_it, signal.SIGKILL)  # was alive, and kept nobody waiting
    with pytest.raises(ProcessLookupError):
        os.kill(own, 0)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("mine.py {wav} {rttms}", "peers.x=mine.py {wav} {rttms} has no {wavs} after its program: give a command such"),
        ("mine.py {wavs}", "has no {rttms} after its program"),
        ("", "has no {wavs} and no {rttms} after"),
        ("{wavs} {rttms}", "has no {wavs} after"),
        ("mine.py '{wavs} {rttms}", "cannot be cut into words: no closing quotation"),
    ],
)
def test_commands_that_are_none_are_refused_at_once(command: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RobustnessConfig(peers={"x": command})


def test_peers_of_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("print()")
    (tmp_path / "weights").write_bytes(b"abc")
    command = f"'{sys.executable}' mine.py --model=weights --name=rms {{wavs}} --to={{rttms}}"
    hashes = {"mine.py": "print()", "weights": "abc"}
    monkeypatch.setattr(peers, "file_sha256", lambda path: path.read_text() if path.parent == tmp_path else "program")
    (peer,) = find_peers({"x": command}, ["rms"], tmp_path)
    assert peer.facts == {"command": command, "files": {sys.executable: "program", **hashes}}
    assert words_of("x", command)[-1] == "--to={rttms}"
    assert find_peers({}, ["rms"], tmp_path) == ()
    with pytest.raises(ValueError, match=r"^peers\.rms is the name of a model, too"):
        find_peers({"rms": command}, ["rms"], tmp_path)
    for program in ("nosuchprogram", "./mine.py"):  # the second is there, but cannot be run
        with pytest.raises(ValueError, match=rf"^peers\.x: there is no program {re.escape(program)}"):
            find_peers({"x": f"{program} {{wavs}} {{rttms}}"}, [], tmp_path)
