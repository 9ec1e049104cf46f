"""The figures of lesson 09 draw what they are given, also where nothing was acceptable."""

import math

import matplotlib

matplotlib.use("agg")

import pandas as pd
import pytest
from figures import assert_has_units_and_takes_axes

from helpers import plots

COSTS = pd.DataFrame({"arm": ["BF16", "INT8"] * 2, "load": [0.5, 0.5, 1.5, 1.5],
                      "cost": [0.2, 0.2, math.inf, 0.1], "low": [0.19, 0.19, 0, 0.09],
                      "high": [0.21, 0.21, math.inf, 0.11], "predicted": [0.2, 0.2, 0.3, 0.1]})
RATIOS = pd.DataFrame({"label": ["at 0.5", "at 1.5", "itself", "one run"],
                       "value": [1.0, 0.6, 1.01, math.inf], "low": [0.98, 0.5, 0.99, math.nan],
                       "high": [1.02, 0.7, 1.03, math.nan], "control": [False, False, True, False],
                       "machine": "this one"})


@pytest.mark.parametrize(("draw", "data", "unit"), [
    (plots.cost, COSTS, "1,000 acceptable"),
    (plots.ratios, RATIOS, "ratio"),
])
def test_each_figure_has_units_and_takes_axes(draw, data, unit):
    assert_has_units_and_takes_axes(draw, data, unit=unit)


def test_an_arm_with_nothing_acceptable_is_named_so():
    assert "none in time" in [text.get_text() for text in plots.cost(COSTS).texts]
    nothing = COSTS.assign(cost=math.inf, low=0, high=math.inf, predicted=math.inf)
    plots.cost(nothing).figure.canvas.draw()


def test_without_intervals_the_points_stand_alone():
    plots.cost(COSTS.assign(low=math.nan, high=math.nan)).figure.canvas.draw()
    ax = plots.ratios(RATIOS)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == "none" for line in dots] == [False, False, False, True]
    assert dots[3].get_xdata()[0] <= ax.get_xlim()[1]


def test_an_interval_at_infinity_is_drawn_at_the_edge():
    ax = plots.ratios(RATIOS.assign(low=math.inf, high=math.inf, value=math.inf))
    assert all(max(line.get_xdata()) <= ax.get_xlim()[1] for line in ax.lines)
    ax.figure.canvas.draw()


def test_machines_are_named_where_there_are_several():
    both = pd.concat([RATIOS, RATIOS.assign(machine="recorded (gpu)")])
    texts = [text.get_text() for text in plots.ratios(both).texts]
    assert texts[-2:] == ["this one", "recorded (gpu)"]
    assert "this one" not in [text.get_text() for text in plots.ratios(RATIOS).texts]
