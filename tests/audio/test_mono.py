"""Mono at 16 kHz: exact where nothing needs changing, against sines in closed form where it does."""

import numpy as np
import pytest
import soxr

from diarnorm.audio import mono
from diarnorm.audio.mono import Mono16k, resampler_delay
from tests.wavbytes import pcm16, speechlike

RATES = [4000, 8000, 11_025, 12_345, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000, 192_000]


def convert(samples: np.ndarray, rate: int, channel: int | None = None, blocks: list[int] | None = None) -> np.ndarray:
    """All output for `samples`, pushed in blocks of these lengths and then the rest."""
    stream = Mono16k(rate, channel)
    cuts = np.cumsum([0, *(blocks or [])])
    parts = [stream.push(samples[a:b]) for a, b in zip(cuts, [*cuts[1:], len(samples)], strict=True)]
    return np.concatenate([*parts, stream.finish()])


def sine(frequency_hz: float, rate: int, seconds: float) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * frequency_hz * np.arange(round(rate * seconds)) / rate)).astype(np.float32)


def power_db(samples: np.ndarray, low_hz: float, high_hz: float) -> float:
    """Power of the middle of `samples` at 16 kHz between two frequencies, relative to full scale."""
    middle = samples[len(samples) // 4 : len(samples) * 3 // 4]
    power = np.abs(np.fft.rfft(middle * np.blackman(len(middle)))) ** 2
    frequency = np.fft.rfftfreq(len(middle), 1 / 16_000)
    return 10 * np.log10(power[(frequency >= low_hz) & (frequency <= high_hz)].sum() / len(middle) ** 2 + 1e-30)


def test_at_16_khz_samples_pass_bit_exact() -> None:
    x = (6 * speechlike(5000)).astype(np.float32)
    assert np.abs(x).max() > 1.1
    stream = Mono16k(16_000)
    np.testing.assert_array_equal(np.concatenate([stream.push(x), stream.finish()]), x)
    assert stream.delay_samples == 0
    assert not any("resampled" in warning for warning in stream.warnings)


def test_the_output_is_no_view_of_the_callers_buffer() -> None:
    buffer = np.ones(100, np.float32)
    given = Mono16k(16_000).push(buffer)
    buffer[:] = 7
    np.testing.assert_array_equal(given, np.ones(100))


def test_int16_is_divided_by_32768() -> None:
    x = np.array([-32768, -1, 0, 1, 32767], np.int16)
    np.testing.assert_array_equal(convert(x, 16_000), [-1.0, -1 / 32768, 0, 1 / 32768, 32767 / 32768])
    counts = pcm16(speechlike(4000)).astype(np.int16)
    np.testing.assert_array_equal(convert(counts, 44_100), convert(counts.astype(np.float32) / 32768, 44_100))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("num_samples", [0, 1, 2, 10, 999, 16_037, 50_001])
def test_number_of_samples(rate: int, num_samples: int) -> None:
    assert len(convert(np.zeros(num_samples, np.float32), rate)) == round(num_samples * 16_000 / rate)


@pytest.mark.parametrize("rate", RATES)
def test_a_sine_arrives_in_place(rate: int) -> None:
    frequency_hz = 440.0 if rate < 8000 else 1234.5
    out = convert(sine(frequency_hz, rate, 2.0), rate)
    ideal = 0.5 * np.sin(2 * np.pi * frequency_hz * np.arange(len(out)) / 16_000)
    middle = slice(8000, 24_000)
    np.testing.assert_allclose(out[middle], ideal[middle], atol=2e-5)
    assert np.abs(out[middle] - np.roll(ideal, 1)[middle]).max() > 0.05  # one sample late would be seen


@pytest.mark.parametrize("rate", RATES)
def test_any_partition_gives_the_same_bits(rate: int) -> None:
    x = speechlike(rate // 2 + 77, rate).astype(np.float32)
    whole = convert(x, rate)
    assert np.abs(whole).max() > 0.1
    for seed in range(3):
        blocks = np.random.default_rng(seed).integers(0, len(x) // 9, 8).tolist()
        np.testing.assert_array_equal(convert(x, rate, blocks=[0, 1, *blocks]), whole)
    np.testing.assert_array_equal(convert(x[:3000], rate, blocks=[1] * 3000), convert(x[:3000], rate))


def test_a_resampler_per_block_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = speechlike(44_100, 44_100).astype(np.float32)
    whole = convert(x, 44_100)

    class Forgetful:
        def resample_chunk(self, samples: np.ndarray, last: bool = False) -> np.ndarray:
            return soxr.resample(samples, 44_100, 16_000)

    monkeypatch.setattr(mono, "_make_resampler", lambda rate: Forgetful())
    monkeypatch.setattr(mono, "resampler_delay", lambda rate: 0)
    assert np.abs(convert(x, 44_100, blocks=[11_025] * 3) - whole).max() > 0.001


def test_long_blocks_are_worked_off_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.stack([speechlike(9000), speechlike(9000, seed=1)], axis=1).astype(np.float32)
    whole = convert(x, 44_100)
    monkeypatch.setattr(mono, "PIECE_VALUES", 101)
    np.testing.assert_array_equal(convert(x, 44_100), whole)


@pytest.mark.parametrize("rate", [8000, 11_025, 44_100, 96_000])
def test_the_output_never_lags_more_than_stated(rate: int) -> None:
    stream = Mono16k(rate)
    x = speechlike(rate // 4, rate).astype(np.float32)
    num_out, lag = 0, 0.0
    for index, sample in enumerate(x):
        num_out += len(stream.push(sample[None]))
        lag = max(lag, (index + 1) * 16_000 / rate - num_out)
    assert 0.9 * stream.delay_samples < lag <= stream.delay_samples
    assert stream.delay_samples == resampler_delay(rate) < 2400  # 150 ms


def test_telephony_has_nothing_above_its_band() -> None:
    noise = (0.1 * np.random.default_rng(0).standard_normal(24_000)).astype(np.float32)
    out = convert(noise, 8000)
    assert power_db(out, 4200, 8000) < power_db(out, 100, 3400) - 60
    repeated = np.repeat(noise, 2)  # what no interpolation filter at all would give
    assert power_db(repeated, 4200, 8000) > power_db(repeated, 100, 3400) - 20


def test_a_tone_above_the_band_leaves_no_alias() -> None:
    tone = sine(30_000, 96_000, 2.0)
    out = convert(tone, 96_000)
    assert power_db(out, 0, 8000) < power_db(sine(2000, 16_000, 2.0), 1900, 2100) - 100
    assert power_db(tone[::6], 1900, 2100) > -20  # plain decimation puts it at 2 kHz


def test_the_notice_names_both_rates() -> None:
    assert Mono16k(44_100).warnings == ["resampled 44100 -> 16000 Hz"]
    assert Mono16k(8000).warnings == ["resampled 8000 -> 16000 Hz; effective bandwidth 4 kHz"]


def test_upsampled_input_is_noticed() -> None:
    narrow = convert(speechlike(16_000, 8000).astype(np.float32), 8000)
    stream = Mono16k(16_000)
    stream.push(narrow)
    stream.finish()
    assert stream.warnings == ["effective bandwidth 4 kHz"]


@pytest.mark.parametrize("num_channels", [1, 2, 3, 6])
def test_equal_channels_give_the_channel_bit_for_bit(num_channels: int) -> None:
    x = speechlike(4000).astype(np.float32)
    np.testing.assert_array_equal(convert(np.repeat(x[:, None], num_channels, axis=1), 16_000), x)


def test_channels_are_averaged_or_chosen() -> None:
    left, right = speechlike(4000).astype(np.float32), speechlike(4000, seed=1).astype(np.float32)[::-1]
    both = np.stack([left, right], axis=1)
    np.testing.assert_array_equal(convert(both, 16_000), ((left.astype(float) + right) / 2).astype(np.float32))
    np.testing.assert_array_equal(convert(both, 16_000, channel=0), left)
    np.testing.assert_array_equal(convert(both, 16_000, channel=1), right)
    counts = pcm16(both)
    np.testing.assert_array_equal(convert(counts.astype(np.int16), 16_000, channel=1), counts[:, 1] / 32768)


def test_channels_that_cancel_are_reported_and_can_be_chosen() -> None:
    x = speechlike(16_000).astype(np.float32)
    both = np.stack([x, -x], axis=1)
    stream = Mono16k(16_000)
    assert not stream.push(both).any()
    stream.finish()
    assert "anti-phase" in stream.warnings[0]
    chosen = Mono16k(16_000, channel=1)
    np.testing.assert_array_equal(chosen.push(both), -x)
    chosen.finish()
    assert chosen.warnings == []


def test_damage_becomes_zeros_before_the_resampler() -> None:
    x = speechlike(88_200, 44_100).astype(np.float32)
    damaged, repaired = x.copy(), x.copy()
    damaged[44_100] = np.nan
    damaged[50_000:50_100] = -np.inf
    repaired[44_100] = repaired[50_000:50_100] = 0
    stream = Mono16k(44_100)
    np.testing.assert_array_equal(np.concatenate([stream.push(damaged), stream.finish()]), convert(repaired, 44_100))
    assert stream.report.num_bad == 101
    assert stream.report.first_bad_s == 1.0
    assert stream.warnings[1].endswith("101 replaced by 0, the first at 1.000 s")


def test_levels_are_those_of_the_raw_input() -> None:
    x = speechlike(44_100, 44_100).astype(np.float32) + np.float32(0.1)
    stream = Mono16k(44_100)
    stream.push(x)
    assert stream.report.num_samples == 44_100  # also before the end
    assert stream.report.dc == pytest.approx(x.astype(float).mean(), abs=1e-7)
    assert stream.report.level_dbfs == pytest.approx(20 * np.log10(x.astype(float).std()), abs=1e-4)


@pytest.mark.unchecked
@pytest.mark.parametrize("rate", [-1, 0, 1, 3999, 768_001, 44_100.0])
def test_absurd_rates_are_refused(rate: int) -> None:
    with pytest.raises(ValueError, match=f"sample rate {rate} Hz; a whole number from 4000 to 768000"):
        Mono16k(rate)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("block", "message"),
    [
        (np.zeros(4), r"block of float64.*: np.asarray\(block, 'float32'\)$"),
        ([0.0, 0.5], r"block of float64.*: np.asarray\(block, 'float32'\)$"),
        (np.zeros(4, np.int32), r"block of int32.* / 2147483648\).astype\('float32'\)$"),
        (b"\0\0", "block of .*int16 is needed$"),
        (np.zeros((2, 2, 2), np.float32), r"shape \(2, 2, 2\)"),
        (np.float32(1), r"shape \(\)"),
        (np.zeros((2, 16_000), np.float32), "block.T"),
        (np.zeros((100, 65), np.float32), "65 channels; 1 to 64"),
        (np.zeros((100, 0), np.float32), "0 channels; 1 to 64"),
    ],
)
def test_blocks_of_other_types_and_shapes_are_refused(block: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mono16k(16_000).push(block)


def test_channels_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="channel -1; channels are whole numbers, counted from 0"):
        Mono16k(16_000, channel=-1)
    with pytest.raises(ValueError, match="channel 2 asked for, the input has 2: choose 0 to 1"):
        Mono16k(16_000, channel=2).push(np.zeros((10, 2), np.float32))
    with pytest.raises(ValueError, match="channel 1 asked for, the input has only channel 0"):
        Mono16k(16_000, channel=1).push(np.zeros(10, np.float32))
    stream = Mono16k(16_000)
    stream.push(np.zeros(10, np.float32))
    with pytest.raises(ValueError, match="2 channels after blocks of 1"):
        stream.push(np.zeros((10, 2), np.float32))


def test_a_finished_stream_takes_no_more() -> None:
    stream = Mono16k(8000)
    stream.push(np.zeros(0, np.float32))
    assert len(stream.finish()) == 0
    with pytest.raises(ValueError, match="finished"):
        stream.finish()
    with pytest.raises(ValueError, match="start a new one"):
        stream.push(np.zeros(1, np.float32))
