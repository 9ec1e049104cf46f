"""What every figure of the course must do, for the tests of helpers.plots."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt

from helpers import plots


def assert_has_units_and_takes_axes(draw, *data, unit):
    """The figure names `unit` on an axis, has the course's size, and draws on axes it is given."""
    ax = draw(*data)
    assert unit in ax.get_xlabel() + ax.get_ylabel()
    assert tuple(ax.figure.get_size_inches()) == plots.SIZE
    _, mine = plt.subplots()
    assert draw(*data, ax=mine) is mine
