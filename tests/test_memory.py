"""Speaker memory: rules against a plain recursion in float64, scripted lives of slots, symmetry, capacity."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.nn import functional as F

from diarnorm.memory import (
    MemoryConfig,
    MemoryOutput,
    MemoryState,
    SpeakerMemory,
    exclusive,
    first_free,
    prototypes,
)
from diarnorm.training.losses import decode
from tests.tiny import MEMORY, in_steps, make_memory, noise, script, scripted_memory, tensors_of, whole_chunks

DIM = 32
FRAMES = 60
FOREVER = 10**6


def voices(num_frames: int = FRAMES, batch: int = 2, num_voices: int = 3, seed: int = 0) -> Tensor:
    """Encoder-like frames `[batch, num_frames, DIM]`: stretches of one of a few voices, with some noise."""
    generator = torch.Generator().manual_seed(seed)
    turns = torch.randint(0, num_voices, (batch, -(-num_frames // 6)), generator=generator)
    who = turns.repeat_interleave(6, dim=1)[:, :num_frames]
    return 2 * noise(num_voices, DIM, seed=seed + 1)[who] + 0.5 * noise(batch, num_frames, DIM, seed=seed + 2)


def close(a: Tensor, b: Tensor, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


# ---- the rules, against a recursion -----------------------------------------------------------------------


class Recursion:
    """Slots of one recording by the rules, one after another in float64. Activities are given."""

    def __init__(self, config: MemoryConfig, num_slots: int, embedding_dim: int) -> None:
        self.config, self.frame = config, 0
        self.total = np.zeros((num_slots, embedding_dim))
        self.count, self.seen = np.zeros(num_slots), np.zeros(num_slots, int)

    def step(self, activity: np.ndarray, embedding: np.ndarray) -> np.ndarray:
        """Weight with which the frame enters each slot; the last slot holds the overflow."""
        free = np.flatnonzero(self.count == 0)
        self.frame += 1
        weight = np.zeros_like(self.count)
        for slot, a in enumerate(activity[:-1]):
            others = np.prod([1 - other for i, other in enumerate(activity) if i != slot])
            least = self.config.birth if slot == free[0] else self.config.floor
            weight[slot] = a * others if a * others >= least else 0.0
        for slot, w in enumerate(weight):
            self._feed(slot, w, embedding)
        return weight

    def _feed(self, slot: int, weight: float, embedding: np.ndarray) -> None:
        c, wanted = self.config, self.count[slot] + weight
        if weight > 0:
            kept = min(wanted, c.cap_frames)
            self.total[slot] = (self.total[slot] + weight * embedding) * kept / wanted
            self.count[slot], self.seen[slot] = kept, self.frame
        elif self.count[slot] < c.confirm_frames and self.frame - self.seen[slot] > c.drop_frames:
            self.total[slot] = self.count[slot] = 0


def assert_follows_the_rules(memory: SpeakerMemory, h: Tensor) -> MemoryOutput:
    output, state = memory(h)
    embeddings = memory.embedding(h).double().numpy()
    activity = torch.cat([output.activity, output.overflow[..., None]], dim=-1).double().numpy()
    for row in range(len(h)):
        recursion = Recursion(memory.config, activity.shape[2], embeddings.shape[2])
        for t in range(h.shape[1]):
            weight = recursion.step(activity[row, t], embeddings[row, t])
            np.testing.assert_allclose(output.weight[row, t], weight[:-1], atol=1e-5)
            np.testing.assert_allclose(output.count[row, t], recursion.count[:-1], atol=1e-4)
        np.testing.assert_allclose(state.total[row], recursion.total, atol=1e-4)
        np.testing.assert_allclose(state.count[row], recursion.count, atol=1e-4)
        occupied = recursion.count > 0
        np.testing.assert_array_equal(state.seen[row][occupied], recursion.seen[occupied])
        assert state.frame[row] == h.shape[1]
    return output


RULES = {
    "as configured": {},
    "low cap": {"cap_frames": 6.0},
    "no floor": {"floor": 0.0},
    "easy birth": {"birth": 0.2},
    "quick drops": {"drop_frames": 2, "confirm_frames": 20.0},
}


@pytest.mark.parametrize("changes", RULES.values(), ids=RULES)
@torch.no_grad()
def test_follows_the_rules(changes: dict[str, Any]) -> None:
    output = assert_follows_the_rules(make_memory(**changes), voices())
    occupied = output.count > 0
    assert (occupied.any(dim=1).sum(dim=1) >= 2).all()  # at least two slots are used
    if "drop_frames" in changes:
        assert (occupied[:, :-1] & ~occupied[:, 1:]).any()


class RunningSum(SpeakerMemory):
    """Mutant: the cap holds the count, but not the sum."""

    def _update(self, state: MemoryState, e: Tensor, weight: Tensor, here: Tensor) -> MemoryState:
        new = super()._update(state, e, weight, here)
        return new._replace(total=state.total + weight[..., None] * e[:, None, :])


class NobodyLeaves(SpeakerMemory):
    """Mutant: nobody is dropped."""

    def _update(self, state: MemoryState, e: Tensor, weight: Tensor, here: Tensor) -> MemoryState:
        new = super()._update(state._replace(seen=state.seen + FOREVER), e, weight, here)
        return new._replace(seen=new.seen - FOREVER * (weight <= 0))


class LateWeights(SpeakerMemory):
    """Mutant: a frame enters the slots with the neighbour's weight."""

    def _update(self, state: MemoryState, e: Tensor, weight: Tensor, here: Tensor) -> MemoryState:
        return super()._update(state, e, weight.roll(1, dims=-1), here)


@pytest.mark.parametrize("mutant", [RunningSum, NobodyLeaves, LateWeights])
@torch.no_grad()
def test_check_of_the_rules_notices_the_mutants(mutant: type[SpeakerMemory]) -> None:
    memory = make_memory(cap_frames=6.0, drop_frames=2, confirm_frames=4.0)
    assert_follows_the_rules(memory, voices())
    broken = mutant(DIM, memory.config)
    broken.load_state_dict(memory.state_dict())
    with pytest.raises(AssertionError):
        assert_follows_the_rules(broken.eval(), voices())


# ---- scripted lives ---------------------------------------------------------------------------------------


def play(memory: SpeakerMemory, rows: Sequence[Sequence[float]]) -> tuple[MemoryOutput, MemoryState]:
    """Output and state after frames with these activities per slot and for the overflow."""
    activity = torch.tensor(rows)[None]
    embedding = torch.ones(1, len(rows), memory.config.embedding_dim)
    return memory(script(activity, embedding))


def counts(output: MemoryOutput, slot: int = 0) -> list[float]:
    return [round(value, 3) for value in output.count[0, :, slot].tolist()]


def test_a_birth_needs_the_birth_weight() -> None:
    memory = scripted_memory(2, birth=0.6)
    output, _ = play(memory, [[0.59, 0, 0], [0.61, 0, 0], [0.55, 0, 0], [0.49, 0, 0], [0.9, 0, 0]])
    assert counts(output) == [0, 0.61, 1.16, 1.16, 2.06]


def test_overlapped_frames_enter_no_slot() -> None:
    memory = scripted_memory(2)
    output, _ = play(memory, [[1, 0, 0], [0.1, 1, 0], [0.9, 0.9, 0], [0.9, 0.2, 0]])
    assert counts(output, 0) == [1, 1, 1, 1.72]
    assert counts(output, 1) == [0, 0.9, 0.9, 0.9]
    close(output.activity[0], torch.tensor([[1, 0], [0.1, 1], [0.9, 0.9], [0.9, 0.2]]))


def test_only_one_newcomer_at_a_time() -> None:
    memory = scripted_memory(3)
    output, _ = play(memory, [[0.8, 0.9, 0.9, 0], [0.0, 0.9, 0.9, 0]])
    assert counts(output, 0) == [0.8, 0.8]
    assert counts(output, 1) == [0, 0.9]
    assert counts(output, 2) == [0, 0]
    close(output.activity[0], torch.tensor([[0.8, 0, 0], [0, 0.9, 0]]))


def phantom(num_silent: int) -> Sequence[Sequence[float]]:
    """A voice of three frames in slot 0, silence, and a voice again."""
    return [[1, 0, 0]] * 3 + [[0, 0, 0]] * num_silent + [[1, 0, 0]] * 2


def test_an_unconfirmed_occupant_is_dropped_and_its_slot_used_again() -> None:
    memory = scripted_memory(2, confirm_frames=4.0, drop_frames=5)
    output, _ = play(memory, phantom(5))
    assert counts(output) == [1, 2, 3, 3, 3, 3, 3, 3, 4, 5]
    output, state = play(memory, phantom(6))
    assert counts(output) == [1, 2, 3, 3, 3, 3, 3, 3, 0, 1, 2]
    close(state.total[0, 0], torch.full((2,), 2 * 0.5**0.5))  # of the second voice alone


def test_a_confirmed_occupant_stays() -> None:
    memory = scripted_memory(2, confirm_frames=2.9, drop_frames=5)
    output, _ = play(memory, phantom(500))
    assert counts(output)[2:] == [3] * 501 + [4, 5]


@pytest.mark.parametrize("seed", range(4))
def test_a_free_frame_lies_between_a_drop_and_the_next_birth(seed: int) -> None:
    memory = scripted_memory(3, confirm_frames=4.0, drop_frames=2)
    activity = (noise(8, 300, 4, seed=seed) > 1.0).float()
    output, _ = memory(script(activity, torch.ones(8, 300, 2)))
    count = torch.cat([torch.zeros(8, 1, 3), output.count], dim=1)
    falls = count[:, 1:] < count[:, :-1]
    assert falls.sum() > 50
    assert not output.count[falls].any()
    assert (count[:, :-1][falls] < 4.0).all()


def test_overflow_is_reported_and_forced_on_nobody() -> None:
    memory = scripted_memory(1, confirm_frames=2.9)
    output, state = play(memory, [[1, 0]] * 3 + [[0, 0.9]] * 20 + [[0.8, 0.9]])
    close(output.overflow[0], torch.tensor([0.0] * 3 + [0.9] * 21))
    assert counts(output)[2:] == [3] * 22
    assert not state.count[0, -1]
    assert not state.total[0, -1].any()


def test_a_capped_mean_follows_a_changing_voice() -> None:
    def similarity(cap_frames: float) -> float:
        memory = scripted_memory(1, cap_frames=cap_frames)
        embedding = torch.tensor([1.0, 0.0]).repeat(2400, 1)
        embedding[2000:] = torch.tensor([0.0, 1.0])
        activity = torch.tensor([1.0, 0.0]).expand(2400, 2)
        _, state = memory(script(activity, embedding)[None])
        return F.normalize(state.total[0, 0], dim=0)[1].item()

    assert similarity(100.0) > 0.99
    assert similarity(FOREVER) < 0.25  # what a running sum does


# ---- symmetry and capacity --------------------------------------------------------------------------------


def assert_slots_are_symmetric(memory: SpeakerMemory, num_slots: int = 6) -> None:
    """Permuting occupied slots permutes everything that comes after (until one is dropped and born again)."""
    _, state = memory(voices(), memory.init_state(2, num_slots))
    occupied = int((state.count > 0).sum(dim=1).min())
    assert occupied >= 3
    order = torch.tensor([2, 0, 1, *range(3, num_slots + 1)])
    permuted = MemoryState(state.total[:, order], state.count[:, order], state.seen[:, order], state.frame)
    later = voices(seed=7)
    output, last = memory(later, state)
    swapped, swapped_last = memory(later, permuted)
    for found, expected in zip(swapped[:3], output[:3], strict=True):
        close(found, expected[..., order[:-1]])
    close(swapped.overflow, output.overflow)
    close(swapped_last.total, last.total[:, order], 1e-5)
    assert output.activity.max() > 0.5


@torch.no_grad()
def test_permuting_occupied_slots_permutes_the_output() -> None:
    assert_slots_are_symmetric(make_memory(drop_frames=FOREVER))


class SlotNumbers(nn.Module):
    """Mutant: the decoder knows the number of a slot."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder, self.from_frame = decoder, decoder.from_frame

    def forward(self, *args: Tensor) -> Tensor:
        logits = self.decoder(*args)
        return logits + 0.01 * torch.arange(logits.shape[-1])


@torch.no_grad()
def test_check_of_symmetry_notices_slot_numbers() -> None:
    memory = make_memory(drop_frames=FOREVER)
    memory.decoder = SlotNumbers(memory.decoder)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AssertionError):
        assert_slots_are_symmetric(memory)


@torch.no_grad()
def test_more_slots_than_configured_change_nothing_while_they_are_free() -> None:
    memory = make_memory(bias=-4.0)
    few, _ = memory(voices(), memory.init_state(2, 4))
    many, state = memory(voices(), memory.init_state(2, 12))
    assert state.count.shape == (2, 13)
    assert not few.count[..., -1].any()  # a slot is left
    assert few.activity.max() > 0.5
    for found, expected in zip(many[:3], few[:3], strict=True):
        close(found[..., :4], expected)
    assert not many.count[..., 4:].any()


@pytest.mark.parametrize(("num_slots", "born", "overflow"), [(4, 4, 8), (12, 12, 0)])
def test_more_speakers_than_configured_find_slots(num_slots: int, born: int, overflow: int) -> None:
    memory = scripted_memory(num_slots)
    memory.config = replace(memory.config, num_slots=4)
    voices_in_turn = torch.eye(12).repeat_interleave(6, dim=0)
    beyond = voices_in_turn[:, num_slots:].sum(dim=1, keepdim=True)
    activity = torch.cat([voices_in_turn[:, :num_slots], beyond], dim=1)
    h = script(activity, torch.ones(72, 2))[None]
    output, state = memory(h, memory.init_state(1, num_slots))
    assert (state.count > 5).sum() == born
    assert (output.overflow > 0.5).sum() == 6 * overflow


# ---- parallel decoding, streaming, padding ----------------------------------------------------------------


def assert_parallel_equals_scan(memory: SpeakerMemory, build: Callable = decode) -> None:
    """`losses.decode`, given the weights of a scan, gives the logits of the scan."""
    h = voices(24)
    output, _ = memory(h)
    slots = output.weight.shape[2]
    logits = build(memory, h, output.weight)
    before = F.pad(output.count, (0, 0, 1, 0))[:, :-1]
    assert ((before > 0).sum(dim=-1).amax(dim=1) >= 2).all()
    parallel = logits.sigmoid()
    close(torch.where(before > 0, output.activity, 0.0), torch.where(before > 0, parallel[..., :slots], 0.0))
    everything = torch.cat([output.activity, output.overflow[..., None]], dim=-1)
    newcomer = (everything * first_free(F.pad(before, (0, 1)))).sum(dim=-1)
    close(newcomer, parallel[..., -1])


@torch.no_grad()
def test_parallel_decoding_equals_the_scan() -> None:
    assert_parallel_equals_scan(make_memory(drop_frames=FOREVER))


@torch.no_grad()
def test_parallel_check_notices_a_shift_by_one_frame() -> None:
    def inclusive(memory: SpeakerMemory, h: Tensor, weight: Tensor) -> Tensor:
        return decode(memory, h, weight.roll(-1, dims=1))

    with pytest.raises(AssertionError):
        assert_parallel_equals_scan(make_memory(drop_frames=FOREVER), inclusive)


@torch.no_grad()
def test_prototypes_are_those_that_each_frame_meets() -> None:
    memory, h = make_memory(drop_frames=FOREVER), voices(10)
    output, _ = memory(h)
    prototype, count = prototypes(memory.embedding(h), output.weight)
    state = memory.init_state(2)
    for t in range(10):
        close(prototype[:, t], F.normalize(state.total, dim=-1)[:, :-1], 1e-5)
        close(count[:, t], state.count[:, :-1], 1e-5)
        _, state = memory(h[:, t : t + 1], state)


@settings(max_examples=5)
@given(sizes=whole_chunks(20))
@torch.no_grad()
def test_stream_equals_one_step(sizes: list[int]) -> None:
    memory, h = make_memory(), voices(20)
    whole, last = memory(h)
    pieces, state = in_steps(memory, None, h, sizes)
    for field in MemoryOutput._fields:
        close(torch.cat([getattr(piece, field) for piece in pieces], dim=1), getattr(whole, field), 1e-5)
    for a, b in zip(tensors_of(state), tensors_of(last), strict=True):
        close(a, b, 1e-5)
        assert a.is_contiguous()


@torch.no_grad()
def test_row_in_a_batch_is_the_row_alone() -> None:
    memory, h = make_memory(), voices(30, batch=7)
    together, _ = memory(h)
    for row in range(7):
        alone, _ = memory(h[row : row + 1])
        for found, expected in zip(alone, together, strict=True):
            close(found[0], expected[row], 1e-5)


def assert_invalid_frames_change_nothing(memory: SpeakerMemory) -> None:
    h, content = voices(30), 1e3 * noise(2, 15, DIM, seed=3)
    valid = torch.ones(2, 45, dtype=torch.bool)
    valid[:, 10:25] = False
    clean, last = memory(h)
    output, state = memory(torch.cat([h[:, :10], content, h[:, 10:]], dim=1), None, valid)
    for found, expected in zip(output, clean, strict=True):
        close(found[valid], expected.flatten(0, 1), 1e-5)
    assert not output.activity[:, 10:25].any()
    assert not output.overflow[:, 10:25].any()
    assert not output.weight[:, 10:25].any()
    assert torch.equal(output.count[:, 10:25], output.count[:, 9:10].expand(-1, 15, -1))
    for a, b in zip(tensors_of(state), tensors_of(last), strict=True):
        close(a, b, 1e-5)


@torch.no_grad()
def test_invalid_frames_change_nothing() -> None:
    assert_invalid_frames_change_nothing(make_memory())


class Careless(SpeakerMemory):
    """Mutant: `valid` is ignored."""

    def forward(self, h: Tensor, state: MemoryState | None = None, valid: Tensor | None = None) -> tuple:
        return super().forward(h, state)


class Clockwork(SpeakerMemory):
    """Mutant: time goes on in invalid frames."""

    def _update(self, state: MemoryState, e: Tensor, weight: Tensor, here: Tensor) -> MemoryState:
        return super()._update(state, e, weight, torch.ones_like(here))


@pytest.mark.parametrize("mutant", [Careless, Clockwork])
@torch.no_grad()
def test_check_of_invalid_frames_notices_the_mutants(mutant: type[SpeakerMemory]) -> None:
    broken = mutant(DIM, MEMORY)
    broken.load_state_dict(make_memory().state_dict())
    with pytest.raises(AssertionError):
        assert_invalid_frames_change_nothing(broken.eval())


def test_no_frames_change_nothing() -> None:
    memory = make_memory()
    _, state = memory(voices())
    output, after = memory(torch.zeros(2, 0, DIM), state)
    assert output.activity.shape == (2, 0, MEMORY.num_slots)
    assert output.overflow.shape == (2, 0)
    for a, b in zip(tensors_of(after), tensors_of(state), strict=True):
        assert torch.equal(a, b)


# ---- small parts ------------------------------------------------------------------------------------------


def test_exclusive_is_the_product_with_everyone_else_silent() -> None:
    activity = noise(50, 6).sigmoid()
    activity[0], activity[1] = 0.0, 1.0
    expected = torch.stack(
        [activity[:, s] * (1 - activity[:, [i for i in range(6) if i != s]]).prod(dim=1) for s in range(6)], dim=1
    )
    close(exclusive(activity), expected)


def test_first_free() -> None:
    count = torch.tensor([[0.0, 1, 0], [2, 0.5, 0], [2, 0, 1], [1, 1, 1]])
    expected = [[True, False, False], [False, False, True], [False, True, False], [False, False, False]]
    assert first_free(count).tolist() == expected


@torch.no_grad()
def test_embeddings_have_unit_norm() -> None:
    close(make_memory().embedding(voices()).norm(dim=-1), torch.ones(2, FRAMES))


def test_gradients_are_finite_through_a_scan() -> None:
    memory = make_memory()
    h = voices().requires_grad_()
    output, _ = memory(h)
    output.activity.sum().backward()
    assert h.grad is not None
    assert h.grad.isfinite().all()


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"birth": 5}, "memory.birth=5 is out of range: give a number of at least 0 and of at most 1"),
        ({"floor": 60.0}, "memory.floor=60.0 is out of range: give a number of at least 0 and of at most 1"),
        ({"floor": -0.1}, "memory.floor=-0.1 is out of range"),
        ({"birth": nan}, "memory.birth=nan is out of range"),
        ({"drop_frames": -1}, "memory.drop_frames=-1 is out of range: give a number of at least 0"),
        ({"confirm_frames": 0}, "memory.confirm_frames=0 is out of range: give a number above 0"),
        ({"confirm_frames": inf, "cap_frames": inf}, "memory.confirm_frames=inf is out of range"),
    ],
)
def test_rules_out_of_range(rules: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        replace(MEMORY, **rules)


def test_rules_at_the_ends_of_their_ranges() -> None:
    rules = replace(MEMORY, birth=0, floor=1, drop_frames=0, confirm_frames=0.1, cap_frames=inf)
    assert (rules.birth, rules.floor, rules.cap_frames) == (0, 1, inf)
