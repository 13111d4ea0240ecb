"""Speech for tests: synthetic voices loaded as training data, and speech that is only imagined."""

from pathlib import Path

import numpy as np
import torch

from diarnorm.simulation.activity import PieceConfig, cut_pieces
from diarnorm.simulation.conversation import Plan
from diarnorm.simulation.speech import Speech, SpeechConfig, load_speech
from diarnorm.simulation.synthetic import write_tree
from diarnorm.simulation.tracks import cut_out, dry_track
from diarnorm.timebase import HOP_SAMPLES

FACTORS = ((9, 10), (1, 1), (11, 10))


def load_tree(folder: Path, num_speakers: int = 6, num_utterances: int = 3, *, noise: float = 1e-3) -> Speech:
    """`write_tree`, loaded at three speeds."""
    tree = write_tree(folder / "tree", num_speakers, num_utterances, noise=noise)
    return load_speech(tree, config=SpeechConfig(speed_factors=FACTORS), cache_dir=folder / "cache")


def dry_tracks(plans: list[Plan], speech: Speech, clips: Speech | None = None) -> np.ndarray:
    """Tracks of all plans `[rows, samples]`, one below the other, before any filter."""
    window, cpu = (0, plans[0].num_samples), torch.device("cpu")
    pieces = cut_out(plans, speech, clips, window, cpu)
    rows = [(plan, row, own) for plan, own in zip(plans, pieces, strict=True) for row in range(plan.num_rows)]
    return torch.stack([dry_track(plan, row, own, window, cpu) for plan, row, own in rows]).numpy()


def imagined_speech(num_speakers: int = 8, num_utterances: int = 20) -> Speech:
    """Speech without samples, enough to plan with; made from integers, so the same on any machine."""
    count = num_speakers * num_utterances
    hops = 150 + 37 * np.arange(count) % 400
    activity = np.concatenate([(np.arange(n) % 60 >= 15) & (np.arange(n) < n - 5) for n in hops])
    runs, utterance, piece_hops, piece_run = cut_pieces(activity, hops, PieceConfig())
    speaker = np.repeat(np.arange(num_speakers), num_utterances)
    length = np.stack([hops * HOP_SAMPLES * q // p for p, q in FACTORS])
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
