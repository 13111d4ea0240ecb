"""Statistics of conversations side by side, as a person reads them."""

from collections.abc import Mapping, Sequence

from diarnorm.evaluation.scores import markdown_table
from diarnorm.simulation.talkstats import TalkStatistics


def comparison_table(columns: Mapping[str, TalkStatistics]) -> str:
    """A Markdown table with a column for each; shares in %, quantiles as `median (5 % .. 95 %)`."""
    rows = [[name, *(show(column) for column in columns.values())] for name, show in ROWS]
    return "\n".join(markdown_table(["", *columns], rows))


def _spread(quantiles: Sequence[float], scale: float = 1.0, digits: int = 2) -> str:
    if not quantiles:
        return "n/a"
    low, middle, high = (f"{scale * quantiles[i]:.{digits}f}" for i in (0, 2, 4))
    return f"{middle} ({low} .. {high})"


ROWS = (
    ("conversations", lambda s: str(s.num_conversations)),
    ("minutes", lambda s: f"{s.duration_s / 60:.1f}"),
    ("of 0, 1, 2, ... speakers", lambda s: ", ".join(map(str, s.num_speakers))),
    ("speech, % of time", lambda s: f"{100 * s.speech_share:.1f}"),
    ("the same, by conversation", lambda s: _spread(s.speech_quantiles, 100, 1)),
    ("overlap, % of speech", lambda s: f"{100 * s.overlap_share:.1f}"),
    ("the same, by conversation", lambda s: _spread(s.overlap_quantiles, 100, 1)),
    ("most talkative speaker, %", lambda s: _spread(s.dominance_quantiles, 100, 1)),
    ("turns per minute", lambda s: f"{s.turns_per_minute:.1f}"),
    ("turn, s", lambda s: _spread(s.turn_quantiles_s)),
    ("pause (same speaker goes on), s", lambda s: _spread(s.pause_quantiles_s)),
    ("gap (another begins), s", lambda s: _spread(s.gap_quantiles_s)),
    ("overlap, s", lambda s: _spread(s.overlap_quantiles_s)),
    ("level of speech, dBFS", lambda s: _spread(s.level_quantiles_db, 1, 1)),
    ("speech above the rest, dB", lambda s: _spread(s.contrast_quantiles_db, 1, 1)),
)
