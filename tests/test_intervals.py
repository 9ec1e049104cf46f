"""Intervals: against scipy where it has the same, and against what can be worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers import intervals

VALUES = np.random.default_rng(3).exponential(size=60)


@pytest.mark.parametrize("statistic", [np.mean, np.median, lambda v: np.percentile(v, 95)])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_it_agrees_with_scipys_percentile_method(statistic, level):
    theirs = stats.bootstrap((VALUES,), statistic, method="percentile", vectorized=False,
                             confidence_level=level, n_resamples=4000,
                             rng=np.random.default_rng(1)).confidence_interval
    ours = intervals.bootstrap(VALUES, statistic, seed=2, resamples=4000, level=level)
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.12 * width)


def test_a_share_has_the_interval_of_a_binomial():
    """90 of 100: standard error 0.03, so plus or minus 0.059."""
    met = [True] * 90 + [False] * 10
    low, high = intervals.bootstrap(met, np.mean, seed=0)
    assert low == pytest.approx(0.9 - 1.96 * 0.03, abs=0.011)
    assert high == pytest.approx(0.9 + 1.96 * 0.03, abs=0.011)


def test_two_values_worked_out_by_hand():
    """Four resamples, equally likely: 0 0, 0 1, 1 0, 1 1."""
    assert intervals.bootstrap([0, 1], np.mean, seed=0) == (0, 1)
    assert intervals.bootstrap([0, 1], np.mean, seed=0, level=0.2) == (0.5, 0.5)


def test_rows_of_a_table_are_drawn_whole():
    frame = pd.DataFrame({"a": VALUES, "b": 2 * VALUES}, index=[7] * len(VALUES))
    low, high = intervals.bootstrap(frame, lambda rows: rows.b.sum() / rows.a.sum(), seed=0,
                                    resamples=200)
    assert low == high == pytest.approx(2)
    of_frame = intervals.bootstrap(frame, lambda rows: rows.a.mean(), seed=5, resamples=300)
    assert of_frame == intervals.bootstrap(frame.a, np.mean, seed=5, resamples=300)


def test_repeats_that_differ_widen_an_interval_over_whole_repeats():
    """Three runs, each quiet in itself: rows alone would promise too much."""
    frame = pd.DataFrame({"repeat": np.repeat([0, 1, 2], 100), "x": np.repeat([1.0, 2, 3], 100)})
    rows = intervals.bootstrap(frame, lambda some: some.x.mean(), seed=0)
    whole = intervals.bootstrap(frame, lambda some: some.x.mean(), seed=0, by="repeat")
    assert rows[1] - rows[0] < 0.25 and whole[1] - whole[0] > 1
    assert whole[0] >= 1 and whole[1] <= 3


def test_the_same_seed_gives_the_same_interval():
    ask = [intervals.bootstrap(VALUES, np.mean, seed=seed) for seed in (1, 1, 2)]
    assert ask[0] == ask[1] != ask[2]


@settings(max_examples=30)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20), st.integers(0, 9))
def test_an_interval_of_a_mean_stays_within_the_values(values, seed):
    low, high = intervals.bootstrap(values, np.mean, seed=seed, resamples=50)
    assert min(values) - 1e-6 <= low <= high <= max(values) + 1e-6


def test_students_interval_is_scipys_and_a_worked_example():
    """10, 12, 14: mean 12, s = 2, t(0.975, 2) = 4.303, so 12 ± 4.303 * 2 / sqrt(3)."""
    low, high = intervals.of_mean([10, 12, 14])
    assert (low, high) == pytest.approx((12 - 4.968, 12 + 4.968), abs=0.001)
    theirs = stats.ttest_1samp(VALUES, 0).confidence_interval(0.9)
    assert intervals.of_mean(VALUES, level=0.9) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize("values", [[], [3.0]])
def test_one_value_has_no_interval(values):
    with pytest.raises(ValueError, match="two are the least"):
        intervals.bootstrap(values, np.mean, seed=0)
    with pytest.raises(ValueError, match="two are the least"):
        intervals.of_mean(values)


def test_one_repeat_has_no_interval_over_repeats():
    frame = pd.DataFrame({"repeat": [0, 0], "x": [1, 2]})
    with pytest.raises(ValueError, match="from 1 of them"):
        intervals.bootstrap(frame, len, seed=0, by="repeat")


@pytest.mark.parametrize("level", [0, 1, 95])
def test_a_level_is_a_share(level):
    with pytest.raises(ValueError, match="level"):
        intervals.bootstrap([1, 2], np.mean, seed=0, level=level)


@given(st.lists(st.floats(0.1, 100), min_size=3, max_size=8), st.floats(0.5, 0.99))
def test_with_equal_counts_the_ratio_is_students_interval_of_the_mean(values, level):
    value, low, high = intervals.ratio(values, [2] * len(values), level=level)
    expected = intervals.of_mean(np.array(values) / 2, level=level)
    assert value == pytest.approx(np.mean(values) / 2)
    assert (low, high) == pytest.approx((max(0, expected[0]), expected[1]), abs=1e-6)


def test_pairs_that_move_together_give_a_narrow_ratio():
    """A machine that has slow minutes slows both: what is left is the difference."""
    machine = np.array([1.0, 0.6, 1.3, 0.8])
    value, low, high = intervals.ratio(0.8 * machine, machine)
    assert (value, low, high) == pytest.approx((0.8, 0.8, 0.8))
    assert intervals.ratio([1, 2, 3], [0, 0, 0]) == (math.inf, 0, math.inf)
    with pytest.raises(ValueError, match="no pairs"):
        intervals.ratio([1, 2], [1])


def test_the_interval_of_a_ratio_covers_the_truth_about_as_often_as_it_says():
    dice, covered = np.random.default_rng(9), 0
    for _ in range(2000):
        machine = dice.normal(1, 0.1, 4)
        value, low, high = intervals.ratio(0.8 * machine + dice.normal(0, 0.03, 4), machine)
        covered += low <= 0.8 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("found, strayed, expected", [
    ((2, 1.5, 2.1), 0.1, (2, 1.5, 2.2)), ((0.5, 0.49, 0.51), 0.2, (0.5, 0.4, 0.6)),
    ((2, 1, 3), 0, (2, 1, 3))])
def test_an_interval_is_as_wide_as_the_control_strayed(found, strayed, expected):
    assert intervals.widened(found, strayed) == pytest.approx(expected)


@pytest.mark.parametrize("found, strayed", [((2, np.nan, np.nan), 0.1), ((2, 1, 3), np.nan)])
def test_without_a_control_or_an_interval_there_are_no_ends(found, strayed):
    value, low, high = intervals.widened(found, strayed)
    assert value == 2 and np.isnan([low, high]).all()
