"""Checks of labs/09_precision_quality.ipynb: scales, and the reader's own differences."""

import math

from helpers import check
from helpers.ledger import lab09


def scale(answer, largest):
    """The scale with which `largest` just becomes 448, the largest number of FP8 E4M3."""
    check.number(answer, largest / 448, within=0.01,
                 hint="what is stored is x / scale, and the largest x must be stored as 448")


def lost(answer, tokens):
    """What the calibrated FP8 cache loses to 16 bits, over the reader's stretches."""
    if check.unanswered(answer):
        return
    expected = lab09.difference(tokens, lab09.CALIBRATED).mean
    try:
        off = abs(float(answer) - expected)
    except (TypeError, ValueError):
        raise check.WrongAnswer("the answer is one number: the mean over all stretches") from None
    if off > max(6e-6, 0.01 * abs(expected)):  # read from the table it is rounded
        raise check.WrongAnswer("the mean over all stretches of the calibrated arm's NLL less "
                                "that of '16 bits'")
    check.right(f"{expected:+.5f} nats a token")


def needed(answer, found, effect):
    """Stretches that would show `effect`, from the scatter of the reader's own."""
    expected = found.pairs * (found.detectable / effect) ** 2
    if check.unanswered(answer):
        return
    if answer in (math.floor(expected), math.ceil(expected)):  # rounded up, or down
        answer = expected
    check.number(answer, expected, within=0.01, unit="stretches",
                 hint="the detectable effect shrinks with the root of the number of pairs: "
                 "pairs * (detectable / effect) ** 2")
