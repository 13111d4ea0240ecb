"""Changes of log-mel frames, and what they stand for."""

import math

import numpy as np
import pytest
import torch

from diarnorm.fbank import fbank_offline
from diarnorm.robustness.corruption import corrupt, parse
from tests.robustness.talk import talk


def test_an_offset_is_a_gain_of_the_samples() -> None:
    whole = torch.from_numpy(talk().samples[None, :128_000].copy())
    louder = torch.from_numpy(corrupt(talk(), parse(["loudness.gain=20"]), 0).samples[None, :128_000])
    offset = parse([f"features.offset={math.log(100)}"])
    torch.testing.assert_close(offset.apply_mel(fbank_offline(whole)), fbank_offline(louder), atol=2e-3, rtol=0)
    assert parse(["features.offset=strong"]).links[0].severity == pytest.approx(math.log(100), abs=1e-3)


def test_links_on_frames_are_applied_in_order_to_any_array() -> None:
    for mel in (torch.randn(2, 16, 80), np.random.default_rng(0).standard_normal((16, 80))):
        before = mel + 0
        spec = parse(["features.offset=2", "dc.offset=0.1", "features.scale=1.5"])
        np.testing.assert_allclose(np.asarray(spec.apply_mel(mel)), 1.5 * (np.asarray(before) + 2), rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(mel), np.asarray(before))
        for neutral in (parse(["dc.offset=0.1"]), parse(["features.offset=0", "features.scale=1"])):
            assert neutral.apply_mel(mel) is mel
