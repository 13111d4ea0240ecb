"""What a file is, judged by its first bytes: for messages about files that are not what their name says."""

MAGIC = [
    (0, b"RIFF", "wav of an unknown encoding"),
    (0, b"fLaC", "FLAC"),
    (0, b"OggS", "Ogg"),
    (0, b"ID3", "MP3"),
    (4, b"ftyp", "MP4/M4A (AAC)"),
    (0, b"ADIF", "AAC"),
    (0, b"\x1aE\xdf\xa3", "Matroska/WebM"),
    (0, b"0&\xb2u\x8ef\xcf\x11", "WMA"),
    (0, b"#!AMR", "AMR"),
    (0, b"NIST_1A", "NIST SPHERE"),
    (0, b"caff", "CAF"),
    (0, b"FORM", "AIFF"),
    (0, b".snd", "AU"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"%PDF", "PDF"),
    (0, b"version https://git-lfs", "a Git LFS pointer (try `git lfs pull`)"),
]


def looks_like(head: bytes) -> str:
    """Name of the type of a file that starts with these bytes.

    >>> looks_like(b"fLaC\\0\\0")
    'FLAC'
    >>> looks_like(b"  <!DOCTYPE html>")
    'HTML'
    """
    for offset, magic, name in MAGIC:
        if head.startswith(magic, offset):
            return name
    if is_adts(head):
        return "AAC"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "MP3"
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml")):
        return "HTML"
    if head and all(byte >= 0x20 or byte in b"\t\r\n\f\x1b" for byte in head) and _is_utf8(head):
        return "text"
    return "no known kind of audio"


def is_adts(head: bytes) -> bool:
    """Whether these bytes start a raw AAC stream: MPEG's sync word with layer 0, which MP3 never has."""
    return len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0


def _is_utf8(head: bytes) -> bool:
    """Whether the bytes are UTF-8, a character cut at the end allowed."""
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True
