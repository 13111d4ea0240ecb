"""Conditions from words: what stands for what, and which margin counts."""

from fractions import Fraction

import pytest
import yaml

from diarnorm.resources import recipes_dir
from diarnorm.robustness.conditions import Condition, find_conditions, find_players, try_out
from diarnorm.robustness.config import Margin, RobustnessConfig
from diarnorm.robustness.corruption import catalogue, corrupt, parse
from tests.robustness.talk import talk


def named(**changes: object) -> dict[str, Condition]:
    """Conditions of a configuration by name."""
    config = RobustnessConfig(sets={"x": "x"}, **changes)  # pyright: ignore[reportArgumentType]
    return {each.name: each for each in find_conditions(config)}


def test_by_default_the_whole_catalogue_is_tried_at_three_severities() -> None:
    found = named()
    assert len(found) == 1 + 3 * len(catalogue())
    assert next(iter(found)) == "clean"
    assert found["clean"].is_clean
    assert {each.factor for each in found.values()} == {"", *(each.name for each in catalogue())}


def test_families_names_severities_and_chains() -> None:
    found = named(corruptions=("dc.offset", "loudness.swing=medium", "loudness.swing=20  dc.step=0.01"))
    names = ["clean", "dc.offset=0.001", "dc.offset=0.01", "dc.offset=0.1", "loudness.swing=12"]
    assert list(found) == [*names, "loudness.swing=20 dc.step=0.01"]
    chain = found["loudness.swing=20 dc.step=0.01"]
    assert (chain.factor, chain.severity, chain.unit) == ("loudness.swing dc.step", None, "")
    assert (found["dc.offset=0.1"].severity, found["loudness.swing=12"].unit) == (0.1, "dB")
    assert {each.factor.partition(".")[0] for each in named(corruptions=("silence",)).values()} == {"", "silence"}


def test_the_first_margin_that_fits_counts_within_its_range() -> None:
    margins = (Margin("loudness.gain", 1.0, -30, 10), Margin("loudness", 3.0), Margin("dc", None))
    words = ("loudness.gain=-30", "loudness.gain=-40", "loudness.gain=11", "loudness.gain_int16=6", "dc.offset=0.1")
    found = named(corruptions=(*words, "noise.pink=10", "loudness.swing=6 noise.pink=10"), margins=margins, margin=2.0)
    expected = [None, 1.0, None, None, 3.0, None, 2.0, 2.0]
    assert [each.margin for each in found.values()] == expected


def test_halves_and_quiet_by_family_and_the_clean_side_has_halves_too() -> None:
    found = named(corruptions=("loudness.swing=6", "silence.middle=1"), halves=("loudness.swing",), quiet=("silence",))
    assert [each.with_halves for each in found.values()] == [True, True, False]
    assert [each.is_quiet for each in found.values()] == [False, False, True]


def test_silence_of_the_recipe_leaves_the_grid_of_chunks_as_it_is() -> None:
    """But for two that are there to show what another grid does."""
    recipe = yaml.safe_load((recipes_dir() / "robustness" / "conditions.yaml").read_text("utf-8"))
    silences = [Fraction(each.partition("=")[2]) for each in recipe["corruptions"] if each.startswith("silence.")]
    odd = [float(length_s) for length_s in silences if length_s % Fraction("0.96")]
    assert odd == [0.1, 10]
    assert len(silences) == 21


def test_labels_are_kept_only_where_the_start_is_as_it_was() -> None:
    asked = ("silence.middle=1", "silence.middle=1 dc.step=0.1", "silence.middle=1 noise.white=10", "loudness.swing=6")
    found = named(corruptions=asked, same_labels=("all",))
    assert [each.name for each in found.values() if each.keeps_labels] == list(asked[:2])
    assert [each.name for each in found.values() if each.comes_later] == list(asked[:2])


def test_labels_are_kept_where_asked() -> None:
    found = named(corruptions=("silence.middle=1", "dc.step=0.1", "dc.offset=0.1"), same_labels=("silence", "dc.step"))
    assert [each.name for each in found.values() if each.keeps_labels] == ["silence.middle=1", "dc.step=0.1"]


def test_alone() -> None:
    found = named(corruptions=(), alone=("nothing", "silence.hum_50=20"))
    assert [(each.name, each.is_alone, each.is_clean) for each in found.values()] == [
        ("clean", False, True),
        ("nothing", True, False),
        ("silence.hum_50=20", True, False),
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruptions": ("loudnes.swing=6",)}, "did you mean loudness.swing"),
        ({"corruptions": ("loudnes",)}, "no corruption or family is called 'loudnes'; did you mean loudness?"),
        ({"corruptions": ("dc.offset=a",)}, "dc.offset=a is no number"),
        ({"corruptions": ("dc.offset=9",)}, "dc.offset=9.0 is out of range"),
        ({"corruptions": ("dc.offset", "dc.offset=0.1")}, "dc.offset=0.1 is there twice"),
        ({"margins": (Margin("silent"),)}, "called 'silent'; did you mean silence"),
        ({"halves": ("zzz",)}, "families are band, burst"),
        ({"same_labels": ("loudness.swing",)}, "same_labels=loudness.swing acts from the start on, where no label is"),
        ({"same_labels": ("silenc",)}, "called 'silenc'; did you mean silence?"),
        ({"same_labels_share": 1.1}, "same_labels_share=1.1 is out of range"),
        ({"quiet": ("dc",)}, "quiet=dc puts nothing in"),
        ({"players": ("nosuch",)}, "no corruption is called .nosuch."),
        ({"corruptions": (" ",)}, "corruptions=' ' names none"),
        ({"corruptions": ()}, "corruptions is empty"),
        ({"workers": 0}, "workers=0 is out of range"),
        ({"recovery_hold_s": 0.0}, "recovery_hold_s=0.0 is out of range"),
    ],
)
def test_mistakes(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        named(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corruptions": ("band.mu_law=4.5",)}, "mu_law=4.5"),
        ({"corruptions": ("damage.nan=10 room.reverb=0.4",)}, "room.reverb=0.4 needs samples that are finite"),
        ({"corruptions": (), "alone": ("loudness.turns=6",)}, "loudness.turns=6 needs to know who speaks when"),
    ],
)
def test_what_no_recording_bears_is_found_before_the_work(changes: dict[str, object], message: str) -> None:
    conditions = named(**changes).values()
    with pytest.raises(ValueError, match=message):
        try_out(conditions)
    try_out(named(corruptions=("all",)).values())


def test_all_means_all() -> None:
    words = ("dc.offset=0.1", "silence.middle=1", "features.offset=1", "dc.step=0.1 silence.lsb=1")
    found = named(corruptions=words, halves=("all",), quiet=("all",), margins=(Margin("all", 1.0),))
    assert [each.margin for each in found.values()] == [None, 1.0, 1.0, 1.0, 1.0]
    assert all(each.with_halves for each in found.values())
    quiet = [each.name for each in found.values() if each.is_quiet]
    assert quiet == [words[1], words[3]]  # the others put nothing in


def test_every_corruption_that_makes_a_recording_longer_can_be_quiet() -> None:
    sound = talk()
    for each in catalogue():
        if each.apply is not None:
            damaged = corrupt(sound, parse([f"{each.name}=mild"]), 0)
            assert each.puts_in == bool(damaged.inserted) == (len(damaged.samples) > len(sound.samples)), each.name


def test_players_are_changes_of_samples() -> None:
    config = RobustnessConfig(players=("dc.offset=0.1", "loudness.swing=6 noise.pink=10"))
    assert [each.name for each in find_players(config)] == ["clean", *config.players]
    assert find_players(RobustnessConfig(players=())) == []
    assert len(find_players(RobustnessConfig())) > 2  # a few, when nothing is said
    with pytest.raises(ValueError, match=r"^players=dc.offset=0.1 features.scale=2: .* leave out features.scale=2$"):
        named(players=("dc.offset=0.1 features.scale=2",))
