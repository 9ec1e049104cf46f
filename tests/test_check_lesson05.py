"""The checks of lesson 05: right, wrong, and unanswered."""

import pandas as pd
import pytest
from checks import assert_judges

from helpers import check, scheduler
from helpers.check import lesson05

ROWS = pd.DataFrame({"sent_s": [0.0, 0.1, 0.2, 5.0], "e2el_s": [2.0, 0.9, 1.0, 1.0]})
PLACES = [0.0, 0.1, 1.0, 5.0]  # two places: the third starts when the second has ended

# check, right answer, wrong answer, further arguments
NUMBERS = {
    "slowed": (lesson05.slowed, 6, 5.86, (1500, 257)),
    "slowed in one step": (lesson05.slowed, 1, 2, (1500, 2048)),
    "floor": (lesson05.floor, 0.03, 0.02, (2e8, 1e8, 1e10)),
    "fitting": (lesson05.fitting, 7, 8, (63, 287, 32)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_checks_of_a_number(name, capsys):
    function, right, wrong, arguments = NUMBERS[name]
    assert_judges(function, right, [wrong], capsys, *arguments)


def test_the_rule_of_the_helper_is_right(capsys):
    lesson05.schedule(scheduler.schedule)
    assert "✓" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [lambda *_, **__: ..., lambda *_, **__: None])
def test_a_schedule_that_is_not_written_yet(answer, capsys):
    lesson05.schedule(answer)
    assert "○" in capsys.readouterr().out


def no_limit(running, waiting, *, token_budget, max_num_seqs):
    return scheduler.schedule(running, waiting, token_budget=token_budget, max_num_seqs=99)


def waiting_first(running, waiting, **limits):
    return scheduler.schedule(waiting, running, **limits)


def no_chunks(running, waiting, *, token_budget, max_num_seqs):
    tokens = {}
    for request in [*running, *waiting[:max_num_seqs - len(running)]]:
        if request.needs <= token_budget:
            tokens[request.name] = request.needs
            token_budget -= request.needs
    return tokens


def gives_nothing(running, waiting, **limits):
    scheduled = scheduler.schedule(running, waiting, **limits)
    return scheduled | {r.name: 0 for r in running if r.name not in scheduled}


@pytest.mark.parametrize("answer", [no_limit, waiting_first, no_chunks, gives_nothing])
def test_wrong_schedules_are_told_by_an_example(answer):
    with pytest.raises(check.WrongAnswer, match="running .* and waiting .* it gives"):
        lesson05.schedule(answer)


def test_places(capsys):
    lesson05.places(..., ROWS, 2)
    assert "○" in capsys.readouterr().out
    lesson05.places(PLACES, ROWS, 2)
    assert "1 of 4 waited" in capsys.readouterr().out
    with pytest.raises(check.WrongAnswer, match="request 3 .* 1.00 s, not 0.20 s"):
        lesson05.places(list(ROWS.sent_s), ROWS, 2)
    with pytest.raises(check.WrongAnswer, match="each of the 4"):
        lesson05.places(PLACES[:3], ROWS, 2)
