"""Make the sample recordings of this folder: python data_samples/make_samples.py

The lines of conversations.toml are spoken by synthetic voices (voices.py), laid out in time, and rendered by
the project's own simulator: a room, noise, a level, a telephone line where asked for. The reference is the
voices' own speech activity with gaps under 0.3 s closed. README.md in this folder names the packages that it
needs.
"""

import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
from voices import speak

from diarnorm.rttm import write_rttm
from diarnorm.simulation.acoustics import ChannelConfig, RoomConfig, draw_channel, draw_rooms
from diarnorm.simulation.activity import runs_of, speech_activity
from diarnorm.simulation.conversation import SPEECH, Piece, Plan, close_gaps, collect_pieces
from diarnorm.simulation.noises import NoiseConfig, draw_noises
from diarnorm.simulation.render import render
from diarnorm.simulation.speech import Speech, SpeechConfig, load_speech
from diarnorm.timebase import (
    HOP_SAMPLES,
    SAMPLE_RATE,
    frames_covering,
    frames_to_samples,
    samples_to_seconds,
    seconds_to_samples,
)
from diarnorm.turns import Turn

FOLDER = Path(__file__).resolve().parent
SPOKEN_LEVEL = 0.05
"""RMS of the speech of every line before the speaker's own gain."""
CLOSE_GAP_S = 0.3
END_SILENCE_S = 1.0
MARGIN_SAMPLES = 4 * HOP_SAMPLES
"""Kept around the speech of a line, so that soft edges are heard; not part of the reference."""
SILENCE_S = 10.0


class Line(NamedTuple):
    """One spoken line: where its file lies, and the samples [runs, 2] in which it holds speech."""

    speaker: str
    gap_s: float
    path: Path
    num_samples: int
    runs: np.ndarray


def main() -> None:
    """Write every conversation and the silent recording."""
    conversations = tomllib.loads((FOLDER / "conversations.toml").read_text("utf-8"))
    for name, conversation in conversations.items():
        with tempfile.TemporaryDirectory() as scratch:
            spoken = Path(scratch) / "spoken"
            lines = [speak_line(conversation, number, spoken) for number in range(len(conversation["lines"]))]
            speech = load_speech(spoken, config=SpeechConfig(speed_factors=((1, 1),)), cache_dir=scratch)
            plan = lay_out(conversation, lines, speech)
            samples = render([plan], speech).samples[0].numpy()
        write_recording(name, samples, plan.turns())
    write_recording("silence", np.zeros(seconds_to_samples(SILENCE_S), np.float32), [])


def speak_line(conversation: dict, number: int, folder: Path) -> Line:
    """Line `number` as a file `folder/speaker/number.flac`: a tree with one folder per speaker."""
    speaker, gap_s, text = conversation["lines"][number]
    voice = {key: value for key, value in conversation["speakers"][speaker].items() if key != "gain_db"}
    samples = speak(voice.pop("voice"), text, **voice)
    runs = runs_of(speech_activity(samples)) * HOP_SAMPLES
    power = np.concatenate([np.square(samples[start:end]) for start, end in runs]).mean()
    path = folder / speaker / f"{number:03d}.flac"
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples * (SPOKEN_LEVEL / np.sqrt(power)), SAMPLE_RATE)
    return Line(speaker, gap_s, path, len(samples), runs)


def lay_out(conversation: dict, lines: list[Line], speech: Speech) -> Plan:
    """The simulator's plan of a conversation, with nothing left to chance but the places in the room."""
    names = tuple(dict.fromkeys(line.speaker for line in lines))
    pieces: list[Piece] = []
    runs: list[tuple[int, int, int]] = []
    end = 0
    for line in lines:
        utterance, slot = speech.paths.index(str(line.path)), names.index(line.speaker)
        shift = end + seconds_to_samples(line.gap_s) - line.runs[0, 0]
        first = max(0, line.runs[0, 0] - MARGIN_SAMPLES)
        length = min(line.num_samples, line.runs[-1, 1] + MARGIN_SAMPLES) - first
        gain = 10 ** (conversation["speakers"][line.speaker]["gain_db"] / 20)
        place = shift + first, speech.offset[0, utterance] + first, length
        pieces.append(Piece(slot, SPEECH, *place, HOP_SAMPLES, HOP_SAMPLES, utterance, gain))
        runs += [(slot, shift + start, shift + stop) for start, stop in line.runs]
        end = max(end, shift + line.runs[-1, 1])
    num_samples = frames_to_samples(frames_covering(end + seconds_to_samples(END_SILENCE_S)))
    room, noise, channel = sound(conversation)
    rng = np.random.Generator(np.random.PCG64(0))
    reference = {"speech": speech, "clips": None, "speech_gain": SPOKEN_LEVEL, "first_row": len(names)}
    (hiss,) = draw_noises(noise, rng, num_samples, **reference)
    return Plan(
        num_samples=num_samples,
        speaker=np.arange(len(names)),
        factor=np.zeros(len(names), np.int64),
        speaker_class=np.arange(len(names)),
        segments=close_gaps(runs, num_samples, CLOSE_GAP_S, pad_s=0.0),
        pieces=collect_pieces(pieces + hiss.pieces, num_samples),
        rooms=draw_rooms(room, rng, len(names), [hiss.eq_db]),
        channel=draw_channel(channel, rng, num_samples, speech_gain=SPOKEN_LEVEL),
        num_factors=1,
        names=names,
    )


def sound(conversation: dict) -> tuple[RoomConfig, NoiseConfig, ChannelConfig]:
    """One room with every speaker at another place in it, a hiss, a flat microphone or a telephone line."""
    rt60_s, direct_db = conversation["rt60_s"], conversation["direct_to_reverberant_db"]
    snr_db, level_db = conversation["snr_db"], conversation["level_dbfs"]
    telephone = float(conversation.get("telephone", False))
    room = RoomConfig(
        dry_probability=0,
        shared_room_probability=1,
        same_place_probability=0,
        rt60_s=(rt60_s, rt60_s),
        direct_to_reverberant_db=(direct_db, direct_db),
        speaker_eq_probability=0,
    )
    noise = NoiseConfig(
        quiet_probability=0,
        coloured_probability=1,
        clip_probability=0,
        babble_probability=0,
        burst_probability=0,
        snr_db=(snr_db, snr_db),
        tilt_db_per_octave=(-5, -5),
    )
    channel = ChannelConfig(
        level_db=(level_db, level_db),
        eq_db=0,
        band_limit_probability=telephone,
        band_limit_hz=(3400, 3400),
        high_pass_probability=telephone,
        hum_probability=0,
        swing_probability=0,
        dc_probability=0,
        clipping_probability=0,
        mu_law_probability=telephone,
    )
    return room, noise, channel


def write_recording(name: str, samples: np.ndarray, turns: list[Turn]) -> None:
    """NAME.flac, NAME.rttm and NAME.uem, and one line about them."""
    duration_s = samples_to_seconds(len(samples))
    soundfile.write(FOLDER / f"{name}.flac", samples, SAMPLE_RATE, subtype="PCM_16")
    with (FOLDER / f"{name}.rttm").open("w", encoding="utf-8") as file:
        write_rttm(turns, name, file)
    (FOLDER / f"{name}.uem").write_text(f"{name} 1 0.000 {duration_s:.3f}\n", "utf-8")
    spoken_s = sum(turn.end - turn.start for turn in turns)
    speakers = len({turn.speaker for turn in turns})
    print(f"{name}: {duration_s:.1f} s, {speakers} speakers, {len(turns)} turns, {spoken_s:.1f} s of speech")


if __name__ == "__main__":
    main()
