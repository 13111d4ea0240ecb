"""`diarnorm` as a process: pipes, signals, a terminal, a full disk."""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.loudness import noise_bursts
from tests.wavbytes import pcm16, save, wav16

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = noise_bursts([(1.0, 3.0), (5.0, 8.0), (9.5, 12.0)], 15.0)
LINES = [
    f"SPEAKER {{name}} 1 {onset} {duration} <NA> <NA> speaker_1 <NA> <NA>\n"
    for onset, duration in (("0.880", "2.240"), ("4.880", "3.200"), ("9.440", "2.640"))
]


def lines(name: str) -> list[str]:
    return [line.format(name=name) for line in LINES]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save(tmp_path, wav16(SAMPLES), "base.wav")


def environment() -> dict[str, str]:
    """That of a user: the checkout can be imported, and Python buffers its output."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}


def start(
    model: Path, arguments: Sequence[str | Path], *, code: str | None = None, **options: int
) -> subprocess.Popen[bytes]:
    """`diarnorm stream` with the model, everything piped unless told otherwise."""
    program = ["-m", "diarnorm"] if code is None else ["-c", code]
    command = [sys.executable, *program, "stream", "--model", str(model), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen(command, env=environment(), **pipes)  # pyright: ignore


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_turns_come_before_the_end_of_a_pipe_and_survive_a_signal(
    loudness_model: Path, base: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with start(loudness_model, ["-", "--output", tmp_path / "out"]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(base.read_bytes()[:300_000])  # 9.4 s; the pipe stays open
        process.stdin.flush()
        assert [process.stdout.readline().decode() for _ in range(2)] == lines("stdin")[:2]
        assert (tmp_path / "out" / "stdin.rttm").read_text() == "".join(lines("stdin")[:2])
        process.send_signal(number)
        out, err = process.communicate()
    assert process.returncode == code
    assert out == b""
    assert b"note: interrupted at 9." in err
    assert b"Traceback" not in err
    assert (tmp_path / "out" / "stdin.rttm").read_text() == "".join(lines("stdin")[:2])


def test_a_reader_that_goes_away_ends_the_program_quietly(loudness_model: Path, tmp_path: Path) -> None:
    path = save(tmp_path, wav16(np.tile(SAMPLES, 40)), "base.wav")
    # Without triton, too: nothing in the command needs it.
    code = "import sys; sys.modules['triton'] = None; from diarnorm.cli import main; sys.exit(main())"
    with start(loudness_model, ["--quiet", path, "--output", tmp_path], code=code) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().decode() == lines("base")[0]
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    written = (tmp_path / "base.rttm").read_text().splitlines(keepends=True)
    assert 1 <= len(written) < 100
    assert written[:3] == lines("base")[: len(written)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_standard_output_is_one_sentence(loudness_model: Path, base: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        arguments = ["--quiet", base, "--output", tmp_path / "out"]
        with start(loudness_model, arguments, stdout=full.fileno()) as process:
            _, err = process.communicate()
    assert process.returncode == 1
    assert err == b"diarnorm stream: standard output: No space left on device\n"
    assert (tmp_path / "out" / "base.rttm").read_text() == lines("base")[0]
    for arguments in (["info", loudness_model], ["--help"]):
        command = [sys.executable, "-m", "diarnorm", *arguments]
        with Path("/dev/full").open("wb") as full:
            run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False)
        assert run.returncode == 1
        assert run.stderr.endswith(b": standard output: No space left on device\n")
        assert run.stderr.count(b"\n") == 1


def test_a_terminal_sees_a_live_timeline_and_the_pipe_only_rttm(loudness_model: Path, base: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with start(loudness_model, [base], stderr=theirs) as process:
        os.close(theirs)
        screen = b""
        try:
            while data := os.read(ours, 65_536):
                screen += data
        except OSError:  # how Linux reports that the other side has closed
            pass
        os.close(ours)
        out, _ = process.communicate()
    assert (process.returncode, out.decode()) == (0, "".join(lines("base")))
    text = screen.decode()
    assert "speaker_1" in text
    assert "━" * 2 in text
    assert "base: 15.00 s of audio" in text.split("\x1b[2K")[-1]


def private_memory(pid: int) -> int:
    """Bytes of memory that only this process has; pages of libraries come and go with the machine's cache."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_three_hours_take_the_memory_of_three_minutes(loudness_model: Path, tmp_path: Path) -> None:
    sound, repeats, output = pcm16(SAMPLES).tobytes(), 3 * 3600 // 15, tmp_path / "stdin.rttm"
    options = ["--rate", "16000", "--format", "s16le", "--quiet", "--output", tmp_path]
    memory, sizes = [], []
    with start(loudness_model, ["-", *options], stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        for i in range(repeats):
            process.stdin.write(sound)
            memory.append(private_memory(process.pid))
            if i % 60 == 59:
                sizes.append(output.stat().st_size)
        process.stdin.close()
    assert process.returncode == 0
    assert max(memory) - memory[3 * 60 // 15] < 50e6
    assert all(first < second for first, second in pairwise(sizes))
    last = output.read_text().splitlines()[-1].split()
    true_end_s = repeats * 15 - 3.0
    assert abs(float(last[3]) + float(last[4]) - true_end_s) <= 0.161  # a frame, and one of padding


@pytest.mark.slow
def test_one_thread_is_one_thread(loudness_model: Path, tmp_path: Path) -> None:
    path = save(tmp_path, wav16(np.tile(SAMPLES, 40)))
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with start(loudness_model, ["--threads", "1", path]) as process:
        process.communicate()
    wall_s, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert process.returncode == 0
    assert cpu_s / wall_s <= 1.15
