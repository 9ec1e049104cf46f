"""The claims of lab 05: what the inside of a step says of lab 01's suspects.

lab05_steps: every arm under the same load in all, with the columns of `profiling.watched`.
lab05_spans: every engine under the same load of its own, alone or beside another, with those of
`profiling.on_and_off`, and bandwidth (bytes a second), weight_bytes (of a decode step) and
cache_bytes (that a token of an answer reads).
"""

import numpy as np
import pandas as pd

from helpers import intervals, profiling
from helpers.ledger import Claim
from helpers.ledger.lab02 import ONE, TWO, arm_with

AGAIN = f"{ONE} again"


def fullest(spans):
    """Of `profiling.spans` the decode steps with the fullest batch that every turn had, and more.

    Requests that reach an engine one by one fill its batch in one turn more than in another. Raises
    KeyError where none was traced.
    """
    steps = spans[spans.kind == "decode"]
    if steps.empty:
        raise KeyError("no decode step was traced")
    return steps[steps.batch >= steps.groupby(["arm", "repeat"]).batch.max().min()]


def decode(requests):
    """Median of each decode step's numbers, a row an (arm, repeat): of those of `fullest`.
    span_s, busy_s, period_s, of all engines of an arm; idle: 1 - busy_s / period_s; floor: time
    to read the bytes of a step, by bandwidth, over span_s. And of all steps: work_s, their spans
    added up, an engine, prefill and being held up included; beside: which part of that lay beside a
    step of the other engine. An engine has the same requests in every arm. Raises KeyError where
    none was traced.
    """
    spans = profiling.spans(requests)
    turns = spans.groupby(["arm", "repeat"])
    every = pd.DataFrame({"work_s": turns.span_s.sum() / turns.engine.nunique(),
                          "beside": turns.beside_s.sum() / turns.span_s.sum()})
    turns = fullest(spans).groupby(["arm", "repeat"])
    table = turns[["batch", "span_s", "busy_s", "period_s"]].median()
    about = requests.groupby(["arm", "repeat"])[["weight_bytes", "cache_bytes",
                                                 "bandwidth"]].first().reindex(table.index)
    least_s = (about.weight_bytes + table.batch * about.cache_bytes) / about.bandwidth
    return table.join(every).assign(idle=1 - table.busy_s / table.period_s,
                                    floor=least_s / table.span_s)


def ratio(table, over, under, column="span_s"):
    """(value, low, high) of a column of `decode`, one arm over another, paired by repeat.

    The interval is `intervals.widened` by the share that AGAIN strayed from ONE in any repeat:
    NaN where that arm, or three repeats, are not there. Raises KeyError for an arm that is not.
    """
    wide = table[column].unstack("arm")
    pairs = wide[[over, under]].dropna()
    stray = intervals.strayed(wide[AGAIN], wide[ONE]) if AGAIN in wide else np.nan
    return intervals.widened(intervals.ratio(pairs[over], pairs[under]), stray)


def of_one(column):
    """effect: mean of a column of `decode` over the repeats of one engine, with its interval."""
    def effect(requests):
        values = decode(requests)[column].xs(ONE, level="arm").dropna()
        ends = intervals.of_mean(values) if len(values) > 2 else (np.nan, np.nan)
        return float(values.mean()), *ends
    return effect


def grew(requests):
    """effect: the span of a full decode step beside another engine, over alone."""
    return ratio(decode(requests), TWO, ONE)


def held(requests):
    """effect: the time of all steps of an engine beside another, over alone: same requests."""
    return ratio(decode(requests), TWO, ONE, "work_s")


def grew_with(requests):
    """effect: spans in the pair with MPS (pinned, on a CPU), over the pair without."""
    return ratio(decode(requests), arm_with(requests), TWO)


def step_times(requests):
    """Median TPOT of the requests, an (arm, repeat) a row, columns off and on.

    By the client's clock, over a whole answer: chunks that arrive together do not matter.
    """
    rows = requests[requests.outcome == "ok"].astype({"tpot_s": float})
    times = rows.groupby(["arm", "repeat", "profiled"]).tpot_s.median().unstack("profiled")
    return times.rename(columns={False: "off", True: "on"})


def profiler(requests):
    """effect: what profiling makes of TPOT: on over off, in all turns of the one engine."""
    at = step_times(requests)
    at = at[at.index.isin([ONE, AGAIN], level="arm")].dropna()
    return intervals.ratio(at.on, at.off)


def waiting(requests):
    """Share of waiting for a core, a row an (arm, repeat): core and host; of all engines.

    wait / (run + wait) of the threads of the computing processes (core), and of the others.
    """
    keys = ["arm", "repeat", "engine"]
    columns = [f"{kind}_{what}_s" for kind in ("core", "host") for what in ("run", "wait")]
    sums = requests[requests.outcome == "ok"].groupby(keys)[columns].first()
    sums = sums.groupby(keys[:2]).sum()
    for kind in ("core", "host"):
        run, wait = sums[f"{kind}_run_s"], sums[f"{kind}_wait_s"]
        sums[kind] = wait / (run + wait)
    return sums[["core", "host"]]


def queueing(requests):
    """effect: by how much two engines' share of waiting exceeds one engine's (core)."""
    wide = waiting(requests).core.unstack("arm")
    more = (wide[TWO] - wide[ONE]).dropna()
    value = float(more.mean())
    if len(more) < 3:
        return value, np.nan, np.nan
    low, high = intervals.of_mean(more)
    stray = (wide[AGAIN] - wide[ONE]).abs().max() if AGAIN in wide else np.nan
    return value, float(np.minimum(low, value - stray)), float(np.maximum(high, value + stray))


CLAIMS = [
    Claim("05", "CPU queueing: threads of two engines wait for a core, more than one engine's",
          "lab05_steps", "share of waiting, two less one", queueing, above=0.05),
    Claim("05", "Spans on the device grow while sharing, for the same work", "lab05_spans",
          "a decode step's span beside another over alone", grew, above=1),
    Claim("05", "All steps of an engine together take longer, waits included", "lab05_spans",
          "time of all its steps beside another over alone", held, above=1),
    Claim("05", "MPS (on a CPU: pinned cores) makes the spans of a pair shorter", "lab05_spans",
          "a decode step's span in the pair with over without", grew_with, below=1),
    Claim("05", "Host-bound: one engine's device idles more than a tenth of its decode steps",
          "lab05_spans", "idle share of a decode step", of_one("idle"), above=0.1),
    Claim("05", "Memory-bound: bytes take more than half of one engine's decode span",
          "lab05_spans", "least time for its bytes over the span", of_one("floor"), above=0.5),
    Claim("05", "The profiler changes what it looks at by less than a tenth", "lab05_spans",
          "TPOT of one engine, profiler on over off", profiler, above=0.9, below=1.1),
]
