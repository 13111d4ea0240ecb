"""`diarnorm corrupt`: a recording damaged on purpose, its reference shifted along with it."""

import re
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diarnorm.commands.arguments import Parser, at_least

if TYPE_CHECKING:
    import numpy as np

    from diarnorm.robustness.corruption import Sound, Spec
    from diarnorm.turns import Turn

EPILOG = """\
A corruption is FAMILY.NAME=SEVERITY; mild, medium and strong stand for usual severities. They are applied in the order
in which they stand. --list shows all of them, with the units of their severities.

  diarnorm corrupt talk.wav damaged.wav loudness.swing=12 silence.middle=10
  diarnorm corrupt talk.wav damaged.wav noise.babble=medium --seed 3
  diarnorm corrupt talk.wav damaged.wav silence.gaps=5 --rttm talk.rttm --rttm-out damaged.rttm

OUT is mono at 16 kHz: 16-bit where that loses nothing, 32-bit float where samples lie between its steps, beyond full
scale, or are no numbers. The same arguments give the same file.

Exit codes: 0; 2 for a mistake in arguments or files."""


class ListAction(Action):
    """`--list`: print the catalogue and exit, as `--help` does."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        print(table())
        parser.exit()


def make_parser() -> Parser:
    """Options of `diarnorm corrupt`."""
    parser = Parser("corrupt", "Damage a recording on purpose: loudness, offsets, silence, noise and more.", EPILOG)
    parser.add_argument(
        "arguments",
        metavar="IN OUT FAMILY.NAME=SEVERITY",
        nargs="*",
        help="the recording, the .wav file to write, which must not exist, and what is done, in this order",
    )
    parser.add_argument("--seed", metavar="N", type=at_least(0), default=0, help="of everything that is drawn")
    parser.add_argument("--rttm", metavar="FILE", help="who speaks when in IN, for corruptions that need to know")
    parser.add_argument("--rttm-out", metavar="FILE", help="write who speaks when in OUT there; it must not exist")
    parser.add_argument(
        "--list", action=ListAction, nargs=0, help="print all corruptions and their severities, and exit"
    )
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm corrupt` with these arguments; the exit code."""
    parser = make_parser()
    options = parser.parse_files(argv, "arguments")
    if len(options.arguments) < 3:
        parser.error("give IN, OUT and at least one FAMILY.NAME=SEVERITY, in this order; --list shows what there is")
    options.input, options.output, *options.corruptions = options.arguments
    _check(parser, options)
    from diarnorm.audio.reader import read_mono
    from diarnorm.robustness.corruption import Sound, corrupt, parse

    spec = parse(options.corruptions)
    _check_on_samples(spec)
    turns = () if options.rttm is None else read_turns(options.rttm, options.input)
    samples, warnings = read_mono(options.input)
    for warning in warnings:
        say(f"{options.input}: {warning}")
    before = Sound(samples, turns)
    sound = corrupt(before, spec, options.seed)
    subtype = write_wav(Path(options.output), sound.samples)
    describe(options, before, spec, sound, subtype)
    if options.rttm_out is not None:
        write_turns(Path(options.rttm_out), sound, Path(options.output).stem)
    elif len(sound.samples) != len(samples) and turns:
        say("turns have moved: --rttm-out FILE writes them")
    return 0


def say(line: str) -> None:
    """One line on standard error."""
    print(line, file=sys.stderr)


def _check(parser: Parser, options: Namespace) -> None:
    """Refuse what cannot be, before anything is read."""
    if options.rttm_out is not None and options.rttm is None:
        parser.error("--rttm-out needs --rttm")
    if Path(options.output).suffix.lower() != ".wav":
        parser.error(f"OUT {options.output} must be a file that ends in .wav")
    if options.rttm_out is not None and Path(options.rttm_out).resolve() == Path(options.output).resolve():
        parser.error(f"--rttm-out {options.rttm_out} is OUT, too: choose another name")
    for path in (options.output, options.rttm_out):
        if path is None:
            continue
        if Path(path).exists():
            parser.error(f"{path} exists: choose another name, or remove it")
        if not Path(path).parent.is_dir():
            parser.error(f"{path} cannot be written: there is no folder {Path(path).parent}")


def _check_on_samples(spec: "Spec") -> None:
    """Refuse corruptions that a file of samples cannot hold.

    Raises:
        ValueError: there is one.
    """
    for link in spec.on_features.links:
        raise ValueError(f"{link} changes log-mel frames, which no WAV file holds: leave it out")


def table() -> str:
    """All corruptions, a line each, with their usual severities."""
    from diarnorm.robustness.corruption import DEGREES, catalogue

    items = catalogue()
    rows = [("corruption", "unit", "/".join(DEGREES), "what X does")]
    rows += [(c.name, c.unit, "/".join(f"{number:g}" for number in c.severities), c.meaning) for c in items]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    notes = {c.name: " (needs --rttm)" for c in items if c.needs_turns}
    notes |= {c.name: " (not in files)" for c in items if c.acts_on == "features"}
    lines = ["  ".join([*(f"{row[i]:{widths[i]}}" for i in range(3)), row[3] + notes.get(row[0], "")]) for row in rows]
    return "\n".join(lines)


def read_turns(path: str, recording: str) -> "tuple[Turn, ...]":
    """The reference of a recording: all of a file about one recording, else what stands there under its name.

    Raises:
        ValueError: several recordings, and none of this name.
    """
    from diarnorm.rttm import legal_name, read_rttm

    notes: list[str] = []
    found = read_rttm(path, notes)
    for note in notes:
        say(note)
    name = legal_name(Path(recording).stem)
    if len(found) > 1 and name not in found:
        raise ValueError(
            f"{path} has no recording {name}, but {', '.join(sorted(found))}: give a file about one of them"
        )
    turns = found[name] if name in found else next(iter(found.values()), [])
    return tuple(sorted(turns))


def write_wav(path: Path, samples: "np.ndarray") -> str:
    """Write samples at 16 kHz; 16 bits where they hold all of them exactly. Returns what was written, in words.

    By SciPy, since libsndfile puts the time of day into files of floats.
    """
    import numpy as np
    from scipy.io import wavfile

    from diarnorm.files import replacing
    from diarnorm.timebase import SAMPLE_RATE

    counts = samples.astype(np.float64) * 32_768
    with np.errstate(invalid="ignore"):
        is_16_bit = bool(((counts == np.round(counts)) & (counts >= -32_768) & (counts <= 32_767)).all())
    with replacing(path) as partial, partial.open("wb") as file:
        wavfile.write(file, SAMPLE_RATE, counts.astype(np.int16) if is_16_bit else samples)
    return "16-bit" if is_16_bit else "32-bit float"


def write_turns(path: Path, sound: "Sound", name: str) -> None:
    """Write the reference as RTTM."""
    from diarnorm.files import replacing
    from diarnorm.rttm import write_rttm

    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        write_rttm(sound.turns, name, file)
    say(f"{path}: {len(sound.turns)} turns")


def describe(options: Namespace, before: "Sound", spec: "Spec", sound: "Sound", written: str) -> None:
    """Say what was there, what was done to it, and what there is now."""
    from diarnorm.robustness.corruption import find

    say(f"{options.input}: {before.duration_s:.3f} s, {_level(before)}")
    for link in spec.links:
        known = find(link.name)
        say(f"  {link}: {_with_number(known.meaning, link.severity) if link.changes else 'changes nothing'}")
    say(f"{options.output}: {sound.duration_s:.3f} s, {_level(sound)}, {written}")
    if sound.events:
        shown = ", ".join(f"{start:.3f}-{end:.3f}" for start, end in sound.events[:5])
        say(f"  changed at {shown}{f' and {len(sound.events) - 5} more' if len(sound.events) > 5 else ''} s")


def _with_number(meaning: str, severity: float) -> str:
    """What a corruption does, with its severity in the place of X.

    >>> _with_number("levels from -X to +X/4 dB, X times", 12.0)
    'levels from -12 to +3 dB, 12 times'
    """

    def written(found: re.Match[str]) -> str:
        sign, part = found.groups()
        value = (-severity if sign == "-" else severity) / (float(part) if part else 1.0)
        return f"{value:+g}" if sign else f"{value:g}"

    return re.sub(r"([+-]?)\bX\b(?:/(\d+))?", written, meaning)


def _level(sound: "Sound") -> str:
    from diarnorm.robustness.level import USUAL_DB, active_speech_level

    level_db = active_speech_level(sound.samples)
    if level_db is None:
        return f"silent (levels refer to {USUAL_DB:g} dBFS)"
    return f"active speech level {level_db:.1f} dBFS"
