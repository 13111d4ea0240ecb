"""Targets of the memory worked out by hand on tiny conversations; births, own decisions, rollouts."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from diarnorm.training.lossconfig import LossConfig
from diarnorm.training.targets import SlotTargets, delayed_births, own_decisions, rollout
from tests.tiny import make_memory, noise, script, scripted_memory

AT_ONCE = LossConfig(no_delay=1.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tracks(*rows: str) -> Tensor:
    """Activity `[1, frames, speakers]` from pictures: `#` speaks, `+` for 0.8 of the frame, `.` is silent."""
    level = {"#": 1.0, "+": 0.8, ".": 0.0}
    return torch.tensor([[level[sign] for sign in row] for row in rows]).T[None]


def assert_targets(targets: SlotTargets, weight: Tensor, target: Tensor, importance: Tensor) -> None:
    for found, expected in zip(targets, (weight, target, importance), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


# ---- delayed births ---------------------------------------------------------------------------------------


def assert_births_by_hand(births: Callable[..., SlotTargets]) -> None:
    """Two speakers who enter at once: a slot counts from the frame after the birth, until then the newcomer does."""
    activity = tracks("##.#..", ".###+.")
    assert_targets(
        births(activity, AT_ONCE, generator()),
        weight=tracks("#.....", "..#.+."),  # alone; overlap enters no slot
        target=tracks("##.#..", ".###+.", "###..."),  # the newcomer: anyone who speaks and has no slot
        importance=tracks(".#####", "...###", "######"),
    )


def test_births_at_once_by_hand() -> None:
    assert_births_by_hand(delayed_births)


@pytest.mark.parametrize("field", SlotTargets._fields)
@pytest.mark.parametrize("shift", [-1, 1])
def test_a_shift_by_one_frame_is_noticed(field: str, shift: int) -> None:
    def shifted(*args: object) -> SlotTargets:
        targets = delayed_births(*args)  # pyright: ignore[reportArgumentType]
        return targets._replace(**{field: getattr(targets, field).roll(shift, dims=1)})

    with pytest.raises(AssertionError):
        assert_births_by_hand(shifted)


def test_swapped_slots_are_noticed() -> None:
    with pytest.raises(AssertionError):
        assert_births_by_hand(lambda activity, *rest: delayed_births(activity.flip(-1), *rest))


def test_a_delay_is_counted_in_exclusive_speech() -> None:
    activity = torch.zeros(400, 60, 2)
    activity[:, 10:50, 0] = 1.0
    activity[:, 20:30, 1] = 1.0  # ten of the forty frames are overlapped
    targets = delayed_births(activity, LossConfig(no_delay=0.0, delay_frames=5.0), generator())
    fed = targets.weight[..., 0] > 0
    assert not fed[:, :10].any()
    assert not fed[:, 20:30].any()
    first = fed.int().argmax(dim=1)[fed.any(dim=1)]
    heard = torch.where(first >= 30, first - 20, first - 10)
    assert heard.float().mean() == pytest.approx(4.4, abs=0.6)  # whole frames of an exponential with mean 5
    for row, start in enumerate(fed.int().argmax(dim=1).tolist()):
        if fed[row].any():
            expected = [t for t in range(start, 50) if not 20 <= t < 30]
            assert fed[row].nonzero()[:, 0].tolist() == expected
    newcomer, occupied = targets.target[..., -1], targets.importance[..., 0] > 0
    assert torch.equal(newcomer[:, 30:50] > 0, ~occupied[:, 30:50])


def test_a_share_of_speakers_enters_at_once() -> None:
    activity = torch.ones(1, 3, 1).expand(2000, -1, -1)
    targets = delayed_births(activity, LossConfig(no_delay=0.33, delay_frames=1e6), generator())
    assert (targets.weight[:, 0, 0] > 0).float().mean() == pytest.approx(0.33, abs=0.03)


def test_delays_are_a_function_of_the_generator() -> None:
    activity = (noise(4, 80, 3) > 0.8).float()
    first, second, other = (delayed_births(activity, LossConfig(), generator(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first.weight, other.weight)


def test_processes_draw_the_delays_of_the_whole_batch_and_take_their_rows() -> None:
    activity, drawn = (noise(6, 80, 3) > 0.8).float(), [generator() for _ in range(4)]
    whole = delayed_births(activity, LossConfig(), drawn[0])
    parts = [delayed_births(activity[2 * i : 2 * i + 2], LossConfig(), drawn[i + 1], (i, 3)) for i in range(3)]
    for found, expected in zip(zip(*parts, strict=True), whole, strict=True):
        assert torch.equal(torch.cat(found), expected)
    assert len({float(torch.rand(1, generator=each)) for each in drawn}) == 1  # what follows is the same, too


# ---- own decisions ----------------------------------------------------------------------------------------


def test_own_decisions_by_hand() -> None:
    activity = tracks("#######", ".......")
    births = delayed_births(activity, AT_ONCE, generator())
    config = LossConfig(no_delay=1.0, seed_frames=2.0)
    #                     the first two frames come from the reference; then what the model said
    said = torch.tensor([[0.9, 0, 0], [0, 0, 0], [0.7, 0, 0], [0.4, 0, 0], [0.9, 0.5, 0], [0.9, 0, 0], [0.1, 0.9, 0]])
    targets = own_decisions(torch.logit(said, eps=1e-7)[None], births, activity, 0.5, config)
    assert_targets(
        targets,
        weight=torch.tensor([[1, 0], [1, 0], [0.7, 0], [0, 0], [0, 0], [0.9, 0], [0, 0]])[None],
        target=tracks("#######", ".......", "#......"),
        importance=tracks(".######", ".......", "#######"),
    )


def test_own_decisions_wait_for_the_birth() -> None:
    activity, config = torch.ones(50, 30, 1), LossConfig(no_delay=0.0, seed_frames=3.0)
    births = delayed_births(activity, config, generator())
    targets = own_decisions(torch.full((50, 30, 2), 9.0) * torch.tensor([1, -1]), births, activity, 0.5, config)
    assert torch.equal(targets.weight > 0, births.weight > 0)
    assert (targets.weight[births.weight.cumsum(dim=1) > 3] < 1).all()


# ---- rollout ----------------------------------------------------------------------------------------------


def rolled_out(said: Tensor, activity: Tensor, config: LossConfig) -> SlotTargets:
    """Targets after a rollout in which the memory says `said [1, frames, slots + 1]`."""
    memory = scripted_memory(said.shape[2] - 1, confirm_frames=2.0)
    h = script(said, torch.ones(*said.shape[:2], 2))
    return rollout(memory, h, activity, config)


def assert_rollout_by_hand(run: Callable[..., SlotTargets]) -> None:
    """Slot 0 is speaker 1's, slot 1 a phantom, slot 2 speaker 1's second, slot 3 speaker 0's."""
    activity = tracks("......##.#", "##..##..#.")
    said = tracks("##........", "..##......", "....##....", "......##..", "..........")
    config = LossConfig(phantom=0.3)
    importance = tracks(".#########", "...#######", ".....#####", ".......###", "##########")
    importance[..., 1:3] *= 0.3
    assert_targets(
        run(said, activity, config),
        weight=tracks("##........", "..##......", "....##....", "......##.."),
        target=tracks("##..##..#.", "..........", "..........", "......##.#", "#.....#..."),
        importance=importance,
    )


def test_rollout_by_hand() -> None:
    assert_rollout_by_hand(rolled_out)


def test_order_of_the_speakers_does_not_matter() -> None:
    assert_rollout_by_hand(lambda said, activity, config: rolled_out(said, activity.flip(-1), config))


def test_nobody_is_dropped_in_a_rollout() -> None:
    memory = scripted_memory(2, confirm_frames=3.0, drop_frames=1)
    said = tracks("#.....", "......", "......")
    targets = rollout(memory, script(said, torch.ones(1, 6, 2)), tracks("#....#"), LossConfig())
    torch.testing.assert_close(targets.importance[..., :1], tracks(".#####"))
    assert memory.config.drop_frames == 1  # in streams they still are


def test_rollout_check_notices_mutants() -> None:
    with pytest.raises(AssertionError):
        assert_rollout_by_hand(lambda said, activity, config: rolled_out(said, activity.roll(1, dims=1), config))
    with pytest.raises(AssertionError):
        assert_rollout_by_hand(lambda said, activity, config: rolled_out(said, activity[..., :1], config))
    with pytest.raises(AssertionError):
        assert_rollout_by_hand(lambda said, activity, _: rolled_out(said, activity, LossConfig(phantom=1.0)))


def test_a_slot_founded_by_half_a_speaker_is_a_phantom() -> None:
    targets = rolled_out(tracks("####", "...."), tracks("#..."), LossConfig())
    assert not targets.target[..., 0].any()
    assert targets.importance[0, 1, 0] == pytest.approx(LossConfig().phantom)
    assert torch.equal(targets.target[..., -1], tracks("#...")[..., 0])  # nobody holds the speaker


def test_rollout_leaves_the_mode_and_the_gradients_alone() -> None:
    memory = make_memory().train()
    targets = rollout(memory, noise(2, 9, 32).requires_grad_(), (noise(2, 9, 3) > 0).float(), LossConfig())
    assert memory.training
    assert not any(tensor.requires_grad for tensor in targets)


def test_rollout_of_silence_has_one_slot() -> None:
    targets = rolled_out(tracks("....", "...."), tracks("....", "...."), LossConfig())
    assert_targets(targets, tracks("...."), tracks("....", "...."), tracks("....", "####"))


def test_the_newcomers_token_has_a_weight() -> None:
    activity = tracks("##.#..", ".###+.")
    plain = delayed_births(activity, AT_ONCE, generator())
    heavy = delayed_births(activity, replace(AT_ONCE, newcomer=3.0), generator())
    assert_targets(heavy, plain.weight, plain.target, plain.importance * torch.tensor([1.0, 1.0, 3.0]))
    rolled = rolled_out(tracks("####", "...."), tracks("#..."), LossConfig(newcomer=2.0))
    assert torch.equal(rolled.importance[..., -1], torch.full((1, 4), 2.0))
