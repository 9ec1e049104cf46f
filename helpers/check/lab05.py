"""Checks of labs/05_where_the_time_goes.ipynb: against the reader's own runs."""

from helpers import check
from helpers.ledger import lab05


def share(answer, loops):
    """answer: the share of waiting of so many busy loops on one core."""
    check.number(answer, 1 - 1 / loops, hint="each loop is on the core for an equal part of the "
                 "time, and waits for the rest of it")


def floor(answer, *, weight_bytes, cache_bytes, bandwidth, batch):
    """answer: least seconds of a decode step of this batch, by its bytes."""
    check.number(answer, (weight_bytes + batch * cache_bytes) / bandwidth, unit="seconds",
                 hint="all weights once, the cache of each sequence, over bytes a second")


def idle(answer, requests):
    """answer: idle share of one engine's decode steps, the mean over repeats."""
    check.number(answer, lab05.of_one("idle")(requests)[0],
                 hint="1 - busy_s / period_s of the rows of 'one engine', and their mean")


def grown(answer, requests):
    """answer: by what factor the span of a decode step grew beside another engine."""
    check.number(answer, lab05.grew(requests)[0],
                 hint="the sum over repeats of span_s of 'two engines', over that of 'one engine'")


def verdict(answer, row):
    """answer: the verdict of one row of the ledger's table."""
    check.choice(answer, row.verdict, why=f"{row.claim}: {answer}",
                 hint="all of the interval where the claim says: supported; none of it: "
                      "contradicted; else, or with no interval: not decided")
