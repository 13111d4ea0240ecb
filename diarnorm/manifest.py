"""Which files belong to which speaker: a tab-separated manifest, or a tree with one folder per speaker."""

import csv
from pathlib import Path
from typing import NamedTuple

AUDIO_SUFFIXES = frozenset({".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff"})
OPTIONAL_COLUMNS = ("source", "gender", "same_as")


class Entry(NamedTuple):
    """One row of a manifest: a file, who speaks in it, and where it comes from.

    `same_as` names other speakers, separated by commas, who may be the same person.
    """

    path: Path
    speaker: str
    source: str
    gender: str
    same_as: str = ""


def read_entries(source: Path, split: str | None = None) -> list[Entry]:
    """Rows of a manifest, or one per audio file of a folder-per-speaker tree, in a fixed order.

    A tree may have a folder per split above those of the speakers.
    """
    if not source.exists():
        raise ValueError(f"{source} does not exist; give a folder with one folder per speaker, or a .tsv manifest")
    if split is not None and (source / split).is_dir():
        source = source / split
    entries = _read_tree(source) if source.is_dir() else _read_manifest(source, split)
    if not entries:
        what = "no audio files" if source.is_dir() else f"no rows of split {split!r}"
        raise ValueError(f"{source} has {what}; give a folder with one folder per speaker, or a .tsv manifest")
    return entries


def _read_tree(root: Path) -> list[Entry]:
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES)
    return [Entry(path, path.relative_to(root).parts[0], root.name, "") for path in paths]


def _read_manifest(manifest: Path, split: str | None) -> list[Entry]:
    with manifest.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    missing = {"path", "speaker"} - set(rows[0] if rows else ())
    if missing:
        raise ValueError(
            f"{manifest} lacks the column(s) {sorted(missing)}; its first line must name them, tab-separated"
        )
    return [
        Entry(manifest.parent / row["path"], row["speaker"], *(row.get(key) or "" for key in OPTIONAL_COLUMNS))
        for row in rows
        if split is None or row.get("split") == split
    ]


def same_person(entries: list[Entry]) -> tuple[tuple[str, str], ...]:
    """Pairs of speakers of whom the manifest says that they may be one person, sorted."""
    pairs = {
        tuple(sorted((entry.speaker, other.strip())))
        for entry in entries
        for other in entry.same_as.split(",")
        if other.strip() not in ("", entry.speaker)
    }
    return tuple((first, second) for first, second in sorted(pairs))
