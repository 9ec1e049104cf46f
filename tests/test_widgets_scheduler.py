"""The scheduler widget draws the steps that the small scheduler takes, and follows its sliders."""

import matplotlib

matplotlib.use("agg")

import pytest

from helpers import plots, widgets
from helpers.scheduler import Request, schedule
from helpers.widgets.batching import compare

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


def test_the_readers_rule_is_asked_in_each_step(monkeypatch):
    def one_each(running, waiting, *, token_budget, max_num_seqs):
        return {request.name: 1 for request in running + waiting}

    limits = {"token_budget": 16, "max_num_seqs": 2}
    steps, agrees = compare(one_each, REQUESTS, **limits)
    assert len(steps) == len(agrees) and agrees == [False, True, True, True]
    assert all(compare(schedule, REQUESTS, **limits)[1])
    labels, real = [], plots.scheduler
    monkeypatch.setattr(plots, "scheduler", lambda *some, **more: labels.append(
        real(*some, **more)) or labels[-1])
    for rule in (one_each, schedule, lambda *_, **__: ...):
        widgets.scheduler(REQUESTS, rule=rule)
    assert [ax.get_xlabel() for ax in labels] == [
        "step (your rule differs first in step 0)", "step (your rule agrees in all 4)",
        "step (your rule differs first in step 0)"]
