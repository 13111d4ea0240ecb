"""`diarnorm demo`: the sample recordings, live and faster than real time, then their scores."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from diarnorm.commands.arguments import Parser, at_least
from diarnorm.commands.interrupts import Interrupts
from diarnorm.commands.sinks import RttmFile, open_folder, stdout_is_terminal
from diarnorm.resources import DEFAULT_MODEL, find_model, samples_dir
from diarnorm.rttm import legal_name, read_rttm, read_uem

if TYPE_CHECKING:
    from diarnorm.commands.session import Outcome
    from diarnorm.stream import Diarizer

SPEED = 10.0
"""Times real time at which a terminal shows the samples; elsewhere there is nothing to wait for."""
EPILOG = """\
Streams every sample recording with a live timeline where standard error is a terminal, writes an RTTM file for each,
and prints DER with its parts beside the DER of the merged output. The samples are synthetic voices: they show that
everything works, not how well."""


def make_parser() -> Parser:
    """Options of `diarnorm demo`."""
    parser = Parser("demo", "Diarize the sample recordings and score them.", EPILOG)
    parser.add_argument("--model", metavar="NAME|PATH", default=DEFAULT_MODEL, help="a shipped model or a model file")
    parser.add_argument("--output", metavar="DIR", default="diarnorm-demo", help="folder for the RTTM files")
    parser.add_argument("--real-time", action="store_true", help="as fast as the recordings play")
    parser.add_argument("--threads", metavar="N", type=at_least(1), default=1, help="CPU threads")
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm demo` with these arguments; the exit code."""
    options = make_parser().parse_args(argv)
    folder = open_folder(options.output)
    model = find_model(options.model)
    import torch

    from diarnorm.commands.summary import summary_lines
    from diarnorm.stream import Diarizer

    torch.set_num_threads(options.threads)
    diarizer = Diarizer.from_pretrained(model)
    outcomes: dict[Path, Outcome] = {}
    with Interrupts() as interrupts:
        for path in sorted(samples_dir().glob("*.flac")):
            outcomes[path] = _stream_sample(path, diarizer, folder, options, interrupts)
            print(*summary_lines(outcomes[path]), sep="\n", file=sys.stderr)
    print(*_results(outcomes), sep="\n")
    print(f"turns are in {folder}")
    return 0


def _stream_sample(
    path: Path, diarizer: "Diarizer", folder: Path, options: Namespace, interrupts: Interrupts
) -> "Outcome":
    """Diarize one sample into its RTTM file."""
    from diarnorm.audio.reader import open_audio
    from diarnorm.commands.session import Session, paced

    watched = sys.stderr is not None and sys.stderr.isatty()
    speed = 1.0 if options.real_time else SPEED if watched else None
    with ExitStack() as stack:
        reader = stack.enter_context(open_audio(path))
        sink = stack.enter_context(RttmFile(folder / f"{path.stem}.rttm", legal_name(path.stem)))
        timeline = None
        if watched:
            from diarnorm.live import Timeline

            timeline = stack.enter_context(Timeline(path.stem, shares_stdout=stdout_is_terminal()))
        session = Session(path.stem, diarizer.stream(reader.sample_rate), [sink], timeline)
        blocks = reader if speed is None else paced(reader, reader.sample_rate, speed)
        interrupt = session.run(blocks, interrupts)
    if interrupt is not None:
        raise interrupt
    return session.outcome(reader.warnings)


def _results(outcomes: "dict[Path, Outcome]") -> list[str]:
    """Scores of the samples that have a reference, and how fast each went."""
    from diarnorm.evaluation.scores import format_table
    from diarnorm.evaluation.scoring import score

    references, regions, hypotheses = {}, {}, {}
    for path, outcome in outcomes.items():
        if path.with_suffix(".rttm").exists():
            references[path.stem] = [turn for turns in read_rttm(path.with_suffix(".rttm")).values() for turn in turns]
            regions[path.stem] = [region for part in read_uem(path.with_suffix(".uem")).values() for region in part]
            hypotheses[path.stem] = outcome.turns
    speeds = [
        f"{outcome.name}: activity latency {outcome.latency_s:.2f} s, RTF {outcome.rtf:.4f}"
        for outcome in outcomes.values()
    ]
    return [format_table(score(references, hypotheses, regions)), "", *speeds]
