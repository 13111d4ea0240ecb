"""Bookkeeping of runs: which stretches of active frames are one turn, whose they are, when they may go out.

The part of `turns.py` that has a memory, in whole frames and numbered speakers; padding, seconds and names
are given there. Time is `now`, the number of frames taken in. Only moments are visited at which a slot's bits
change or at which something falls due by itself.
"""

from bisect import insort
from typing import NamedTuple

ACTIVE, OCCUPIED, CONFIRMED = 1, 2, 4
"""Bits that describe a slot in one frame."""
MAX_WAITING = 64
"""Finished runs kept for an occupant who is not confirmed; beyond this the oldest is given up."""

_NEVER = 1 << 62


class Slot(NamedTuple):
    """What one slot carries from frame to frame; frames count from the start of the recording."""

    bits: int = 0
    """Bits of the last frame."""
    start: int | None = None
    """First frame of the open run."""
    end: int | None = None
    """Frame after the last active one, while the open run is silent."""
    announced: bool = False
    """Whether the start of the open run has been told."""
    label: int = 0
    """Number of the speaker; 0 before anything has been told of them."""
    waiting: tuple[tuple[int, int], ...] = ()
    """Finished runs (start, end) of an occupant who is not confirmed yet."""


class TurnState(NamedTuple):
    """All that is remembered between two frames: a value of plain integers, comparable and hashable."""

    num_frames: int
    slots: tuple[Slot, ...]
    held: tuple[tuple[int, int, int], ...]
    """Final runs (end, start, label) that wait for one with an earlier end."""
    num_speakers: int


class RunEvent(NamedTuple):
    """A run that is sure to become a turn has begun (`end` is None), or is final."""

    label: int
    start: int
    end: int | None = None


class RunLedger:
    """Working copy of a state during one call; collects `events`."""

    def __init__(self, state: TurnState, *, min_on: int, close: int, hold: int) -> None:
        """`min_on`: shortest run; `close`: silence that closes one; `hold`: longest wait of a final run."""
        self._min_on, self._close, self._hold = min_on, close, hold
        self._slots = list(state.slots)
        self._held = list(state.held)
        self._num_speakers = state.num_speakers
        self._due = self._next_due()
        self.events: list[RunEvent] = []

    def state(self, num_frames: int) -> TurnState:
        """The value to go on from after `num_frames` frames."""
        return TurnState(num_frames, tuple(self._slots), tuple(self._held), self._num_speakers)

    def change(self, index: int, bits: int, frame: int) -> None:
        """Give slot `index` the bits that it has in `frame`, once all before that frame is settled."""
        self.settle_until(frame)
        slot = self._slots[index]
        if slot.bits & ~bits & OCCUPIED:
            slot = Slot(bits)
        elif bits & ~slot.bits & ACTIVE and slot.start is None:
            slot = slot._replace(bits=bits, start=frame)
        elif slot.bits & ~bits & ACTIVE:
            slot = slot._replace(bits=bits, end=frame)
        else:
            slot = slot._replace(bits=bits)
        self._slots[index] = slot
        self._due = min(self._due, frame + 1)

    def settle_until(self, now: int) -> None:
        """Settle every moment up to `now` at which something falls due, in order."""
        while self._due <= now:
            moment = self._due
            for index, slot in enumerate(self._slots):
                if slot.start is not None or slot.waiting:
                    self._slots[index] = self._settled(slot, moment)
            self._release(moment)
            self._due = self._next_due()

    def conclude(self, now: int) -> None:
        """Close all runs at `now`, the end of the recording, and give out what is final.

        Where no slot is confirmed, every occupant counts as confirmed.
        """
        accepted = CONFIRMED if any(slot.bits & CONFIRMED for slot in self._slots) else OCCUPIED
        for slot in self._slots:
            if slot.bits & accepted:
                end = now if slot.bits & ACTIVE else slot.end
                self._settled(slot._replace(bits=OCCUPIED | CONFIRMED, end=end), _NEVER)
        self.events += [RunEvent(label, start, end) for end, start, label in self._held]

    def _settled(self, slot: Slot, now: int) -> Slot:
        """The slot after its waiting runs, the news of its open run and that run's closing were seen to."""
        if slot.bits & CONFIRMED and slot.waiting:
            for start, end in slot.waiting:
                slot = self._announced(slot, start)
                insort(self._held, (end, start, slot.label))
            slot = slot._replace(waiting=(), announced=False)
        if slot.start is None:
            return slot
        end = now if slot.bits & ACTIVE or slot.end is None else slot.end
        if slot.bits & CONFIRMED and not slot.announced and end - slot.start >= self._min_on:
            slot = self._announced(slot, slot.start)
        if slot.bits & ACTIVE or now - end < self._close:
            return slot
        return self._closed(slot, slot.start or 0, end)

    def _announced(self, slot: Slot, start: int) -> Slot:
        """The slot after telling that one of its runs, sure to become a turn, began at `start`."""
        label = slot.label
        if label == 0:
            self._num_speakers += 1
            label = self._num_speakers
        self.events.append(RunEvent(label, start))
        return slot._replace(label=label, announced=True)

    def _closed(self, slot: Slot, start: int, end: int) -> Slot:
        """The slot after its open run became final, or waits, or was thrown away: too short, or nobody's."""
        waiting = slot.waiting
        if slot.announced:
            insort(self._held, (end, start, slot.label))
        elif slot.bits & OCCUPIED and end - start >= self._min_on:
            waiting = (*waiting, (start, end))[-MAX_WAITING:]
        return slot._replace(start=None, end=None, announced=False, waiting=waiting)

    def _release(self, now: int) -> None:
        """Give out final runs in order of their ends, as far as none that is pending may end before them."""
        while self._held:
            end, start, label = self._held[0]
            if any(pending < end for pending in self._pending_ends()):
                if now < end + self._hold:
                    return
                self._give_up_before(end)
            del self._held[0]
            self.events.append(RunEvent(label, start, end))

    def _pending_ends(self) -> list[int]:
        """The earliest end that each slot may yet produce, where that lies in the past."""
        ends = [slot.waiting[0][1] for slot in self._slots if slot.waiting]
        return ends + [slot.end for slot in self._slots if slot.end is not None and not slot.bits & ACTIVE]

    def _give_up_before(self, end: int) -> None:
        """Throw away waiting runs that would have to go out before one that has waited long enough."""
        for index, slot in enumerate(self._slots):
            if slot.waiting:
                self._slots[index] = slot._replace(waiting=tuple(run for run in slot.waiting if run[1] >= end))

    def _next_due(self) -> int:
        """The next moment at which something happens by itself."""
        due = self._held[0][0] + self._hold if self._held else _NEVER
        for slot in self._slots:
            if slot.start is None:
                continue
            if not slot.bits & ACTIVE and slot.end is not None:
                due = min(due, slot.end + self._close)
            elif slot.bits & CONFIRMED and not slot.announced:
                due = min(due, slot.start + self._min_on)
        return due
