"""`diarnorm bench stream`: what live diarization costs on this machine, per chunk.

Figures are medians and percentiles over many chunks of one run, on one thread; a shared machine makes the tail worse
than the model is, so the load average is printed beside them.
"""

import argparse
import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Sequence

PERCENTILES = (50, 95, 99)


def main(argv: Sequence[str]) -> int:
    """Run `diarnorm bench` with these arguments; the exit code."""
    options = _parser().parse_args(argv)
    figures = bench_stream(
        options.model, chunk_ms=options.chunk_ms, max_speakers=options.max_speakers, seconds=options.seconds
    )
    print(json.dumps(figures) if options.json else _table(figures))
    return 0


def bench_stream(
    model: str | None, *, chunk_ms: int | None, max_speakers: int | None, seconds: float
) -> dict[str, float]:
    """Time every chunk of `seconds` of speech-like sound pushed chunk by chunk, after a warm-up of 20 chunks.

    Times in ms; `rtf` is processing time over audio time; `state_kb` is the pickled state of the stream, `peak_mb` the
    peak memory of the process.
    """
    import numpy as np
    import torch

    from diarnorm.stream import Diarizer
    from diarnorm.synthetic import voice
    from diarnorm.timebase import SAMPLE_RATE, seconds_to_samples

    torch.set_num_threads(1)
    stream = Diarizer.from_pretrained(model).stream(chunk_ms=chunk_ms, max_speakers=max_speakers)
    size = seconds_to_samples(stream.latency_s)
    voices = [voice(pitch, 20.0, seed)[0] for seed, pitch in enumerate((100.0, 150.0, 220.0))]
    source = np.concatenate(voices)
    times, warm_up = [], 20
    for number in range(warm_up + max(1, round(seconds * SAMPLE_RATE / size))):
        start = number * size % (len(source) - size)
        begin = time.perf_counter()
        stream.push(source[start : start + size])
        times.append(time.perf_counter() - begin)
    measured = np.array(times[warm_up:])
    figures = {f"p{p}_ms": 1000 * float(np.percentile(measured, p)) for p in PERCENTILES}
    return figures | {
        "chunks": len(measured),
        "chunk_ms": 1000 * stream.latency_s,
        "rtf": float(measured.mean() / stream.latency_s),
        "median_rtf": float(np.median(measured) / stream.latency_s),
        "state_kb": len(pickle.dumps(stream.state)) / 1024,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2),
        "load": os.getloadavg()[0],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="diarnorm bench", description="Measure speed and memory on this machine.")
    commands = parser.add_subparsers(required=True, metavar="WHAT")
    stream = commands.add_parser("stream", help="live diarization, chunk by chunk, on one thread")
    stream.add_argument("--model", help="name or path (default: the shipped model)")
    stream.add_argument("--chunk-ms", type=int, help="unit of latency in ms (default: the model's)")
    stream.add_argument("--max-speakers", type=int, help="number of slots (default: the model's)")
    stream.add_argument("--seconds", type=float, default=300.0, help="audio to stream, in s (default: %(default)s)")
    stream.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    return parser


def _table(figures: dict[str, float]) -> str:
    times = "  ".join(f"p{p} {figures[f'p{p}_ms']:.1f} ms" for p in PERCENTILES)
    return (
        f"{figures['chunks']:.0f} chunks of {figures['chunk_ms']:.0f} ms on one thread\n"
        f"per chunk        {times}\n"
        f"real-time factor {figures['rtf']:.4f} (median chunk {figures['median_rtf']:.4f})\n"
        f"state            {figures['state_kb']:.0f} kB\n"
        f"peak memory      {figures['peak_mb']:.0f} MB\n"
        f"load average     {figures['load']:.1f}"
    )
