"""Simulated batches kept on disk: made once, read by every run that asks for the same ones.

A study of many models makes its features once and shares them; a run that starts while another still makes them takes
what is there and makes the rest. About 16 kB per second of audio.
"""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import Dataset

from diarnorm.files import replacing
from diarnorm.simulation.rooms import load_rooms
from diarnorm.training.batches import SimulatedBatches

STORE_VERSION = 2
"""To be raised when the simulator or the features change what a batch sounds like."""


class StoredBatches(Dataset):
    """The items of `batches`, each from `folder` once it is there.

    What lies in `folder` is kept apart by everything that batches depend on: speech, clips, rooms, simulator,
    curriculum, seed, and which rows of each batch they are. Several processes may read and fill it at once.
    """

    def __init__(self, batches: SimulatedBatches, folder: str | os.PathLike) -> None:
        self.batches = batches
        self.folder = Path(folder) / fingerprint(batches)
        self.folder.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        path = self.folder / f"{step}.safetensors"
        if path.exists():
            return load_file(path)
        item = self.batches[step]
        with replacing(path) as partial:
            save_file({name: values.cpu().contiguous() for name, values in item.items()}, partial)
        return item


def fingerprint(batches: SimulatedBatches) -> str:
    """A name for all that the items of `batches` depend on, their number aside."""
    speech, measured = batches.speech, batches.simulator.rooms.measured
    simulator = asdict(batches.simulator)
    simulator["rooms"]["measured"] = ()  # what is in them counts, not where they lie
    parts = [
        STORE_VERSION,
        speech.cache.name,
        speech.speaker_gender,
        speech.same_person,
        hashlib.sha256(load_rooms(measured).responses.tobytes()).hexdigest() if measured else None,
        None if batches.clips is None else batches.clips.cache.name,
        simulator,
        [asdict(stage) for stage in batches.stages],
        batches.seed,
        batches.share,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]
