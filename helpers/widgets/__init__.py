"""Figures with handles: each widget draws with the functions of helpers.plots.

    widgets.show(draw, users=IntSlider(...))    # draw(users=...) -> Axes, again at each change

Where no front end can show a widget (a page, a headless run) the figure of the first values stands.
"""

from helpers.widgets.base import show
from helpers.widgets.batching import scheduler
from helpers.widgets.load import slo
from helpers.widgets.paging import block_table
from helpers.widgets.sizing import sizing

__all__ = ["block_table", "scheduler", "show", "sizing", "slo"]
