"""Checks of notebooks/09_cost.ipynb."""

from helpers import check, metrics
from helpers.cost import in_time as expected_in_time


def thousand(cost, price_per_hour, rate):
    """cost: of a thousand requests at `rate` a second, all of them acceptable."""
    check.number(cost, 1000 * price_per_hour / 3600 / rate, within=0.01,
                 hint="how many seconds do a thousand requests take to arrive, and what does the "
                      "machine cost in that time?")


def in_time(requests, *, count, rate, capacity, wait_s):
    """requests: how many of `count` start in time in a queue that is a fluid."""
    check.number(requests, expected_in_time(count=count, rate=rate, capacity=capacity,
                                            wait_s=wait_s), unit="requests", within=0.03,
                 hint="request k comes after k / rate and is served after k / capacity; set the "
                      "difference to the longest wait, and solve for k")


def bill(cost, requests, *, price_per_hour, ttft_s, tpot_s):
    """cost: of an acceptable request of this one run, by the reader's own count."""
    good = metrics.meets(requests, ttft_s=ttft_s, tpot_s=tpot_s).sum()
    if not good:
        check.choice(cost, float("inf"), why="none was acceptable: no price is high enough",
                     hint="none was acceptable: what is something divided by nothing? float('inf')")
        return
    seconds = (requests.sent_s + requests.e2el_s.fillna(0)).max() - requests.sent_s.min()
    check.number(cost, price_per_hour / 3600 * seconds / good, within=0.02,
                 hint=f"from the first request sent to the last token; {good} of {len(requests)} "
                      "are within both limits")


def break_even(price, dear_price, dear_rate, cheap_rate):
    """price: an hour of the slower card, at which its requests cost as much."""
    check.number(price, dear_price * cheap_rate / dear_rate, within=0.02,
                 hint="the cost of a request is the price over the requests in an hour: set the "
                      "two equal")


def decision(answer, record, *, small, baseline, needs):
    """answer: small if all the claims it needs are supported, baseline if one is contradicted,
    'not decided' otherwise; by the reader's own form."""
    verdicts = {text: record.verdict_of(text) for text in needs}
    found = {"supported": small, "contradicted": baseline, "not decided": "not decided"}
    worst = next((v for v in ("contradicted", "not decided") if v in verdicts.values()),
                 "supported")
    check.choice(answer, found[worst], why=f"{answer}: the form bears it",
                 hint="the form says " + "; ".join(f"{v}: {text}" for text, v in verdicts.items()))
