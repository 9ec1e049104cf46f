"""The figures of lesson 07 draw what they are given, with units on their axes."""

import matplotlib

matplotlib.use("agg")

import numpy as np
import pandas as pd
import pytest
from figures import assert_has_units_and_takes_axes

from helpers import memory, models, plots

PARTS = pd.DataFrame({scheme: memory.checkpoint_parts(models.config("shape:Qwen3-0.6B"),
                                                      scheme=scheme)
                      for scheme in ("BF16", "INT8", "4-bit")}).T
RATIOS = pd.DataFrame({"arm": ["INT8", "4-bit"] * 2, "measure": ["speed"] * 2 + ["TTFT"] * 2,
                       "ratio": [1.2, 0.8, 0.7, np.nan], "low": [1.1, np.nan, 0.6, np.nan],
                       "high": [1.3, np.nan, 0.8, np.nan]})


def test_checkpoints():
    assert_has_units_and_takes_axes(plots.checkpoints, PARTS, unit="MiB")
    ax = plots.checkpoints(PARTS)
    ends = [max(bar.get_x() + bar.get_width() for bar in group) for group in ax.containers]
    assert max(ends) == pytest.approx(PARTS.sum(axis=1).max() / 2**20)
    assert [text.get_text() for text in ax.texts if "%" in text.get_text()] == ["100%", "63%",
                                                                                "45%"]


def test_speed_ratios():
    assert_has_units_and_takes_axes(plots.speed_ratios, RATIOS, unit="ratio")
    ax = plots.speed_ratios(RATIOS)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["speed", "TTFT"]
    first = ax.collections[0].get_segments()[0]
    assert sorted(first[:, 0]) == [1.1, 1.3]
