"""First bytes of files as they come from real encoders and servers."""

import io

import numpy as np
import pytest
import soundfile

from diarnorm.audio.filetype import is_adts, looks_like


@pytest.mark.parametrize(
    ("format_", "subtype", "name"),
    [
        ("FLAC", "PCM_16", "FLAC"),
        ("OGG", "VORBIS", "Ogg"),
        ("OGG", "OPUS", "Ogg"),
        ("MP3", "MPEG_LAYER_III", "MP3"),
        ("AIFF", "PCM_16", "AIFF"),
        ("AU", "PCM_16", "AU"),
        ("CAF", "PCM_16", "CAF"),
    ],
)
def test_files_written_by_libsndfile_are_named(format_: str, subtype: str, name: str) -> None:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(16000), 16000, format=format_, subtype=subtype)
    head = file.getvalue()[:512]
    assert looks_like(head) == name
    assert not is_adts(head)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\xff\xf1\x50\x80\x1a\xdf\xfc", "AAC"),
        (b"\xff\xf9\x50\x80\x1a\xdf\xfc", "AAC"),
        (b"\x00\x00\x00\x20ftypM4A ", "MP4/M4A (AAC)"),
        (b"\xef\xbb\xbf\n<!DOCTYPE HTML>", "HTML"),
        (b"<html lang=en>", "HTML"),
        (b"this is not audio\n" * 9, "text"),
        ("nai\u0308f \u65e5\u672c".encode()[:-1], "text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer (try `git lfs pull`)"),
        (bytes(100), "no known kind of audio"),
        (b"\x93\xfa\x96\x7b", "no known kind of audio"),
    ],
)
def test_other_first_bytes(head: bytes, name: str) -> None:
    assert looks_like(head) == name
