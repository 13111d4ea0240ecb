"""Which file is whose: trees and manifests, and what is wrong in them by file and row."""

from pathlib import Path

import pytest

from diarnorm.manifest import Entry, read_entries, same_person


def make_tree(root: Path, *names: str) -> Path:
    """Empty files of these names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def write(folder: Path, text: str) -> Path:
    """A manifest."""
    path = folder / "list.tsv"
    path.write_text(text, "utf-8")
    return path


def test_folders_of_a_tree_are_speakers(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "voices", "b/1.wav", "a/book/2.FLAC", "a/1.opus", "a/notes.txt")
    expected = [("a/1.opus", "a"), ("a/book/2.FLAC", "a"), ("b/1.wav", "b")]
    assert read_entries(root) == [Entry(root / path, speaker, "voices", "") for path, speaker in expected]


def test_links_to_folders_are_folders(tmp_path: Path) -> None:
    """But what a link repeats of the tree, the tree itself for one, is there already."""
    elsewhere = make_tree(tmp_path / "elsewhere", "1.wav", "book/2.wav")
    root = make_tree(tmp_path / "voices", "bert/1.wav")
    (root / "anna").symlink_to(elsewhere)
    (root / "anton").symlink_to(root / "bert")
    (elsewhere / "up").symlink_to(root)
    found = [(entry.path.relative_to(root).as_posix(), entry.speaker) for entry in read_entries(root)]
    assert found == [("anna/1.wav", "anna"), ("anna/book/2.wav", "anna"), ("bert/1.wav", "bert")]


def test_a_split_is_a_folder_above_the_speakers_where_there_is_one(tmp_path: Path) -> None:
    root = make_tree(tmp_path, "train/a/1.wav", "dev/b/1.wav")
    assert [entry.speaker for entry in read_entries(root, "dev")] == ["b"]
    assert [entry.speaker for entry in read_entries(root / "dev", "train")] == ["b"]


def test_a_file_in_no_speakers_folder_is_refused_unless_files_need_no_speaker(tmp_path: Path) -> None:
    root = make_tree(tmp_path, "a/1.wav", "2.wav", "1.wav", "README.md")
    with pytest.raises(
        ValueError, match=r"2 file\(s\) lie in no speaker's folder, the first is .*1\.wav: move each to"
    ):
        read_entries(root)
    assert [entry.speaker for entry in read_entries(root, flat=True)] == ["1.wav", "2.wav", "a"]


def test_rows_of_a_manifest(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "\tspeaker\tsplit\tpath\tsame_as\tgender\n"
        "1\tanna\ttrain\tx/1.wav\tberta, anna,carla\tf\n\n"
        "2\tbert\tdev\tx/2.wav\n"
        "3\tcarla\ttrain\tx/3.wav\tberta\tf\ttoo\tmany\n",
    )
    entries = read_entries(path, "train")
    assert entries == [
        Entry(tmp_path / "x/1.wav", "anna", "", "f", "berta, anna,carla"),
        Entry(tmp_path / "x/3.wav", "carla", "", "f", "berta"),
    ]
    assert same_person(entries) == (("anna", "berta"), ("anna", "carla"), ("berta", "carla"))
    assert [entry.speaker for entry in read_entries(path)] == ["anna", "bert", "carla"]


def test_a_manifest_as_a_spreadsheet_saves_it(tmp_path: Path) -> None:
    """With a mark of the byte order, lines that end in two characters, quotation marks, and blanks nobody sees."""
    path = tmp_path / "list.tsv"
    text = 'path\tspeaker\tsplit \r\nx/1.wav\tanna \ttrain\r\n"x/""2"".wav"\t anna\ttrain \r\n'
    path.write_bytes(text.encode("utf-8-sig"))
    expected = [Entry(tmp_path / name, "anna", "", "") for name in ("x/1.wav", 'x/"2".wav')]
    assert read_entries(path, "train") == expected


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_manifest_in_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "list.tsv"
    path.write_bytes("path\tspeaker\nx.wav\tJörg\n".encode(encoding))
    with pytest.raises(ValueError, match=r"list\.tsv is no text in UTF-8: save it as such"):
        read_entries(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('path\tspeaker\nx.wav\t"anna\ny.wav\tbert\n', r"list\.tsv: .*; a quotation mark that begins a value needs"),
        ("path\tspeaker\nx.wav\tanna\n\ny.wav\n", r"list\.tsv:4: no speaker given"),
        ("path\tspeaker\nx.wav\t\n", r"list\.tsv:2: no speaker given; write one, or remove the row"),
        ("speaker\tpath\nanna\n", r"list\.tsv:2: no path given"),
        ("path\tspeaker\n\tanna\n", r"list\.tsv:2: no path given"),
        ("path\tname\nx.wav\tanna\n", r"list\.tsv lacks the column\(s\) \['speaker'\]; its first line"),
        ("", r"lacks the column\(s\) \['path', 'speaker'\]"),
        ("path\tspeaker\n", r"list\.tsv has no rows; give"),
    ],
)
def test_mistakes_name_file_and_row(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_entries(write(tmp_path, text))


def test_rows_of_other_splits_may_lack_a_speaker(tmp_path: Path) -> None:
    path = write(tmp_path, "path\tspeaker\tsplit\na.wav\tanna\ttrain\nb.wav\t\tunlabelled\n")
    assert [entry.speaker for entry in read_entries(path, "train")] == ["anna"]
    with pytest.raises(ValueError, match=r"list\.tsv:3: no speaker given"):
        read_entries(path)


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing does not exist"):
        read_entries(tmp_path / "nothing")
    with pytest.raises(ValueError, match="has no audio files"):
        read_entries(tmp_path)
    with pytest.raises(ValueError, match="has no rows of split 'dev'"):
        read_entries(write(tmp_path, "path\tspeaker\tsplit\nx.wav\tanna\ttrain\n"), "dev")
    with pytest.raises(ValueError, match=r"split 'dve' \(there: dev, train\); give"):
        read_entries(write(tmp_path, "path\tspeaker\tsplit\na\tanna\ttrain\nb\tbert\tdev\n"), "dve")
    with pytest.raises(ValueError, match="nothing does not exist; give a folder of audio files"):
        read_entries(tmp_path / "nothing", flat=True)
