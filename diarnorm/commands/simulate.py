"""`diarnorm simulate`: conversations with references from speech of single speakers, and how real ones compare."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diarnorm.commands.arguments import Parser, at_least, checked, seconds
from diarnorm.commands.simulatorfile import CONFIG_HELP, read_simulator
from diarnorm.commands.sinks import open_folder
from diarnorm.resources import cache_dir
from diarnorm.simulation.synthetic import SYNTHETIC, speech_source

if TYPE_CHECKING:
    from diarnorm.simulation.conversation import Plan
    from diarnorm.simulation.planner import SimulatorConfig
    from diarnorm.simulation.speech import Speech
    from diarnorm.simulation.talkstats import Talk

LONGEST_S = 36 * 3600
"""A wav file holds no more than 37 hours at 16 kHz."""
EPILOG = """\
SPEECH is a folder with one folder of recordings per speaker, a .tsv manifest with the columns path and speaker (and,
where known, split, source, gender, same_as), or the word synthetic for voices made on the spot, which teach nobody
anything. Each conversation becomes NAME.wav (16 kHz, 16 bit), NAME.rttm and NAME.uem; the same arguments give the same
files. Statistics go to standard output.

  diarnorm simulate corpus/ --output talks --num 100 --duration 60 --speakers 2-4 --noise noises/ --rooms rooms/
  diarnorm simulate corpus/ --output hour --duration 3600 --speakers 4 --silence 1500:600
  diarnorm simulate corpus/ --num 200 --duration 30 --compare references/ --uem scored.uem

Exit codes: 0; 2 for a mistake in arguments or files; 130 interrupted (files already written stay)."""


def make_parser() -> Parser:
    """Options of `diarnorm simulate`."""
    parser = Parser(
        "simulate", "Make conversations with references, and count what they and real ones are like.", EPILOG
    )
    parser.add_argument("speech", metavar="SPEECH", help="speech by speaker: a folder, a .tsv manifest, or synthetic")
    parser.add_argument("--output", metavar="DIR", help="write wav, RTTM and UEM files there")
    parser.add_argument("--num", metavar="N", type=at_least(1), default=1, help="number of conversations")
    parser.add_argument(
        "--duration", metavar="S", type=checked(float, _check_duration), default=60.0, help="seconds each"
    )
    parser.add_argument(
        "--speakers",
        metavar="N|LOW-HIGH",
        type=_speakers,
        help="speakers in each; in short ones some may stay silent (default: 1-4, as the configuration says)",
    )
    parser.add_argument("--seed", metavar="N", type=at_least(0), default=0, help="of everything that is drawn")
    parser.add_argument("--split", metavar="NAME", help="speakers of this split only")
    parser.add_argument("--noise", metavar="DIR", help="noise recordings, one folder for each kind")
    parser.add_argument("--rooms", metavar="PATH", action="append", help="measured impulse responses; may be repeated")
    parser.add_argument(
        "--silence",
        metavar="START:LENGTH",
        type=_silence,
        action="append",
        help="nobody speaks for LENGTH seconds from second START on; may be repeated",
    )
    parser.add_argument("--config", metavar="FILE", help=CONFIG_HELP)
    parser.add_argument(
        "--compare", metavar="RTTM", help="count these references too: a folder, with audio beside them"
    )
    parser.add_argument("--uem", metavar="FILE", help="regions of RTTM that count (default: all of each recording)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--cache-dir", metavar="DIR", help="decoded speech (default: ~/.cache/diarnorm)")
    parser.add_argument("--device", metavar="NAME", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--threads", metavar="N", type=at_least(1), default=1, help="CPU threads")
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm simulate` with these arguments; the exit code."""
    parser = make_parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    folder = None if options.output is None else open_folder(options.output)
    names = [f"talk_{number:0{max(4, len(str(options.num - 1)))}}" for number in range(options.num)]
    if folder is not None:
        check_free(folder, names)
    import torch

    from diarnorm.commands.talktable import comparison_table
    from diarnorm.simulation.talkstats import read_talks, talk_statistics
    from diarnorm.stream import find_device

    torch.set_num_threads(options.threads)
    device = find_device(options.device)
    real = None if options.compare is None else read_talks(Path(options.compare), options.uem and Path(options.uem))
    columns = {"simulated": talk_statistics(list(_make(options, names, folder, device)))}
    if real is not None:
        columns["compared"] = talk_statistics(real)
    as_json = {name: column.to_dict() for name, column in columns.items()}
    print(json.dumps(as_json, indent=2) if options.json else comparison_table(columns))
    return 0


def _check(parser: Parser, options: Namespace) -> None:
    """Refuse what cannot be, before anything is loaded."""
    if options.output is None and options.compare is None:
        parser.error("give --output DIR, --compare RTTM, or both")
    if options.uem is not None and options.compare is None:
        parser.error("--uem belongs to --compare")
    for start_s, length_s in options.silence or ():
        if start_s + length_s > options.duration:
            parser.error(f"--silence {start_s:g}:{length_s:g} ends after --duration {options.duration:g}")
    files = {"--noise": [options.noise], "--rooms": options.rooms or [], "--config": [options.config]}
    files |= {"--compare": [options.compare], "--uem": [options.uem]}
    files["SPEECH"] = [None if options.speech == SYNTHETIC else options.speech]
    for option, paths in files.items():
        for path in paths:
            if path is not None and not Path(path).exists():
                parser.error(f"{option} {path} does not exist")


def check_free(folder: Path, names: Sequence[str]) -> None:
    """Refuse to write over anything.

    Raises:
        ValueError: a file of one of the names is there.
    """
    for name in names:
        for suffix in (".wav", ".rttm", ".uem"):
            path = folder / f"{name}{suffix}"
            if path.exists():
                raise ValueError(f"{path} exists: choose another --output, or remove it")


def _make(options: Namespace, names: Sequence[str], folder: Path | None, device: Any) -> Iterator["Talk"]:
    """Plan, render and write one conversation after the other; each counted."""
    from diarnorm.simulation.planner import plan_conversation
    from diarnorm.simulation.speech import CLIPS, load_speech

    config = simulator_config(options)
    cache = Path(options.cache_dir) if options.cache_dir else cache_dir()
    split = options.split or ("train" if options.speech == SYNTHETIC else None)
    speech = load_speech(speech_source(options.speech, cache), split=split, cache_dir=cache)
    clips = load_speech(options.noise, config=CLIPS, cache_dir=cache) if options.noise else None
    for number, name in enumerate(names):
        plan = plan_conversation(speech, config, [options.seed, number], duration_s=options.duration, clips=clips)
        talk = write_conversation(plan, speech, clips, name, folder, device)
        print(
            f"{name}: {talk.duration_s:.2f} s, {talk.num_speakers} speaker(s), speech "
            f"{100 * talk.speech_s / talk.duration_s:.0f} %, overlap {100 * talk.overlap_s / talk.duration_s:.0f} %",
            file=sys.stderr,
        )
        yield talk


def write_conversation(
    plan: "Plan", speech: "Speech", clips: "Speech | None", name: str, folder: Path | None, device: Any
) -> "Talk":
    """Render one conversation in parts into NAME.wav, with NAME.rttm and NAME.uem beside it, and count it.

    A wav that is not finished has another name. Nothing is written where `folder` is None.
    """
    import numpy as np
    import soundfile

    from diarnorm.files import replacing
    from diarnorm.rttm import write_rttm
    from diarnorm.simulation.render import render_parts
    from diarnorm.simulation.talkstats import count_talk, frame_power
    from diarnorm.timebase import SAMPLE_RATE, samples_to_seconds

    powers = []
    parts = (part.cpu().numpy() for part in render_parts(plan, speech, clips=clips, device=device))
    duration_s, turns = samples_to_seconds(plan.num_samples), plan.turns()
    if folder is None:
        powers += [frame_power(part) for part in parts]
    else:
        with (
            replacing(folder / f"{name}.wav") as partial,
            soundfile.SoundFile(partial, "w", SAMPLE_RATE, 1, "PCM_16", format="WAV") as file,
        ):
            for part in parts:
                file.write(part)
                powers.append(frame_power(part))
        with (folder / f"{name}.rttm").open("w", encoding="utf-8") as file:
            write_rttm(turns, name, file)
        (folder / f"{name}.uem").write_text(f"{name} 1 0.000 {duration_s:.3f}\n", "utf-8")
    return count_talk(turns, [(0.0, duration_s)], np.concatenate(powers))


def simulator_config(options: Namespace) -> "SimulatorConfig":
    """What conversations are like: the defaults, changed by `--config`, changed by the other options.

    Raises:
        ValueError: a key that does not exist, or a value of the wrong type or out of range.
    """
    from diarnorm.simulation.planner import SimulatorConfig
    from diarnorm.simulation.turntaking import Silence

    config = SimulatorConfig() if options.config is None else read_simulator(Path(options.config))
    if options.speakers is not None:
        low, high = options.speakers
        config = replace(config, speaker_probabilities=(0.0,) * (low - 1) + (1.0,) * (high - low + 1))
    if options.rooms:
        config = replace(config, rooms=replace(config.rooms, measured=tuple(options.rooms), measured_probability=1.0))
    silences = (*config.turns.silences, *(Silence(*pair) for pair in options.silence or ()))
    return replace(config, turns=replace(config.turns, silences=silences))


def _check_duration(value: float) -> None:
    if not 0.08 <= value <= LONGEST_S:
        raise ValueError(f"{value:g} is out of range: give seconds from 0.08 to {LONGEST_S}")


def _speakers(word: str) -> tuple[int, int]:
    low, dash, high = word.partition("-")
    bounds = (at_least(1)(low), at_least(1)(high if dash else low))
    if bounds[0] > bounds[1]:
        return _refuse(f"{word} goes down: give the smaller number first")
    return bounds


def _silence(word: str) -> tuple[float, float]:
    start, colon, length = word.partition(":")
    return (seconds(start), seconds(length)) if colon else _refuse(f"{word} is no START:LENGTH in seconds, as 1500:600")


def _refuse(sentence: str) -> Any:
    from argparse import ArgumentTypeError

    raise ArgumentTypeError(sentence)
