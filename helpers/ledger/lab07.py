"""The claims of lab 07: what admission does for two engines, and what a lost node does.

Rows of lab07_admission are requests with arm, load ('below', 'at', 'above' the knee), rate, repeat,
capacity (requests a second), in_flight (that the limit lets in), room (places in the queue),
seconds (of arrivals), limit_ttft_s, limit_tpot_s. Rows of lab07_node_loss are requests with lost_s,
missed_s, full_s.
"""

import numpy as np
import pandas as pd

from helpers import intervals, metrics, overlap
from helpers.admission import refused_share
from helpers.ledger import Claim, as_text
from helpers.metrics import refused

ONE, DIRECT, FREE, BOUND = "one engine", "two engines", "no limit", "admission"
KEYS = ["arm", "repeat", "load"]


def saturated(turn):
    """(first, last) second of a turn with at least in_flight answered requests on their way.

    NaN where there never are as many.
    """
    ok = turn[turn.outcome == "ok"]
    times = np.concatenate([ok.sent_s, ok.sent_s + ok.e2el_s])
    order = np.argsort(times, kind="stable")
    inside = np.cumsum(np.repeat([1, -1], len(ok))[order])
    full = np.flatnonzero(inside >= turn.in_flight.iloc[0])
    return times[order][[full[0], full[-1] + 1]] if len(full) else (np.nan, np.nan)


def loaded(turn):
    """Output tokens a second while the turn is `saturated`. Over the whole turn, filling and
    emptying would weigh more in an arm that refuses, and is done sooner."""
    first, last = saturated(turn)
    return overlap.tokens_within(turn[turn.outcome == "ok"], first, last) / (last - first)


def points(requests):
    """`metrics.under` of every turn, with load, refused_share, lost_share (other errors), and
    loaded_tok_per_s, of `loaded`.

    concurrency is the rate, so that `experiment.against` takes these rows.
    """
    limits = {name: float(requests[f"limit_{name}"].iloc[0]) for name in ("ttft_s", "tpot_s")}
    bare = requests.drop(columns="engine")
    shares = requests.assign(refused_share=refused(requests),
                             lost_share=(requests.outcome != "ok") & ~refused(requests))
    turns = shares.groupby([*KEYS, "rate"])
    shares = turns[["refused_share", "lost_share"]].mean()
    shares["loaded_tok_per_s"] = [loaded(turn) for _, turn in turns]
    shares = shares.reset_index()
    found = metrics.under(bare, **limits).drop(columns="concurrency", errors="ignore")
    return found.merge(shares, on=["arm", "repeat", "rate"]).assign(concurrency=found.rate)


def over(arm, base, measure, load="above"):
    """effect: a measure of `points` of an arm over the base's, at a load."""
    def effect(requests):
        found = points(requests[requests.load == load])
        table = found.pivot(index="repeat", columns="arm", values=measure).dropna()
        return intervals.ratio(table[arm], table[base])
    return effect


def more(arm, base, measure, load="above"):
    """effect: a measure of `points` of an arm less the base's, which may be 0, at a load."""
    def effect(requests):
        found = points(requests[requests.load == load])
        table = found.pivot(index="repeat", columns="arm", values=measure).dropna()
        difference = (table[arm] - table[base]).to_numpy()
        ends = intervals.of_mean(difference) if len(difference) > 2 else (np.nan, np.nan)
        return float(difference.mean()), *ends
    return effect


def foretold(requests):
    """effect: the share refused above the knee over the one worked out."""
    some = requests[(requests.load == "above") & (requests.arm == BOUND)]
    first = some.iloc[0]
    expected = refused_share(first.rate, first.capacity, seconds=first.seconds, room=first.room)
    shares = refused(some).groupby(some.repeat).mean().to_numpy()
    return intervals.ratio(shares, np.full(len(shares), expected))


def broken(requests):
    """effect: share of requests that a lost node broke: errors that are no refusals.

    One loss is one event: it has no interval, however many requests met it.
    """
    bad = (requests.outcome != "ok") & ~refused(requests)
    return float(bad.mean()), np.nan, np.nan


def outage(requests):
    """What clients saw of a lost node: a Series.

    missed_s, full_s: seconds after the loss until it was known, and until full service. broken,
    refused: requests. refused_share, p95_ttft_s: before the loss, until full service, and after.
    """
    row = requests.iloc[0]
    back = row.full_s if row.full_s == row.full_s else np.inf
    phase = np.select([requests.sent_s < row.lost_s, requests.sent_s < back], ["before", "out"],
                      "after")
    found = {"missed_s": row.missed_s - row.lost_s, "full_s": row.full_s - row.lost_s,
             "broken": int(((requests.outcome != "ok") & ~refused(requests)).sum()),
             "refused": int(refused(requests).sum())}
    for name in ("before", "out", "after"):
        some = requests[phase == name]
        found[f"{name}: refused share"] = refused(some).mean() if len(some) else np.nan
        found[f"{name}: p95 TTFT, s"] = some.ttft_s.quantile(0.95)
    return pd.Series(found)


def in_words(requests):
    """Whether admission closed the gap, on a machine's run. Raises KeyError without both arms that
    make the gap."""
    gap = over(DIRECT, ONE, "loaded_tok_per_s")(requests)
    if BOUND not in set(requests.arm):
        return (f"above the knee, over one engine: two {as_text(gap)} of the tokens a second. "
                "No front ran there, so nothing can be said of closing a gap.")
    closed = over(BOUND, ONE, "loaded_tok_per_s")(requests)
    better, low, high = more(BOUND, ONE, "good_share")(requests)
    good = f"{better:+.2f}" + (f" ({low:+.2f} to {high:+.2f})" if low == low else "")
    if gap[2] < 1:
        end = "there is a gap, and admission closes it" if closed[1] >= 1 else (
            "there is a gap, and admission does not close it" if closed[2] < 1 else
            "there is a gap; whether admission closes it is not decided")
    else:
        end = "no gap to close: two engines do not do less" if gap[1] >= 1 else \
            "a gap is not shown, so nothing can be said of closing it"
    return (f"above the knee, over one engine: two {as_text(gap)} of the tokens a second; behind "
            f"admission {as_text(closed)}; share of requests with a good answer, behind admission "
            f"less one engine: {good}. So: {end}.")


NAME = "lab07_admission"
CLAIMS = [
    Claim("07", "Above the knee admission raises goodput", NAME,
          "share of all requests that are good, with less without a limit",
          more(BOUND, FREE, "good_share"), above=0),
    Claim("07", "Whom it lets in waits less, above the knee", NAME,
          "p95 TTFT, with over without a limit", over(BOUND, FREE, "p95_ttft_s"), below=1),
    Claim("07", "It does not make the engines faster", NAME,
          "output tokens a second, with over without a limit",
          over(BOUND, FREE, "loaded_tok_per_s"), below=1.05),
    Claim("07", "Below the knee it changes little", NAME,
          "mean E2EL, with over without a limit", over(BOUND, FREE, "mean_e2el_s", "below"),
          above=0.8, below=1.25),
    Claim("07", "What it refuses can be worked out", NAME,
          "share refused above the knee, over the prediction", foretold, above=0.8, below=1.25),
    Claim("07", "It closes the gap to one engine", NAME,
          "output tokens a second above the knee, two behind admission over one",
          over(BOUND, ONE, "loaded_tok_per_s"), above=1),
    Claim("07", "A lost node breaks fewer than one request in ten", "lab07_node_loss",
          "share of requests with errors that are no refusals", broken, below=0.1),
]
