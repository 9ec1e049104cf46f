"""Figures with handles: each widget draws with the functions of helpers.plots.

    widgets.show(draw, users=IntSlider(...))    # draw(users=...) -> Axes, again at each change

Where no front end can show a widget (a page, a headless run) the figure of the first values stands.
"""
