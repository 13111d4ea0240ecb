"""Turns: a plain oracle, any partition, newcomers, order, latency; mutants beside what they break."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diarnorm import runs, turns
from diarnorm.rttm import format_turn
from diarnorm.turns import Event, Turn, TurnConfig, TurnStart, decision_latency, finish, init_state, step

FRAME_S = 0.08
PLAIN = TurnConfig(onset=0.5, offset=0.3, min_on_frames=2, min_off_frames=3, pad_frames=0, confirm_frames=4)
PATIENT = 10**6


def listen(
    config: TurnConfig,
    activity: np.ndarray,
    count: np.ndarray,
    cuts: list[int] | None = None,
    num_samples: int | None = None,
) -> list[Event]:
    """All events of a recording that is given to `step` in pieces cut at `cuts`."""
    state, events = init_state(activity.shape[1]), []
    for piece, counted in zip(np.split(activity, cuts or []), np.split(count, cuts or []), strict=True):
        new, state = step(config, state, piece, counted)
        events += new
    return events + finish(config, state, 1280 * len(activity) if num_samples is None else num_samples)


def only_turns(events: list[Event]) -> list[Turn]:
    return [event for event in events if isinstance(event, Turn)]


def only_starts(events: list[Event]) -> list[TurnStart]:
    return [event for event in events if isinstance(event, TurnStart)]


def tracks(*slots: str) -> tuple[np.ndarray, np.ndarray]:
    """Activity and count from pictures: `#` active, `-` between the thresholds, `.` silent; all confirmed."""
    level = {"#": 0.9, "-": 0.4, ".": 0.0}
    activity = np.array([[level[sign] for sign in slot] for slot in slots], dtype=np.float32).T
    return activity, np.full_like(activity, 50)


def in_frames(found: list[Turn]) -> list[tuple[int, int]]:
    edges = [(turn.start / FRAME_S, turn.end / FRAME_S) for turn in found]
    assert np.allclose(edges, np.round(edges), atol=1e-6)
    return [(round(start), round(end)) for start, end in edges]


def random_recording(seed: int, num_slots: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Bursts of activity; counts as the memory makes them: births, growth, drops before confirmation only."""
    rng = np.random.default_rng(seed)
    num_frames = int(rng.integers(1, 150))
    hold = np.repeat(rng.random((num_frames, num_slots)), int(rng.integers(1, 8)), axis=0)[:num_frames]
    activity = np.clip(hold + rng.normal(0, 0.1, hold.shape), 0, 1).astype(np.float32)
    count = np.zeros_like(activity)
    for slot in range(num_slots):
        value = 8.0 if rng.random() < 0.2 else 0.0
        for frame in range(num_frames):
            if value == 0:
                value = float(rng.random() < 0.1) * 0.5
            elif value < 4 and rng.random() < 0.04:
                value = 0.0
            elif activity[frame, slot] > 0.5:
                value = min(8.0, value + float(rng.random() < 0.4))
            count[frame, slot] = value
    return activity, count


def random_config(seed: int) -> TurnConfig:
    rng = np.random.default_rng(seed)
    pad_frames = int(rng.integers(0, 3))
    return TurnConfig(
        onset=float(rng.choice([0.5, 0.7])),
        offset=float(rng.choice([0.0, 0.3, 0.5])),
        min_on_frames=int(rng.integers(1, 5)),
        min_off_frames=2 * pad_frames + int(rng.integers(0, 5)),
        pad_frames=pad_frames,
        confirm_frames=4,
        hold_frames=int(rng.choice([10, 40, PATIENT])),
        undivided=bool(rng.integers(2)),
    )


def plain_turns(config: TurnConfig, activity: np.ndarray, count: np.ndarray) -> set[frozenset[tuple[int, int]]]:
    """Turns of each speaker in padded frames, found by looking at whole slots; none is given up for order."""
    speakers, anybody = [], bool((count[-1] >= config.confirm_frames).any())
    for slot in range(activity.shape[1]):
        occupied = count[:, slot] > 0
        drops = np.flatnonzero(occupied[:-1] & ~occupied[1:])
        last = int(drops[-1]) + 2 if len(drops) else 0
        has_turns = count[-1, slot] >= (config.confirm_frames if anybody else 1e-9)
        found: list[list[int]] = []
        on = False
        for frame in range(last, len(activity)):
            on = bool(activity[frame, slot] >= (config.offset if on else config.onset))
            if on and found and frame - found[-1][1] <= max(config.min_off_frames - 1, 2 * config.pad_frames):
                found[-1][1] = frame + 1
            elif on:
                found.append([frame, frame + 1])
        silence = max(config.min_off_frames, 2 * config.pad_frames + 1)
        own = [
            (max(0, start - config.pad_frames), min(len(activity), end + config.pad_frames))
            for start, end in found
            if end - start >= config.min_on_frames and count[min(end + silence, len(count)) - 1, slot] > 0
        ]
        if has_turns and own:
            speakers.append(frozenset(own))
    return set(speakers)


def heard_by(config: TurnConfig, activity: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Frame by frame: where speech is undivided, the likeliest occupant has the activity of anybody."""
    activity = activity.copy()
    for heard, collected in zip(activity, count, strict=True):
        occupants = [slot for slot in range(len(heard)) if collected[slot] > 0]
        if config.undivided and occupants:
            silence = math.prod(1.0 - value for value in heard.tolist())
            heard[max(occupants, key=lambda slot: heard[slot])] = 1.0 - silence
    return activity


def by_speaker(found: list[Turn]) -> set[frozenset[tuple[int, int]]]:
    names = {turn.speaker for turn in found}
    return {frozenset(in_frames([turn for turn in found if turn.speaker == name])) for name in names}


def check_against_oracle(seeds: range) -> None:
    num_turns = 0
    for seed in seeds:
        config = replace(random_config(seed), hold_frames=PATIENT)
        activity, count = random_recording(seed)
        found = only_turns(listen(config, activity, count))
        assert by_speaker(found) == plain_turns(config, heard_by(config, activity, count), count), seed
        num_turns += len(found)
    assert num_turns > len(seeds)


def test_equals_an_oracle_that_sees_whole_slots() -> None:
    check_against_oracle(range(300))


def ignore_drops(self: runs.RunLedger, index: int, bits: int, frame: int) -> None:
    old = self._slots[index]
    original_change(self, index, bits, frame)
    if old.bits & ~bits & runs.OCCUPIED:
        self._slots[index] = old._replace(bits=bits, end=frame if old.start is not None else None)


original_change = runs.RunLedger.change


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(("change", ignore_drops), id="phantoms kept"),
        pytest.param(
            ("change", lambda self, index, bits, frame: original_change(self, index, bits, frame + 1)),
            id="shifted by a frame",
        ),
        pytest.param(("_announced", lambda self, slot, start: slot._replace(label=1, announced=True)), id="mute"),
    ],
)
def test_oracle_notices_mutants(mutant: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.RunLedger, *mutant)
    with pytest.raises(AssertionError):
        check_against_oracle(range(300))


def test_oracle_notices_an_ignored_pad(monkeypatch: pytest.MonkeyPatch) -> None:
    in_seconds = turns._in_seconds
    monkeypatch.setattr(turns, "_in_seconds", lambda config, *rest: in_seconds(replace(config, pad_frames=0), *rest))
    with pytest.raises(AssertionError):
        check_against_oracle(range(300))


@given(st.integers(0, 10**6), st.lists(st.integers(0, 150), max_size=8))
def test_any_partition_gives_the_same_events(seed: int, cuts: list[int]) -> None:
    config, (activity, count) = random_config(seed), random_recording(seed)
    whole = listen(config, activity, count)
    assert listen(config, activity, count, sorted(min(cut, len(activity)) for cut in cuts)) == whole
    assert listen(config, activity, count, list(range(1, len(activity)))) == whole


def test_state_is_the_same_after_any_partition_and_stays_a_value() -> None:
    activity, count = random_recording(3)
    config = random_config(3)
    _, whole = step(config, init_state(3), activity, count)
    _, half = step(config, init_state(3), activity[:40], count[:40])
    kept = hash(half)
    _, resumed = step(config, half, activity[40:], count[40:])
    assert resumed == whole
    assert finish(config, half, 40 * 1280) == finish(config, half, 40 * 1280)
    assert hash(half) == kept


def check_promises(config: TurnConfig, activity: np.ndarray, count: np.ndarray, num_samples: int) -> int:
    events = listen(config, activity, count, num_samples=num_samples)
    found, starts = only_turns(events), only_starts(events)
    assert [turn.end for turn in found] == sorted(turn.end for turn in found)
    assert all(0 <= turn.start < turn.end <= num_samples / 16000 for turn in found)
    assert all(float(format_turn(turn, "x").split()[4]) > 0 for turn in found)
    for speaker in {turn.speaker for turn in found}:
        own = sorted(turn for turn in found if turn.speaker == speaker)
        assert all(a.end < b.start for a, b in pairwise(own))
    for turn in found:
        assert events.index(TurnStart(turn.start, turn.speaker)) < events.index(turn)
    assert len({(start.time, start.speaker) for start in starts}) == len(starts)
    names = list(dict.fromkeys(start.speaker for start in starts))
    assert names == [f"speaker_{number}" for number in range(1, len(names) + 1)]
    return len(found)


@given(st.integers(0, 10**6), st.integers(0, 1279))
def test_turns_are_ordered_apart_inside_and_announced(seed: int, cut_samples: int) -> None:
    activity, count = random_recording(seed)
    check_promises(random_config(seed), activity, count, 1280 * len(activity) - cut_samples)


def test_promises_are_checked_on_turns_and_the_order_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = [(random_config(seed), *random_recording(seed)) for seed in range(100)]
    assert sum(check_promises(*r, num_samples=1280 * len(r[1])) for r in recordings) > 100
    monkeypatch.setattr(runs.RunLedger, "_pending_ends", lambda self: [])
    with pytest.raises(AssertionError):
        [check_promises(*r, num_samples=1280 * len(r[1])) for r in recordings]


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ("..##----..----..", [(2, 8)]),  # the lower threshold keeps open, but does not open
        ("..##..##........", [(2, 8)]),  # two silent frames are bridged
        ("..##...##.......", [(2, 4), (7, 9)]),  # three are not
        ("..#....##.......", [(7, 9)]),  # one frame is too short
        ("..#..#..........", [(2, 6)]),  # bridged first, then measured
        ("##............##", [(0, 2), (14, 16)]),
        ("................", []),
    ],
)
def test_hysteresis_bridges_and_shortest_runs(picture: str, expected: list[tuple[int, int]]) -> None:
    assert in_frames(only_turns(listen(PLAIN, *tracks(picture)))) == expected


def test_padding_moves_edges_inside_the_recording_and_never_makes_turns_touch() -> None:
    config = replace(PLAIN, min_off_frames=2, pad_frames=1)
    assert config.close_frames == 3
    found = only_turns(listen(config, *tracks("###..###...###...##.")))
    assert in_frames(found) == [(0, 9), (10, 15), (16, 20)]


def test_turns_end_where_the_recording_ends() -> None:
    activity, count = tracks("..####")
    (turn,) = only_turns(listen(replace(PLAIN, pad_frames=1), activity, count, num_samples=6 * 1280 - 1000))
    assert (turn.start, turn.end) == (0.08, (6 * 1280 - 1000) / 16000)


def test_a_rest_of_less_than_a_millisecond_is_no_turn() -> None:
    activity, count = tracks(".....#")
    config = replace(PLAIN, min_on_frames=1)
    assert len(only_turns(listen(config, activity, count, num_samples=5 * 1280 + 16))) == 1
    assert only_turns(listen(config, activity, count, num_samples=5 * 1280 + 15)) == []


def test_times_do_not_drift_in_ten_hours() -> None:
    activity, count = tracks("..##....")
    late = init_state(1)._replace(num_frames=450_000)
    events, _ = step(PLAIN, late, activity, count)
    assert events == [TurnStart(36000.16, "speaker_1"), Turn(36000.16, 36000.32, "speaker_1")]


def test_thresholds_of_zero_are_thresholds() -> None:
    config = replace(PLAIN, onset=0.5, offset=0.0)
    assert in_frames(only_turns(listen(config, *tracks("..#......")))) == [(2, 9)]


def test_nan_is_silence() -> None:
    activity, count = tracks("..####....")
    activity[3] = np.nan
    assert in_frames(only_turns(listen(PLAIN, activity, count))) == [(2, 6)]
    assert listen(PLAIN, np.full_like(activity, np.nan), count) == []


def test_a_phantom_leaves_nothing_and_its_slot_gets_the_next_label() -> None:
    activity, count = tracks("###....####....", "......####.....")
    count[:, 0] = [1, 2, 3, 3, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4, 4]
    count[:, 1] = 0
    assert listen(PLAIN, activity, count) == [
        TurnStart(7 * 1280 / 16000, "speaker_1"),
        Turn(7 * 1280 / 16000, 11 * 1280 / 16000, "speaker_1"),
    ]


def test_labels_are_never_used_again_when_a_slot_changes_hands() -> None:
    activity, count = tracks("####....####....")
    count[:, 0] = [4] * 7 + [0] + [4] * 8
    assert [turn.speaker for turn in only_turns(listen(PLAIN, activity, count))] == ["speaker_1", "speaker_2"]


def test_speech_in_a_free_slot_belongs_to_nobody() -> None:
    activity, count = tracks("###.......###....")
    count[:11] = 0
    assert in_frames(only_turns(listen(PLAIN, activity, count))) == [(10, 13)]


def test_a_newcomer_is_told_at_confirmation_and_a_monologue_when_it_starts() -> None:
    activity, count = tracks("#" * 40)
    count[:, 0] = np.minimum(np.arange(1, 41) * 0.5, 10)
    events, state = step(PLAIN, init_state(1), activity[:7], count[:7])
    assert events == []
    events, state = step(PLAIN, state, activity[7:8], count[7:8])
    assert events == [TurnStart(0.0, "speaker_1")]
    events, state = step(PLAIN, state, activity[8:], count[8:])
    assert events == []
    assert finish(PLAIN, state, 40 * 1280) == [Turn(0.0, 3.2, "speaker_1")]


def waiting_newcomer(confirmed_at: int, num_frames: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """A newcomer in slot 1 speaks first (frames 0-3), a confirmed speaker in slot 0 after that (4-8)."""
    activity, count = tracks("....####".ljust(num_frames, "."), "###".ljust(num_frames, "."))
    count[:, 1] = np.where(np.arange(num_frames) < confirmed_at, 3, 4)
    return activity, count


def test_a_final_turn_waits_for_an_earlier_end() -> None:
    activity, count = waiting_newcomer(confirmed_at=20)
    events, state = step(PLAIN, init_state(2), activity[:20], count[:20])
    assert only_turns(events) == []
    events, _ = step(PLAIN, state, activity[20:21], count[20:21])
    assert in_frames(only_turns(events)) == [(0, 3), (4, 8)]
    assert [turn.speaker for turn in only_turns(events)] == ["speaker_2", "speaker_1"]


def test_a_final_turn_waits_no_longer_than_agreed() -> None:
    config = replace(PLAIN, hold_frames=9)
    activity, count = waiting_newcomer(confirmed_at=20)
    events, state = step(config, init_state(2), activity[:16], count[:16])
    assert only_turns(events) == []
    events, state = step(config, state, activity[16:17], count[16:17])
    assert in_frames(only_turns(events)) == [(4, 8)]
    events, state = step(config, state, activity[17:], count[17:])
    assert events + finish(config, state, 40 * 1280) == []


def test_waiting_turns_are_bounded() -> None:
    activity, count = tracks("##..." * 500)
    count[:] = 1
    _, state = step(PLAIN, init_state(1), activity, count)
    assert len(state.slots[0].waiting) == runs.MAX_WAITING


def test_a_single_short_utterance_is_a_turn_although_nobody_was_confirmed() -> None:
    activity, count = tracks("..##..", "......")
    count[:] = np.minimum(np.cumsum(activity > 0.5, axis=0), 4)
    assert listen(PLAIN, activity, count) == [TurnStart(0.16, "speaker_1"), Turn(0.16, 0.32, "speaker_1")]
    assert listen(replace(PLAIN, min_on_frames=3), activity, count) == []


def test_the_unconfirmed_are_discarded_at_the_end_once_anybody_is_known() -> None:
    activity, count = tracks("####........", "........####")
    count[:, 1] = 3
    assert in_frames(only_turns(listen(PLAIN, activity, count))) == [(0, 4)]


def test_latency_is_what_is_measured() -> None:
    config = replace(PLAIN, pad_frames=1, min_off_frames=5)
    latency = decision_latency(config)
    activity, count = tracks("..####..........")
    told: dict[type, int] = {}
    state = init_state(1)
    for frame in range(16):
        events, state = step(config, state, activity[frame : frame + 1], count[frame : frame + 1])
        told |= {type(event): frame + 1 for event in events}
    assert told[TurnStart] - 2 == latency.start_frames
    assert told[Turn] - 6 == latency.end_frames
    assert latency == (2, 4, 5, config.hold_frames)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"onset": 0.3, "offset": 0.5}, "offset <= onset"),
        ({"onset": float("nan")}, "thresholds"),
        ({"min_on_frames": 0}, "min_on_frames must be at least 1"),
        ({"pad_frames": -1}, "pad_frames must be at least 0"),
        ({"min_off_frames": 3, "pad_frames": 2}, "min_off_frames >= 4 or pad_frames <= 1"),
        ({"confirm_frames": 0.0}, "confirm_frames must be above 0"),
        ({"min_off_frames": 6, "hold_frames": 5}, "hold_frames >= 6"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TurnConfig(**wrong)


def test_wrong_shapes_and_frames_beyond_the_end_are_refused() -> None:
    activity, count = tracks("####")
    with pytest.raises(ValueError, match=r"must both be \[frames, 2\]"):
        step(PLAIN, init_state(2), activity, count)
    with pytest.raises(ValueError, match=r"got \[4, 1\] and \[3, 1\]"):
        step(PLAIN, init_state(1), activity, count[:3])
    _, state = step(PLAIN, init_state(1), activity, count)
    with pytest.raises(ValueError, match="3840 samples cover 3 frames, but step was given 4"):
        finish(PLAIN, state, 3840)


@pytest.mark.parametrize("edges", [(1.0, 1.0), (2.0, 1.0), (-0.1, 1.0), (0.0, float("inf")), (float("nan"), 1.0)])
def test_a_turn_has_a_positive_length(edges: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="start < end"):
        Turn(*edges, "speaker_1")


def test_speech_split_between_a_voice_and_a_newcomer_is_the_voices_where_it_is_undivided() -> None:
    """Below the onset in each slot, above it in both together; a newcomer alone in the room is not there yet."""
    split = np.tile(np.array([0.45, 0.4], dtype=np.float32), (6, 1))
    known, nobody = np.tile(np.array([9, 0], dtype=np.float32), (6, 1)), np.zeros((6, 2), dtype=np.float32)
    undivided = replace(PLAIN, undivided=True)
    assert in_frames(only_turns(listen(undivided, split, known))) == [(0, 6)]
    assert only_turns(listen(undivided, split, nobody)) == []
    assert only_turns(listen(PLAIN, split, known)) == []
