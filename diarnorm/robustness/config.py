"""Configuration of a robustness report. Defaults live here; the command line says what differs."""

from dataclasses import dataclass, field
from typing import Any

from diarnorm.checks import check_range
from diarnorm.evaluation.config import Changes
from diarnorm.robustness.peers import words_of


@dataclass(frozen=True)
class Margin:
    """Most that the DER may grow, in points (% of the reference's speech), under one factor."""

    factor: str = ""
    """A corruption, `family.name`, a whole family, or `all`."""
    points: float | None = 2.0
    """None: no margin, the figure alone is told."""
    low: float | None = None
    """Severities below it have no margin."""
    high: float | None = None
    """Severities above it have no margin."""


@dataclass(frozen=True)
class RobustnessConfig(Changes):
    """Models, sets of recordings, what is done to the audio, and changes of all models.

    Raises ValueError for the first value out of range, with its key.
    """

    models: Any = "rms"
    """Names of shipped models, paths of model files, folders of them: one, a list, or {NAME: PATH}."""
    sets: dict[str, Any] = field(default_factory=dict)
    """Sets of recordings by name: a folder, a list, or {audio, rttm, uem, region_s}; see `evaluation.sources`."""
    peers: dict[str, str] = field(default_factory=dict)
    """Other programs by name: a command with `{wavs}` and `{rttms}`, folders of recordings and of what it says of them;
    see `robustness.peers`."""
    peer_limit_s: float = 3600.0
    """A peer that takes longer for a batch of recordings is stopped."""
    corruptions: tuple[str, ...] = ("all",)
    """`all`, a family, a corruption at its default severities, or with one: `dc.offset=0.1`. Several words with spaces
    between are done one after the other."""
    alone: tuple[str, ...] = ()
    """The same, done to `alone_s` seconds of digital silence in which nobody speaks: there must be no turns."""
    alone_s: float = 20.0
    margin: float | None = 2.0
    """Most that the DER may grow, in points, under what `margins` does not name; None: no margin."""
    margins: tuple[Margin, ...] = ()
    """The first that fits counts."""
    halves: tuple[str, ...] = ()
    """Corruptions, families or `all`: both halves of a recording are scored apart, too, for what changes inside it."""
    quiet: tuple[str, ...] = ()
    """Corruptions or families that put silence in, or `all` of them: there must be no speech in it."""
    same_labels: tuple[str, ...] = ()
    """Corruptions, families or `all` of those that leave the start as it was (silence, damage, burst, dc.step): after
    what happens there labels must be those of the clean run. Not for what comes before everybody: then labels are but
    the order of first turns."""
    same_labels_share: float = 0.9
    """Least share of the speech after it that must have them."""
    edge_s: float = 0.5
    """What of a silence, at either end, is not asked about: pauses are bridged, and edges of turns are not exact."""
    recovery_distance: float = 0.2
    """Activity this near to the clean run's is the same again."""
    recovery_hold_s: float = 1.0
    """How long it must stay there."""
    collar_s: float = 0.0
    skip_overlap: bool = False
    num_resamples: int = 1000
    seed: int = 0
    batch_s: float = 900.0
    """Seconds of audio that go through a model together; more is faster and takes more memory: in each process 1 MB
    per second, twice that where silence that is put in makes it twice as long."""
    workers: int = 1
    """Processes, each on one CPU thread."""
    device: str = "cpu"
    players: tuple[str, ...] = ("loudness.swing=20", "burst.slam=30", "noise.white=10", "room.reverb=0.7")
    """Corruptions that can be listened to in the report, on an excerpt of the first recording; [] for none."""
    player_s: float = 6.0
    """Length of the excerpt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("workers", "num_resamples"):
            check_range(name, getattr(self, name), low=1)
        for name in ("seed", "collar_s", "edge_s", "recovery_distance"):
            check_range(name, getattr(self, name), low=0)
        for name in ("alone_s", "recovery_hold_s", "batch_s", "player_s", "peer_limit_s"):
            check_range(name, getattr(self, name), above=0)
        check_range("same_labels_share", self.same_labels_share, low=0, high=1)
        for name, command in self.peers.items():
            words_of(name, command)
        if not (self.corruptions or self.alone):
            raise ValueError("corruptions is empty: give all, or names such as corruptions=[dc.offset,loudness.gain]")
