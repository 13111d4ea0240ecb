"""Files that are written all at once, told apart by their bytes, and named so that any system takes them."""

import errno
import hashlib
import io
from pathlib import Path

import pytest

from diarnorm.files import file_sha256, naming, replacing


def test_a_file_is_replaced_at_the_end_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
        assert partial.parent == tmp_path  # on the same disk, so that it moves all at once
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["table.md"]


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text("old")

    def stopped() -> None:
        with replacing(path) as partial:
            partial.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["table.md"]


def test_an_error_says_where_it_was() -> None:
    for error in (OSError(errno.ENOSPC, "No space left"), OSError(errno.ENOSPC, "No space left", "partial")):
        with pytest.raises(OSError, match=r"No space left: 'table\.md'"), naming("table.md"):
            raise error
    with pytest.raises(BrokenPipeError), naming("table.md"):
        raise OSError(errno.EPIPE, "Broken pipe")
    with pytest.raises(io.UnsupportedOperation, match=r"^not writable$"), naming("table.md"):
        raise io.UnsupportedOperation("not writable")


def test_the_hash_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "sound.wav"
    path.write_bytes(b"\0\1" * 1000)
    assert file_sha256(path) == hashlib.sha256(b"\0\1" * 1000).hexdigest()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.wav: no such file"):
        file_sha256(tmp_path / "gone.wav")
