"""The figures of lesson 04 draw what they are given."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from helpers import plots

EXAMPLE = {"first request": (75, [7, 21, 4])}
SAVED = pd.DataFrame({"passage_tokens": [64, 64, 512], "saved_s": [0.1, 0.12, 0.9],
                      "predicted_s": [0.11, 0.11, 1.0], "first_guess_s": [0.2, 0.2, 1.1]})
ITL = pd.DataFrame({"passage_tokens": [64, 64], "arm": ["cold", "warm"], "itl_ms": [30.0, 31.0]})
EVICTED = pd.DataFrame({"others": [10, 11, 12], "predicted": [352, 192, 0], "hits": [352, 192, 0]})


@pytest.mark.parametrize(("draw", "data", "unit"), [
    (plots.saved, SAVED, "(ms)"), (plots.itl_by_arm, ITL, "(ms)"),
    (plots.forgotten, EVICTED, "(tokens)"),
])
def test_each_figure_has_units_and_takes_axes(draw, data, unit):
    ax = draw(data)
    assert unit in ax.get_ylabel() and ax.get_xlabel()
    assert tuple(ax.figure.get_size_inches()) == plots.SIZE
    _, mine = plt.subplots()
    assert draw(data, ax=mine) is mine


def test_savings_are_in_milliseconds_and_predicted_once_a_length():
    ax = plots.saved(SAVED)
    assert list(ax.lines[0].get_ydata()) == pytest.approx([110, 1000])
    assert list(ax.lines[1].get_ydata()) == pytest.approx([200, 1100])
    assert list(ax.lines[2].get_ydata()) == pytest.approx([100, 120, 900])


def numbers(ax):
    return [text.get_text() for text in ax.texts[1:]]  # without the caption


def test_the_example_has_three_logical_blocks_and_its_memory():
    ax = plots.block_table(EXAMPLE, block_size=32, physical=24)
    shown = numbers(ax)
    assert shown[:4] == ["first request", "7", "21", "4"]
    assert shown[4:29] == ["memory", *map(str, range(24))]
    assert len(ax.texts) == 1 + 29 + 3  # an arrow for each block


def test_a_block_is_filled_as_far_as_its_tokens_reach():
    ax = plots.block_table(EXAMPLE, block_size=32, physical=24)
    boxes = ax.patches[:9]  # three a block: ground, filling, outline
    filled = [boxes[k + 1].get_width() / boxes[k].get_width() for k in (0, 3, 6)]
    assert filled == pytest.approx([1, 1, 11 / 32])


def test_a_block_that_two_hold_has_the_colour_of_shared_ones():
    ax = plots.block_table({"a": (40, [1, 2]), "b": (40, [1, 3])}, block_size=32, physical=24)
    fillings = [to_hex(box.get_facecolor()).upper() for box in ax.patches[1:12:3]]
    shared, own = plots.COLOURS["shared block"], plots.COLOURS["own block"]
    assert fillings == [shared, own, shared, own]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["own block", "shared block", "slots not filled", "free block"]
    _, mine = plt.subplots()
    assert plots.block_table(EXAMPLE, block_size=32, physical=24, ax=mine) is mine
