"""Synthetic voices laid out as corpora are on a user's disk, to run recipes without the corpora."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

from diarnorm.rttm import write_rttm
from diarnorm.simulation.planner import plan_conversation
from diarnorm.simulation.render import render
from diarnorm.simulation.speech import Speech
from diarnorm.simulation.synthetic import write_tree
from diarnorm.timebase import SAMPLE_RATE


def write_conversation(
    audio: Path, rttm: Path, speech: Speech, seed: int, *, num_speakers: int = 2, duration_s: float = 12.0
) -> float:
    """One simulated conversation and its reference, which calls it by the name of the RTTM file; its length in s."""
    plan = plan_conversation(speech, seed=seed, duration_s=duration_s, num_speakers=num_speakers)
    for path in (audio, rttm):
        path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(audio, render([plan], speech).samples[0].numpy(), SAMPLE_RATE)
    with rttm.open("w", encoding="utf-8") as file:
        write_rttm(plan.turns(), rttm.stem, file)
    return plan.num_samples / SAMPLE_RATE


def write_recordings(folder: Path, speech: Speech, seeds: Sequence[int]) -> Path:
    """Recordings with RTTM beside them."""
    for seed in seeds:
        write_conversation(folder / f"talk{seed}.flac", folder / f"talk{seed}.rttm", speech, seed)
    return folder


def write_librispeech(folder: Path) -> None:
    """`LibriSpeech/SPLIT/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NNNN.flac` beside `musan/noise/SOURCE/NAME.wav`."""
    for split, first, num_speakers in (("train-clean-100", 0, 6), ("dev-clean", 6, 4)):
        tree = write_tree(folder / "tree" / split, num_speakers, first_speaker=first)
        for path in sorted(tree.rglob("*.wav")):
            speaker, chapter = str(1000 + int(path.parent.name[1:])), str(2000 + int(path.stem) % 2)
            name = f"{speaker}-{chapter}-{int(path.stem):04d}.flac"
            target = folder / "LibriSpeech" / split / speaker / chapter / name
            target.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(target, *soundfile.read(path))
            (target.parent / f"{speaker}-{chapter}.trans.txt").write_text("WORDS\n")
    shutil.rmtree(folder / "tree")
    (folder / "LibriSpeech" / "SPEAKERS.TXT").write_text("; nothing is read from this\n")
    for number, source in enumerate(("free-sound", "sound-bible")):
        path = folder / "musan" / "noise" / source / f"noise-{source}-0000.wav"
        path.parent.mkdir(parents=True)
        bursts = np.random.default_rng(number).standard_normal(2 * SAMPLE_RATE) * (
            np.arange(2 * SAMPLE_RATE) % 8000 < 6000
        )
        soundfile.write(path, 0.05 * bursts, SAMPLE_RATE)


def write_ami(folder: Path, speech: Speech, names: dict[str, Sequence[str]]) -> None:
    """`amicorpus/NAME/audio/NAME.Mix-Headset.wav` beside the lists, RTTM and UEM files of `AMI-diarization-setup`."""
    setup, seed = folder / "AMI-diarization-setup", 0
    for split, meetings in names.items():
        for sub in ("lists", f"uems/{split}"):
            (setup / sub).mkdir(parents=True, exist_ok=True)
        (setup / "lists" / f"{split}.meetings.txt").write_text("".join(f"{name}\n" for name in meetings))
        for name in meetings:
            seed += 1
            audio = folder / "amicorpus" / name / "audio" / f"{name}.Mix-Headset.wav"
            rttm = setup / "only_words" / "rttms" / split / f"{name}.rttm"
            length_s = write_conversation(audio, rttm, speech, seed, num_speakers=4)
            (setup / "uems" / split / f"{name}.uem").write_text(f"{name} 1 0.000 {length_s:.6f}\n")
