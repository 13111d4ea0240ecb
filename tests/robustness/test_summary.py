"""Pooled figures and verdicts on records written by hand."""

import numpy as np
import pytest
from scipy import stats

from diarnorm.evaluation.scores import Components, bootstrap_difference
from diarnorm.robustness.config import Margin
from diarnorm.robustness.factors import factors_of
from diarnorm.robustness.intervals import FEW
from diarnorm.robustness.rows import Change, Row, worst_verdict
from diarnorm.robustness.summary import change_of, pooled_ders, rows_of
from diarnorm.robustness.tables import finding
from tests.robustness.madeup import NAMES, made_up


def row(rows: list[Row], model: str, condition: str) -> Row:
    (found,) = [each for each in rows if (each.model, each.condition) == (model, condition)]
    return found


def worse(number: int) -> Components:
    """Two seconds of confusion more, and a spread over recordings."""
    return Components(0.5, 0.3, 2.2 + 0.1 * number, 10.0)


def test_the_change_is_pooled_and_its_interval_is_paired() -> None:
    rows = rows_of(made_up({("a", "loudness.swing=20"): {"errors": worse}}))
    found = row(rows, "a", "loudness.swing=20")
    assert found.clean.der == pytest.approx(0.1)
    assert found.errors.der == pytest.approx((8 * 3.0 + 0.1 * 28) / 80)
    assert found.change.points == pytest.approx(100 * (8 * 2.0 + 0.1 * 28) / 80)
    grown = [100 * (worse(at).error_s - 1.0) / 10.0 for at in range(8)]  # as much speech in each: Student's paired one
    interval = stats.ttest_1samp(grown, 0.0).confidence_interval(0.95)
    assert (found.change.low, found.change.high) == pytest.approx((interval.low, interval.high))
    assert found.verdict == "fails"
    unchanged = row(rows, "b", "loudness.swing=20")
    assert (unchanged.change, unchanged.verdict) == (Change(0.0, 0.0, 0.0), "holds")
    assert pooled_ders(made_up()) == {f"x.{model}": pytest.approx(0.1) for model in "abcd"}


def test_intervals_of_many_recordings_are_by_bootstrap_and_those_of_fewer_wider() -> None:
    study = made_up()
    before, after = [Components(0.5, 0.3, 0.2, 10.0)] * FEW, [worse(at % 8) for at in range(FEW)]
    many = change_of(study, [after], [before])
    interval = bootstrap_difference(after, before, num_resamples=200, seed=0)
    assert interval is not None
    assert (many.low, many.high) == pytest.approx([100 * each for each in interval])
    few = change_of(study, [after[:9]], [before[:9]])
    percentiles = bootstrap_difference(after[:9], before[:9], num_resamples=200, seed=0)
    assert percentiles is not None
    assert few.low is not None
    assert few.high is not None
    assert few.high - few.low > 1.1 * 100 * (percentiles[1] - percentiles[0])


def test_few_recordings_hold_rarely_by_luck() -> None:
    """Changes of four recordings around a margin of 2: by either side about 2.5 % of verdicts are wrong."""
    rng, study = np.random.default_rng(0), made_up()
    before, wrong = [Components(0.5, 0.3, 3.0, 10.0)] * 4, 0
    for _ in range(400):
        after = [Components(0.5, 0.3, 3.0 + 0.2 + 0.3 * float(draw), 10.0) for draw in rng.standard_normal(4)]
        wrong += change_of(study, [after], [before]).verdict(2.0) != "undecided"
    assert 0.025 < wrong / 400 < 0.08  # percentiles: 0.24


@pytest.mark.parametrize(
    ("low", "high", "margin", "verdict"),
    [
        (-1.0, 2.0, 2.0, "holds"),
        (2.0, 3.0, 2.0, "undecided"),
        (2.1, 3.0, 2.0, "fails"),
        (-1.0, 2.1, 2.0, "undecided"),
        (5.0, 6.0, None, None),
        (None, None, 2.0, "undecided"),
    ],
)
def test_verdicts(low: float | None, high: float | None, margin: float | None, verdict: str | None) -> None:
    assert Change(2.05, low, high).verdict(margin) == verdict


def test_without_speech_there_is_nothing_to_judge() -> None:
    assert Change(None, None, None).verdict(2.0) is None


def test_seconds_labels_and_levels() -> None:
    changes = {
        ("a", "dc.offset=0.1"): {
            "merged": Components(0.0, 2.0, 0.0, 10.0),
            "num_speakers": lambda number: 2 + (number == 3) * 4,
            "dc": lambda number: 0.1 if number % 2 else -0.1,
            "level_dbfs": lambda number: -200.0 if number == 0 else -20.0 - number,
            "drift": lambda number: None if number == 0 else 0.5,
        }
    }
    found = row(rows_of(made_up(changes)), "a", "dc.offset=0.1")
    assert (found.false_speech_s, found.clean_false_speech_s) == (16.0, 2.0)
    assert (found.labels_added, found.most_labels_added) == (0.5, 4)
    assert found.dc_percent == pytest.approx(10.0)
    assert found.level_dbfs == pytest.approx((-24.0 - 25.0) / 2)
    assert found.drift == 0.5


def test_blocks_recovery_and_silence() -> None:
    changes = {
        ("a", "burst.slam=15"): {
            "rms": lambda number: (2.0, 1.0 + number),
            "attention": lambda number: (0.5, 0.1) if number else None,
            "recovery_s": lambda number: (0.4, 1.0) if number < 2 else (None,) if number < 4 else (),
        },
        ("b", "burst.slam=15"): {"recovery_s": (0.1, None, None)},
        ("a", "silence.middle=10"): {
            "event_s": 10.0,
            "event_speech_s": 2.0,  # in other pieces, too
            "inserted_s": 9.0,
            "inserted_speech_s": lambda number: 0.5 * (number == 1),
        },
        ("c", "silence.middle=10"): {"event_s": 10.0, "event_speech_s": 2.0, "inserted_s": 9.0},
        ("d", "silence.middle=10"): {"inserted_s": 0.0},
    }
    rows = rows_of(made_up(changes))
    found = row(rows, "a", "burst.slam=15")
    assert (found.rms, found.clean_rms) == ((2.0, 4.5), (1.0, 2.0))
    assert found.attention == pytest.approx((0.5, 0.1))
    assert (found.num_events, found.recovered, found.recovery_s) == (6, pytest.approx(4 / 6), pytest.approx(1.0))
    assert row(rows, "b", "burst.slam=15").recovery_s is None  # most did not
    assert row(rows, "c", "burst.slam=15").recovered is None
    silent = row(rows, "a", "silence.middle=10")
    assert (silent.event_s, silent.event_speech_s) == (80.0, 16.0)
    assert (silent.inserted_s, silent.inserted_speech_s, silent.quiet_verdict) == (72.0, 0.5, "fails")
    verdicts = [row(rows, model, "silence.middle=10").quiet_verdict for model in "bcd"]
    assert verdicts == ["holds", "holds", "undecided"]  # nothing of the last one's was looked at
    assert row(rows, "d", "silence.middle=10").outcome == "holds"  # which does not hide what its margin says
    assert row(rows, "b", "burst.slam=15").quiet_verdict is None


def test_labels_must_stay_after_silence_and_their_share_is_pooled() -> None:
    changes = {
        ("a", "silence.middle=10"): {"after_s": 20.0, "same_labels_s": lambda number: 19.0 - number},
        ("b", "silence.middle=10"): {"after_s": 20.0, "same_labels_s": 19.0},
        ("c", "silence.middle=10"): {"after_s": 20.0, "same_labels_s": lambda number: 20.0 * (number > 0)},
        ("a", "burst.slam=15"): {"after_s": 20.0, "same_labels_s": 1.0},
        ("a", "loudness.swing=6"): {"after_s": 20.0, "same_labels_s": 1.0},
    }
    rows = rows_of(made_up(changes))
    found = row(rows, "a", "silence.middle=10")
    assert found.labels_kept.value == pytest.approx((19.0 - 3.5) / 20.0)
    assert found.labels_after_s == 160.0
    verdicts = [row(rows, model, "silence.middle=10").labels_verdict for model in "abcd"]
    assert verdicts == ["fails", "holds", "undecided", None]  # nobody speaks after the last one's
    from_the_start = row(rows, "a", "loudness.swing=6")  # where labels are none of the clean run's
    assert (from_the_start.labels_after_s, from_the_start.labels_kept.value) == (0.0, None)
    assert row(rows, "a", "burst.slam=15").labels_verdict is None  # not asked for
    assert found.outcome == "fails"
    assert found.verdict == "holds"


def test_figures_have_intervals_over_recordings() -> None:
    changes = {
        ("a", "burst.slam=15"): {
            "rms": lambda number: (1.0 + 0.1 * number, 2.0),
            "drift": lambda number: 0.1 * number,
            "merged": lambda number: Components(0.5, 0.25 + number, 3.0, 10.0),
            "recovery_s": lambda number: (0.1 * number, 0.1 * number + 0.5),
        }
    }
    spread = row(rows_of(made_up(changes)), "a", "burst.slam=15").spread
    assert spread.drift.value == pytest.approx(0.35)
    assert spread.false_speech_s.value == pytest.approx(28.0)
    assert [each.value for each in spread.rms] == pytest.approx([1.35, 1.0])
    assert (spread.rms[1].low, spread.rms[1].high) == (1.0, 1.0)
    for each in (spread.drift, spread.false_speech_s, spread.rms[0], spread.recovery_s):
        assert each.value is not None
        assert each.low is not None
        assert each.high is not None
        assert each.low < each.value < each.high


def test_a_recording_without_a_frame_has_no_residual_stream() -> None:
    def some(number: int) -> tuple[float, ...]:
        return () if number == 0 else (2.0, 3.0)

    study = made_up({("a", "clean"): {"rms": some}, ("a", "burst.slam=15"): {"rms": some}})
    for condition in ("burst.slam=15", "silence.middle=10"):  # there, what was put in makes the first one longer
        found = row(rows_of(study), "a", condition)
        assert found.clean_rms == (2.0, 3.0)
        assert len(found.spread.rms) == 2
    assert [each.value for each in row(rows_of(study), "a", "burst.slam=15").spread.rms] == pytest.approx([1.0, 1.0])


def test_an_improvement_is_marked_and_breaks_no_margin() -> None:
    assert Change(-5.0, -6.0, -4.0).improves
    assert not Change(-5.0, -6.0, 0.5).improves
    assert Change(-5.0, -6.0, -4.0).verdict(1.0) == "holds"


def test_few_recordings_are_told_one_by_one() -> None:
    found = row(rows_of(made_up({("a", "loudness.swing=20"): {"errors": worse}})), "a", "loudness.swing=20")
    assert found.recordings == NAMES
    assert found.changes == pytest.approx([20.0 + number for number in range(8)])


def test_in_silence_alone_there_must_be_no_turns() -> None:
    rows = rows_of(made_up({("a", "silence.hum_50=20"): {"num_turns": 1, "merged": Components(0.0, 1.5, 0.0, 0.0)}}))
    found = row(rows, "a", "silence.hum_50=20")
    assert (found.set_name, found.verdict, found.false_speech_s) == ("silence", "fails", 1.5)
    assert row(rows, "b", "silence.hum_50=20").verdict == "holds"
    assert row(rows, "a", "nothing").verdict == "holds"


def test_factors_take_the_worst_over_severities() -> None:
    study = made_up(
        {("a", "loudness.swing=20"): {"errors": worse}, ("b", "silence.middle=10"): {"inserted_speech_s": 1.0}}
    )
    factors = {(each.model, each.factor): each for each in factors_of(study, rows_of(study))}
    assert factors["a", "loudness.swing"].verdict == "fails"
    assert factors["a", "loudness.swing"].worst.condition == "loudness.swing=20"
    assert factors["b", "loudness.swing"].verdict == "holds"
    assert factors["b", "silence.middle"].verdict == "fails"  # the DER holds, but there was speech in it
    assert len(factors) == 4 * 4
    assert worst_verdict([None]) is None


def test_a_failure_without_a_margin_counts() -> None:
    study = made_up(
        {("a", "silence.middle=28.8"): {"inserted_speech_s": 3.0}},
        corruptions=("silence.middle=9.6", "silence.middle=28.8"),
        margins=(Margin("silence", 0.5, high=10.0),),
    )
    found = {each.model: each for each in factors_of(study, rows_of(study))}
    assert (found["a"].verdict, found["a"].at, finding(found["a"])) == (
        "fails",
        "28.8",
        "+0.0 at 28.8, speech in silence",
    )
    assert (found["b"].verdict, found["b"].at) == ("holds", "9.6")


def test_rounding_is_no_speech_in_silence() -> None:
    changes = {(model, "silence.middle=10"): {"inserted_speech_s": s} for model, s in (("a", 1e-15), ("b", 0.01))}
    rows = rows_of(made_up(changes))
    assert [row(rows, model, "silence.middle=10").quiet_verdict for model in "ab"] == ["holds", "fails"]


def test_a_factor_shows_the_row_that_its_verdict_is_from() -> None:
    study = made_up(
        {
            ("a", "loudness.swing=6"): {
                "errors": lambda number: Components(0.5, 0.3, 8.0 if number == 0 else 0.2, 10.0)
            },
            ("a", "loudness.swing=20 noise.pink=10"): {"errors": Components(0.5, 0.3, 0.7, 10.0)},
            ("a", "loudness.swing=20"): {"errors": Components(0.5, 0.3, 0.6, 10.0)},
        },
        corruptions=("loudness.swing=6", "loudness.swing=20", "loudness.swing=20 noise.pink=10"),
    )
    rows = rows_of(study)
    found = {each.factor: each for each in factors_of(study, rows) if each.model == "a"}
    assert row(rows, "a", "loudness.swing=6").verdict == "undecided"
    assert row(rows, "a", "loudness.swing=6").change.points == pytest.approx(9.75)
    swing, both = found["loudness.swing"], found["loudness.swing noise.pink"]
    assert (swing.verdict, swing.at, finding(swing)) == ("fails", "20", "+4.0 at 20")  # not +9.8 at 6
    assert (both.verdict, both.at) == ("fails", "20, 10")


def test_one_recording_tells_nothing() -> None:
    study = made_up({("a", "loudness.swing=20"): {"errors": worse}})
    records = {place: each for place, each in study.records.items() if place[2] in (NAMES[0], "silence")}
    alone = type(study)(study.config, study.conditions, study.models, {"x": NAMES[:1]}, records, ())
    found = row(rows_of(alone), "a", "loudness.swing=20")
    assert (found.num_recordings, found.change.low, found.verdict) == (1, None, "undecided")
    assert np.isclose(found.change.points or 0.0, 20.0)
