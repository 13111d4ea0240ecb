"""A room around the recording: one of the simulator's, for all speakers together."""

import numpy as np
from jaxtyping import Float64
from scipy.signal import oaconvolve

from diarnorm.robustness.sound import Corruption, Sound, with_samples
from diarnorm.simulation.acoustics import RoomConfig, draw_rooms
from diarnorm.simulation.conversation import ROOM_SAMPLES

DIRECT_TO_REVERBERANT_DB = 0.0
"""A microphone about as far away as sound from the walls is as loud as the direct one."""
FFT_SAMPLES = 32_768
BEFORE_SAMPLES = 256
"""The tail's filter, which has no delay, begins this long before the direct sound."""


def reverb(sound: Sound, severity: float, rng: np.random.Generator) -> Sound:
    """All of it heard in a room, the direct sound where it was."""
    if not len(sound.samples):
        return sound
    wet = oaconvolve(sound.samples.astype(np.float64), room_response(severity, rng))
    return with_samples(sound, wet[BEFORE_SAMPLES : BEFORE_SAMPLES + len(sound.samples)])


def room_response(rt60_s: float, rng: np.random.Generator) -> Float64[np.ndarray, " response"]:
    """Impulse response at unit energy, the direct sound at sample `BEFORE_SAMPLES`."""
    import torch  # only here, so that a list of corruptions is there at once

    from diarnorm.simulation.filters import tails

    config = RoomConfig(
        dry_probability=0.0,
        rt60_s=(rt60_s, rt60_s),
        direct_to_reverberant_db=(DIRECT_TO_REVERBERANT_DB, DIRECT_TO_REVERBERANT_DB),
        speaker_eq_probability=0.0,
    )
    room = draw_rooms(config, rng, 1, [])
    rt60, gain = (torch.from_numpy(each).double() for each in (room.rt60_s, room.tap_gain))
    offset, taps = (torch.from_numpy(each) for each in (room.tail_offset, room.tap_samples))
    spectrum = float(room.direct[0]) + float(room.tail[0]) * tails(rt60, offset, taps, gain, FFT_SAMPLES)[0]
    response = np.roll(np.fft.irfft(spectrum.numpy(), FFT_SAMPLES), BEFORE_SAMPLES)
    return response[: ROOM_SAMPLES + 2 * BEFORE_SAMPLES]


CORRUPTIONS = (
    Corruption(
        "room.reverb",
        "s RT60",
        "a room with a reverberation time of X s, direct sound as loud as the reverberant one",
        (0.2, 0.4, 0.7),
        (0.05, 0.7),
        reverb,
        needs_finite=True,
    ),
)
