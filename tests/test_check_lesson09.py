"""The checks of lesson 09: right, wrong, and unanswered."""

import math

import pytest
from checks import assert_judges
from test_cost import LIMITS, run

from helpers import check, decision
from helpers.check import lesson09

# check, right answer, wrong answer, further arguments
ONE = {"price_per_hour": 3.6, **LIMITS}
QUEUE = {"count": 100, "rate": 10, "capacity": 8, "wait_s": 1}
NUMBERS = {
    "thousand": (lesson09.thousand, 0.2, 5, (3.6, 5), {}),
    "in time": (lesson09.in_time, 40, 100, (), QUEUE),
    "bill": (lesson09.bill, 0.002, 0.0015, (run(1, late=2),), ONE),
    "no bill": (lesson09.bill, math.inf, 0.002, (run(1).assign(ttft_s=2.0),), ONE),
    "break even": (lesson09.break_even, 0.9, 1.8, (1.8, 1000, 500), {}),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_checks_of_a_number(name, capsys):
    function, right, wrong, arguments, more = NUMBERS[name]
    assert_judges(function, right, [wrong], capsys, *arguments, **more)


@pytest.mark.parametrize(("gate", "expected"), [
    ((0.02, 0.04), "INT8"), ((0.02, 0.08), "not decided"), ((0.3, 0.4), "BF16"),
    ((math.nan, math.nan), "not decided")])
def test_the_decision_is_the_one_that_the_form_bears(gate, expected, capsys):
    form = decision.Record("Which?", {})
    form.claim("good", interval=gate, below=0.05)
    form.claim("cheap", interval=(0.6, 0.8), below=1)
    about = {"small": "INT8", "baseline": "BF16", "needs": ["good", "cheap"]}
    lesson09.decision(..., form, **about)
    assert "○" in capsys.readouterr().out
    lesson09.decision(expected, form, **about)
    assert "✓" in capsys.readouterr().out
    for other in {"INT8", "BF16", "not decided"} - {expected}:
        with pytest.raises(check.WrongAnswer, match="the form says"):
            lesson09.decision(other, form, **about)
