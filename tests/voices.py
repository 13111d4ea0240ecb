"""Synthetic voices for tests: harmonics of a fixed pitch in words, with pauses at known places."""

from pathlib import Path

import numpy as np
import soundfile

from diarnorm.activity import PieceConfig, cut_pieces
from diarnorm.speech import Speech, SpeechConfig, load_speech

RATE = 16_000
HOP = 160
FACTORS = ((9, 10), (1, 1), (11, 10))


def voice(
    pitch_hz: float, duration_s: float, seed: int, *, noise: float = 1e-3
) -> tuple[np.ndarray, np.ndarray]:
    """Float32 samples, and bool per hop of 10 ms: words of 0.3-0.9 s, pauses of 0.2-0.5 s, faint noise."""
    rng = np.random.default_rng(seed)
    num_hops = round(duration_s * 100)
    truth = np.zeros(num_hops, dtype=bool)
    at = 10
    while at < num_hops - 40:
        length = int(rng.integers(30, 90))
        truth[at : min(at + length, num_hops - 10)] = True
        at += length + int(rng.integers(20, 50))
    time = np.arange(num_hops * HOP) / RATE
    tone = sum(np.sin(2 * np.pi * pitch_hz * k * time + k) / k for k in range(1, 16))
    tone = tone * (1 + 0.3 * rng.standard_normal(len(time)))
    samples = 0.05 * tone * np.repeat(truth, HOP) + noise * rng.standard_normal(len(time))
    return samples.astype(np.float32), truth


def write_tree(
    folder: Path, num_speakers: int = 6, num_utterances: int = 3, duration_s: float = 4.0, noise: float = 1e-3
) -> Path:
    """A folder-per-speaker tree of WAV files; speaker `i` has a pitch of 90 + 25 i Hz."""
    for speaker in range(num_speakers):
        (folder / f"s{speaker}").mkdir(parents=True)
        for number in range(num_utterances):
            samples, _ = voice(90 + 25 * speaker, duration_s, 100 * speaker + number, noise=noise)
            soundfile.write(folder / f"s{speaker}" / f"{number}.wav", samples, RATE, subtype="PCM_16")
    return folder


def load_tree(folder: Path, num_speakers: int = 6, num_utterances: int = 3, *, noise: float = 1e-3) -> Speech:
    """`write_tree`, loaded at three speeds."""
    tree = write_tree(folder / "tree", num_speakers, num_utterances, noise=noise)
    return load_speech(tree, config=SpeechConfig(speed_factors=FACTORS), cache_dir=folder / "cache")


def imagined_speech(num_speakers: int = 8, num_utterances: int = 20) -> Speech:
    """Speech without samples, enough to plan with; made from integers, so the same on any machine."""
    count = num_speakers * num_utterances
    hops = 150 + 37 * np.arange(count) % 400
    activity = np.concatenate([(np.arange(n) % 60 >= 15) & (np.arange(n) < n - 5) for n in hops])
    runs, utterance, piece_hops, piece_run = cut_pieces(activity, hops, PieceConfig())
    speaker = np.repeat(np.arange(num_speakers), num_utterances)
    length = np.stack([hops * HOP * q // p for p, q in FACTORS])
    return Speech(
        cache=Path("nowhere"),
        speed_factors=FACTORS,
        speakers=tuple(f"s{i}" for i in range(num_speakers)),
        sources=("a", "b"),
        paths=tuple(f"{i}.wav" for i in range(count)),
        offset=(np.cumsum(length.T.reshape(-1)) - length.T.reshape(-1)).reshape(count, -1).T,
        length=length,
        level=np.full(count, 0.0625, dtype=np.float32),
        speaker=speaker,
        speaker_source=np.arange(num_speakers) % 2,
        speaker_gender=tuple("FFMM"[i % 4] for i in range(num_speakers)),
        activity=activity,
        run_hops=runs,
        piece_utterance=utterance,
        piece_hops=piece_hops,
        piece_run=piece_run,
        speaker_piece=np.searchsorted(speaker[utterance], np.arange(num_speakers + 1)),
    )
