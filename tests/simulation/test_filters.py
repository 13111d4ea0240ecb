"""Rooms and gain curves, measured on their impulse responses."""

import dataclasses

import numpy as np
import pytest
import torch

from diarnorm.simulation.conversation import Plan, knot_frequencies_hz
from diarnorm.simulation.filters import CURVE_SAMPLES, channel_filters, track_filters, white_noise
from diarnorm.simulation.planner import plan_conversation
from diarnorm.simulation.render import render
from tests.voices import imagined_speech

FFT = 32_768
CPU = torch.device("cpu")
DELAY = CURVE_SAMPLES // 2


def plan_with(rooms: dict | None = None, channel: dict | None = None) -> Plan:
    """A plan whose speakers' rooms or channel have the given values, flat and without taps otherwise."""
    plan = plan_conversation(imagined_speech(), seed=1, num_speakers=3)
    flat = {"eq_db": np.zeros_like(plan.rooms.eq_db), "tap_gain": np.zeros_like(plan.rooms.tap_gain)}
    values = {key: np.full_like(getattr(plan.rooms, key), value) for key, value in (rooms or {}).items()}
    return dataclasses.replace(
        plan,
        rooms=plan.rooms._replace(**flat | values),
        channel=plan.channel._replace(**channel or {}),
    )


def room_response(**rooms: float) -> np.ndarray:
    """Impulse response of the first track, its direct sound at sample 0."""
    spectrum = track_filters([plan_with(rooms)], FFT, CPU)[:1]
    return torch.fft.irfft(spectrum, FFT)[0].numpy()[DELAY:]


@pytest.mark.parametrize("rt60_s", [0.2, 0.4, 0.6])
def test_reverberation_time(rt60_s: float) -> None:
    response = room_response(rt60_s=rt60_s, direct=0.0, tail=1.0)
    remaining_db = 10 * np.log10(np.cumsum(np.square(response[:11_000])[::-1])[::-1] + 1e-20)
    remaining_db -= remaining_db[0]
    first, last = np.argmax(remaining_db < -5), np.argmax(remaining_db < -25)  # T20 of ISO 3382
    assert 3 * (last - first) / 16_000 == pytest.approx(rt60_s, rel=0.2)


def test_high_frequencies_decay_faster() -> None:
    response = room_response(rt60_s=0.5, direct=0.0, tail=1.0)
    early, late = (np.abs(np.fft.rfft(response[a : a + 2048])) ** 2 for a in (500, 4500))
    fall_db = 10 * np.log10(early / late)
    assert fall_db[600:1000].mean() > fall_db[20:200].mean() + 6


@pytest.mark.parametrize("ratio_db", [-3.0, 6.0])
def test_direct_to_reverberant_ratio_and_energy(ratio_db: float) -> None:
    direct = (1 / (1 + 10 ** (-ratio_db / 10))) ** 0.5
    response = room_response(rt60_s=0.4, direct=direct, tail=(1 - direct**2) ** 0.5)
    energy = np.square(response)
    assert 10 * np.log10(energy[:3].sum() / energy[3:].sum()) == pytest.approx(ratio_db, abs=0.7)
    assert energy.sum() == pytest.approx(1, abs=0.1)


def test_a_dry_room_is_a_pure_delay() -> None:
    response = room_response(direct=1.0, tail=0.0)
    assert response[0] == pytest.approx(1, abs=1e-5)
    assert np.abs(response[1:]).max() < 1e-5


def test_gain_curve_goes_through_its_knots() -> None:
    knots_db = np.linspace(-6, 6, 10).astype(np.float32)
    plan = plan_with(channel={"eq_db": knots_db, "band_hz": np.array([0, 8000], np.float32)})
    spectrum = channel_filters([plan], FFT, CPU)[0].numpy()
    bins = np.round(knot_frequencies_hz() * FFT / 16_000).astype(int)
    np.testing.assert_allclose(20 * np.log10(np.abs(spectrum[bins[1:-1]])), knots_db[1:-1], atol=0.7)


def test_telephone_band() -> None:
    flat = np.zeros(10, np.float32)
    plan = plan_with(channel={"eq_db": flat, "band_hz": np.array([300, 3400], np.float32)})
    gain_db = 20 * np.log10(np.abs(channel_filters([plan], FFT, CPU)[0].numpy()))
    hz = np.arange(len(gain_db)) * 16_000 / FFT
    assert gain_db[hz > 3600].max() < -40
    assert gain_db[hz < 100].max() < -30
    assert np.abs(gain_db[(hz > 450) & (hz < 3200)]).max() < 0.5


def test_noise_keeps_its_power_under_any_gain_curve() -> None:
    plan = plan_with({"eq_db": 5.0, "direct": 1.0, "tail": 0.0})
    spectrum = track_filters([plan], FFT, CPU)
    power = torch.fft.irfft(spectrum, FFT).square().sum(1).numpy()
    assert plan.num_rows > plan.num_speakers
    np.testing.assert_allclose(power[plan.num_speakers :], 1, rtol=0.05)
    np.testing.assert_allclose(power[: plan.num_speakers], 10**0.5, rtol=0.05)


def test_white_noise_is_white_and_frozen() -> None:
    noise = white_noise()
    assert noise.std() == pytest.approx(1, abs=1e-3)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 2e-3
    assert noise[:3] == pytest.approx([1.117622, -1.3871249, -0.4265716], abs=1e-6)
    with pytest.raises(ValueError, match="read-only"):
        noise[0] = 0


def test_a_batch_in_which_nothing_sounds() -> None:
    """A short conversation may have neither a speaker nor a noise; a process that shares a batch may have only such."""
    plans = (plan_conversation(imagined_speech(), seed=seed, num_speakers=1, duration_s=1.0) for seed in range(500))
    plan = next(plan for plan in plans if plan.num_rows == 0)
    spectrum = track_filters([plan, plan], FFT, CPU)
    assert spectrum.shape == (0, FFT // 2 + 1)
    assert spectrum.dtype == torch.complex64
    mixture = render([plan, plan], imagined_speech(), num_slots=2)
    assert mixture.samples.isfinite().all()
    assert not mixture.activity.any()
