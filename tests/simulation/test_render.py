"""Rendering: samples against a direct convolution, labels against energy, levels, channel effects."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import torch

from diarnorm.audio.pcm import ALAW
from diarnorm.simulation.acoustics import ChannelConfig, RoomConfig
from diarnorm.simulation.channel import add_hum
from diarnorm.simulation.conversation import A_LAW, MU_LAW, Plan
from diarnorm.simulation.filters import channel_filters, track_filters
from diarnorm.simulation.noises import NoiseConfig
from diarnorm.simulation.planner import SimulatorConfig, plan_conversation
from diarnorm.simulation.render import active_level, render, render_parts
from diarnorm.simulation.speech import CLIPS, Speech, load_speech
from diarnorm.simulation.synthetic import write_tree
from diarnorm.timebase import FRAME_SAMPLES
from diarnorm.training.batches import CurriculumStage, SimulatedBatches
from tests.voices import dry_tracks, load_tree

PLAIN_CHANNEL = ChannelConfig(
    level_db=(-26.0, -26.0),
    eq_db=0.0,
    band_limit_probability=0.0,
    hum_probability=0.0,
    swing_probability=0.0,
    dc_probability=0.0,
    clipping_probability=0.0,
    mu_law_probability=0.0,
)
CLEAN = SimulatorConfig(
    close_gap_s=0.0,
    rooms=RoomConfig(dry_probability=1.0, speaker_eq_probability=0.0),
    noise=NoiseConfig(quiet_probability=1.0),
    channel=PLAIN_CHANNEL,
)
REVERBERANT = dataclasses.replace(
    CLEAN, rooms=RoomConfig(dry_probability=0.0), channel=dataclasses.replace(PLAIN_CHANNEL, eq_db=6.0)
)


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Speech:
    return load_tree(tmp_path_factory.mktemp("speech"), num_speakers=6, num_utterances=3, noise=1e-4)


def plans_of(speech: Speech, config: SimulatorConfig, num: int, duration_s: float = 10.0) -> list[Plan]:
    return [plan_conversation(speech, config, [9, i], duration_s=duration_s, num_speakers=3) for i in range(num)]


def frame_energy(samples: torch.Tensor | np.ndarray) -> np.ndarray:
    """Mean square per frame of 80 ms; the last axis is samples."""
    samples = np.asarray(samples)
    return np.square(samples.reshape(*samples.shape[:-1], -1, FRAME_SAMPLES)).mean(-1)


def contrast_db(energy: np.ndarray, activity: np.ndarray) -> float:
    """Mean energy in frames of full activity over that in frames without any."""
    return 10 * np.log10(energy[activity > 0.99].mean() / energy[activity == 0].mean())


def test_labels_line_up_with_the_energy_of_each_track(speech: Speech) -> None:
    plans = plans_of(speech, CLEAN, 6)
    energy = frame_energy(dry_tracks(plans, speech))
    activity = np.concatenate([plan.activity().T for plan in plans])
    aligned = contrast_db(energy, activity)
    assert aligned > 25
    for shift in (-5, -1, 1, 5):  # the check notices labels that are off by a frame
        assert contrast_db(energy, np.roll(activity, shift, axis=1)) < aligned - 10


def test_labels_line_up_with_the_rendered_samples(speech: Speech) -> None:
    mixture = render(plans_of(speech, CLEAN, 6), speech)
    energy, activity = frame_energy(mixture.samples), mixture.activity.amax(-1).numpy()
    aligned = contrast_db(energy, activity)
    assert aligned > 25
    for shift in (-5, -1, 1, 5):
        assert contrast_db(energy, np.roll(activity, shift, axis=1)) < aligned - 10


def test_samples_equal_a_direct_convolution(speech: Speech) -> None:
    """Blocks, skipped silence and compensated delays leave what one long convolution gives."""
    for plan in plans_of(speech, REVERBERANT, 3):
        tracks = dry_tracks([plan], speech)
        rows = torch.fft.irfft(track_filters([plan], 32_768, torch.device("cpu"))).numpy()
        channel = torch.fft.irfft(channel_filters([plan], 32_768, torch.device("cpu"))).numpy()[0]
        wet = sum(scipy.signal.fftconvolve(x, h) for x, h in zip(tracks, rows, strict=True))
        expected = scipy.signal.fftconvolve(wet, channel)[512 : 512 + plan.num_samples]
        mixture = render([plan], speech)
        found = mixture.samples[0].numpy()
        expected *= np.linalg.norm(found) / np.linalg.norm(expected)
        assert np.abs(found - expected).max() < 1e-4
        assert np.abs(np.roll(found, 1) - expected).max() > 1e-3


def test_a_plan_sounds_the_same_alone_and_in_a_batch(speech: Speech) -> None:
    plans = plans_of(speech, SimulatorConfig(), 4)
    batch = render(plans, speech, num_slots=4)
    alone = render(plans[2:3], speech, num_slots=4)
    assert (batch.samples[2] - alone.samples[0]).abs().max() <= 1 / 32_768 + 1e-7
    assert torch.equal(batch.activity[2], alone.activity[0])
    assert torch.equal(batch.speaker_class[2], alone.speaker_class[0])


def test_labels_of_a_batch(speech: Speech) -> None:
    plans = plans_of(speech, SimulatorConfig(), 5)
    mixture = render(plans, speech, num_slots=5)
    assert mixture.samples.shape == (5, 160_000)
    assert mixture.activity.shape == (5, 125, 5)
    assert mixture.source.shape == (5, 125)
    for i, plan in enumerate(plans):
        assert mixture.speaker_class[i].tolist() == [*plan.speaker_class, *[-1] * (5 - plan.num_speakers)]
        assert not mixture.activity[i, :, plan.num_speakers :].any()
    assert mixture.samples.isfinite().all()


def test_levels_are_met(speech: Speech) -> None:
    channel = dataclasses.replace(PLAIN_CHANNEL, level_db=(-50.0, -20.0))
    plans = plans_of(speech, dataclasses.replace(REVERBERANT, channel=channel), 8)
    mixture = render(plans, speech)
    for plan, samples in zip(plans, mixture.samples, strict=True):
        active = plan.activity().max(1) > 0.5
        level_db = 10 * np.log10(frame_energy(samples)[active].mean())
        assert level_db == pytest.approx(float(plan.channel.level_db), abs=0.1)


def test_noise_is_as_far_below_speech_as_asked(speech: Speech) -> None:
    only_hiss = NoiseConfig(
        quiet_probability=0,
        coloured_probability=1,
        babble_probability=0,
        burst_probability=0,
        snr_db=(20, 20),
    )
    plans = plans_of(speech, dataclasses.replace(CLEAN, noise=only_hiss), 8)
    mixture = render(plans, speech)
    activity = mixture.activity.amax(-1).numpy()
    assert contrast_db(frame_energy(mixture.samples), activity) == pytest.approx(20, abs=1.5)


def test_clips_are_heard_and_their_absence_is_named(speech: Speech, tmp_path: Path) -> None:
    clips = load_speech(write_tree(tmp_path / "clips", 1, 2), config=CLIPS, cache_dir=tmp_path)
    only_clips = NoiseConfig(
        quiet_probability=0,
        coloured_probability=0,
        clip_probability=1,
        babble_probability=0,
        burst_probability=0,
    )
    config = dataclasses.replace(CLEAN, noise=only_clips)
    plan = plan_conversation(speech, config, 1, duration_s=10, num_speakers=2, clips=clips)
    tracks = dry_tracks([plan], speech, clips)
    assert np.abs(tracks[plan.num_speakers :]).max() > 0
    with pytest.raises(ValueError, match="pass those it was drawn from as clips="):
        render([plan], speech)


def channel_of(plan: Plan, **changes: object) -> Plan:
    return dataclasses.replace(plan, channel=plan.channel._replace(**changes))


def test_channel_effects(speech: Speech) -> None:
    plan = plans_of(speech, CLEAN, 1)[0]
    clean = render([plan], speech).samples[0].numpy()

    def changed(**changes: object) -> np.ndarray:
        return render([channel_of(plan, **changes)], speech).samples[0].numpy()

    np.testing.assert_array_equal(clean * 32_768, np.round(clean * 32_768))
    assert changed(dc=np.float32(0.01)).mean() - clean.mean() == pytest.approx(0.01, abs=1e-5)

    limit = 10 ** ((-26 + 6) / 20)
    clipped = changed(clip_above_rms_db=np.float32(6))
    np.testing.assert_allclose(clipped, np.clip(clean, -limit, limit), atol=1.01 / 32_768)

    steps = changed(swing_samples=np.array([80_000]), swing_db=np.array([-20.0], np.float32))
    np.testing.assert_array_equal(steps[:79_000], clean[:79_000])
    np.testing.assert_allclose(steps[81_000:], 0.1 * clean[81_000:], atol=1.01 / 32_768)

    companded = changed(companding=np.array(MU_LAW))
    half_step = (np.abs(clean) + 1 / 255) * np.log(256) / 254
    assert (np.abs(companded - clean) < 1.1 * half_step + 1 / 32_768).all()
    assert len(np.unique(companded)) <= 255


def test_a_law_is_that_of_g711(speech: Speech) -> None:
    """Codes of the smooth curve against the eight straight segments of the standard: within a step of each other."""
    plan = channel_of(plans_of(speech, CLEAN, 1)[0], level_db=np.float32(-12))
    clean = render([plan], speech).samples[0].numpy()
    companded = render([channel_of(plan, companding=np.array(A_LAW))], speech).samples[0].numpy()
    table = np.sort(ALAW.decode(bytes(range(256))))
    standard = table[np.abs(table[None, :] - clean[::50, None]).argmin(1)]
    step = np.maximum(np.abs(clean[::50]), 1 / 87.6) * (1 + np.log(87.6)) / 127
    assert (np.abs(companded[::50] - standard) < 1.2 * step).all()
    assert (np.abs(companded - clean) < 0.6 * np.maximum(np.abs(clean), 1 / 87.6) * 5.48 / 127 + 1 / 32_768).all()
    assert 100 < len(np.unique(companded)) <= 255


@pytest.mark.parametrize("hum_hz", [50, 60])
def test_hum_is_at_the_mains_frequency(speech: Speech, hum_hz: int) -> None:
    plan = plans_of(speech, CLEAN, 1)[0]
    gain = np.array([100, 0, 0, 0, 0], np.float32)
    samples = render([channel_of(plan, hum_gain=gain, hum_hz=np.array(hum_hz))], speech).samples[0].numpy()
    spectrum = np.abs(np.fft.rfft(samples))
    assert spectrum.argmax() * 16_000 / len(samples) == pytest.approx(hum_hz, abs=0.1)


@pytest.mark.parametrize("switches", [[20_000, 50_000, 70_000], [0, 30_000], [10], []])
def test_a_hum_comes_and_goes(speech: Speech, switches: list[int]) -> None:
    gain, times = np.array([0.5, 0, 0, 0.1, 0], np.float32), np.array(switches, np.int64)
    plan = channel_of(plans_of(speech, CLEAN, 1)[0], hum_gain=gain, hum_hz=np.array(60), hum_switches=times)
    hum, steady = torch.zeros(80_000), torch.zeros(80_000)
    add_hum(steady, channel_of(plan, hum_switches=times[:0]).channel)
    for first in range(0, 80_000, 16_000):  # in parts, as long conversations are made
        add_hum(hum[first : first + 16_000], plan.channel, first)
    silent = torch.from_numpy(np.searchsorted(times, np.arange(80_000), side="right") % 2 == 1)
    torch.testing.assert_close(hum, torch.where(silent, 0, steady), rtol=0, atol=1e-6)


def test_some_hums_come_and_go(speech: Speech) -> None:
    switching = dataclasses.replace(
        PLAIN_CHANNEL, hum_switch_probability=0.5, hum_switch_s=(2.0, 2.0), hum_snr_db=(0.0, 0.0)
    )
    config = dataclasses.replace(CLEAN, channel=switching)
    channels = [plan_conversation(speech, config, seed, duration_s=20.0).channel for seed in range(40)]
    switched = [channel for channel in channels if channel.hum_gain.any()]
    assert 10 <= len(switched) <= 30
    assert all((np.diff(channel.hum_switches) > 0).all() for channel in switched)
    late = [channel.hum_switches[0] == 0 for channel in switched if len(channel.hum_switches)]
    assert 0.2 < np.mean(late) < 0.8
    assert 8 < np.mean([len(channel.hum_switches) for channel in switched]) < 13
    assert not any(len(channel.hum_switches) for channel in channels if not channel.hum_gain.any())


def test_active_level_counts_speech_only() -> None:
    samples = torch.zeros(2, 4 * FRAME_SAMPLES)
    samples[:, FRAME_SAMPLES : 2 * FRAME_SAMPLES] = 0.5
    activity = torch.zeros(2, 4, 1)
    activity[0, 1] = 1
    assert active_level(samples, activity).tolist() == pytest.approx([0.5, 0.25])


def test_plans_of_different_lengths_or_too_few_slots_are_refused(speech: Speech) -> None:
    plans = [*plans_of(speech, CLEAN, 1), *plans_of(speech, CLEAN, 1, duration_s=5)]
    with pytest.raises(ValueError, match=r"lengths \[79360, 160000\]"):
        render(plans, speech)
    with pytest.raises(ValueError, match="lengths \\[\\]"):
        render([], speech)
    with pytest.raises(ValueError, match="num_slots is 1, a plan has"):
        render(plans[:1], speech, num_slots=1)


def test_a_drifting_gain_is_a_slow_sine(speech: Speech) -> None:
    drifting = dataclasses.replace(PLAIN_CHANNEL, drift_probability=1.0, drift_db=(5.0, 5.0), drift_period_s=(4.0, 4.0))
    plan = plan_conversation(speech, dataclasses.replace(CLEAN, channel=drifting), 3, duration_s=10.0)
    plain = plan_conversation(speech, CLEAN, 3, duration_s=10.0)
    still = channel_of(plan, swing_samples=np.zeros(0, np.int64), swing_db=np.zeros(0, np.float32))
    assert still.digest() == plain.digest()  # nothing else has changed
    moved, fixed = (render([one], speech).samples[0].numpy().reshape(-1, 1280) for one in (plan, still))
    loud = np.square(fixed).mean(1) > 1e-4
    gain_db = 10 * np.log10(np.square(moved[loud]).mean(1) / np.square(fixed[loud]).mean(1))
    time_s = (np.flatnonzero(loud) + 0.5) * 0.08
    basis = np.stack([np.sin(np.pi / 2 * time_s), np.cos(np.pi / 2 * time_s)], axis=1)
    fitted, *_ = np.linalg.lstsq(basis, gain_db, rcond=None)
    assert np.hypot(*fitted) == pytest.approx(5.0, abs=0.2)
    assert np.abs(gain_db - basis @ fitted).max() < 0.6


@pytest.mark.parametrize("duration_s", [3.0, 150.0])
def test_parts_are_the_whole(speech: Speech, duration_s: float) -> None:
    plan = plan_conversation(speech, SimulatorConfig(), [4, 2], duration_s=duration_s, num_speakers=3)
    swings = {"swing_samples": np.array([20_000, 1_500_000]), "swing_db": np.array([-6.0, 6.0], np.float32)}
    plan = channel_of(plan, hum_gain=np.full(5, 0.3, np.float32), hum_hz=np.array(60), **swings)
    whole = render([plan], speech).samples[0]
    parts = list(render_parts(plan, speech))
    assert len(parts) == (1 if duration_s < 60 else 3)
    joined = torch.cat(parts)
    assert joined.shape == whole.shape
    assert (joined - whole).abs().max() <= 1.01 / 32_768
    assert (joined != whole).float().mean() < 1e-3


def test_rounding_stays_below_the_promise_across_devices(speech: Speech) -> None:
    """The same plans in double precision: what another device's order of operations can change is less than that."""
    plans = [plan_conversation(speech, SimulatorConfig(), [21, i], duration_s=8.0, num_speakers=3) for i in range(10)]
    single, double = render(plans, speech).samples, render(plans, speech, dtype=torch.float64).samples
    assert double.dtype == torch.float64
    companded = torch.tensor([int(plan.channel.companding) > 0 for plan in plans])
    assert (single - double)[~companded].abs().max() < 1e-4
    assert ((single - double).abs() > 1e-4).float().mean() < 1e-5
    assert torch.equal(double.mul(32_768), double.mul(32_768).round())


@pytest.mark.gpu
def test_samples_agree_across_devices(speech: Speech) -> None:
    plans = plans_of(speech, SimulatorConfig(), 8)
    on_cpu, on_gpu = render(plans, speech), render(plans, speech, device="cuda")
    companded = torch.tensor([int(plan.channel.companding) > 0 for plan in plans])
    difference = (on_cpu.samples - on_gpu.samples.cpu()).abs()
    assert difference[~companded].max() < 1e-4
    assert (difference > 1e-4).float().mean() < 1e-5
    assert torch.equal(on_cpu.activity, on_gpu.activity.cpu())
    parts = torch.cat([part.cpu() for part in render_parts(plans[0], speech, device="cuda")])
    assert (parts - on_gpu.samples[0].cpu()).abs().max() < 1e-4


@pytest.mark.gpu
def test_a_gpu_makes_its_own_batches(speech: Speech) -> None:
    stages = (CurriculumStage(crop_s=8.0, batch_size=4),)
    on_cpu, on_gpu = (SimulatedBatches(speech, seed=3, num_steps=2, stages=stages, device=d) for d in ("cpu", "cuda"))
    for name, value in on_gpu[1].items():
        assert value.device.type == "cuda"
        error = (value.cpu().float() - on_cpu[1][name].float()).abs()
        assert error.mean() < 0.02 if name == "mel" else not error.any()
