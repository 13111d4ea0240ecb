"""Changes of log-mel frames, which isolate the norms from the way into the features.

A gain of the samples adds ln(10) / 10 per dB to every bin: 20 dB are an offset of 4.605.
"""

from diarnorm.robustness.sound import Corruption, Mel


def offset(mel: Mel, severity: float) -> Mel:
    """The same number added to every bin of every frame."""
    return mel + severity


def scale(mel: Mel, severity: float) -> Mel:
    """Every bin of every frame multiplied by the same number."""
    return mel * severity


CORRUPTIONS = (
    Corruption(
        "features.offset",
        "nat",
        "X added to all log-mel bins; 4.605 is a gain of 20 dB",
        (1.0, 2.3, 4.605),
        (-100.0, 100.0),
        apply_mel=offset,
    ),
    Corruption(
        "features.scale",
        "times",
        "log-mel frames multiplied by X",
        (1.1, 1.25, 1.5),
        (0.01, 100.0),
        apply_mel=scale,
        neutral=1.0,
    ),
)
