"""Chains: words, neutrality, seeds, order; and rules that every corruption of the catalogue keeps."""

import re

import numpy as np
import pytest

from diarnorm.robustness.corruption import Corruption, Link, Sound, Spec, catalogue, corrupt, parse
from diarnorm.turns import Turn
from tests.robustness.talk import flat, talk

ON_SAMPLES = [item for item in catalogue() if item.acts_on == "samples"]
DRAWN = {
    "loudness.swing",
    "loudness.turns",
    "loudness.tremolo",
    "loudness.fades",
    "dc.step",
    "dc.drift",
    "silence.lsb",
    "room.reverb",
}
DRAWN_FAMILIES = {"damage", "burst", "noise"}


def name_of(item: Corruption) -> str:
    return item.name


def same(one: Sound, other: Sound) -> bool:
    """Bit for bit."""
    parts = (one.turns == other.turns, one.events == other.events, one.inserted == other.inserted)
    return all(parts) and one.samples.tobytes() == other.samples.tobytes()


def global_state() -> np.ndarray:
    """NumPy's global generator."""
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    return np.array(state["state"]["key"])


def test_the_catalogue_is_complete_and_in_order() -> None:
    names = [item.name for item in catalogue()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+\.[a-z0-9_]+", name) for name in names)
    families = list(dict.fromkeys(name.split(".")[0] for name in names))
    assert families == ["loudness", "dc", "silence", "damage", "burst", "noise", "room", "band", "features"]
    for item in catalogue():
        low, high = item.limits
        mild, medium, strong = (abs(value - item.neutral) for value in item.severities)
        assert all(low <= value <= high for value in item.severities)
        assert mild < medium < strong or np.isinf(item.neutral)
        assert len(set(item.severities)) == 3
        assert (item.apply is None) != (item.apply_mel is None)
        assert item.unit
        assert re.search(r"\bX\b", item.meaning) or item.name in ("loudness.gain", "loudness.gain_int16")


@pytest.mark.parametrize("item", ON_SAMPLES, ids=name_of)
def test_every_corruption_is_pure_seeded_and_well_formed(item: Corruption) -> None:
    clean = talk()  # its samples cannot be written to
    before = global_state()
    for severity in item.severities:
        spec = Spec((Link(item.name, severity),))
        damaged = corrupt(clean, spec, 7)
        assert same(damaged, corrupt(Sound(clean.samples.copy(), clean.turns), spec, 7))
        assert damaged.samples.dtype == np.float32
        assert not np.array_equal(damaged.samples, clean.samples)
        assert np.isfinite(damaged.samples).all() or item.name in ("damage.nan", "damage.inf")
        ends = [0.0, *(time for stretch in damaged.events for time in stretch)]
        assert ends == sorted(ends)
        assert max([*ends, *(turn.end for turn in damaged.turns)]) <= damaged.duration_s + 1e-9
        assert set(damaged.inserted) <= set(damaged.events)
        is_drawn = item.name in DRAWN or (item.name.split(".")[0] in DRAWN_FAMILIES and "hum" not in item.name)
        others = [corrupt(clean, spec, seed) for seed in (8, 9, 10)]
        assert any(not same(damaged, other) for other in others) == is_drawn or item.name == "loudness.speaker"
    assert np.array_equal(before, global_state())  # nothing draws from it


@pytest.mark.parametrize("item", ON_SAMPLES, ids=name_of)
def test_nothing_is_done_at_neutral_and_outside_events_but_by_jumps(item: Corruption) -> None:
    clean = talk()
    assert corrupt(clean, Spec((Link(item.name, item.neutral),)), 0) is clean
    damaged = corrupt(clean, Spec((Link(item.name, item.severities[1]),)), 0)
    jumps = item.name in ("loudness.swing", "loudness.turns", "dc.step")  # what comes after stays changed
    if damaged.events and not damaged.inserted and not jumps:
        untouched = np.ones(len(clean.samples), dtype=bool)
        for start, end in damaged.events:
            untouched[round(start * 16_000) - 80 : round(end * 16_000) + 80] = False
        assert untouched.any()
        np.testing.assert_array_equal(damaged.samples[untouched], clean.samples[untouched])


@pytest.mark.parametrize("item", [item for item in ON_SAMPLES if not item.needs_turns], ids=name_of)
@pytest.mark.parametrize("length", [0, 1, 100, 1280])
def test_the_shortest_recordings_are_no_exception(item: Corruption, length: int) -> None:
    sound = Sound(talk().samples[4000 : 4000 + length].copy())
    damaged = corrupt(sound, Spec((Link(item.name, item.severities[2]),)), 0)
    assert len(damaged.samples) >= length


def test_a_chain_is_one_after_the_other() -> None:
    words = ["loudness.swing=12", "silence.middle=1.5", "noise.white=10", "burst.slam=15", "loudness.speaker=6"]
    step_by_step = talk()
    for word in words:
        step_by_step = corrupt(step_by_step, parse([word]), 3)
    assert same(step_by_step, corrupt(talk(), parse(words), 3))


def test_order_counts() -> None:
    one = corrupt(talk(), parse(["loudness.gain=30", "loudness.gain_int16=-30"]), 0)
    other = corrupt(talk(), parse(["loudness.gain_int16=-30", "loudness.gain=30"]), 0)
    assert np.abs(one.samples - talk().samples).max() < 0.51 / 32_768
    assert np.abs(other.samples - talk().samples).max() > 1e-4
    silent_first = corrupt(talk(), parse(["silence.start=2", "noise.white=0"]), 0).samples
    noise_first = corrupt(talk(), parse(["noise.white=0", "silence.start=2"]), 0).samples
    assert np.abs(silent_first[:32_000]).min() < 1e-2 < np.abs(silent_first[:32_000]).max()
    assert not noise_first[:32_000].any()


def test_links_draw_on_their_own() -> None:
    alone = corrupt(talk(), parse(["burst.click=10"]), 5)
    assert corrupt(talk(), parse(["dc.drift=0.1", "damage.nan=0", "burst.click=-5"]), 5).events == alone.events
    twice = corrupt(talk(), parse(["burst.click=10", "burst.click=10"]), 5)
    assert len(twice.events) == 2 * len(alone.events)  # the second draws others


def test_what_a_seed_draws_never_changes() -> None:
    sound = flat(10.0)
    assert corrupt(sound, parse(["burst.plosive=0"]), 0).events == ((1.3754375, 1.4554375), (7.0506875, 7.1306875))
    assert corrupt(sound, parse(["damage.nan=2"]), 0).events == ((9.2195, 9.2235625),)
    drawn = corrupt(sound, parse(["dc.step=0.1"]), 0).events[0][0]
    assert drawn == 4.524125


def test_words_become_links() -> None:
    spec = parse(["loudness.swing=12", "noise.white=inf", "features.offset=strong", "dc.offset=-1e-2"])
    assert spec.links[0] == Link("loudness.swing", 12.0)
    assert str(spec) == "loudness.swing=12 noise.white=inf features.offset=4.605 dc.offset=-0.01"
    assert parse(str(spec).split()) == spec
    assert str(spec.on_features) == "features.offset=4.605"
    assert len(spec.on_samples.links) == 3
    assert [link.changes for link in spec.links] == [True, False, True, True]
    assert corrupt(talk(), Spec(), 0) is talk()
    assert corrupt(talk(), spec.on_features, 0) is talk()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("loudness.swng=3", r"no corruption is called 'loudness.swng'; did you mean loudness.swing"),
        ("quake=3", r"no corruption is called 'quake'; families are loudness, dc, silence"),
        ("silence=3", r"'silence'; did you mean silence\."),
        ("loudness.swing", r"has no severity: write loudness.swing=12 \(dB; mild 6, medium 12, strong 20\)"),
        ("loudness.swing=much", r"loudness.swing=much is no number: give one in dB \(mild 6"),
        ("loudness.swing=", r"loudness.swing= is no number"),
        ("loudness.swing=99", r"loudness.swing=99.0 is out of range: give a number of at least 0 and of at most 60"),
        ("loudness.swing=nan", "loudness.swing=nan is out of range"),
        ("loudness.gain=inf", "loudness.gain=inf is out of range"),
        ("noise.white=-inf", "noise.white=-inf is out of range"),
    ],
)
def test_wrong_words_are_explained(word: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse([word])


def test_what_a_link_needs_is_asked_for() -> None:
    unlabelled = Sound(talk().samples)
    for word in ("loudness.turns=6", "loudness.speaker=6"):
        with pytest.raises(ValueError, match=rf"{word} needs to know who speaks when: give reference turns \(RTTM\)"):
            corrupt(unlabelled, parse([word]), 0)
    for word in ("room.reverb=0.3", "band.limit=4000", "band.mu_law=8", "noise.babble=10"):
        with pytest.raises(ValueError, match=r"needs samples that are finite: put damage.nan and damage.inf behind it"):
            corrupt(talk(), parse(["damage.nan=10", word]), 0)
        corrupt(talk(), parse([word, "damage.nan=10"]), 0)
    with pytest.raises(ValueError, match=r"band.mu_law=6.5 is no number of bits: give 6 or 7"):
        corrupt(talk(), parse(["band.mu_law=6.5"]), 0)


@pytest.mark.unchecked
def test_a_sound_is_one_channel_of_float32() -> None:
    for samples in (np.zeros((2, 100), np.float32), np.zeros(100), np.zeros(100, np.int16)):
        with pytest.raises(ValueError, match="a sound is one channel of float32 samples at 16 kHz, got"):
            Sound(samples, (Turn(0, 1, "a"),))
