"""The checks of lesson 08: right, wrong, and unanswered."""

import math
import re

import pytest
from checks import assert_judges

from helpers import check
from helpers.check import lesson08
from helpers.quality import Difference

FOUND = Difference(1000, 0.02, 0.0, 0.04, 0.03)

# check, right answer, wrong answer, further arguments
NUMBERS = {
    "perplexity": (lesson08.perplexity, math.exp(2.5), math.exp(2.0), ([2.0, 3.0, 5.0], 4)),
    "needed": (lesson08.needed, 9000, 3000, (FOUND, 0.01)),
    "share_error": (lesson08.share_error, 0.05, 0.0025, (0.5, 100)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_checks_of_a_number(name, capsys):
    function, right, wrong, arguments = NUMBERS[name]
    assert_judges(function, right, [wrong], capsys, *arguments)


def words(sentence):
    return re.findall(r"\w+", sentence.lower())


def right(sentence, groups):
    return not {"not", "never"} & set(words(sentence)) and all(
        any(word.startswith(stem) for word in words(sentence) for stem in stems)
        for stems in groups)


def denial_overlooked(sentence, groups):
    return all(any(word.startswith(stem) for word in words(sentence) for stem in stems)
               for stems in groups)


def any_group(sentence, groups):
    return any(word.startswith(stem) for word in words(sentence)
               for stems in groups for stem in stems)


def inside_words(sentence, groups):
    return not {"not", "never"} & set(words(sentence)) and all(
        any(stem in sentence.lower() for stem in stems) for stems in groups)


def capitals_matter(sentence, groups):
    return all(any(word.startswith(stem) for word in sentence.split() for stem in stems)
               for stems in groups)


def test_a_rule_that_is_right_or_not_written_yet(capsys):
    lesson08.states(lambda *_: ...)
    assert "○" in capsys.readouterr().out
    lesson08.states(right)
    assert "✓" in capsys.readouterr().out


def test_a_rule_that_returns_something_else():
    with pytest.raises(check.WrongAnswer, match="return True or False, not 1"):
        lesson08.states(lambda *_: 1)


@pytest.mark.parametrize("rule", [denial_overlooked, any_group, inside_words, capitals_matter])
def test_wrong_rules_are_told_by_a_sentence(rule):
    with pytest.raises(check.WrongAnswer, match="starts with one of its stems"):
        lesson08.states(rule)
