"""The SLO explorer works on runs alone, and its axis follows the limits."""

import matplotlib

matplotlib.use("agg")

import pandas as pd
import pytest

from helpers import plots, widgets
from helpers.rows import latencies, table


def run(rate, ttft_s, repeat=0):
    """Twenty requests of 11 tokens, each with the same TTFT and 20 ms a token."""
    rows = [{"intended_s": k / rate, "sent_s": k / rate, "chunk_tokens": None, "outcome": "ok",
             "error": "", "input_tokens": 8, "output_tokens": 11,
             **latencies([ttft_s + 0.02 * step for step in range(11)], 11)} for k in range(20)]
    return table(rows, tool="client", settings={}).assign(rate=rate, repeat=repeat)


RUNS = pd.concat([run(1.0, 0.1), run(4.0, 0.4), run(1.0, 0.12, repeat=1)])


@pytest.fixture
def labels(monkeypatch):
    """The axis labels of the figures drawn, in order."""
    from helpers.widgets import load as module

    drawn, real = [], module.show

    def show(draw, **controls):
        def spy(**values):
            ax = draw(**values)
            drawn.append(ax.get_xlabel())
            return ax

        return real(spy, **controls)

    monkeypatch.setattr(module, "show", show)
    return drawn


def test_it_shows_a_picture_and_follows_the_limits(labels):
    box = widgets.slo(RUNS, ttft_s=0.2, tpot_s=0.05)
    controls, _, image = box.children
    assert bytes(image.value).startswith(b"\x89PNG")
    _, ttft, tpot = controls.children
    ttft.value = 500
    tpot.value = 10
    assert [text.rpartition("good ")[2] for text in labels] == [
        "up to 1", "up to 4", "at none of these"]


def test_runs_of_several_machines_can_be_picked(labels):
    both = pd.concat([RUNS.assign(machine="mine"),
                      run(100.0, 0.01).assign(machine="recorded (h200)")])
    box = widgets.slo(both, ttft_s=0.2)
    machine = box.children[0].children[0]
    assert machine.options == ("mine", "recorded (h200)")
    machine.value = "recorded (h200)"
    assert labels[-1].endswith("up to 100")


def test_it_draws_with_the_figure_of_the_lesson(monkeypatch):
    drawn, real = [], plots.goodput
    monkeypatch.setattr(plots, "goodput", lambda runs: drawn.append(runs) or real(runs))
    widgets.slo(RUNS)
    assert len(drawn[0]) == 3 and drawn[0].attrs["caption"] == "this machine"
