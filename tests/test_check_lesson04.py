"""Every exercise of lesson 04: unanswered prints a circle, wrong raises a hint, right ticks."""

from types import SimpleNamespace

import pandas as pd
import pytest

from helpers import check
from helpers.check import lesson04

LENGTHS = {"tokens": 163, "block_size": 32, "longest": 2048}
ROW = SimpleNamespace(input_tokens=1810.0, hits=1792.0)
COLD = SimpleNamespace(input_tokens=1810.0, hits=0.0)
NAMES = pd.DataFrame({"hits": [0.0, 0.0, 0.0]})
EVICTED = pd.DataFrame({"others": [10, 11, 12, 13], "hits": [352.0, 192.0, 0.0, 0.0]})

# name: (check, right answers, [(wrong answers, a word of the hint)], arguments, keywords)
CASES = {
    "empty_slots": (lesson04.empty_slots, (29, 1885), [((31, 1885), "whole blocks"),
                    ((29, 2048), "longest"), (("a word", 1885), "whole blocks")], [], LENGTHS),
    "second_pupil": (lesson04.second_pupil, (1792,), [((1800,), "whole blocks"),
                     (("a word",), "tokens")], [ROW], {}),
    "name_first": (lesson04.name_first, (0,), [((96,), "first difference")], [NAMES], {}),
    "rest": (lesson04.rest, (18, 1), [((1810, 4), "less those"), ((18, 4), "budget")], [],
             {"row": ROW, "budget": 512}),
    "rest of a cold one": (lesson04.rest, (1810, 4), [((1810, 3), "may"), ((0, 4), "all tokens")],
                           [], {"row": COLD, "budget": 512}),
    "forgotten": (lesson04.forgotten, (12,), [((11,), "whole blocks"), ((13,), "oldest")],
                  [EVICTED], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_check(name, capsys):
    function, right, wrong, arguments, keywords = CASES[name]
    for blank in range(len(right)):
        answers = [... if k == blank else answer for k, answer in enumerate(right)]
        function(*answers, *arguments, **keywords)
        assert capsys.readouterr().out.startswith("○")
    function(*right, *arguments, **keywords)
    assert capsys.readouterr().out.startswith("✓")
    for answers, word in wrong:
        with pytest.raises(check.WrongAnswer, match=word):
            function(*answers, *arguments, **keywords)


def test_every_check_is_tested():
    public = {value for value in vars(lesson04).values() if callable(value)
              and getattr(value, "__module__", "") == lesson04.__name__}
    assert public == {case[0] for case in CASES.values()}
