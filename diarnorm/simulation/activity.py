"""Where speech is in a clean utterance, and how long utterances are cut into pieces."""

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64

from diarnorm.timebase import HOP_SAMPLES, SAMPLE_RATE


@dataclass(frozen=True)
class ActivityConfig:
    """When a hop of 10 ms of a clean utterance is speech.

    Its level must be above `floor + max(above_floor_db, above_floor_share * (loud - floor))` and not below
    `loud - below_loud_db`, where loud and floor are percentiles of the utterance's own levels; but whatever
    is at most `min_below_loud_db` below loud is speech, so that an utterance without pauses is speech
    throughout.
    """

    loud_percentile: float = 95.0
    floor_percentile: float = 10.0
    above_floor_db: float = 8.0
    above_floor_share: float = 0.25
    below_loud_db: float = 36.0
    min_below_loud_db: float = 14.0
    silence_db: float = -80.0
    min_burst_hops: int = 4
    close_gap_hops: int = 4


@dataclass(frozen=True)
class PieceConfig:
    """Long utterances are cut at the last pause of `cut_gap_s` that keeps a piece below `max_piece_s`."""

    max_piece_s: float = 6.0
    cut_gap_s: float = 0.15
    margin_s: float = 0.04


def speech_activity(
    samples: Float32[np.ndarray, " samples"], config: ActivityConfig = ActivityConfig()
) -> Bool[np.ndarray, " hops"]:
    """Whether each whole hop (10 ms) of a clean utterance is speech, by its energy; see `ActivityConfig`."""
    num_hops = len(samples) // HOP_SAMPLES
    if num_hops == 0:
        return np.zeros(0, dtype=bool)
    hops = samples[: num_hops * HOP_SAMPLES].reshape(num_hops, HOP_SAMPLES).astype(np.float64)
    power = np.square(hops - hops.mean(axis=1, keepdims=True)).mean(axis=1)
    power = np.convolve(power, np.full(3, 1 / 3))[1:-1]
    level_db = 10 * np.log10(power + 1e-12)
    loud, floor = np.percentile(level_db, [config.loud_percentile, config.floor_percentile])
    threshold = floor + max(config.above_floor_db, config.above_floor_share * (loud - floor))
    threshold = min(max(threshold, loud - config.below_loud_db), loud - config.min_below_loud_db)
    active = (level_db > threshold) & (level_db > config.silence_db)
    active = ~_drop_short(~active, config.close_gap_hops)
    return _drop_short(active, config.min_burst_hops)


def _drop_short(active: np.ndarray, min_hops: int) -> np.ndarray:
    out = active.copy()
    for start, end in runs_of(active):
        if end - start < min_hops:
            out[start:end] = False
    return out


def runs_of(active: Bool[np.ndarray, " hops"]) -> Int64[np.ndarray, "runs 2"]:
    """Start and end of each stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]])))
    return edges.reshape(-1, 2).astype(np.int64)


def cut_pieces(activity: np.ndarray, hops: np.ndarray, config: PieceConfig) -> tuple[np.ndarray, ...]:
    """Runs of all utterances, and pieces: [pieces] utterance, [pieces, 2] hops, [pieces, 2] runs."""
    ends = np.cumsum(hops)
    all_runs, utterance, piece_hops, piece_run = [], [], [], []
    num_runs = 0
    for index, end in enumerate(ends):
        runs = runs_of(activity[end - hops[index] : end])
        for start, stop, first, last in _group_runs(runs, int(hops[index]), config):
            utterance.append(index)
            piece_hops.append((start, stop))
            piece_run.append((num_runs + first, num_runs + last))
        all_runs.append(runs)
        num_runs += len(runs)
    as_pairs = functools.partial(np.array, dtype=np.int64)
    return (
        np.concatenate(all_runs),
        as_pairs(utterance),
        as_pairs(piece_hops).reshape(-1, 2),
        as_pairs(piece_run).reshape(-1, 2),
    )


def _group_runs(runs: np.ndarray, num_hops: int, config: PieceConfig) -> list[tuple[int, int, int, int]]:
    """Pieces of one utterance as (first hop, end hop, first run, end run), none much too long."""
    hops_per_s = SAMPLE_RATE // HOP_SAMPLES
    max_hops, cut_hops = round(config.max_piece_s * hops_per_s), round(config.cut_gap_s * hops_per_s)
    margin = round(config.margin_s * hops_per_s)
    pieces: list[tuple[int, int, int, int]] = []
    first = 0
    while first < len(runs):
        start, last = int(runs[first, 0]), first + 1
        while last < len(runs) and runs[last, 1] - start <= max_hops:
            last += 1
        if last < len(runs):  # cut at a real pause where there is one in the later part
            gaps = runs[first + 1 : last + 1, 0] - runs[first:last, 1]
            wide = np.flatnonzero(gaps >= cut_hops)
            last = first + 1 + int(wide[-1] if len(wide) else np.argmax(gaps))
        before = int(runs[first - 1, 1]) if first else 0
        after = int(runs[last, 0]) if last < len(runs) else num_hops
        stop = int(runs[last - 1, 1])
        pieces.append((max(before, start - margin), min(after, stop + margin), first, last))
        first = last
    return [part for piece in pieces for part in _split_long(piece, max_hops)]


def _split_long(piece: tuple[int, int, int, int], max_hops: int) -> list[tuple[int, int, int, int]]:
    """A piece that no pause could shorten, in equal parts."""
    start, stop, first, last = piece
    num_parts = -(-(stop - start) // (2 * max_hops))
    edges = [start + (stop - start) * i // num_parts for i in range(num_parts + 1)]
    return [(edges[i], edges[i + 1], first, last) for i in range(num_parts)]
