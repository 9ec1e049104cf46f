"""The figures of lesson 05 draw what they are given, with units on their axes."""

import matplotlib

matplotlib.use("agg")

import pandas as pd
import pytest
from figures import assert_has_units_and_takes_axes

from helpers import plots
from helpers.scheduler import Request, run

STEPS = run([Request("a", 3, 4), Request("b", 9, 2), Request("c", 2, 2)], token_budget=6,
            max_num_seqs=2)
REQUESTS = pd.DataFrame({"sent_s": [0.0, 0.1], "place_s": [0.0, 0.9], "ttft_s": [0.2, 1.1],
                         "e2el_s": [0.9, 1.5]})
COUNTS = pd.DataFrame({"time_s": [0, 1], "running": [2, 1], "waiting": [1, 0]})
STALLS = pd.DataFrame({"label": ["budget 256", "budget 2048"], "predicted_s": [0.2, 0.9],
                       "chunk_times_s": [[-0.1, 0.1, 0.3]] * 2, "itl_s": [[0.2, 0.2]] * 2})
POINTS = pd.DataFrame({"step_bytes": [3e8, 4e8], "step_s": [0.03, 0.05], "batch": [1, 8],
                       "predicted_s": [0.031, 0.045], "held_out": [False, True]})


@pytest.mark.parametrize(("draw", "data", "unit"), [
    (plots.scheduler, [STEPS], "step"),
    (plots.batch, [REQUESTS], "seconds"),
    (plots.counts, [COUNTS], "seconds"),
    (plots.stalls, [STALLS], "ms"),
    (plots.roofline, [POINTS, 1e10], "MB"),
    (plots.held_out, [POINTS], "(ms)"),
])
def test_each_figure_has_units_and_takes_axes(draw, data, unit):
    assert_has_units_and_takes_axes(draw, *data, unit=unit)


def test_the_scheduler_draws_a_box_for_each_request_of_a_step():
    boxes = sum(len(step.tokens) + len(step.waiting) for step in STEPS)
    assert len(plots.scheduler(STEPS).patches) == boxes
    first = plots.scheduler(STEPS, steps_shown=1)
    assert [text.get_text() for text in first.texts[1:]] == ["3", "3"]  # without the caption
    assert len(first.patches) == 3 and first.get_xlim()[1] > STEPS[-1].number


def test_a_request_waits_from_sending_to_its_place():
    waits = plots.batch(REQUESTS).patches[:2]
    assert [bar.get_width() for bar in waits] == pytest.approx([0, 0.8])


def test_the_roofline_is_bytes_over_bandwidth():
    (line,) = plots.roofline(POINTS, 1e10).lines
    x, y = line.get_xdata()[-1], line.get_ydata()[-1]
    assert y == pytest.approx(1000 * x * 1e6 / 1e10)
