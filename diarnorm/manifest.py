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


def read_entries(source: Path, split: str | None = None, *, flat: bool = False) -> list[Entry]:
    """Rows of a manifest, or one per audio file of a folder-per-speaker tree, in a fixed order.

    A tree may have a folder per split above those of the speakers. Files beside those folders are refused, or, with
    `flat`, each a speaker of its own.

    Raises:
        ValueError: there is nothing to read, a file lies in no speaker's folder, a manifest lacks a column or a value.
    """
    if not source.exists():
        raise ValueError(f"{source} does not exist; give a folder with one folder per speaker, or a .tsv manifest")
    if split is not None and (source / split).is_dir():
        source = source / split
    entries = _read_tree(source, flat) if source.is_dir() else _read_manifest(source, split)
    if not entries:
        rows = "no rows" if split is None else f"no rows of split {split!r}"
        what = "no audio files" if source.is_dir() else rows
        raise ValueError(f"{source} has {what}; give a folder with one folder per speaker, or a .tsv manifest")
    return entries


def _read_tree(root: Path, flat: bool) -> list[Entry]:
    paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in AUDIO_SUFFIXES)
    stray = [path for path in paths if path.parent == root]
    if stray and not flat:
        raise ValueError(
            f"{len(stray)} file(s) lie in no speaker's folder, the first is {stray[0]}: "
            f"move each to {root / 'SPEAKER'}, or give a .tsv manifest"
        )
    return [Entry(path, path.relative_to(root).parts[0], root.name, "") for path in paths]


def _read_manifest(manifest: Path, split: str | None) -> list[Entry]:
    entries = []
    with manifest.open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t")
        missing = sorted({"path", "speaker"} - set(rows.fieldnames or ()))
        if missing:
            raise ValueError(f"{manifest} lacks the column(s) {missing}; its first line must name them, tab-separated")
        for row in rows:
            if split is not None and row.get("split") != split:
                continue
            if empty := [column for column in ("path", "speaker") if not row[column]]:
                raise ValueError(f"{manifest}:{rows.line_num}: no {empty[0]} given; write one, or remove the row")
            others = (row.get(column) or "" for column in OPTIONAL_COLUMNS)
            entries.append(Entry(manifest.parent / row["path"], row["speaker"], *others))
    return entries


def same_person(entries: list[Entry]) -> tuple[tuple[str, str], ...]:
    """Pairs of speakers of whom the manifest says that they may be one person, sorted."""
    pairs = {
        tuple(sorted((entry.speaker, other.strip())))
        for entry in entries
        for other in entry.same_as.split(",")
        if other.strip() not in ("", entry.speaker)
    }
    return tuple((first, second) for first, second in sorted(pairs))
