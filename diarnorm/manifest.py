"""Which files belong to which speaker: a tab-separated manifest, or a tree with one folder per speaker."""

import csv
from collections.abc import Iterator
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
        ValueError: there is nothing to read, a file lies in no speaker's folder, a manifest is no text in UTF-8 or
            lacks a column or a value.
    """
    give = "give a folder of audio files" if flat else "give a folder with one folder per speaker, or a .tsv manifest"
    if not source.exists():
        raise ValueError(f"{source} does not exist; {give}")
    if split is not None and (source / split).is_dir():
        source = source / split
    entries = _read_tree(source, flat) if source.is_dir() else _read_manifest(source, split)
    if not entries:
        rows = "no rows" if split is None else f"no rows of split {split!r}{_splits(source)}"
        what = "no audio files" if source.is_dir() else rows
        raise ValueError(f"{source} has {what}; {give}")
    return entries


def audio_files(root: Path) -> list[Path]:
    """Audio files in a folder and all below it, sorted. Links to folders are followed, where they lead to another."""
    found: list[Path] = []
    seen: set[Path] = set()
    folders = [root]
    links: list[Path] = []
    while folders or links:
        folder = folders.pop() if folders else links.pop(0)
        if folder.resolve() in seen:
            continue
        seen.add(folder.resolve())
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                (links if path.is_symlink() else folders).append(path)
            elif path.suffix.lower() in AUDIO_SUFFIXES:
                found.append(path)
    return sorted(found)


def _read_tree(root: Path, flat: bool) -> list[Entry]:
    paths = audio_files(root)
    stray = [path for path in paths if path.parent == root]
    if stray and not flat:
        raise ValueError(
            f"{len(stray)} file(s) lie in no speaker's folder, the first is {stray[0]}: "
            f"move each to {root / 'SPEAKER'}, or give a .tsv manifest"
        )
    return [Entry(path, path.relative_to(root).parts[0], root.name, "") for path in paths]


def _read_manifest(manifest: Path, split: str | None) -> list[Entry]:
    entries = []
    for number, row in _rows(manifest):
        if split is not None and row.get("split") != split:
            continue
        if empty := [column for column in ("path", "speaker") if not row[column]]:
            raise ValueError(f"{manifest}:{number}: no {empty[0]} given; write one, or remove the row")
        others = (row.get(column, "") for column in OPTIONAL_COLUMNS)
        entries.append(Entry(manifest.parent / row["path"], row["speaker"], *others))
    return entries


def _rows(manifest: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Number of the last line of each row, and its values without the white space around them, "" for none."""
    try:
        with manifest.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, delimiter="\t", restval="", strict=True)
            columns = rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
            missing = sorted({"path", "speaker"} - set(columns))
            if missing:
                raise ValueError(
                    f"{manifest} lacks the column(s) {missing}; its first line must name them, tab-separated"
                )
            for row in rows:
                yield rows.line_num, {column: row[column].strip() for column in columns}
    except UnicodeDecodeError as error:
        raise ValueError(f"{manifest} is no text in UTF-8: save it as such, or give a folder") from error
    except csv.Error as error:
        hint = "a quotation mark that begins a value needs another at its end"
        raise ValueError(f"{manifest}: {error}; {hint}") from error


def _splits(manifest: Path) -> str:
    """The splits of a manifest, in words."""
    there = "" if manifest.is_dir() else ", ".join(sorted({row.get("split", "") for _, row in _rows(manifest)} - {""}))
    return f" (there: {there})" if there else ""


def same_person(entries: list[Entry]) -> tuple[tuple[str, str], ...]:
    """Pairs of speakers of whom the manifest says that they may be one person, sorted."""
    pairs = {
        tuple(sorted((entry.speaker, other.strip())))
        for entry in entries
        for other in entry.same_as.split(",")
        if other.strip() not in ("", entry.speaker)
    }
    return tuple((first, second) for first, second in sorted(pairs))
