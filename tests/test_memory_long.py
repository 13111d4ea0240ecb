"""Memory over hours: what a frame weighs under a cap and without; voices that drift; ten minutes of silence."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from diarnorm.evaluation.labels import LabelScore, label_score
from diarnorm.memory import TOLD_FRAMES, MemoryConfig, MemoryOutput, MemoryState, SpeakerMemory
from diarnorm.timebase import frames_to_samples, frames_to_seconds
from diarnorm.training.losses import decode
from diarnorm.turns import Turn, finish, init_state, step
from tests.tiny import MEMORY, QUICK_TURNS, SimilarityDecoder, make_memory, noise, script, scripted_memory

SILENCE_FRAMES = 7500
"""Ten minutes."""


def by_similarity(kind: type[SpeakerMemory] = SpeakerMemory, **changes: float) -> SpeakerMemory:
    """A memory of inputs `[.., 8 of the embedding, loudness]`, in which who is like a prototype is that speaker."""
    memory = kind(9, replace(MEMORY, **changes))
    decoder = SimilarityDecoder(9)
    memory.decoder = decoder  # pyright: ignore[reportAttributeAccessIssue]
    with torch.no_grad():
        memory.embed.weight.copy_(torch.eye(9)[:8])
        decoder.from_frame.weight.copy_(torch.eye(9)[8:])
        memory.embed.bias.zero_()
        decoder.from_frame.bias.zero_()
    return memory.eval()


# ---- what a frame weighs ------------------------------------------------------------------------------------


def weights(cap_frames: float, num_frames: int) -> np.ndarray:
    """What each frame of a voice weighs in its prototype, in closed form: equal while the count is below the cap; from
    then on each new frame takes the share 1 / (cap + 1), and leaves the rest to those before."""
    at = np.arange(num_frames)
    if num_frames <= cap_frames:
        return np.ones(num_frames)
    kept = cap_frames / (cap_frames + 1)
    return kept ** (num_frames - np.maximum(at, cap_frames))


def total_of(embedding: Tensor, cap_frames: float) -> np.ndarray:
    """What the memory has collected of a voice that speaks alone all the time."""
    memory = scripted_memory(1, embedding_dim=embedding.shape[1], cap_frames=cap_frames)
    activity = torch.tensor([1.0, 0.0]).expand(len(embedding), 2)
    _, state = memory(script(activity, embedding)[None])
    return state.total[0, 0].double().numpy()


@pytest.mark.parametrize("cap_frames", [inf, 20.0, 5.0])
@torch.no_grad()
def test_the_weight_of_every_frame(cap_frames: float) -> None:
    found = total_of(torch.eye(60), cap_frames)  # every frame in a dimension of its own
    np.testing.assert_allclose(found, weights(cap_frames, 60), rtol=2e-5)
    assert found.sum() == pytest.approx(min(60, cap_frames), rel=1e-5)


@torch.no_grad()
def test_from_its_cap_on_a_prototype_is_an_exponential_moving_average() -> None:
    cap_frames, embedding = 24.0, F.normalize(noise(400, 3) + torch.tensor([2.0, 0, 0]), dim=-1)
    mean = total_of(embedding[:24], cap_frames) / 24
    from_the_first = embedding[0].double().numpy()
    for at, e in enumerate(embedding.double().numpy()):
        from_the_first = from_the_first + (e - from_the_first) / 25
        if at >= 24:
            mean = mean + (e - mean) / 25  # of rate 1 / (cap + 1)
    found = total_of(embedding, cap_frames) / 24
    np.testing.assert_allclose(found, mean, atol=1e-5)
    np.testing.assert_allclose(found, from_the_first, atol=1e-5)  # (24 / 25)^375 = 2e-7 of the first frame is left
    early, truth = total_of(embedding[:20], cap_frames) / 20, embedding[:20].double().numpy().mean(axis=0)
    np.testing.assert_allclose(early, truth, atol=1e-5)


@torch.no_grad()
def test_the_decoder_is_told_of_no_more_than_it_was_trained_with() -> None:
    """Beyond 200 frames nothing that the decoder sees depends on the count, with or without a cap, in training too."""
    memory = make_memory(cap_frames=inf)
    context, e = memory.decoder.from_frame(noise(1, 32)), F.normalize(noise(1, 8, seed=1), dim=-1)
    prototype, newcomer = F.normalize(noise(1, 5, 8, seed=2), dim=-1), torch.zeros(1, 5, dtype=torch.bool)
    logits = [memory.decoder(context, e, prototype, torch.full((1, 5), n), newcomer) for n in (150.0, 200.0, 1e5)]
    assert torch.equal(logits[1], logits[2])
    assert not torch.allclose(logits[0], logits[1], atol=1e-4)
    h, weight = noise(1, 300, 32), torch.ones(1, 300, 1)
    without, capped = decode(memory, h, weight), decode(make_memory(cap_frames=TOLD_FRAMES), h, weight)
    assert without.isfinite().all()
    assert torch.equal(without, capped)


@pytest.mark.parametrize("cap_frames", [0.0, 4.0, float("nan")])
def test_a_cap_that_nobody_could_be_confirmed_under_is_refused(cap_frames: float) -> None:
    with pytest.raises(ValueError, match=r"cap_frames=\w+ is too low: .* no less than confirm_frames=5"):
        MemoryConfig(cap_frames=cap_frames, confirm_frames=5.0)


# ---- voices that drift --------------------------------------------------------------------------------------


def turning(num_frames: int, degrees: float) -> Tensor:
    """Embeddings `[num_frames, 8]` of a voice that turns by an angle, from one direction to another."""
    angle = torch.linspace(0, degrees, num_frames, dtype=torch.float64).deg2rad()
    return F.pad(torch.stack([angle.cos(), angle.sin()], dim=1), (0, 6)).float()


def lag_degrees(prototype: np.ndarray, voice: Tensor) -> float:
    """Angle between a prototype and what the voice is by now."""
    cosine = voice[-1].double().numpy() @ prototype / np.linalg.norm(prototype)
    return float(np.rad2deg(np.arccos(cosine)))


HOURS = [2_000, pytest.param(45_000, marks=pytest.mark.slow)]
"""Frames of a voice alone: of four people in eleven minutes; in four hours."""


@pytest.mark.parametrize("num_frames", HOURS)
@torch.no_grad()
def test_a_sum_freezes_and_a_capped_mean_follows(num_frames: int) -> None:
    voice = turning(num_frames, 90.0)
    for cap_frames in (inf, 200.0, 49.0):
        found = lag_degrees(total_of(voice, cap_frames), voice)
        expected = weights(cap_frames, num_frames) @ voice.double().numpy()
        assert found == pytest.approx(lag_degrees(expected, voice), abs=0.05)
        if cap_frames == inf:
            assert found == pytest.approx(45.0, abs=0.05)  # the middle of all it has been
        else:  # the mean age of an exponential average, times the speed
            assert found == pytest.approx(cap_frames * 90.0 / num_frames, rel=0.02)


@pytest.mark.parametrize("num_frames", HOURS)
@torch.no_grad()
def test_only_under_a_cap_does_a_drifting_voice_keep_its_slot(num_frames: int) -> None:
    """A sum stays behind half of the way; what is 60 degrees away is a speaker no more, and further on a new one."""
    heard = F.pad(turning(num_frames, 170.0), (0, 1))[None]
    for cap_frames, num_slots in ((200.0, 1), (inf, 2)):
        output, state = by_similarity(cap_frames=cap_frames)(heard)
        assert (state.count > MEMORY.confirm_frames).sum() == num_slots
        assert (output.activity[0, -1] > 0.9).tolist() == [at == num_slots - 1 for at in range(4)]


# ---- silence ------------------------------------------------------------------------------------------------


class Leaky(SpeakerMemory):
    """Mutant: what is known fades while nobody speaks."""

    def _update(self, state: MemoryState, e: Tensor, weight: Tensor, here: Tensor) -> MemoryState:
        new = super()._update(state, e, weight, here)
        kept = torch.where((weight > 0).any(dim=-1, keepdim=True), 1.0, 0.99)
        faded = new.count * kept
        gone = faded < self.config.confirm_frames
        return new._replace(total=new.total.masked_fill(gone[..., None], 0.0), count=faded.masked_fill(gone, 0.0))


TURNS_FRAMES: Sequence[int] = [20, 35, 12, 50, 16, 28] * 6


def conversation(seed: int) -> tuple[Tensor, list[tuple[int, int, int]]]:
    """Frames `[frames, 9]` of four voices in turns, in noise, and (voice, first frame, frame after the last)."""
    generator = torch.Generator().manual_seed(seed)
    spans, at = [], 0
    frames = []
    for number, length in enumerate(TURNS_FRAMES):
        who = number % 4 if number < 4 else int(torch.randint(4, (1,), generator=generator))
        voice = 3 * F.one_hot(torch.tensor(who), 8) + 0.4 * torch.randn(length, 8, generator=generator)
        frames += [F.pad(voice, (0, 1)), silence(10, seed + number)]
        spans.append((who, at, at + length))
        at += length + 10
    return torch.cat(frames), spans


def silence(num_frames: int, seed: int) -> Tensor:
    """Frames in which nobody speaks: embeddings are anything, and the loudness says so."""
    return F.pad(noise(num_frames, 8, seed=seed), (0, 1), value=-30.0)


def seconds(spans: Sequence[tuple[int, int, int]], offset: int) -> list[Turn]:
    return [Turn(frames_to_seconds(a + offset), frames_to_seconds(b + offset), f"voice_{who}") for who, a, b in spans]


def heard_turns(outputs: Sequence[MemoryOutput]) -> list[Turn]:
    """Turns of consecutive outputs."""
    config = replace(QUICK_TURNS, confirm_frames=MEMORY.confirm_frames)
    activity, count = (torch.cat([output[at][0] for output in outputs]).numpy() for at in (0, 1))
    events, state = step(config, init_state(activity.shape[1]), activity, count)
    events += finish(config, state, frames_to_samples(len(activity)))
    return [event for event in events if isinstance(event, Turn)]


def assert_silence_changes_nothing(memory: SpeakerMemory, num_frames: int = SILENCE_FRAMES) -> None:
    """Everybody keeps prototype, count, slot and label while nobody speaks."""
    (first, spans), (second, later) = conversation(0), conversation(100)
    before, state = memory(first[None])
    quiet, after = memory(silence(num_frames, 7)[None], state)
    assert torch.equal(after.total, state.total)
    assert torch.equal(after.count, state.count)
    assert (after.count > 5).sum() == 4
    assert quiet.activity.max() < 1e-6
    last, _ = memory(second[None], after)
    offset = len(first) + num_frames
    reference = seconds(spans, 0) + seconds(later, offset)
    duration_s = frames_to_seconds(offset + len(second))
    found = label_score(reference, heard_turns([before, quiet, last]), duration_s, pause_s=60.0)
    assert found == LabelScore(duration_s, num_switches=0, num_returned=4, num_recognised=4)


@pytest.mark.parametrize("cap_frames", [200.0, *(pytest.param(cap, marks=pytest.mark.slow) for cap in (inf, 49.0))])
@torch.no_grad()
def test_ten_minutes_of_silence_change_nothing(cap_frames: float) -> None:
    assert_silence_changes_nothing(by_similarity(cap_frames=cap_frames))


@torch.no_grad()
def test_check_of_silence_notices_what_fades() -> None:
    with pytest.raises(AssertionError):
        assert_silence_changes_nothing(by_similarity(Leaky), 1000)
