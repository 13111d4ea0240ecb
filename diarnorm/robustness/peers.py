"""Peers: other programs in the same report, on exactly the same damaged audio.

A peer is a command that gets a folder of recordings and fills another with what it says of them:

    peers: {mine: "python mine.py {wavs} {rttms}"}

`{wavs}` and `{rttms}` become the paths of the two folders. The command runs once for a batch of recordings under a
condition, without a shell, in the folder in which `diarnorm` was typed, and is stopped after `peer_limit_s`. Every
recording is a `NAME.wav`, mono, 16 kHz, 32-bit float: that holds the damage to the last bit, beyond full scale, far
below 16 bits, and with samples that are no numbers; a program that wants 16 bits rounds and clips for itself. For each,
there must be a `NAME.rttm` afterwards; where it is empty, nobody speaks. Labels in it are free, and so is what it calls
the recording.

A peer has no log-mel frames: conditions that change those, and what is seen inside of models, it goes without.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import soundfile
from jaxtyping import Float32

from diarnorm.files import file_sha256, legal_folder
from diarnorm.rttm import RttmError, read_rttm
from diarnorm.timebase import SAMPLE_RATE
from diarnorm.turns import Turn

WAVS, RTTMS = "{wavs}", "{rttms}"
"""What stands in a command for the two folders."""
CLOSING_S = 5.0
"""So long a program that is stopped has for its own closing, before it is killed."""


class PeerError(ValueError):
    """A peer did not do its work, which may be the fault of one recording, or its own."""


@dataclass(frozen=True)
class Peer:
    """Another program.

    Attributes:
        name: in the report.
        command: as it was given.
        files: those that the command names, with their SHA-256.
        folder: where it runs.
        limit_s: after so long it is stopped.
    """

    name: str
    command: str
    files: tuple[tuple[str, str], ...]
    folder: Path
    limit_s: float = 3600.0

    @property
    def facts(self) -> dict[str, Any]:
        """What its turns depend on, as far as can be seen: not on the packages that the program imports."""
        return {"command": self.command, "files": dict(self.files)}


def words_of(name: str, command: str) -> list[str]:
    """The words of the command of peer `name`.

    Raises:
        ValueError: no words, or one of the folders is missing.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"peers.{name}={command} cannot be cut into words: {str(error).lower()}") from error
    missing = [place for place in (WAVS, RTTMS) if not any(place in word for word in words[1:])]
    if missing:
        example = f"give a command such as 'python mine.py {WAVS} {RTTMS}'"
        raise ValueError(f"peers.{name}={command} has no {' and no '.join(missing)} after its program: {example}")
    return words


def find_peers(
    given: Mapping[str, str], models: Iterable[str], folder: Path, limit_s: float = Peer.limit_s
) -> tuple[Peer, ...]:
    """The peers of a configuration; they run in `folder`, and must not be called like one of the `models`.

    Raises:
        ValueError: a name that is taken, a command that is none, or a program that there is not.
    """
    taken, peers = set(models), []
    for name, command in given.items():
        words = words_of(name, command)
        if name in taken:
            raise ValueError(f"peers.{name} is the name of a model, too: choose another")
        if shutil.which(folder / words[0] if os.sep in words[0] else words[0]) is None:
            raise ValueError(f"peers.{name}: there is no program {words[0]}: give its path, or install it")
        peers.append(Peer(name, command, _hashes(words, folder), folder, limit_s))
    return tuple(peers)


def _hashes(words: Sequence[str], folder: Path) -> tuple[tuple[str, str], ...]:
    """Files among the words, or behind an `=` in them, with their hashes."""
    parts = dict.fromkeys(part for word in words for part in (word, word.partition("=")[2]) if part)
    files = [part for part in parts if os.path.isfile(folder / part)]  # noqa: PTH113 - no word is too long for it
    return tuple((part, file_sha256(folder / part)) for part in files)


def listen(
    peer: Peer, condition: str, names: Sequence[str], samples: Sequence[Float32[np.ndarray, " samples"]]
) -> list[list[Turn]]:
    """What a peer says of each recording, given by name; `condition` is for messages.

    Raises:
        PeerError: the command fails, leaves out a recording, or writes what is no RTTM.
        ValueError: two recordings of a name.
    """
    with tempfile.TemporaryDirectory(prefix="diarnorm_") as place:
        wavs, rttms = Path(place, "wavs"), Path(place, "rttms")
        wavs.mkdir()
        rttms.mkdir()
        stems = [legal_folder(name) for name in names]
        for stem, sound in zip(stems, samples, strict=True):
            if (wavs / f"{stem}.wav").exists():
                raise ValueError(f"peer {peer.name}: two recordings are called {stem}: rename one")
            soundfile.write(wavs / f"{stem}.wav", sound, SAMPLE_RATE, subtype="FLOAT")
        try:
            said = _run(peer, wavs, rttms)
            return [_read(rttms / f"{stem}.rttm", said) for stem in stems]
        except ValueError as error:
            raise PeerError(f"peer {peer.name} on {condition}: {error}".replace(f"{place}{os.sep}", "")) from error


def _run(peer: Peer, wavs: Path, rttms: Path) -> str:
    """Run the command; the last line of its standard error.

    Raises:
        ValueError: it cannot be started, fails, or takes too long.
    """
    words = [word.replace(WAVS, str(wavs)).replace(RTTMS, str(rttms)) for word in words_of(peer.name, peer.command)]
    with tempfile.TemporaryFile() as errors:
        code = _wait(words, peer, errors)
        errors.seek(0)
        lines = [line.strip() for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    said = lines[-1] if lines else "nothing"
    if code is None:
        raise ValueError(
            f"the command was stopped after {peer.limit_s:g} s (peer_limit_s=SECONDS gives it more, batch_s=SECONDS "
            f"less to do at once); the last it said on standard error: {said}"
        )
    if code != 0:
        raise ValueError(f"the command failed with {code}; the last it said on standard error: {said}")
    return said


def _wait(words: Sequence[str], peer: Peer, errors: IO[bytes]) -> int | None:
    """Start the command and wait for its end; its exit code, None where it took too long and was stopped.

    It stays in our group of processes: Ctrl-C reaches it, too.

    Raises:
        ValueError: it cannot be started.
    """
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(words, cwd=peer.folder, stdin=quiet, stdout=quiet, stderr=errors)
    except OSError as error:
        raise ValueError(f"{words[0]} cannot be started ({error.strerror})") from error
    with process:
        try:
            return process.wait(peer.limit_s)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(CLOSING_S)
            return None
        finally:
            process.kill()


def _read(path: Path, said: str) -> list[Turn]:
    """The turns of an RTTM file about one recording, whatever that is called in it.

    Raises:
        ValueError: there is no file, it cannot be read, or is about several recordings.
    """
    try:
        recordings = read_rttm(path)
    except OSError as error:
        raise ValueError(f"it wrote no {path.name}; the last it said on standard error: {said}") from error
    except RttmError as error:
        raise ValueError(f"{error}; the last it said on standard error: {said}") from error
    if len(recordings) > 1:
        raise ValueError(f"{path.name} is about several recordings, {', '.join(list(recordings)[:3])}")
    return [turn for turns in recordings.values() for turn in turns]
