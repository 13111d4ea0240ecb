"""Live diarization: push samples, get turns.

`Stream` is the one mutable object of the package. It re-blocks samples into chunks, holds the state, and yields turns;
everything below it is pure. It always feeds whole chunks, so turns are bit-identical however the input is cut.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float32
from torch.utils import _pytree as pytree

from diarnorm import turns as turn_rules
from diarnorm.audio.mono import Block, Mono16k
from diarnorm.audio.reader import open_audio
from diarnorm.checkpoint import Checkpoint, load_checkpoint
from diarnorm.model import Model, ModelState
from diarnorm.resources import find_model
from diarnorm.timebase import (
    FRAME_SAMPLES,
    HOP_SAMPLES,
    MELS_PER_FRAME,
    SAMPLE_RATE,
    chunk_frames,
    samples_to_seconds,
)
from diarnorm.turns import (
    DecisionLatency,
    Event,
    Turn,
    TurnConfig,
    TurnState,
    check_max_speakers,
    decision_latency,
)

if TYPE_CHECKING:
    from pyannote.core import Annotation

CAPACITY_FRAMES = 12
"""Frames with a speaker for whom no slot is free (1 s) after which the user is told."""


class StreamState(NamedTuple):
    """All that a stream at 16 kHz remembers: a value that can be kept, pickled, and continued any number of times."""

    pending: Float32[np.ndarray, " samples"]
    model: ModelState
    turns: TurnState
    num_samples: int
    overflow_frames: int


class Diarizer:
    """A model ready to use. Holds no audio: every recording gets a `Stream` of its own. The checkpoint that it is made
    of stays on its device."""

    def __init__(self, checkpoint: Checkpoint, *, device: str = "cpu") -> None:
        self.device = find_device(device)
        elsewhere = any(tensor.device != self.device for tensor in checkpoint.model.state_dict().values())
        self.model: Model = deepcopy(checkpoint.model).to(self.device) if elsewhere else checkpoint.model
        self.checkpoint = replace(checkpoint, model=self.model)
        self.turn_config: TurnConfig = checkpoint.model.config.memory.turn_rules(checkpoint.turns)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path | None = None, *, device: str = "cpu", norm: str | None = None
    ) -> Diarizer:
        """A shipped model by name (`rms` when None), or a model file by path. Nothing is downloaded.

        Raises:
            ValueError: no such model, a file that is not one, trained with another norm than the `norm` asked for, or
                a device that is not there.
        """
        return cls(load_checkpoint(find_model(name_or_path), norm=norm), device=device)

    def stream(
        self,
        sample_rate: int = SAMPLE_RATE,
        *,
        chunk_ms: int | None = None,
        max_speakers: int | None = None,
        channel: int | None = None,
        state: StreamState | None = None,
    ) -> Stream:
        """A new stream of audio at `sample_rate` Hz, or one that goes on from `state` (16 kHz, same model and options).

        `chunk_ms`, a multiple of 80, is the unit of latency. `max_speakers` labels are given at most.

        Raises:
            ValueError: an option out of range, or a state of other options or of a model with other sizes.
        """
        chunk = self.checkpoint.chunk if chunk_ms is None else chunk_frames(chunk_ms)
        slots = self.model.config.memory.num_slots if max_speakers is None else max_speakers
        check_max_speakers(slots)
        return Stream(self, sample_rate, chunk=chunk, num_slots=slots, channel=channel, state=state)

    def __call__(
        self,
        path: str | Path,
        *,
        chunk_ms: int | None = None,
        max_speakers: int | None = None,
        channel: int | None = None,
    ) -> Annotation:
        """Turns of a whole recording, as pyannote's `Annotation`. Warns of what is odd about it.

        Raises:
            ValueError: an option out of range, or a file that cannot be read as audio.
        """
        from pyannote.core import Annotation, Segment

        annotation = Annotation(uri=Path(path).stem)
        with open_audio(str(path)) as reader:
            stream = self.stream(reader.sample_rate, chunk_ms=chunk_ms, max_speakers=max_speakers, channel=channel)
            ordinary = stream.warnings  # says at which rate the file is
            for turn in stream.feed(reader):
                annotation[Segment(turn.start, turn.end), turn.speaker] = turn.speaker
        for note in (*reader.warnings, *stream.warnings):
            if note not in ordinary:
                warnings.warn(f"{path}: {note}", stacklevel=2)
        return annotation


class Stream:
    """One recording as it arrives.

    `events` holds what the last call settled, `TurnStart`s included; `warnings` what a user should know.
    """

    def __init__(
        self,
        diarizer: Diarizer,
        sample_rate: int,
        *,
        chunk: int,
        num_slots: int,
        channel: int | None,
        state: StreamState | None,
    ) -> None:
        if state is not None and not isinstance(state, StreamState):
            raise ValueError(f"state is a {type(state).__name__}; what `Stream.state` gave is needed")
        if state is not None and sample_rate != SAMPLE_RATE:
            raise ValueError(f"a saved state goes on at {SAMPLE_RATE} Hz, not {sample_rate} Hz: resample first")
        if state is not None and len(state.turns.slots) != num_slots:
            slots = len(state.turns.slots)
            raise ValueError(f"the saved state is of a stream with max_speakers={slots}, not {num_slots}: give {slots}")
        self._diarizer, self._chunk, self._num_slots = diarizer, chunk, num_slots
        self._input = Mono16k(sample_rate, channel)
        self._state = self._fresh_state() if state is None else self._moved(state)
        self.events: list[Event] = []

    def _fresh_state(self) -> StreamState:
        model = self._diarizer.model.init_state(1, self._num_slots)
        return StreamState(np.zeros(0, np.float32), model, turn_rules.init_state(self._num_slots), 0, 0)

    def _moved(self, state: StreamState) -> StreamState:
        """A saved state on the model's device, which may not be the one that it was saved on."""
        fresh = pytree.tree_leaves(self._fresh_state().model)
        if [leaf.shape for leaf in pytree.tree_leaves(state.model)] != [leaf.shape for leaf in fresh]:
            raise ValueError(
                "the saved state is of another model, with other sizes: load the model that it was saved of"
            )
        device = self._diarizer.device
        return state._replace(model=pytree.tree_map(lambda leaf: leaf.to(device), state.model))

    @property
    def state(self) -> StreamState:
        """The stream so far, as a value, for any device.

        Raises:
            ValueError: the input is not at 16 kHz, so part of the state is inside the resampler.
        """
        if self._input.delay_samples:
            raise ValueError(f"the state of a resampled stream cannot be kept: resample to {SAMPLE_RATE} Hz first")
        return self._state

    @property
    def max_speakers(self) -> int:
        """Labels that are given at most."""
        return self._num_slots

    @property
    def latency_s(self) -> float:
        """Activity latency: one chunk and the resampler."""
        return samples_to_seconds(self._chunk * FRAME_SAMPLES + self._input.delay_samples)

    @property
    def decision_latency(self) -> DecisionLatency:
        """What confirmation and hysteresis add to it, in frames."""
        return decision_latency(self._diarizer.turn_config)

    @property
    def duration_s(self) -> float:
        """Audio received, in seconds."""
        return samples_to_seconds(self._state.num_samples)

    @property
    def warnings(self) -> list[str]:
        """Sentences about the input and the speakers; complete after `finish`."""
        notes = list(self._input.warnings)
        if self._state.overflow_frames >= CAPACITY_FRAMES:
            seconds = samples_to_seconds(self._state.overflow_frames * FRAME_SAMPLES)
            notes.append(f"speaker capacity reached: {seconds:.1f} s of voices beyond {self._num_slots} got no label")
        return notes

    def push(self, block: Block) -> list[Turn]:
        """Take a block of samples, `[n]` or `[n, channels]`, float32 in [-1, 1] or int16; give the turns now final.

        Raises:
            ValueError: another type or shape, or the stream is finished.
        """
        return self._give(self._take(self._input.push(block)))

    def finish(self) -> list[Turn]:
        """The end of the recording: give all turns that are left, clipped to its true end.

        Raises:
            ValueError: called twice.
        """
        events = self._take(self._input.finish())
        rest = self._state.pending
        num_frames = -(-(len(rest) // HOP_SAMPLES) // MELS_PER_FRAME)
        if num_frames:
            events += self._advance(rest, num_frames)
        events += turn_rules.finish(self._diarizer.turn_config, self._state.turns, self._state.num_samples)
        return self._give(events)

    def _take(self, samples: Float32[np.ndarray, " samples"]) -> list[Event]:
        """Run the whole chunks that `samples` complete, keep the rest."""
        pending = np.concatenate([self._state.pending, samples])
        self._state = self._state._replace(num_samples=self._state.num_samples + len(samples))
        size, events = self._chunk * FRAME_SAMPLES, []
        whole = len(pending) - len(pending) % size
        for start in range(0, whole, size):
            events += self._advance(pending[start : start + size], self._chunk)
        self._state = self._state._replace(pending=pending[whole:].copy())
        return events

    def feed(self, blocks: Iterable[Block]) -> Iterable[Turn]:
        """Turns of a whole source of blocks, `finish` included, as they become final."""
        for block in blocks:
            yield from self.push(block)
        yield from self.finish()

    def _give(self, events: list[Event]) -> list[Turn]:
        self.events = events
        return [event for event in events if isinstance(event, Turn)]

    @torch.inference_mode()
    def _advance(self, samples: np.ndarray, num_frames: int) -> list[Event]:
        """One chunk, of which the first `num_frames` frames belong to the recording."""
        device = self._diarizer.device
        padded = torch.zeros(1, self._chunk * FRAME_SAMPLES)
        padded[0, : len(samples)] = torch.from_numpy(samples)
        num_valid = torch.tensor([len(samples)], device=device)
        output, model = self._diarizer.model(padded.to(device), self._state.model, num_valid, chunk=self._chunk)
        activity, count = output.activity[0, :num_frames].cpu().numpy(), output.count[0, :num_frames].cpu().numpy()
        config = self._diarizer.turn_config
        events, turns = turn_rules.step(config, self._state.turns, activity, count)
        overflow = int((output.overflow[0, :num_frames] >= config.onset).sum())
        self._state = self._state._replace(
            model=model, turns=turns, overflow_frames=self._state.overflow_frames + overflow
        )
        return events


def find_device(name: str) -> torch.device:
    """The device called `name` ("cpu", "cuda", "cuda:1", "mps"), with its number where it has one.

    Raises:
        ValueError: no such kind of device, or none on this machine.
    """
    try:
        probe = torch.zeros(1, device=name)
        probe.item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(
            f"device={name} cannot be used here: give cpu, or cuda or mps on a machine that has it"
        ) from error
    return probe.device
