"""`diarnorm stream`: files or a pipe in, turns out as they become final."""

import sys
import traceback
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from diarnorm.audio.bytestream import STDIN
from diarnorm.audio.pcm import RAW_FORMATS
from diarnorm.commands.arguments import USER_ERROR, Parser, at_least, checked
from diarnorm.commands.interrupts import Interrupted, Interrupts
from diarnorm.commands.sinks import (
    JsonLines,
    RttmFile,
    RttmLines,
    Sink,
    open_folder,
    recording_names,
    stdout_is_terminal,
)
from diarnorm.modelfile import check_norm, read_header
from diarnorm.resources import DEFAULT_MODEL, find_model
from diarnorm.rttm import legal_name
from diarnorm.timebase import FRAME_MS, chunk_frames
from diarnorm.turns import MAX_SPEAKERS, check_max_speakers

if TYPE_CHECKING:
    from diarnorm.audio.reader import AudioReader
    from diarnorm.commands.session import Outcome
    from diarnorm.stream import Diarizer, Stream

EPILOG = f"""\
Turns leave on standard output in the order of their ends, as soon as they are final; all else goes to standard
error: a live timeline where that is a terminal, and a summary of each recording. Recordings are named by their files;
files of the same name get their folder's name in front (d1_talk, d2_talk).

  diarnorm stream talk.wav > talk.rttm
  diarnorm stream *.flac --output turns
  ffmpeg -i talk.mp4 -f wav - | diarnorm stream -
  diarnorm stream --json -- -a-name-with-a-dash.wav

A latency of one chunk (a multiple of {FRAME_MS} ms) lies between sound and activity. Exit codes: 0; 2 when a file or an
argument is at fault (the other files are done); 1 when output cannot be written; 130 interrupted."""


def make_parser() -> Parser:
    """Options of `diarnorm stream`."""
    parser = Parser("stream", "Who speaks when in each recording.", EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="*", help="wav, flac, ogg, mp3 ...; - reads a pipe")
    parser.add_argument("--model", metavar="NAME|PATH", default=DEFAULT_MODEL, help="a shipped model or a model file")
    parser.add_argument("--norm", metavar="NAME", help="refuse a model that was trained with another norm")
    parser.add_argument(
        "--chunk-ms",
        metavar="MS",
        type=checked(int, chunk_frames),
        help=f"length of a chunk, in milliseconds, a multiple of {FRAME_MS} (default: the model's own)",
    )
    parser.add_argument(
        "--max-speakers",
        metavar="N",
        type=checked(int, check_max_speakers),
        help=f"labels given at most, 1 to {MAX_SPEAKERS} (default: the model's own)",
    )
    parser.add_argument(
        "--channel", metavar="N", type=at_least(0), help="channel to take, from 0 (default: the mean of all)"
    )
    parser.add_argument(
        "--rate", metavar="HZ", type=at_least(1), help="sample rate of raw input, in Hz; needs --format"
    )
    parser.add_argument(
        "--format",
        choices=tuple(RAW_FORMATS),
        help="the input is raw mono samples of this kind; needs --rate",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines (start, turn, summary) instead of RTTM")
    parser.add_argument("--output", metavar="DIR", help="write DIR/NAME.rttm for each recording as well, by onset")
    parser.add_argument("--device", metavar="NAME", default="cpu", help="cpu, cuda, cuda:1, mps")
    parser.add_argument("--threads", metavar="N", type=at_least(1), default=1, help="CPU threads")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors on standard error")
    parser.add_debug()
    return parser


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm stream` with these arguments; the exit code."""
    parser = make_parser()
    options = parser.parse_files(argv, "files")
    if (options.rate is None) != (options.format is None):
        parser.error("--rate and --format belong together: raw samples need both, a file with a header neither")
    if sys.stdout is None and options.output is None:
        parser.error("standard output is closed: redirect it to a file, or give --output DIR")
    names = recording_names(options.files)
    folder = None if options.output is None else open_folder(options.output)
    batch = Batch(options, folder)
    with Interrupts() as interrupts:
        for source, name in zip(options.files, names, strict=True):
            interrupt = batch.do(source, name, interrupts)
            if interrupt is not None:
                raise interrupt
    return USER_ERROR if batch.num_failed else 0


class Batch:
    """The recordings of one command: the first that can be opened loads the model, a bad one is reported."""

    def __init__(self, options: Namespace, folder: Path | None) -> None:
        self.options, self.folder = options, folder
        self.num_failed = 0
        self._diarizer: Diarizer | None = None
        self._model_path = find_model(options.model)
        check_norm(self._model_path, read_header(self._model_path).facts, options.norm)

    def do(self, source: str, name: str, interrupts: Interrupts) -> Interrupted | None:
        """Diarize one recording; the signal that ended it early, if one did."""
        from diarnorm.audio.reader import AudioError, open_audio

        options = self.options
        try:
            with interrupts.waiting():
                reader = open_audio(source, rate=options.rate, format=options.format)
        except AudioError as error:
            self._report(str(error))
            return None
        with reader:
            stream_options = {"chunk_ms": options.chunk_ms, "max_speakers": options.max_speakers}
            with interrupts.waiting():  # loading takes seconds
                diarizer = self.diarizer
            stream = diarizer.stream(reader.sample_rate, channel=options.channel, **stream_options)
            try:
                return self._run(stream, reader, source, name, interrupts)
            except ValueError as error:
                self._report(str(error) if isinstance(error, AudioError) else f"{source}: {error}")
        return None

    def _run(
        self, stream: "Stream", reader: "AudioReader", source: str, name: str, interrupts: Interrupts
    ) -> Interrupted | None:
        from diarnorm.commands.session import Session

        options, uri = self.options, legal_name(name)
        lines = JsonLines(uri) if options.json else RttmLines(uri)
        with ExitStack() as stack:
            sinks: list[Sink] = [lines]
            if self.folder is not None:
                sinks.insert(0, stack.enter_context(RttmFile(self.folder / f"{name}.rttm", uri)))
            timeline = None
            if not options.quiet and sys.stderr is not None and sys.stderr.isatty():
                from diarnorm.live import Timeline

                timeline = stack.enter_context(Timeline(name, shares_stdout=stdout_is_terminal()))
            session = Session(name, stream, sinks, timeline)
            interrupt = session.run(reader, interrupts, finish_early=source == STDIN)
        rest = "" if source == STDIN else "; turns that were not final by then are not given"
        stopped = [] if interrupt is None else [f"interrupted at {stream.duration_s:.2f} s{rest}"]
        self._conclude(session.outcome([*stopped, *reader.warnings]), lines)
        return interrupt

    def _conclude(self, outcome: "Outcome", lines: RttmLines | JsonLines) -> None:
        from diarnorm.commands.summary import json_summary, summary_lines

        if isinstance(lines, JsonLines):
            lines.print_event(json_summary(outcome, lines.uri))
        if not self.options.quiet:
            print(*summary_lines(outcome), sep="\n", file=sys.stderr)

    @property
    def diarizer(self) -> "Diarizer":
        """The model, loaded at the first use."""
        if self._diarizer is None:
            import torch

            from diarnorm.stream import Diarizer

            torch.set_num_threads(self.options.threads)
            self._diarizer = Diarizer.from_pretrained(self._model_path, device=self.options.device)
        return self._diarizer

    def _report(self, sentence: str) -> None:
        """Say what is wrong with one recording."""
        self.num_failed += 1
        if self.options.debug:
            traceback.print_exc()
        print(f"diarnorm stream: {sentence}", file=sys.stderr)
