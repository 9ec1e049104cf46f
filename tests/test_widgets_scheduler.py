"""The scheduler widget draws the steps that the small scheduler takes, and follows its sliders."""

import matplotlib

matplotlib.use("agg")

import pytest

from helpers import plots, widgets
from helpers.scheduler import Request

REQUESTS = [Request("a", 3, 4), Request("b", 9, 2)]


@pytest.fixture
def drawn(monkeypatch):
    """Each call of plots.scheduler: (number of steps, steps shown)."""
    calls, real = [], plots.scheduler

    def spy(steps, **options):
        calls.append((len(steps), options["steps_shown"]))
        return real(steps, **options)

    monkeypatch.setattr(plots, "scheduler", spy)
    return calls


def test_it_shows_a_picture_and_follows_the_sliders(drawn):
    box = widgets.scheduler(REQUESTS)
    controls, _, image = box.children
    assert bytes(image.value).startswith(b"\x89PNG")
    steps, budget, places = controls.children
    assert places.max == 2 and drawn == [(4, 10)]
    steps.value = 1
    budget.value = 4
    places.value = 1
    assert drawn == [(4, 10), (4, 1), (5, 1), (8, 1)]


def test_the_default_class_has_a_long_prompt_and_somebody_who_waits(drawn):
    widgets.scheduler()
    assert len(drawn) == 1 and drawn[0][0] < 40
