"""`diarnorm stream` in this process, with a model that hears loudness: turns are where the noise is."""

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from diarnorm import cli
from diarnorm.commands import stream as stream_command
from diarnorm.commands.session import Session
from diarnorm.rttm import read_rttm
from diarnorm.stream import Diarizer
from diarnorm.turns import Turn
from tests.loudness import noise_bursts, save_loudness_model
from tests.wavbytes import chunk, fmt, pcm16, riff, save, stdin_of, wav16

BURSTS = [(1.0, 3.0), (5.0, 8.0), (9.5, 12.0)]
SAMPLES = noise_bursts(BURSTS, 15.0)
BASE = [(0.88, 3.12), (4.88, 8.08), (9.44, 12.08)]
"""The bursts on the grid of frames, padded by one frame."""
QUIET = np.zeros(5 * 16_000)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save(tmp_path, wav16(SAMPLES), "base.wav")


@pytest.fixture
def diarnorm(loudness_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Run `diarnorm stream --model MODEL ...`: exit code, standard output, standard error."""
    monkeypatch.setattr(torch, "set_num_threads", lambda num_threads: None)

    def run(*argv: str | Path, model: Path = loudness_model) -> tuple[int, str, str]:
        code = cli.main(["stream", "--model", str(model), *map(str, argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def spans(text: str) -> list[tuple[float, float]]:
    """Start and end of RTTM lines."""
    fields = [line.split() for line in text.splitlines()]
    return [(float(f[3]), round(float(f[3]) + float(f[4]), 3)) for f in fields]


def test_the_command_says_what_the_library_says(diarnorm, base: Path, loudness_model: Path) -> None:
    code, out, err = diarnorm(base)
    assert (code, spans(out)) == (0, BASE)
    annotation = Diarizer.from_pretrained(loudness_model)(base)
    assert [(round(s.start, 3), round(s.end, 3)) for s in annotation.itersegments()] == BASE
    assert out.splitlines()[0] == "SPEAKER base 1 0.880 2.240 <NA> <NA> speaker_1 <NA> <NA>"
    head, count, speaker, latency, decisions = err.splitlines()
    assert head == "base: 15.00 s of audio, 8.08 s of speech, 0.00 s of it overlapped"
    assert count == "  1 speaker of at most 4"
    assert speaker.split() == ["speaker_1", "8.08", "s", "100.0", "%", "3", "turns"]
    assert latency.startswith("  activity latency 0.96 s, RTF 0.")
    assert "  decisions add 0.16 s (a turn's start), 0.40 s (a newcomer's), " in decisions
    assert max(map(len, err.splitlines())) <= 80


def test_quiet_says_nothing(diarnorm, base: Path) -> None:
    code, out, err = diarnorm("--quiet", base)
    assert (code, spans(out), err) == (0, BASE, "")


def test_any_run_gives_the_same_bytes(diarnorm, base: Path) -> None:
    first = diarnorm(base)[1]
    assert diarnorm(base)[1] == diarnorm("--threads", "2", base)[1] == first
    assert spans(diarnorm("--chunk-ms", "480", base)[1]) == BASE
    assert spans(diarnorm("--max-speakers", "2", base)[1]) == BASE


@pytest.mark.parametrize("rate", [22_050, 44_100, 48_000])
def test_other_rates_are_resampled_and_said(diarnorm, tmp_path: Path, rate: int) -> None:
    code, out, err = diarnorm(save(tmp_path, wav16(noise_bursts(BURSTS, 15.0, rate), rate)))
    assert code == 0
    assert np.abs(np.subtract(spans(out), BASE)).max() < 0.161
    assert f"note: resampled {rate} -> 16000 Hz" in err


def test_json_lines(diarnorm, base: Path) -> None:
    code, out, _ = diarnorm("--json", base)
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {(event["schema"], event["uri"]) for event in events} == {("diarnorm/1", "base")}
    assert [event["event"] for event in events] == ["start", "turn"] * 3 + ["summary"]
    assert [(event["start"], event["end"]) for event in events if event["event"] == "turn"] == BASE
    assert [event["time"] for event in events if event["event"] == "start"] == [start for start, _ in BASE]
    summary = events[-1]
    assert (summary["duration_s"], summary["speech_s"], summary["max_speakers"]) == (15.0, 8.08, 4)
    assert (summary["latency_s"], summary["notes"]) == (0.96, [])
    assert 0 < summary["rtf"] < 10


@pytest.mark.parametrize("num_samples", [0, 1, 159, 160, 399, 400, 561, 1279, 1280, 15_361])
def test_a_short_clip_is_a_recording(diarnorm, tmp_path: Path, num_samples: int) -> None:
    model = save_loudness_model(tmp_path / "always.safetensors", speaks_always=True)
    code, out, err = diarnorm(save(tmp_path, wav16(SAMPLES[16_000:][:num_samples])), model=model)
    assert code == 0
    assert all(0 <= start < end <= num_samples / 16_000 for start, end in spans(out))
    assert (num_samples >= 2 * 1280) == bool(out)
    assert out or "note: no speech found" in err


def test_silence_is_an_empty_rttm_and_changes_nothing_for_others(diarnorm, base: Path, tmp_path: Path) -> None:
    silent = [save(tmp_path, wav16(QUIET), f"zeros{i}.wav") for i in (1, 2)]
    code, out, err = diarnorm("--output", tmp_path / "out", silent[0], base, silent[1])
    assert (code, spans(out)) == (0, BASE)
    assert err.count("note: no speech found") == 2
    assert "note: digital silence" in err
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert files == {"zeros1.rttm": "", "base.rttm": out, "zeros2.rttm": ""}


def test_names_of_any_kind(diarnorm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["naïve-日本.wav", "k=v,1.wav", "hash#1.wav", "my talk.wav", "-dash.wav"]
    for name in names:
        save(tmp_path, wav16(SAMPLES[:80_000]), name)
    code, out, _ = diarnorm(*names[:-1], "--output", "out", "--", names[-1])
    uris = ["naïve-日本", "k=v,1", "hash#1", "my_talk", "-dash"]
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == uris
    out = diarnorm("--json", "my talk.wav")[1]
    assert {json.loads(line)["uri"] for line in out.splitlines()} == {"my_talk"}
    for name, uri in zip(names, uris, strict=True):
        assert list(read_rttm(tmp_path / "out" / f"{name[:-4]}.rttm")) == [uri]


def test_inputs_of_the_same_name_do_not_meet(diarnorm, tmp_path: Path) -> None:
    paths = []
    for folder in ("d1", "d2"):
        (tmp_path / folder).mkdir()
        paths.append(save(tmp_path / folder, wav16(SAMPLES[:80_000]), "utt.wav"))
    code, out, _ = diarnorm(*paths, "--output", tmp_path / "out")
    assert code == 0
    assert [line.split()[1] for line in out.splitlines()] == ["d1_utt", "d2_utt"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["d1_utt.rttm", "d2_utt.rttm"]
    code, out, err = diarnorm(paths[0], paths[0])
    assert (code, out) == (2, "")
    assert err == f"diarnorm stream: {paths[0]} is given twice\n"


def test_a_reference_is_not_overwritten_but_own_output_is(diarnorm, base: Path, tmp_path: Path) -> None:
    target = tmp_path / "base.rttm"
    target.write_text("SPEAKER base 1 0.900 1.120 <NA> <NA> anna <NA> <NA>\n")
    code, _, err = diarnorm(base, "--output", tmp_path)
    assert code == 2
    assert f"{target} exists and was not written by diarnorm" in err
    assert "anna" in target.read_text()
    target.unlink()
    assert diarnorm(base, "--output", tmp_path)[0] == diarnorm(base, "--output", tmp_path)[0] == 0
    assert spans(target.read_text()) == BASE


def test_bad_files_are_reported_and_the_others_done(diarnorm, base: Path, tmp_path: Path) -> None:
    bad = {
        save(tmp_path, b"not a wav at all", "text.wav"): "looks like text and cannot be read; convert it with: ffmpeg",
        save(tmp_path, b"", "empty.wav"): "is empty (0 bytes)",
        save(tmp_path, riff(fmt(1, 16)), "nodata.wav"): "without a data chunk",
        save(tmp_path, b"\xff\xf1\x50\x80" * 200, "aac.wav"): "looks like AAC",
        tmp_path: "is a directory, not an audio file",
        tmp_path / "missing.wav": "no such file",
        tmp_path / "many.wav": "channel 2 asked for, the input has 2: choose 0 to 1",
    }
    save(tmp_path, wav16(np.stack([SAMPLES, SAMPLES], axis=1)), "many.wav")
    save(tmp_path, wav16(np.stack([SAMPLES] * 3, axis=1)), "base.wav")
    code, out, err = diarnorm(*bad, base, "--quiet", "--channel", "2", "--output", tmp_path / "out")
    assert (code, spans(out)) == (2, BASE)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["base.rttm"]
    lines = err.splitlines()
    assert len(lines) == len(bad)
    for line, (path, reason) in zip(lines, bad.items(), strict=True):
        assert line.startswith(f"diarnorm stream: {path}: ")
        assert reason in line


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_reported(diarnorm, base: Path) -> None:
    base.chmod(0)
    code, _, err = diarnorm(base)
    assert (code, err) == (2, f"diarnorm stream: {base}: permission denied\n")


def test_debug_shows_the_traceback_of_a_bad_file(diarnorm, tmp_path: Path) -> None:
    assert "Traceback" in diarnorm("--debug", tmp_path / "missing.wav")[2]


def test_what_is_odd_about_the_input_is_said(diarnorm, tmp_path: Path) -> None:
    stereo = np.stack([SAMPLES, -SAMPLES], axis=1)
    broken = SAMPLES.astype("<f4")
    broken[100_000] = np.nan
    inputs = {
        "antiphase": (wav16(stereo), "they cancel (anti-phase)"),
        "offset": (wav16(SAMPLES * 0.5 + 0.1), "DC offset +10.0 % of full scale"),
        "clipped": (wav16(SAMPLES * 50), "% of the samples at or beyond full scale"),
        "nan": (riff(fmt(3, 32), chunk(b"data", broken.tobytes())), "1 replaced by 0, the first at 6.250 s"),
        "cut": (wav16(SAMPLES)[:-100_000], "promises 240000 samples, the data end after 190000"),
        "pipe": (riff(fmt(1, 16), chunk(b"data", pcm16(SAMPLES).tobytes(), 2**32 - 1)), "does not tell the length"),
    }
    for name, (data, note) in inputs.items():
        code, out, err = diarnorm(save(tmp_path, data, f"{name}.wav"))
        assert code == 0
        assert note in err
        if name != "antiphase":
            assert err.count("note: ") == 1
            assert spans(out)[:2] == BASE[:2] or name == "clipped"


def test_channel_takes_one(diarnorm, tmp_path: Path) -> None:
    path = save(tmp_path, wav16(np.stack([0 * SAMPLES, SAMPLES], axis=1)))
    assert spans(diarnorm("--channel", "1", path)[1]) == BASE
    assert diarnorm("--channel", "0", path)[1] == ""


def test_speaker_capacity_is_said(diarnorm, base: Path, tmp_path: Path) -> None:
    model = save_loudness_model(tmp_path / "always.safetensors", speaks_always=True)
    code, out, err = diarnorm("--max-speakers", "1", base, model=model)
    assert (code, len(spans(out))) == (0, 1)
    assert "1 speaker of at most 1" in err
    assert "note: speaker capacity reached" in err


def test_a_short_label_is_flagged(diarnorm, tmp_path: Path) -> None:
    _, out, err = diarnorm(save(tmp_path, wav16(noise_bursts([(1.0, 1.5)], 1.9))))
    assert len(spans(out)) == 1
    assert "short: less than 1 s, perhaps no speaker" in err


def test_pipes(diarnorm, base: Path) -> None:
    expected = diarnorm(base)[1].replace(" base ", " stdin ")
    piped = riff(chunk(b"LIST", b"x" * 99_999), fmt(1, 16), chunk(b"data", pcm16(SAMPLES).tobytes(), 2**32 - 1))
    with stdin_of(piped):
        code, out, err = diarnorm("-")
    assert (code, out) == (0, expected)
    assert err.count("note: ") == 1
    with stdin_of(pcm16(SAMPLES).tobytes()):
        assert diarnorm("--rate", "16000", "--format", "s16le", "-")[:2] == (0, expected)
    with stdin_of(SAMPLES.astype("<f4").tobytes()):
        assert spans(diarnorm("-", "--rate", "16000", "--format", "f32le")[1]) == BASE
    with stdin_of(b""):
        assert diarnorm("-") == (2, "", "diarnorm stream: stdin: is empty (0 bytes)\n")


def test_a_bad_model_or_device_is_one_sentence(diarnorm, base: Path, tmp_path: Path) -> None:
    sentence = "was trained with norm=rms, not norm=layer"
    code, out, err = diarnorm("--norm", "layer", base)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    code, out, err = diarnorm("--device", "nosuch", base, base.with_name("x.wav"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "device=nosuch cannot be used here: give cpu" in err
    code, out, err = diarnorm(base, model=save(tmp_path, b"hello", "x.safetensors"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert diarnorm("--norm", "rms", base)[0] == 0


def test_a_closed_standard_output_loses_no_turns(
    diarnorm, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    code, _, err = diarnorm(base)
    assert (code, err.count("\n")) == (2, 1)
    assert "standard output is closed: redirect it to a file, or give --output DIR" in err
    assert diarnorm("--output", tmp_path / "turns", base)[0] == 0
    assert [(turn.start, turn.end) for turn in read_rttm(tmp_path / "turns" / "base.rttm")["base"]] == BASE


def test_output_must_be_a_folder(diarnorm, base: Path) -> None:
    code, out, err = diarnorm("--output", base, base)
    assert (code, out, err) == (2, "", f"diarnorm stream: --output {base} is a file: give a folder\n")


def test_an_error_of_the_program_is_code_1(diarnorm, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Session, blocks: object) -> list[Turn]:
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(Session, "_step", fail)
    code, out, err = diarnorm(base)
    assert (code, out) == (1, "")
    assert err == "diarnorm stream: internal error, RuntimeError: shape mismatch (--debug shows where)\n"
    assert "Traceback" in diarnorm("--debug", base)[2]


class InterruptedReader:
    """Blocks of a recording, with a signal after 9 s, as it arrives while the program works or while it waits."""

    sample_rate = 16_000

    def __init__(self, number: signal.Signals, *, while_waiting: bool) -> None:
        self.number, self.while_waiting, self.warnings = number, while_waiting, []

    def __enter__(self) -> "InterruptedReader":
        return self

    def __exit__(self, *error: object) -> None: ...

    def __iter__(self) -> Iterator[object]:
        for start in range(0, len(SAMPLES), 16_000):
            if start == 9 * 16_000:
                if self.while_waiting:
                    signal.raise_signal(self.number)
                    raise AssertionError("the signal was not raised while waiting")
                yield SignallingBlock(self.number)
            yield SAMPLES[start : start + 16_000].astype(np.float32)


class SignallingBlock:
    """An empty block that raises a signal while it is worked on."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        signal.raise_signal(self.number)
        return np.zeros(0, np.float32)


def test_a_signal_while_the_model_loads_ends_the_program_at_once(
    diarnorm, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*args: object, **options: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal was not raised while loading")

    monkeypatch.setattr(Diarizer, "from_pretrained", load)
    assert diarnorm(base, "--output", tmp_path / "out") == (130, "", "")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("while_waiting", [True, False])
@pytest.mark.parametrize("source", ["base.wav", "-"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_input_and_loses_nothing(
    diarnorm,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
    source: str,
    while_waiting: bool,
) -> None:
    reader = InterruptedReader(number, while_waiting=while_waiting)
    monkeypatch.setattr("diarnorm.audio.reader.open_audio", lambda source, **options: reader)
    before = signal.getsignal(number)
    got, out, err = diarnorm("--output", tmp_path, source, "next.wav")
    assert got == code
    assert spans(out) == BASE[:2]
    assert "interrupted at 9.00 s" in err
    assert ("not final" in err) == (source != "-")
    assert (tmp_path / ("stdin.rttm" if source == "-" else "base.rttm")).read_text() == out
    assert not (tmp_path / "next.rttm").exists()
    assert signal.getsignal(number) is before


def test_the_end_of_an_interrupted_pipe_is_the_end_of_the_recording(
    diarnorm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SAMPLES", noise_bursts([(1.0, 3.0), (8.0, 14.0)], 15.0))
    for source, expected in (("-", [BASE[0], (7.84, 9.0)]), ("talk.wav", BASE[:1])):
        reader = InterruptedReader(signal.SIGINT, while_waiting=True)
        monkeypatch.setattr("diarnorm.audio.reader.open_audio", lambda source, reader=reader, **options: reader)
        code, out, _ = diarnorm(source)
        assert code == 130
        assert np.abs(np.subtract(spans(out), expected)).max() < 0.17


def test_json_summary_of_an_interrupted_recording(diarnorm, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InterruptedReader(signal.SIGINT, while_waiting=True)
    monkeypatch.setattr("diarnorm.audio.reader.open_audio", lambda source, **options: reader)
    code, out, _ = diarnorm("--json", "x.wav")
    assert code == 130
    assert json.loads(out.splitlines()[-1])["notes"][0].startswith("interrupted at 9.00 s")


def test_a_disk_that_fills_up_is_code_1_and_loses_no_line(diarnorm, base: Path, tmp_path: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        code, out, err = diarnorm("--quiet", base, "--output", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 1
    assert err == f"diarnorm stream: {tmp_path / 'base.rttm'}: File too large\n"
    assert (tmp_path / "base.rttm").read_text() == out.splitlines(keepends=True)[0]
    assert spans(out) == BASE[:2]  # standard output still got the turn that the file could not take


class ClosingOutput(io.StringIO):
    """Standard output whose reader goes away after the first line."""

    def write(self, text: str) -> int:
        if "\n" in self.getvalue():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return super().write(text)


def test_a_reader_that_goes_away_is_no_error(
    diarnorm, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", ClosingOutput())
    code, _, err = diarnorm("--quiet", base, "--output", tmp_path)
    assert (code, err) == (141, "")
    assert spans((tmp_path / "base.rttm").read_text()) == BASE[:2]


def test_the_model_is_loaded_once_and_not_for_nothing(
    diarnorm, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    load = Diarizer.from_pretrained

    def counting(*args: object, **kwargs: object) -> Diarizer:
        loaded.append(args)
        return load(*args, **kwargs)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Diarizer, "from_pretrained", counting)
    assert diarnorm(tmp_path / "missing.wav")[0] == 2
    assert loaded == []
    other = save(tmp_path, base.read_bytes(), "other.wav")
    assert diarnorm(base, other)[0] == 0
    assert len(loaded) == 1


def test_parser_takes_files_and_options_in_any_order() -> None:
    parser = stream_command.make_parser()
    options = parser.parse_files(["a", "--json", "-", "--rate", "3", "--", "-b", "--json"], "files")
    assert (options.files, options.json, options.rate) == (["a", "-", "-b", "--json"], True, 3)
