"""Each figure draws what it is given, with units on its axes; nothing is measured or read."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from figures import assert_has_units_and_takes_axes

from helpers import plots

POINTS = pd.DataFrame({
    "concurrency": [1, 1, 8, 8], "p50_ttft_s": [0.1, 0.12, 0.5, 0.6],
    "p95_ttft_s": [0.2, 0.2, 0.9, 0.8], "p50_tpot_s": [0.02, 0.02, 0.03, 0.03],
    "output_tok_per_s": [40.0, 42.0, 150.0, 160.0],
})
ROW = pd.Series({"chunk_times_s": [0.1, 0.2, 0.3, 0.5], "ttft_s": 0.1, "e2el_s": 0.5})
COMPARED = pd.DataFrame({
    "figure": ["ttft", "ttft", "tpot", "tpot"], "tool": ["client", "guidellm"] * 2,
    "mean_s": [0.001, 0.002, 0.0001, 0.0002],
})
QUEUED = pd.DataFrame({"arm": ["a", "a", "b"], "intended_s": [0, 1, 0], "wait_s": [1, 2, 3]})


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    plt.close("all")
    plots.label("")


@pytest.mark.parametrize(("draw", "data", "unit"), [
    (plots.timeline, [ROW], "seconds"),
    (plots.latency, [POINTS], "milliseconds"),
    (plots.throughput, [POINTS], "tokens a second"),
    (plots.clients, [COMPARED], "ms"),
    (plots.arms, [{"same seed": [1, 2, 3], "fresh seed": [4, 5, 6]}], "ms"),
    (plots.in_order, [[5, 1, 1]], "ms"),
    (plots.queue, [QUEUED], "(s)"),
    (plots.fits, [pd.Series({"a": 8e9, "b": 80e9}), 9e9], "GB"),
])
def test_each_figure_has_units_and_takes_axes(draw, data, unit):
    assert_has_units_and_takes_axes(draw, *data, unit=unit)


def test_the_line_of_medians_is_in_milliseconds():
    ax = plots.latency(POINTS)
    assert list(ax.lines[0].get_ydata()) == pytest.approx([110, 550])


def test_a_card_that_is_too_small_is_grey():
    ax = plots.fits(pd.Series({"small": 8e9, "large": 80e9}), 9e9)
    colours = [matplotlib.colors.to_hex(bar.get_facecolor()) for bar in ax.patches]
    assert colours == [plots.COLOURS["card"], plots.COLOURS["free"].lower()]


def test_the_same_configuration_has_the_same_colour_in_any_order():
    one = plots.clients(COMPARED)
    two = plots.clients(COMPARED[::-1])
    def colours(ax):
        handles, labels = ax.get_legend_handles_labels()
        return {label: handle[0].get_facecolor()
                for label, handle in zip(labels, handles, strict=True)}

    assert colours(one) == colours(two)


def test_caption_is_the_notebooks_unless_the_data_brings_its_own():
    plots.label("my machine")
    assert [text.get_text() for text in plots.throughput(POINTS).texts] == ["my machine"]
    recorded = POINTS.copy()
    recorded.attrs["caption"] = "another machine"
    assert [text.get_text() for text in plots.throughput(recorded).texts] == ["another machine"]
