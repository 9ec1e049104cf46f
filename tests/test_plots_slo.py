"""The figures of lesson 06 draw what they are given, with units on their axes."""

import matplotlib

matplotlib.use("agg")

import pandas as pd
import pytest
from figures import assert_has_units_and_takes_axes

from helpers import plots

SENT = pd.DataFrame({"arm": ["free", "free", "held"], "intended_s": [0.0, 1.0, 1.0],
                     "sent_s": [0.0, 1.001, 3.0]})
RUNS = pd.DataFrame({
    "rate": [1.0, 1.0, 4.0, 4.0], "valid": [True, True, True, False],
    "p50_e2el_s": [0.5, 0.6, 2.0, 0.1], "p95_ttft_s": [0.1, 0.1, 1.0, 0.1],
    "request_per_s": [1.0, 0.9, 3.0, 2.0], "goodput_per_s": [1.0, 0.9, 0.5, 2.0]})
INTERVALS = pd.DataFrame({"low": [0.8, 0.1], "high": [1.0, 0.4]}, index=[1.0, 4.0])
PAIRS = pd.DataFrame({"figure": ["TPOT", "TPOT", "tok/s"], "ratio": [1.05, 0.97, 0.99],
                      "within": [0.1, 0.1, 0.05]})


@pytest.mark.parametrize(("draw", "data", "unit"), [
    (plots.schedule, [SENT], "(s)"),
    (plots.knee, [RUNS], "seconds"),
    (plots.goodput, [RUNS], "requests a second"),
    (plots.tools, [PAIRS], "ratio"),
])
def test_each_figure_has_units_and_takes_axes(draw, data, unit):
    assert_has_units_and_takes_axes(draw, *data, unit=unit)


def test_the_schedule_has_a_line_of_no_lateness_and_an_arm_each():
    ax = plots.schedule(SENT)
    *arms, line = ax.lines
    assert list(line.get_xdata()) == list(line.get_ydata()) and len(arms) == 2
    assert list(arms[1].get_ydata()) == [3.0]


def test_the_knee_leaves_invalid_runs_out():
    ax = plots.knee(RUNS, predicted=pd.Series([0.5, 1.0], index=[1.0, 4.0]))
    e2el, ttft, predicted = ax.lines
    assert list(e2el.get_ydata()) == [pytest.approx(0.55), 2.0]
    assert list(ttft.get_ydata()) == [pytest.approx(0.1), 1.0]
    assert list(predicted.get_ydata()) == [0.5, 1.0]


def test_goodput_draws_a_dot_a_run_and_invalid_ones_hollow():
    ax = plots.goodput(RUNS, intervals=INTERVALS)
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "none"]
    assert [list(line.get_xdata()) for line in hollow if len(line.get_xdata())] == [[4.0]] * 2


def test_tools_shade_what_counts_as_agreement():
    bars = plots.tools(PAIRS).patches
    assert [(bar.get_y(), bar.get_height()) for bar in bars] == [
        (pytest.approx(0.9), pytest.approx(0.2)), (pytest.approx(0.95), pytest.approx(0.1))]
