"""The figures of lesson 08 draw what they are given, with units on their axes."""

import matplotlib

matplotlib.use("agg")

import pandas as pd
import pytest
from figures import assert_has_units_and_takes_axes

from helpers import plots
from helpers.quality import Difference

FOUND = {"BF16 again": Difference(100, 0.0, -0.01, 0.01, 0.015),
         "INT8": Difference(100, 0.03, 0.02, 0.04, 0.015)}
DRAWN = {arm: pd.DataFrame({"examples": [20, 100], "low": [-0.2, -0.1], "high": [0.1, 0.0],
                            "mean": [-0.05, -0.05]}) for arm in ("INT8", "4-bit")}


def test_differences():
    assert_has_units_and_takes_axes(plots.differences, FOUND, unit="nats")
    ax = plots.differences(FOUND)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["BF16 again", "INT8"]
    assert any(list(line.get_xdata()) == [0.02, 0.04] for line in ax.lines)


def test_by_examples():
    assert_has_units_and_takes_axes(plots.by_examples, DRAWN, unit="points")
    ax = plots.by_examples(DRAWN)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["20", "100"]
    low, high = ax.collections[0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((-20, 10))
