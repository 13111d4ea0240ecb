"""`diarnorm bench stream`: what live diarization costs on this machine, per chunk.

Figures are medians and percentiles over many chunks of one run; a shared machine makes the tail worse
than the model is, so the load average is printed beside them.
"""

import json
import os
import pickle
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from diarnorm.commands.arguments import Parser, at_least, checked, seconds
from diarnorm.resources import DEFAULT_MODEL, find_model
from diarnorm.timebase import FRAME_MS, SAMPLE_RATE, chunk_frames, seconds_to_samples
from diarnorm.turns import MAX_SPEAKERS, check_max_speakers

if TYPE_CHECKING:
    from diarnorm.stream import Stream

PERCENTILES = (50, 95, 99)
WARM_UP = 20
"""Chunks that are not timed."""


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm bench` with these arguments; the exit code."""
    if argv[:1] == ["norm"]:
        from diarnorm.bench import norms as bench_norm

        return bench_norm.main(argv[1:])
    if argv[:1] == ["train"]:
        from diarnorm.bench import training as bench_train

        return bench_train.main(argv[1:])
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.what != "stream":
        parser.error(f"{options.what} goes first: diarnorm bench {options.what} ...")
    figures = bench_stream(
        options.model,
        chunk_ms=options.chunk_ms,
        max_speakers=options.max_speakers,
        duration_s=options.seconds,
        threads=options.threads,
    )
    print(json.dumps(figures) if options.json else _table(figures))
    return 0


def bench_stream(
    model: str | None,
    *,
    chunk_ms: int | None = None,
    max_speakers: int | None = None,
    duration_s: float = 300.0,
    threads: int = 1,
) -> dict[str, float]:
    """Time every chunk of `duration_s` of speech-like sound pushed chunk by chunk, after a warm-up of 20 chunks.

    Times in ms; `rtf` is processing time over audio time; `state_kb` is the pickled state of the stream, `peak_mb` the
    peak memory of the process; `load` is the machine's load average. Both are 0 where the system does not tell.
    """
    path = find_model(model)
    import numpy as np
    import torch

    from diarnorm.stream import Diarizer

    torch.set_num_threads(threads)
    stream = Diarizer.from_pretrained(path).stream(chunk_ms=chunk_ms, max_speakers=max_speakers)
    measured = np.array(_time_chunks(stream, duration_s))
    figures = {f"p{p}_ms": 1000 * float(np.percentile(measured, p)) for p in PERCENTILES}
    return figures | {
        "chunks": len(measured),
        "chunk_ms": 1000 * stream.latency_s,
        "rtf": float(measured.mean() / stream.latency_s),
        "median_rtf": float(np.median(measured) / stream.latency_s),
        "state_kb": len(pickle.dumps(stream.state)) / 1024,
        "threads": threads,
        "peak_mb": _peak_mb(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
    }


def _time_chunks(stream: "Stream", duration_s: float) -> list[float]:
    """Seconds that each chunk of three voices in turn takes, without those of the warm-up."""
    import numpy as np

    from diarnorm.simulation.synthetic import voice

    size = seconds_to_samples(stream.latency_s)
    voices = [voice(pitch, 20.0, seed)[0] for seed, pitch in enumerate((100.0, 150.0, 220.0))]
    source = np.resize(np.concatenate(voices), max(60 * SAMPLE_RATE, 2 * size))
    times = []
    for number in range(WARM_UP + max(1, round(duration_s * SAMPLE_RATE / size))):
        start = number * size % (len(source) - size)
        begin = time.perf_counter()
        stream.push(source[start : start + size])
        times.append(time.perf_counter() - begin)
    return times[WARM_UP:]


def _peak_mb() -> float:
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform == "linux" else 1024**2)


def make_parser() -> Parser:
    """Options of `diarnorm bench`."""
    parser = Parser("bench", "Measure speed and memory on this machine.")
    parser.add_argument(
        "what",
        metavar="WHAT",
        choices=["stream", "norm", "train"],
        help="stream: live diarization, chunk by chunk; norm: the normalisation layer (bench norm --help); train: the "
        "simulator, and training with each norm (bench train --help)",
    )
    parser.add_argument("--model", metavar="NAME|PATH", default=DEFAULT_MODEL, help="a shipped model or a model file")
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
        help=f"number of slots, 1 to {MAX_SPEAKERS} (default: the model's own)",
    )
    parser.add_argument("--seconds", metavar="S", type=seconds, default=300.0, help="audio to stream, in seconds")
    parser.add_argument("--threads", metavar="N", type=at_least(1), default=1, help="CPU threads")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    parser.add_debug()
    return parser


def _table(figures: dict[str, float]) -> str:
    times = "  ".join(f"p{p} {figures[f'p{p}_ms']:.1f} ms" for p in PERCENTILES)
    return (
        f"{figures['chunks']:.0f} chunks of {figures['chunk_ms']:.0f} ms on {figures['threads']:.0f} thread(s)\n"
        f"per chunk        {times}\n"
        f"real-time factor {figures['rtf']:.4f} (median chunk {figures['median_rtf']:.4f})\n"
        f"state            {figures['state_kb']:.0f} kB\n"
        f"peak memory      {figures['peak_mb']:.0f} MB\n"
        f"load average     {figures['load']:.1f}"
    )
