"""What a change of the audio did to a model, beside the turns: each a number that can be computed by hand.

Frames are those of the changed recording; `frames` maps each to the clean frame at the same moment, -1 where silence
was put in (`timemap`).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linear_sum_assignment

from diarnorm.robustness.passes import Trace
from diarnorm.robustness.timemap import Spans, frames_in
from diarnorm.timebase import FRAME_SAMPLES, frames_to_seconds, seconds_to_frames, seconds_to_samples
from diarnorm.turns import Turn, merge_turns


def drift(
    clean: Float[np.ndarray, "clean embedding"],
    changed: Float[np.ndarray, "changed embedding"],
    frames: Int[np.ndarray, " changed"],
    speech: Bool[np.ndarray, " changed"],
) -> float | None:
    """Mean of 1 - cosine between embeddings of the same moments: of those with `speech` by the reference, where there
    are any, else of all; None without a moment in common.

    Embeddings have unit norm.
    """
    common = frames >= 0
    if (common & speech).any():
        common = common & speech
    if not common.any():
        return None
    return float(1.0 - (changed[common] * clean[frames[common]]).sum(axis=-1).mean())


def distances(
    clean: Float[np.ndarray, "clean slots"],
    changed: Float[np.ndarray, "changed slots"],
    frames: Int[np.ndarray, " changed"],
) -> Float[np.ndarray, " changed"]:
    """Largest difference of a slot's activity from the clean run's, per frame; NaN without a clean frame.

    Slots are first put in the order in which they differ least in all, since a slot's number means nothing. A voice
    that is taken for somebody else afterwards stays different.
    """
    common = frames >= 0
    ours, theirs = changed[common], clean[frames[common]]
    costs = np.abs(ours[:, :, None] - theirs[:, None, :]).sum(axis=0)
    slots, partners = linear_sum_assignment(costs)
    result = np.full(len(frames), np.nan)
    result[common] = np.abs(ours[:, slots] - theirs[:, partners]).max(axis=1, initial=0.0)
    return result


def recovery(
    distance: Float[np.ndarray, " frames"], events: Spans, *, tolerance: float, hold_s: float
) -> list[float | None]:
    """Seconds from the end of each event until the activity stays within `tolerance` of the clean run's for `hold_s`.

    None: not before the next event or the end. Events with less than `hold_s` after them are left out.
    """
    hold, num_frames = max(1, seconds_to_frames(hold_s)), len(distance)
    spans = [np.flatnonzero(frames_in([span], num_frames)) for span in sorted(events)]
    edges = [(int(inside[0]), int(inside[-1]) + 1) for inside in spans if len(inside)]
    near = (distance <= tolerance).astype(int)
    found: list[float | None] = []
    for (_, end), (limit, _) in pairwise([*edges, (num_frames, num_frames)]):
        if limit - end < hold:
            continue
        held = np.convolve(near[end:limit], np.ones(hold, int), mode="valid") == hold
        found.append(frames_to_seconds(int(held.argmax())) if held.any() else None)
    return found


def labels_after(
    clean: Sequence[Turn], changed: Sequence[Turn], frames: Int[np.ndarray, " changed"], events: Spans
) -> tuple[float, float]:
    """Seconds after the end of the first event, outside all events, in which one label alone speaks in the clean run
    and one alone in the changed one; and those of them in which it is the same label.

    Where two speak in either run, sets of labels differ by edges that have moved, which says nothing of labels. A
    stream names speakers in the order in which they come, and both runs are alike up to the event: a label means the
    same before and after it, whatever was put in between.
    """
    inside = frames_in(events, len(frames))
    if not inside.any():
        return 0.0, 0.0
    common = (frames >= 0) & ~inside
    common[: int(inside.argmax())] = False
    names = sorted({turn.speaker for turn in (*clean, *changed)})
    before = _labels_in(clean, names, int(frames.max(initial=-1)) + 1)[frames[common]]
    after = _labels_in(changed, names, len(frames))[common]
    spoken = (before.sum(axis=1) == 1) & (after.sum(axis=1) == 1)
    return frames_to_seconds(int(spoken.sum())), frames_to_seconds(int((spoken & (before == after).all(axis=1)).sum()))


def _labels_in(turns: Sequence[Turn], names: Sequence[str], num_frames: int) -> Bool[np.ndarray, "frames labels"]:
    """Who speaks in the middle of each frame."""
    found = np.zeros((num_frames, len(names)), bool)
    half = FRAME_SAMPLES // 2
    for turn in turns:
        first, stop = (-((half - seconds_to_samples(at)) // FRAME_SAMPLES) for at in (turn.start, turn.end))
        found[max(0, first) : max(0, stop), names.index(turn.speaker)] = True
    return found


def attention_share(
    weights: Float[np.ndarray, "blocks chunks window"], marked: Bool[np.ndarray, " frames"], chunk: int
) -> list[float] | None:
    """Share of the attention that goes to `marked` frames, per block: the mean over chunks that see any of them.

    None where no frame is marked, or all are.
    """
    _, chunks, window = weights.shape
    if marked.all() or not marked.any():
        return None
    keys = np.zeros(chunks * chunk + window - chunk, bool)
    keys[window - chunk : window - chunk + len(marked)] = marked
    seen = np.lib.stride_tricks.sliding_window_view(keys, window)[::chunk]
    shares = (weights * seen).sum(axis=-1)[:, seen.any(axis=-1)]
    return [float(share) for share in shares.mean(axis=-1)]


def uniform_share(num_frames: int, window: int, marked: Bool[np.ndarray, " frames"], chunk: int) -> float | None:
    """`attention_share` of one block that attends to all frames there are alike."""
    chunks = -(-num_frames // chunk)
    positions = np.arange(chunks)[:, None] * chunk - (window - chunk) + np.arange(window)
    real = (positions >= 0) & (positions < num_frames)
    shares = attention_share((real / real.sum(axis=1, keepdims=True))[None], marked, chunk)
    return None if shares is None else shares[0]


def levels(
    powers: Float[np.ndarray, "blocks frames"], marked: Bool[np.ndarray, " frames"] | None = None
) -> list[float] | None:
    """RMS of the residual stream after each block, over all frames or the `marked` ones; None if there are none."""
    some = powers if marked is None else powers[:, marked]
    return [float(power) ** 0.5 for power in some.mean(axis=1)] if some.shape[1] else None


def length_of(spans: Spans, *, edge_s: float = 0.0) -> float:
    """Seconds of the spans less `edge_s` at both ends of each.

    >>> length_of([(0.0, 3.0), (5.0, 5.9)], edge_s=0.5)
    2.0
    """
    return sum(max(0.0, end - start - 2 * edge_s) for start, end in spans)


def speech_in(turns: Sequence[Turn], spans: Spans, *, edge_s: float = 0.0) -> float:
    """Seconds of the turns, all speakers together, within the spans less `edge_s` at both ends of each."""
    inner = [(start + edge_s, end - edge_s) for start, end in spans]
    speech = merge_turns(turns)
    return sum(max(0.0, min(end, b) - max(start, a)) for start, end in speech for a, b in inner)


def clean_shares(clean: Trace, frames: Int[np.ndarray, " changed"], events: Spans) -> list[float] | None:
    """`attention_share` in the clean run on the frames that the events changed; None where they have no counterpart."""
    marked = frames_in(events, len(frames))
    if clean.attention is None or not (frames[marked] >= 0).all():
        return None
    there = np.zeros(len(clean.activity), bool)
    there[frames[marked]] = True
    return attention_share(clean.attention, there, clean.chunk)
