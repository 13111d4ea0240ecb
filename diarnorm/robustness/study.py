"""A whole robustness study: which models hear which recordings under which conditions, and the records of all."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diarnorm.evaluation.hypotheses import Candidate, Settings, find_candidates
from diarnorm.evaluation.recordings import Recording, RecordingSet, read_set
from diarnorm.evaluation.sources import parse_source
from diarnorm.files import file_sha256, legal_folder, shared_folder
from diarnorm.modelfile import read_header
from diarnorm.robustness.conditions import Condition, find_conditions, try_out
from diarnorm.robustness.config import RobustnessConfig
from diarnorm.robustness.peers import Peer, find_peers
from diarnorm.robustness.records import Record, Store, make_key
from diarnorm.robustness.runner import SILENCE, Item, Job, run_jobs
from diarnorm.robustness.scored import Rules

MAX_ROWS = 40
"""Most recordings that go through a model together."""


@dataclass(frozen=True)
class Study:
    """What was asked and what came of it.

    Attributes:
        config: what was asked.
        conditions: the clean one first.
        models: facts about each model by name: `sha256`, `norm`, `frontend`, `settings`.
        peers: facts about each peer by name: `command`, `files` with their hashes.
        recordings: names by set, in order; the set of silence is not among them.
        records: by model or peer, set, recording and condition.
        notes: what a user should know.
    """

    config: RobustnessConfig
    conditions: tuple[Condition, ...]
    models: dict[str, dict[str, Any]]
    recordings: dict[str, tuple[str, ...]]
    records: dict[tuple[str, str, str, str], Record]
    notes: tuple[str, ...]
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of models, then of peers."""
        return [*self.models, *self.peers]


def study(config: RobustnessConfig, run_dir: Path, folder: Path) -> Study:
    """Do what the configuration asks for; relative paths in it start in `folder`.

    Raises:
        ValueError: a path or a value that does not fit, or a recording that cannot be read.
    """
    if not config.sets and config.corruptions:
        raise ValueError("no recordings to change: give a folder of them as sets.NAME=FOLDER, or corruptions=[]")
    conditions = find_conditions(config)
    try_out(conditions)
    models = find_models(config.models, folder)
    candidates = find_candidates(models, folder, Settings(device=config.device).changed_by(config))
    _check_models(candidates)
    peers = find_peers(config.peers, [each.name for each in candidates], folder, config.peer_limit_s)
    _check_sets(config)
    sources = {name: parse_source(name, given) for name, given in config.sets.items()}
    sets = [read_set(name, source, folder) for name, source in sources.items()]
    audible = [each for each in conditions if not each.spec.on_features.links]
    heard = {(each.name, one.name): _content(one) for each in sets for one in each.recordings}
    alone = [_all_jobs(sets, audible, (), (peer,), config, heard) for peer in peers]  # if it fails, it does so alone
    jobs = [job for some in (_all_jobs(sets, conditions, candidates, (), config, heard), *alone) for job in some]
    store = Store(run_dir)
    run_jobs(jobs, store, config.workers)
    records = [store[key] for job in jobs for keys in job.keys.values() for key in keys]
    return Study(
        config,
        tuple(conditions),
        {each.name: _facts(each) for each in candidates},
        {each.name: tuple(recording.name for recording in each.recordings) for each in sets},
        {(each.model, each.set_name, each.recording, each.condition): each for each in records},
        tuple(f"{each.name}: {note}" for each in sets for note in (*each.notes, *_left_out(each, conditions))),
        {each.name: each.facts for each in peers},
    )


def _check_sets(config: RobustnessConfig) -> None:
    """Refuse names of sets that are taken.

    Raises:
        ValueError: the name of the silence, or one whose pictures would have the names of another's.
    """
    if SILENCE in config.sets and config.alone:
        raise ValueError(f"sets.{SILENCE} is the name of the silence of its own: choose another")
    shared = shared_folder(config.sets)
    if shared is not None:
        raise ValueError(f"pictures of two sets would be called {shared}: give one another name, sets.NAME=FOLDER")


def find_models(given: Any, folder: Path) -> Any:
    """What was asked for, with folders of model files replaced by the files in them, named by their paths there; those
    of one name have the name of their folder in front.

    >>> find_models("rms", Path())
    'rms'

    Raises:
        ValueError: a folder without model files, or two models of a name.
    """
    items = [given] if isinstance(given, str) else list(given or ())
    has_folder = any(isinstance(item, str) and (folder / Path(item).expanduser()).is_dir() for item in items)
    if isinstance(given, Mapping) or not has_folder or not all(isinstance(item, str | Mapping) for item in items):
        return given
    found = [model for item in items for model in _models_of(item, folder)]
    short = [_name_of(parts[1:]) for parts, _ in found]
    times = Counter(map(legal_folder, short))
    names = [
        name if times[legal_folder(name)] == 1 else _name_of(parts)
        for name, (parts, _) in zip(short, found, strict=True)
    ]
    shared = shared_folder(names)
    if shared is not None:
        raise ValueError(f"two models are called {shared}: give them names, models={{NAME: PATH, NAME: PATH}}")
    return dict(zip(names, (value for _, value in found), strict=True))


def _models_of(item: str | Mapping[Any, Any], folder: Path) -> list[tuple[tuple[str, ...], Any]]:
    """The models of one item of a list: parts of a name, the first of which is that of a folder, and what to load."""
    word = item if isinstance(item, str) else str(item.get("path", ""))
    place = folder / Path(word).expanduser()
    if not (isinstance(item, str) and place.is_dir()):
        return [((Path(word).parent.name, Path(word).stem), item)]
    files = sorted(place.rglob("*.safetensors"))
    if not files:
        raise ValueError(f"models={item}: no model files (*.safetensors) in this folder")
    own = Path(os.path.abspath(place)).name  # noqa: PTH100 - takes out `..`, follows no links
    return [((own, *path.relative_to(place).with_suffix("").parts), str(path)) for path in files]


def _name_of(parts: Iterable[str]) -> str:
    """A name from its parts; a file called `model` is named by its folder."""
    parts = [part for part in parts if part]
    return "_".join(parts[:-1] if len(parts) > 1 and parts[-1] == "model" else parts)


def _check_models(candidates: Iterable[Candidate]) -> None:
    """Refuse what is no model that runs, or one that is told who speaks.

    Raises:
        ValueError: a folder, or a model with an oracle's memory.
    """
    for each in candidates:
        if not each.is_network:
            raise ValueError(
                f"models: {each.name} is a folder, {each.path}: give a model file, or models=[FOLDER] for all model "
                "files in it; other programs are peers.NAME"
            )
        if each.settings.oracle_memory:
            raise ValueError("oracle_memory is for `diarnorm evaluate`: damage tells nothing of a memory that is told")


def _facts(candidate: Candidate) -> dict[str, Any]:
    """What a report says of a model."""
    facts = read_header(candidate.path).facts
    encoder = facts["model"]["encoder"]
    post = " post" if encoder["placement"] == "post" else ""
    conv = encoder["conv_norm"]
    mixed = f" (conv {conv})" if conv not in (None, facts["norm"]) else ""
    return {
        "sha256": candidate.sha256,
        "norm": f"{facts['norm']}{post}{mixed}",
        "frontend": facts["model"]["frontend"]["kind"],
        "settings": candidate.settings.plain(),
    }


def _content(recording: Recording) -> list[Any]:
    """All that a record depends on of its recording, as plain values: hashes of the sound, and of the reference."""
    turns = json.dumps([[turn.start, turn.end, turn.speaker] for turn in recording.reference], ensure_ascii=False)
    sound = None if recording.audio is None else file_sha256(recording.audio)
    return [sound, hashlib.sha256(turns.encode()).hexdigest(), recording.region]


def _all_jobs(
    sets: Iterable[RecordingSet],
    conditions: Sequence[Condition],
    models: tuple[Candidate, ...],
    peers: tuple[Peer, ...],
    config: RobustnessConfig,
    heard: Mapping[tuple[str, str], list[Any]],
) -> list[Job]:
    """All that models and peers are to hear: recordings, then silence, one condition at a time. `heard`: the content of
    each recording, by the names of set and recording."""
    places = [(each.name, *place) for each in sets for place in _places(each.recordings, conditions, config.batch_s)]
    silent = (Item(None, config.alone_s),)
    places += [(SILENCE, each, silent) for each in conditions if each.is_alone]
    return [_job(*place, models, peers, config, heard) for place in places]


def _places(
    recordings: Iterable[Recording], conditions: Iterable[Condition], batch_s: float
) -> list[tuple[Condition, tuple[Item, ...]]]:
    """Recordings of like length together, each such batch under one condition after the other."""
    places = []
    for batch in batches(recordings, batch_s):
        for condition in conditions:
            items = tuple(Item(each) for each in batch if each.reference or not condition.needs_turns)
            if items and not condition.is_alone:
                places.append((condition, items))
    return places


def _left_out(each: RecordingSet, conditions: Iterable[Condition]) -> list[str]:
    """A note of the recordings that some conditions go without, since nobody speaks in them."""
    silent = [recording.name for recording in each.recordings if not recording.reference]
    names = [condition.name for condition in conditions if condition.needs_turns and not condition.is_alone]
    if not (silent and names):
        return []
    return [f"nobody speaks in {', '.join(silent)}: left out of {', '.join(names)}"]


def batches(recordings: Iterable[Recording], batch_s: float) -> list[tuple[Recording, ...]]:
    """Recordings in order of length, as many together as have `batch_s` seconds with their padding, one at least."""
    groups: list[list[Recording]] = []
    for each in sorted(recordings, key=lambda recording: (recording.duration_s or 0.0, recording.name)):
        length_s = each.duration_s or 0.0
        if not groups or len(groups[-1]) == MAX_ROWS or (len(groups[-1]) + 1) * length_s > batch_s:
            groups.append([])
        groups[-1].append(each)
    return [tuple(group) for group in groups]


def _job(
    set_name: str,
    condition: Condition,
    items: tuple[Item, ...],
    models: tuple[Candidate, ...],
    peers: tuple[Peer, ...],
    config: RobustnessConfig,
    heard: Mapping[tuple[str, str], list[Any]],
) -> Job:
    """A job with the keys of its records: hashes of all that they depend on."""
    rules = Rules(config.collar_s, config.skip_overlap, config.edge_s, config.recovery_distance, config.recovery_hold_s)

    def key(identity: list[Any], item: Item) -> str:
        return make_key(
            {
                "model": identity,
                "place": [set_name, item.name, heard.get((set_name, item.name)), item.silence_s],
                "condition": [condition.name, condition.with_halves],
                "rules": asdict(rules),
                "seed": config.seed,
            }
        )

    identities: dict[str, list[Any]] = {
        **{each.name: [each.name, each.sha256, each.settings.plain()] for each in models},
        **{each.name: [each.name, each.facts] for each in peers},
    }
    keys = {name: tuple(key(identity, item) for item in items) for name, identity in identities.items()}
    return Job(set_name, condition, items, models, peers, keys, rules, config.seed)
