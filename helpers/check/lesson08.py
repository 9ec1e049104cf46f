"""Checks of notebooks/08_quality.ipynb."""

import math

from helpers import check

GROUPS = [["pollen"], ["carr", "brought"], ["another"]]
SENTENCES = {  # whether it states the fact
    "Pollen is carried to another flower.": True,
    "The bee brought POLLEN to another one.": True,
    "The bee carried sugar to another one.": False,
    "Pollen is carried.": False,
    "Another pollen sac is scarred.": False,
    "It never carried pollen to another.": False,
    "It did not carry pollen to another.": False,
}


def states(answer):
    """answer: the reader's states(sentence, groups) -> bool."""
    for number, (sentence, expected) in enumerate(SENTENCES.items()):
        got = answer(sentence, GROUPS)
        if number == 0 and check.unanswered(got):
            return
        if not isinstance(got, bool):
            raise check.WrongAnswer(f"{sentence!r}: return True or False, not {got!r}")
        if got != expected:
            raise check.WrongAnswer(f"{sentence!r} with {GROUPS}: {got}, not {expected}. Each "
                                    "group needs a word that starts with one of its stems; a "
                                    "sentence with 'not' or 'never' states nothing ('another' "
                                    "contains 'not': compare whole words)")
    check.right(f"as the rule has it, in {len(SENTENCES)} sentences")


def perplexity(answer, nll, words):
    """answer: word perplexity of a text whose tokens have these NLLs."""
    check.number(answer, math.exp(sum(nll) / words), unit="a word", within=0.005,
                 hint="sum the NLLs of the tokens, divide by the number of words, and take exp")


def needed(answer, difference, effect):
    """answer: how many pairs would show `effect`; difference: what was measured here."""
    pairs = difference.pairs * (difference.detectable / effect) ** 2
    check.number(answer, pairs, unit="pairs", within=0.05,
                 hint="the smallest effect shrinks with the square root of the pairs: half the "
                      "effect needs four times as many")


def share_error(answer, share, examples):
    """answer: the standard error of a share of so many examples."""
    check.number(answer, math.sqrt(share * (1 - share) / examples), within=0.02,
                 hint="the square root of share * (1 - share) / examples")
