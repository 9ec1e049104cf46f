"""Checks of labs/09_precision_quality.ipynb: scales, and the reader's own differences."""

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
    if abs(answer - expected) > max(1e-6, 0.01 * abs(expected)):
        raise check.WrongAnswer("the mean over all stretches of the calibrated arm's NLL less "
                                "that of '16 bits'")
    check.right(f"{expected:+.5f} nats a token")


def needed(answer, found, effect):
    """Stretches that would show `effect`, from the scatter of the reader's own."""
    expected = found.pairs * (found.detectable / effect) ** 2
    if check.unanswered(answer):
        return
    if abs(answer - expected) < 1:  # rounded up, or not
        answer = expected
    check.number(answer, expected, within=0.01, unit="stretches",
                 hint="the detectable effect shrinks with the root of the number of pairs: "
                 "pairs * (detectable / effect) ** 2")
