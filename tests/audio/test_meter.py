"""Levels, offsets, rails, damage and bandwidth against numbers computed from the whole signal."""

import numpy as np
import pytest

from diarnorm.audio.meter import SILENCE_DBFS, BandwidthMeter, SignalMeter, SignalReport
from tests.wavbytes import speechlike


def measure(samples: np.ndarray, rate: int = 16_000, block: int = 1000) -> SignalReport:
    """Report on [n] or [n, channels] float samples fed in blocks, averaged by numpy."""
    meter = SignalMeter(rate)
    samples = np.atleast_2d(samples.astype(np.float32).T).T
    for start in range(0, len(samples), block):
        cleaned = meter.clean(samples[start : start + block])
        mono = cleaned.mean(axis=1)
        meter.add(cleaned, mono)
        meter.add_resampled(mono)
    return meter.report()


def test_level_and_offset_are_those_of_the_signal() -> None:
    x = speechlike(50_000) + 0.1
    report = measure(x)
    assert report.num_samples == 50_000
    assert report.dc == pytest.approx(np.mean(x), abs=1e-7)
    assert report.level_dbfs == pytest.approx(20 * np.log10(np.std(x)), abs=1e-4)
    assert report.peak == pytest.approx(np.abs(x).max(), rel=1e-6)
    assert report.mix_loss_db == pytest.approx(0, abs=1e-9)
    assert "DC offset +10" in report.notices()[0]


def test_a_full_scale_square_is_0_dbfs_and_at_the_rails() -> None:
    report = measure(np.where(np.arange(16_000) // 80 % 2, 1.0, -1.0))
    assert report.level_dbfs == pytest.approx(0, abs=1e-9)
    assert report.clipped_share == 1.0
    assert report.notices()[0] == "clipped: 100.0 % of the samples at or beyond full scale"


def test_clipped_share_is_counted() -> None:
    x = np.clip(30 * speechlike(40_000), -1, 32767 / 32768)
    share = np.mean((x >= 32767 / 32768) | (x <= -1))
    assert 0.1 < share < 0.9
    assert measure(x).clipped_share == pytest.approx(share, abs=1e-12)
    assert f"clipped: {100 * share:.1f} %" in measure(x).notices()[0]
    assert "peak 3" in measure(np.full(16_000, 3.0) * np.sign(speechlike(16_000))).notices()[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, -2e6])
def test_damage_is_replaced_counted_and_timed(bad: float) -> None:
    x = speechlike(32_000)[:, None].repeat(2, axis=1).astype(np.float32)
    x[12_345, 1] = x[20_000:20_003, 0] = bad
    meter = SignalMeter(8000)
    before = x.copy()
    cleaned = np.concatenate([meter.clean(x[start : start + 777]) for start in range(0, len(x), 777)])
    np.testing.assert_array_equal(x, before)  # the caller's array is left alone
    expected = np.where(np.isfinite(x) & (np.abs(x) <= 1e6), x, 0)
    np.testing.assert_array_equal(cleaned, expected)
    report = meter.report()
    assert (report.num_bad, report.first_bad_s) == (4, 12_345 / 8000)
    assert report.notices()[0].endswith("4 replaced by 0, the first at 1.543 s")


def test_int16_counts_held_in_floats_are_no_damage() -> None:
    report = measure(32767 * np.sign(speechlike(16_000)))
    assert (report.num_bad, report.peak) == (0, 32767)


@pytest.mark.parametrize(
    ("right", "loss_db"),
    [(-1.0, 170.0), (-0.9, 25.6), (0.0, 3.01), (1.0, 0.0)],
)
def test_mix_loss(right: float, loss_db: float) -> None:
    x = speechlike(32_000).astype(np.float32).astype(np.float64)
    report = measure(np.stack([x, right * x], axis=1))
    if loss_db > 100:
        assert report.mix_loss_db > loss_db
    else:
        direct = 10 * np.log10((1 + right**2) / 2 / ((1 + right) / 2) ** 2)
        assert report.mix_loss_db == pytest.approx(direct, abs=0.001)
        assert direct == pytest.approx(loss_db, abs=0.05)
    assert any("anti-phase" in note for note in report.notices()) == (loss_db > 20)


def test_an_offset_does_not_hide_channels_that_cancel() -> None:
    x = speechlike(32_000)
    assert measure(np.stack([x, -x], axis=1) + 0.3).mix_loss_db > 100


def test_silence_and_quiet() -> None:
    silence = measure(np.full(16_000, 0.25))
    assert silence.level_dbfs == SILENCE_DBFS
    assert silence.bandwidth_hz is None or silence.bandwidth_hz >= 0
    assert silence.notices() == ["DC offset +25.0 % of full scale", "digital silence: all samples are equal"]
    hum = measure(0.0005 * np.sin(2 * np.pi * 60 * np.arange(16_000) / 16_000))
    assert hum.notices() == ["very quiet: level -69 dBFS"]
    assert measure(np.zeros(0)).notices() == measure(np.ones(1)).notices()[1:] == []
    assert measure(speechlike(32_000)).notices() == []


def test_an_offset_does_not_cost_precision_in_an_hour() -> None:
    meter = SignalMeter(16_000)
    block = (0.5 + 1e-5 * np.sign(np.sin(np.arange(65_536)))).astype(np.float32)[:, None]
    for _ in range(880):
        meter.add(block, block[:, 0])
    meter.num_samples = 880 * 65_536
    expected = 20 * np.log10(np.std(block.astype(np.float64)))
    assert meter.report().level_dbfs == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("edge_hz", [1000, 3800, 5500, 7500])
def test_bandwidth_is_where_the_energy_ends(edge_hz: int) -> None:
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(80_000))
    spectrum[np.fft.rfftfreq(80_000, 1 / 16_000) > edge_hz] = 0
    x = 0.1 * np.fft.irfft(spectrum)
    found = measure(x).bandwidth_hz
    assert found == pytest.approx(edge_hz, abs=60)
    assert any("effective bandwidth" in note for note in measure(x).notices()) == (edge_hz < 6000)


def test_bandwidth_does_not_depend_on_blocks() -> None:
    x = speechlike(40_000).astype(np.float32)
    whole, parts = BandwidthMeter(), BandwidthMeter()
    whole.add(x)
    for start in range(0, len(x), 333):
        parts.add(x[start : start + 333])
    np.testing.assert_array_equal(whole._power, parts._power)
    assert whole._power.sum() > 0
