"""Streams: bit-identical turns however the input is cut, state as a value, true ends, times, damage, rates."""

import math
import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import torch
from torch import Tensor

from diarnorm import stream as stream_module
from diarnorm import turns as turn_rules
from diarnorm.memory import MemoryOutput
from diarnorm.model import Model, ModelConfig, ModelState
from diarnorm.norms import NORMS
from diarnorm.resources import samples_dir
from diarnorm.rttm import read_rttm
from diarnorm.stream import Diarizer, Stream, StreamState
from diarnorm.timebase import FRAME_SAMPLES
from diarnorm.turns import Event, Turn, TurnStart
from tests.tiny import ENCODER, MEMORY, QUICK_TURNS, make_checkpoint, tensors_of, two_voices

CHUNK = 4
CHUNK_SAMPLES = CHUNK * FRAME_SAMPLES
FRAME_S = 0.08


@pytest.fixture
def diarizer() -> Diarizer:
    """A tiny model that hears several speakers."""
    return Diarizer(make_checkpoint(talkative=True))


@pytest.fixture(scope="module")
def shipped() -> Diarizer:
    """The shipped model."""
    return Diarizer.from_pretrained()


def events_of(stream: Stream, blocks: list[np.ndarray]) -> list[Event]:
    """Everything that the stream tells, to the end."""
    events = []
    for block in blocks:
        turns = stream.push(block)
        assert turns == [event for event in stream.events if isinstance(event, Turn)]
        events += stream.events
    stream.finish()
    return events + stream.events


def turns_in(events: list[Event]) -> list[Turn]:
    return [event for event in events if isinstance(event, Turn)]


def cut(samples: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Blocks of these sizes, again and again, to the end of the samples."""
    blocks, at = [], 0
    while at < len(samples):
        size = sizes[len(blocks) % len(sizes)]
        blocks.append(samples[at : at + size])
        at += size
    return blocks


def random_sizes(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 5001, 100).tolist()


# ---- the same turns however the input comes ---------------------------------------------------------------

CUTS = {
    "hop by hop": [160],
    "odd": [7777],
    "one sample, then none": [1, 0, 5000],
    "chunks": [CHUNK_SAMPLES],
    **{f"random {seed}": random_sizes(seed) for seed in range(4)},
}


@pytest.mark.parametrize("norm", NORMS)
def test_turns_do_not_depend_on_the_blocks(norm: str) -> None:
    diarizer, samples = Diarizer(make_checkpoint(norm, talkative=True)), two_voices(8 * 16_000 + 77)
    whole = events_of(diarizer.stream(), [samples])
    assert len(turns_in(whole)) > 10
    assert len({turn.speaker for turn in turns_in(whole)}) >= 2
    for name, sizes in CUTS.items():
        assert events_of(diarizer.stream(), cut(samples, sizes)) == whole, name


def test_samples_one_by_one(diarizer: Diarizer) -> None:
    samples = two_voices(2 * CHUNK_SAMPLES + 333)
    assert events_of(diarizer.stream(), cut(samples, [1])) == events_of(diarizer.stream(), [samples])


def test_turns_do_not_depend_on_the_number_of_threads(diarizer: Diarizer) -> None:
    samples, before, found = two_voices(2 * 16_000), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(events_of(diarizer.stream(), [samples]))
    finally:
        torch.set_num_threads(before)
    assert turns_in(found[0])
    assert found[1] == found[0]


def test_turns_are_those_of_one_big_step(diarizer: Diarizer) -> None:
    samples = two_voices()
    whole = len(samples) // CHUNK_SAMPLES * CHUNK_SAMPLES
    with torch.inference_mode():
        output, _ = diarizer.model(torch.from_numpy(samples[:whole])[None], chunk=CHUNK)
    activity, count = output.activity[0].numpy(), output.count[0].numpy()
    config = diarizer.turn_config
    events, state = turn_rules.step(config, turn_rules.init_state(MEMORY.num_slots), activity, count)
    events += turn_rules.finish(config, state, whole)
    found = events_of(diarizer.stream(), cut(samples[:whole], random_sizes(9)))
    assert len(turns_in(events)) > 20
    assert found == events


class LossyStream(Stream):
    """Mutant: what does not fill a chunk is thrown away."""

    def _take(self, samples: np.ndarray) -> list[Event]:
        events = super()._take(samples)
        self._state = self._state._replace(pending=np.zeros(0, np.float32))
        return events


class ImpatientStream(Stream):
    """Mutant: a block is not waited for but filled up with the next best thing."""

    def _take(self, samples: np.ndarray) -> list[Event]:
        return super()._take(np.pad(samples, (0, -len(samples) % CHUNK_SAMPLES)))


@pytest.mark.parametrize("mutant", [LossyStream, ImpatientStream])
def test_check_of_blocks_notices_the_mutants(diarizer: Diarizer, mutant: type[Stream]) -> None:
    samples = two_voices(4 * 16_000)
    options = {"chunk": CHUNK, "num_slots": 4, "channel": None, "state": None}
    broken = (mutant(diarizer, 16_000, **options) for _ in range(2))
    found, whole = events_of(next(broken), cut(samples, [7777])), events_of(next(broken), [samples])
    assert found != whole


def test_types_and_shapes_of_the_same_samples_give_the_same(diarizer: Diarizer) -> None:
    samples = two_voices(4 * 16_000)
    expected = events_of(diarizer.stream(), [samples])
    assert turns_in(expected)
    pcm = np.round(samples * 32768).astype(np.int16)
    left_only = np.stack([samples, np.zeros_like(samples)], axis=1)
    for block in (pcm, pcm[:, None], samples[:, None], np.stack([samples, samples], axis=1)):
        assert events_of(diarizer.stream(), [block]) == expected
    assert events_of(diarizer.stream(channel=0), [left_only]) == expected
    assert not turns_in(events_of(Diarizer(oracle()).stream(channel=1), [left_only]))


def test_stream_leaves_the_blocks_alone(diarizer: Diarizer) -> None:
    samples = two_voices(4 * 16_000)
    kept = samples.copy()
    first = events_of(diarizer.stream(), [samples])
    buffer, stream, events = np.zeros(1000, np.float32), diarizer.stream(), []
    for block in cut(kept, [1000]):  # a caller who fills the same buffer again and again
        buffer[: len(block)] = block
        stream.push(buffer[: len(block)])
        events += stream.events
        buffer[:] = np.nan
    stream.finish()
    assert np.array_equal(samples, kept)
    assert events + stream.events == first


# ---- the state is a value ---------------------------------------------------------------------------------


def resumed(diarizer: Diarizer, samples: np.ndarray, at: int, through=lambda state: state) -> list[Event]:
    """Events of a stream that is given up after `at` samples, and of one that goes on from its state."""
    before = diarizer.stream()
    before.push(samples[:at])
    events, state = before.events, through(before.state)
    del before
    return events + events_of(diarizer.stream(state=state), [samples[at:]])


@pytest.mark.parametrize("at", [0, 1, CHUNK_SAMPLES - 1, CHUNK_SAMPLES, 30_001, 8 * 16_000])
def test_a_resumed_stream_goes_on(diarizer: Diarizer, at: int) -> None:
    samples = two_voices(8 * 16_000)
    whole = events_of(diarizer.stream(), [samples])
    assert len(turns_in(whole)) > 10
    assert resumed(diarizer, samples, at) == whole
    assert resumed(diarizer, samples, at, lambda state: pickle.loads(pickle.dumps(state))) == whole


def forgotten(field: str):
    """A way of keeping the state in which one part is lost."""

    def lose(state: StreamState) -> StreamState:
        fresh = Diarizer(make_checkpoint(talkative=True)).stream().state
        return state._replace(**{field: getattr(fresh, field)})

    return lose


@pytest.mark.parametrize("field", ["pending", "model", "turns", "num_samples"])
def test_check_of_resuming_notices_what_is_lost(diarizer: Diarizer, field: str) -> None:
    samples = two_voices(8 * 16_000)
    whole = events_of(diarizer.stream(), [samples])
    try:
        found = resumed(diarizer, samples, 30_001, forgotten(field))
    except ValueError:
        return
    assert found != whole


def test_a_fork_leaves_the_other_branch_alone(diarizer: Diarizer) -> None:
    samples, other = two_voices(8 * 16_000), two_voices()[8 * 16_000 :]
    stream = diarizer.stream()
    stream.push(samples[:50_000])
    fork, heard = stream.state, stream.events
    kept = pickle.dumps(fork)
    branch = events_of(diarizer.stream(state=fork), [other])
    for block in cut(samples[50_000:], [4000]):
        stream.push(block)
        heard = heard + stream.events
    stream.finish()
    assert heard + stream.events == events_of(diarizer.stream(), [samples])
    assert pickle.dumps(fork) == kept
    assert events_of(diarizer.stream(state=fork), [other]) == branch


def test_state_stays_small(diarizer: Diarizer) -> None:
    def num_bytes(stream: Stream) -> int:
        return sum(t.untyped_storage().nbytes() for t in tensors_of(stream.state.model))

    stream, sizes = diarizer.stream(), []
    first = num_bytes(stream)
    for _ in range(4):
        stream.push(two_voices(CHUNK_SAMPLES * 40))
        assert num_bytes(stream) == first
        sizes.append(len(pickle.dumps(stream.state)))
    assert max(sizes) < 1.1 * min(sizes)


def test_state_of_the_default_model_is_below_two_megabytes() -> None:
    checkpoint = replace(make_checkpoint(), model=Model().eval(), chunk=12)
    stream = Diarizer(checkpoint).stream(max_speakers=8)
    stream.push(two_voices(3 * 12 * FRAME_SAMPLES - 1))
    assert len(pickle.dumps(stream.state)) < 2_000_000


# ---- an oracle: energy is activity, so times are known ----------------------------------------------------


class EnergyModel(Model):
    """Stands in for a trained model: frames louder than -40 dBFS are the only speaker's, confirmed at once."""

    def forward(
        self, samples: Tensor, state: ModelState | None = None, num_valid: Tensor | None = None, *, chunk: int
    ) -> tuple[MemoryOutput, ModelState]:
        assert state is not None
        slots = state.memory.count.shape[1] - 1
        loud = samples.unflatten(1, (-1, FRAME_SAMPLES)).square().mean(dim=-1) > 1e-4
        activity = torch.zeros(1, chunk, slots)
        activity[0, :, 0] = loud[0].float()
        overflow = (samples.unflatten(1, (-1, FRAME_SAMPLES)).amax(dim=-1) > 2).float()
        return MemoryOutput(activity, torch.full_like(activity, 50.0), activity, overflow), state


def oracle(chunk: int = CHUNK, **rules: int):
    """A checkpoint of an `EnergyModel`."""
    model = EnergyModel(ModelConfig(encoder=ENCODER, memory=MEMORY)).eval()
    return replace(make_checkpoint(), model=model, turns=replace(QUICK_TURNS, **rules), chunk=chunk)


def bursts(num_samples: int, *spans_s: tuple[float, float], rate: int = 16_000) -> np.ndarray:
    """A tone of -9 dBFS within these times, digital silence elsewhere."""
    time = np.arange(num_samples) / rate
    inside = np.any([(time >= start) & (time < end) for start, end in spans_s], axis=0)
    return (0.5 * np.sin(2 * np.pi * 440 * time) * inside).astype(np.float32)


def spans(turns: list[Turn]) -> list[tuple[float, float]]:
    return [(turn.start, turn.end) for turn in turns]


@pytest.mark.parametrize("chunk", [1, 4, 12, 25])
def test_a_burst_is_where_it_is(chunk: int) -> None:
    samples = bursts(160_000, (2.4, 3.2), (5.12, 6.08))
    found = turns_in(events_of(Diarizer(oracle(chunk)).stream(), cut(samples, [1000])))
    assert spans(found) == [(2.4, 3.2), (5.12, 6.08)]


@pytest.mark.parametrize("chunk", [1, 4, 12])
@pytest.mark.parametrize("num_chunks", [1, 3])
def test_silence_in_front_shifts_turns_by_its_length(chunk: int, num_chunks: int) -> None:
    samples, shift = bursts(160_000, (2.4, 3.2), (5.12, 6.08)), num_chunks * chunk * FRAME_SAMPLES
    diarizer = Diarizer(oracle(chunk))
    found = turns_in(events_of(diarizer.stream(), [np.zeros(shift, np.float32), samples]))
    expected = turns_in(events_of(diarizer.stream(), [samples]))
    np.testing.assert_allclose(spans(found), np.array(spans(expected)) + shift / 16_000, rtol=0, atol=1e-9)


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_times_are_those_of_the_input_at_any_rate(rate: int) -> None:
    samples = bursts(10 * rate, (2.4, 3.2), (5.12, 6.08), rate=rate)
    stream = Diarizer(oracle()).stream(rate)
    found = turns_in(events_of(stream, cut(samples, [rate // 10])))
    np.testing.assert_allclose(spans(found), [(2.4, 3.2), (5.12, 6.08)], atol=FRAME_S + 1e-9)
    assert stream.duration_s == 10.0
    notes = [note for note in stream.warnings if "resampled" in note]
    assert len(notes) == (rate != 16_000)
    assert all(str(rate) in note and "16000" in note for note in notes)


@pytest.mark.parametrize("rate", [8_000, 44_100, 48_000])
def test_turns_of_a_resampled_recording_are_nearly_the_same(rate: int) -> None:
    source = two_voices()
    samples = soxr.resample(source, 16_000, rate).astype(np.float32)
    diarizer = Diarizer(oracle())
    expected = spans(turns_in(events_of(diarizer.stream(), [source])))
    found = spans(turns_in(events_of(diarizer.stream(rate), cut(samples, [rate // 7]))))
    assert len(found) == len(expected) > 5
    np.testing.assert_allclose(found, expected, atol=FRAME_S + 1e-9)


@pytest.mark.parametrize("chunk", [1, 4, 12])
@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_turns_come_within_the_printed_latency(chunk: int, rate: int) -> None:
    """News of a start comes no later after it than both latencies say, and once nearly that late."""
    worst, stream = 0.0, Diarizer(oracle(chunk)).stream(rate)
    allowed_s = stream.latency_s + stream.decision_latency.start_frames * FRAME_S
    for offset in range(chunk):
        onset_s = 2.4 + offset * FRAME_S
        stream = Diarizer(oracle(chunk)).stream(rate)
        for block in cut(bursts(8 * rate, (onset_s, onset_s + 1), rate=rate), [rate // 100]):
            stream.push(block)
            if any(isinstance(event, TurnStart) for event in stream.events):
                break
        worst = max(worst, stream.duration_s - onset_s)
    assert worst <= allowed_s + 0.01
    assert worst > (chunk - 1) * FRAME_S


def test_latency_is_the_chunk_and_the_resampler() -> None:
    diarizer = Diarizer(make_checkpoint())
    assert diarizer.stream().latency_s == 0.32
    assert diarizer.stream(chunk_ms=960).latency_s == 0.96
    assert 0.97 < diarizer.stream(44_100, chunk_ms=960).latency_s < 1.01


# ---- the end ----------------------------------------------------------------------------------------------

REMAINDERS = (0, 1, 159, 160, 1599, CHUNK_SAMPLES - 1, CHUNK_SAMPLES, CHUNK_SAMPLES + 1)


@pytest.mark.parametrize("chunk", [1, 4, 12])
@pytest.mark.parametrize("remainder", REMAINDERS)
def test_the_last_turn_ends_at_the_true_end(chunk: int, remainder: int) -> None:
    length = 112 * FRAME_SAMPLES + remainder
    samples = bursts(length, (8.0, 99.0))
    stream = Diarizer(oracle(chunk)).stream()
    turns = turns_in(events_of(stream, [samples]))
    num_frames = math.ceil(length // 160 / 8)
    assert stream.state.turns.num_frames == num_frames
    assert spans(turns) == [(8.0, min(length, num_frames * FRAME_SAMPLES) / 16_000)]
    assert length / 16_000 - turns[-1].end < 0.01


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_silence_after_the_end_changes_nothing_before(remainder: int) -> None:
    samples = bursts(112 * FRAME_SAMPLES + remainder, (1.6, 3.2), (8.0, 8.48))
    longer = np.concatenate([samples, np.zeros(80_000, np.float32)])
    diarizer = Diarizer(oracle())
    assert events_of(diarizer.stream(), [longer]) == events_of(diarizer.stream(), [samples])


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_real_model_ends_there_too(diarizer: Diarizer, remainder: int) -> None:
    samples = two_voices()[32_000 : 32_000 + 56 * FRAME_SAMPLES + remainder]
    stream = diarizer.stream()
    turns = turns_in(events_of(stream, cut(samples, [3000])))
    assert stream.state.turns.num_frames == math.ceil(len(samples) // 160 / 8)
    assert turns
    assert all(0 <= turn.start < turn.end <= len(samples) / 16_000 for turn in turns)


@pytest.mark.parametrize("length", [0, 1, 2, 159, 160, 161, 399, 400, 401, 559, 560, 561])
def test_tiny_recordings(diarizer: Diarizer, length: int) -> None:
    for model in (diarizer, Diarizer(oracle())):
        stream = model.stream()
        turns = turns_in(events_of(stream, [0.5 * np.sign(two_voices(length)) + np.float32(0.25)]))
        assert stream.state.turns.num_frames == math.ceil(length // 160 / 8)
        assert all(0 <= turn.start < turn.end <= length / 16_000 for turn in turns)
        assert stream.duration_s == length / 16_000


def test_turns_are_in_order_and_announced(diarizer: Diarizer) -> None:
    events = events_of(diarizer.stream(), cut(two_voices(), [4000]))
    ends = [turn.end for turn in turns_in(events)]
    assert ends == sorted(ends)
    starts = [(event.time, event.speaker) for event in events if isinstance(event, TurnStart)]
    assert sorted(starts) == sorted((turn.start, turn.speaker) for turn in turns_in(events))
    for turn in turns_in(events):
        assert events.index(TurnStart(turn.start, turn.speaker)) < events.index(turn)
    firsts = list(dict.fromkeys(speaker for _, speaker in starts))
    assert firsts == [f"speaker_{i + 1}" for i in range(len(firsts))]


# ---- damage, capacity, options ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_damaged_samples_count_as_silence_and_are_reported(diarizer: Diarizer, bad: float) -> None:
    samples = two_voices(8 * 16_000)
    samples[20_000:20_050] = 0.0
    damaged = samples.copy()
    damaged[20_000:20_050] = bad
    stream = diarizer.stream()
    assert events_of(stream, cut(damaged, [5000])) == events_of(diarizer.stream(), [samples])
    assert all(tensor.float().isfinite().all() for tensor in tensors_of(stream.state.model))
    assert any("50" in note and "1.250 s" in note for note in stream.warnings)


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(48_000, np.float32),
        np.full(48_000, 0.3, np.float32),
        (np.random.default_rng(0).integers(-1, 2, 48_000) / 32768).astype(np.float32),
        np.where(np.arange(48_000) % 100 < 50, 1.0, -1.0).astype(np.float32),
        (50 * np.sin(np.arange(48_000) / 3)).astype(np.float32),
    ],
    ids=["zeros", "offset", "one step noise", "full scale", "beyond full scale"],
)
@pytest.mark.parametrize("frontend", ["none", "ema", "frame", "pcen"])
def test_strange_signals_stay_finite(samples: np.ndarray, frontend: str) -> None:
    diarizer = Diarizer(make_checkpoint(frontend=frontend, talkative=True))
    stream = diarizer.stream()
    turns = turns_in(events_of(stream, cut(samples, [16_000])))
    assert all(0 <= turn.start < turn.end <= 3.0 for turn in turns)
    assert all(tensor.float().isfinite().all() for tensor in tensors_of(stream.state.model))


@pytest.mark.parametrize("max_speakers", [1, 2, 3])
def test_no_more_labels_than_asked_for(diarizer: Diarizer, max_speakers: int) -> None:
    turns = turns_in(events_of(diarizer.stream(max_speakers=max_speakers), [two_voices()]))
    free = turns_in(events_of(diarizer.stream(), [two_voices()]))
    assert len({turn.speaker for turn in free}) > 3
    assert len({turn.speaker for turn in turns}) == max_speakers


def test_capacity_is_warned_of() -> None:
    stream = Diarizer(oracle()).stream(max_speakers=3)
    events_of(stream, [3 * np.ones(12 * FRAME_SAMPLES - 1, np.float32)])
    assert any("speaker capacity reached: 1.0 s of voices beyond 3" in note for note in stream.warnings)
    stream = Diarizer(oracle()).stream()
    events_of(stream, [bursts(160_000, (2.4, 3.2))])
    assert not any("capacity" in note for note in stream.warnings)


def test_impossible_options_are_refused(diarizer: Diarizer) -> None:
    for chunk_ms, message in ((100, "give 80 or 160"), (0, "multiple of 80 ms"), (-80, "multiple of 80 ms")):
        with pytest.raises(ValueError, match=message):
            diarizer.stream(chunk_ms=chunk_ms)
    for slots in (0, -1, 65):
        with pytest.raises(ValueError, match=f"max_speakers={slots} is out of range"):
            diarizer.stream(max_speakers=slots)
    with pytest.raises(ValueError, match="sample rate 1 Hz"):
        diarizer.stream(1)
    with pytest.raises(ValueError, match="device=warp cannot be used here"):
        Diarizer(make_checkpoint(), device="warp")


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk_ms": "80"}, "chunk_ms='80' is not a whole number"),
        ({"chunk_ms": 80.0}, "chunk_ms=80.0 is not a whole number"),
        ({"max_speakers": 2.5}, "max_speakers=2.5 is not a whole number"),
        ({"max_speakers": "2"}, "max_speakers='2' is not a whole number"),
        ({"channel": "L"}, "channel 'L'; channels are whole numbers"),
        ({"channel": 0.5}, "channel 0.5; channels are whole numbers"),
        ({"state": "x"}, "state is a str; what `Stream.state` gave is needed"),
    ],
)
def test_options_of_other_types_are_refused(diarizer: Diarizer, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        diarizer.stream(**options)


def test_options_may_be_numpys_whole_numbers(diarizer: Diarizer) -> None:
    stream = diarizer.stream(chunk_ms=np.int64(160), max_speakers=np.int64(2), channel=np.int64(0))  # pyright: ignore
    assert (stream.latency_s, stream.max_speakers) == (0.16, 2)


def test_state_belongs_to_16_khz_and_its_options(diarizer: Diarizer) -> None:
    with pytest.raises(ValueError, match="state of a resampled stream cannot be kept"):
        _ = diarizer.stream(44_100).state
    with pytest.raises(ValueError, match="goes on at 16000 Hz, not 8000 Hz"):
        diarizer.stream(8_000, state=diarizer.stream().state)
    with pytest.raises(ValueError, match="saved state is of a stream with max_speakers=4, not 2"):
        diarizer.stream(max_speakers=2, state=diarizer.stream().state)
    wider = Model(ModelConfig(encoder=replace(ENCODER, left_context=12), memory=MEMORY)).eval()
    with pytest.raises(ValueError, match="saved state is of another model, with other sizes"):
        Diarizer(replace(make_checkpoint(), model=wider)).stream(state=diarizer.stream().state)


def test_a_state_goes_where_the_model_is(diarizer: Diarizer) -> None:
    state = diarizer.stream().state
    same = diarizer.stream(state=state).state
    assert all(a is b for a, b in zip(tensors_of(same.model), tensors_of(state.model), strict=True))
    diarizer.device = torch.device("meta")
    assert all(tensor.is_meta for tensor in tensors_of(diarizer.stream(state=state).state.model))
    assert not any(tensor.is_meta for tensor in tensors_of(state.model))


def test_a_checkpoint_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = make_checkpoint()
    assert Diarizer(checkpoint).model is checkpoint.model
    monkeypatch.setattr(stream_module, "find_device", torch.device)
    moved = Diarizer(checkpoint, device="meta")
    assert {tensor.device.type for tensor in checkpoint.model.state_dict().values()} == {"cpu"}
    for model in (moved.model, moved.checkpoint.model):
        assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}


def test_a_finished_stream_takes_nothing_more(diarizer: Diarizer) -> None:
    stream = diarizer.stream()
    stream.finish()
    with pytest.raises(ValueError, match="finished"):
        stream.push(np.zeros(10, np.float32))
    with pytest.raises(ValueError, match="finished"):
        stream.finish()


@pytest.mark.unchecked
def test_blocks_of_other_types_are_refused(diarizer: Diarizer) -> None:
    for block in (np.zeros(10), np.zeros(10, np.int32), np.zeros((2, 3, 4), np.float32)):
        with pytest.raises(ValueError, match="is needed"):
            diarizer.stream().push(block)


# ---- whole recordings -------------------------------------------------------------------------------------


def test_a_file_gives_an_annotation(diarizer: Diarizer, tmp_path: Path) -> None:
    path = tmp_path / "zwei Stimmen-日本.wav"
    soundfile.write(path, two_voices(), 16_000, subtype="PCM_16")
    annotation = diarizer(path)
    found = sorted((track[0].start, track[0].end, track[-1]) for track in annotation.itertracks(yield_label=True))
    expected = sorted((t.start, t.end, t.speaker) for t in turns_in(events_of(diarizer.stream(), [two_voices()])))
    assert annotation.uri == "zwei Stimmen-日本"
    assert found == expected


def test_what_is_odd_about_a_file_is_said(diarizer: Diarizer, tmp_path: Path) -> None:
    path, quarter = tmp_path / "cut.wav", len(two_voices()) // 2
    soundfile.write(path, np.stack([two_voices(), -two_voices()], axis=1), 44_100, subtype="PCM_16")
    path.write_bytes(path.read_bytes()[:-quarter])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        diarizer(path)
    notes = [str(warning.message) for warning in told]
    assert all(note.startswith(f"{path}: ") for note in notes)
    assert [any(word in note for note in notes) for word in ("header promises", "cancel", "resampled")] == [
        True,
        True,
        False,
    ]


def test_an_ordinary_file_of_another_rate_warns_of_nothing(diarizer: Diarizer, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", two_voices(32_000), 8_000, subtype="PCM_16")
    diarizer(tmp_path / "a.wav")  # warnings are errors here


def test_feed_gives_turns_as_they_become_final(diarizer: Diarizer) -> None:
    stream, received = diarizer.stream(), []

    def blocks():
        for block in cut(two_voices(), [16_000]):
            received.append(len(block))
            yield block

    turns = stream.feed(blocks())
    first = next(iter(turns))
    assert len(received) < 10
    assert [first, *turns] == turns_in(events_of(diarizer.stream(), [two_voices()]))


@pytest.mark.parametrize("name", ["meeting", "phone_call"])
def test_shipped_model_on_a_sample(shipped: Diarizer, name: str) -> None:
    samples, _ = soundfile.read(samples_dir() / f"{name}.flac", dtype="float32", frames=20 * 16_000)
    whole = events_of(shipped.stream(), [samples])
    assert turns_in(whole)
    assert events_of(shipped.stream(), cut(samples, random_sizes(0))) == whole
    assert resumed(shipped, samples, 100_001, lambda state: pickle.loads(pickle.dumps(state))) == whole


def test_shipped_model_after_silence(shipped: Diarizer) -> None:
    """Silence before a recording takes nothing from it: turns begin where the reference has them."""
    samples, _ = soundfile.read(samples_dir() / "meeting.flac", dtype="float32", frames=20 * 16_000)
    chunk = shipped.checkpoint.chunk * FRAME_SAMPLES
    true_starts = [turn.start for turn in read_rttm(samples_dir() / "meeting.rttm")["meeting"]][:3]
    late = turns_in(events_of(shipped.stream(), [np.zeros(10 * chunk, np.float32), samples]))
    starts = [turn.start - 10 * chunk / 16_000 for turn in late[:3]]
    assert starts == pytest.approx(true_starts, abs=FRAME_S)
    early = turns_in(events_of(shipped.stream(), [samples]))
    assert late[-1].end == pytest.approx(early[-1].end + 10 * chunk / 16_000, abs=2 * FRAME_S)
