"""Checks of labs/07_admission.ipynb: Little's law, queues, and the reader's own refusals."""

import math

from helpers import admission, check, metrics
from helpers.ledger import lab07


def little(answer, rate, e2el_s):
    """answer: requests in flight when `rate` a second take e2el_s each."""
    check.number(answer, rate * e2el_s, unit="in flight",
                 hint="Little's law: in flight = rate * E2EL")


def queued(answer, capacity, wait_s):
    """answer: how many may queue so that the last of them waits wait_s."""
    if check.unanswered(answer):
        return
    expected = capacity * wait_s
    whole = (math.floor(expected), max(1, math.floor(expected)), round(expected))
    if answer not in whole and not math.isclose(answer, expected, rel_tol=0.02):
        raise check.WrongAnswer("the queue is served at the capacity: in wait_s seconds, how many "
                                "are taken from it?")
    check.right(f"{answer:.1f}: a whole number below it, and at least 1")


def refused(answer, rate, capacity):
    """answer: the share that must be refused in the long run."""
    check.number(answer, admission.refused_share(rate, capacity), within=0.01,
                 hint="of `rate` that come each second, `capacity` can be served: what share is "
                      "left over?")


def counted(answer, requests):
    """answer: share of these requests that were refused with 429."""
    expected = float(lab07.refused(requests).mean())
    if check.unanswered(answer):
        return
    if abs(answer - expected) > 0.005:
        raise check.WrongAnswer(f"a refused request has an `error` that starts with "
                                f"{metrics.REFUSED!r}; divide by all {len(requests)}")
    check.right(f"{expected:.0%} were refused")


def half(answer, rate, capacity):
    """answer: the share refused while one engine of two is left."""
    expected = admission.refused_share(rate, capacity / 2)
    if check.unanswered(answer):
        return
    if abs(answer - expected) > 0.01:
        raise check.WrongAnswer("one engine has half of the capacity: what share of `rate` is "
                                "more than that?")
    check.right(f"{expected:.0%}, as long as one is missing")
