"""The claims of lab 06: what a noisy neighbour does to an engine that shares, and to one apart.

Beside the columns of `experiment.run` (arm: 'shared' or 'split') rows have `neighbour`: 'none',
'arithmetic', 'cache', 'memory', or 'none again', the control.
"""

import pandas as pd

from helpers import intervals, metrics
from helpers.ledger import Claim

ALONE, AGAIN = "none", "none again"
FELT = 1.1  # a tenth slower: less than that, and nobody would pay for a wall


def points(requests, measure="mean_tpot_s"):
    """A table, a row a repeat, a column for each (arm, neighbour): the measure of that turn."""
    requests = requests[requests.neighbour.notna()].drop(columns="concurrency")
    turns = [{"arm": arm, "neighbour": kind, "repeat": repeat, measure: found[measure].iloc[0]}
             for (arm, kind, repeat), rows in requests.groupby(["arm", "neighbour", "repeat"],
                                                               sort=False)
             for found in [metrics.points(rows)]]
    return pd.DataFrame(turns).pivot(index="repeat", columns=["arm", "neighbour"], values=measure)


def slowdowns(requests, measure="mean_tpot_s"):
    """How many times as long the measure is beside each neighbour as with none, within each arm.

    One row an arm and neighbour: value, low, high (`ratio`), smallest (`strayed`), and felt: the
    interval excludes 1.
    """
    table = points(requests, measure)
    rows = [{"arm": arm, "neighbour": kind, **dict(zip(("value", "low", "high"), ratio(
        table, (arm, kind), (arm, ALONE)), strict=True)), "smallest": strayed(table, arm)}
        for arm, kind in table.columns if kind != ALONE]
    found = pd.DataFrame(rows)
    return found.assign(felt=(found.low > 1) | (found.high < 1))


def strayed(table, arm):
    """The most by which 'none again' differed from 'none' in any repeat, as a share."""
    if (arm, AGAIN) not in table:
        return float("nan")
    return intervals.strayed(table[arm, AGAIN], table[arm, ALONE])


def ratio(table, over, under):
    """(value, low, high) of one column of `points` over another: `intervals.ratio` over repeats.

    It is `intervals.widened` to what the control strayed, in either arm: NaN ends without one.
    """
    return intervals.widened(intervals.ratio(table[over], table[under]),
                             max(strayed(table, over[0]), strayed(table, under[0])))


def work(requests):
    """What the engine's processes used, one row an arm and neighbour, means over the repeats.

    cores: CPU seconds a second. cpu_ms_per_token: CPU milliseconds for each output token. A step
    takes cpu per token / cores; a thread that waits for another without sleeping uses CPU as well.
    """
    turns = requests[requests.neighbour.notna()].groupby(
        ["arm", "neighbour", "repeat"], sort=False).agg(
        cpu=("engine_cpu_s", "first"), wall=("wall_s", "first"), tokens=("output_tokens", "sum"))
    found = turns.assign(cores=turns.cpu / turns.wall,
                         cpu_ms_per_token=1000 * turns.cpu / turns.tokens)
    return found.groupby(["arm", "neighbour"], sort=False)[["cores", "cpu_ms_per_token"]].mean()


def slowdown(arm, kind):
    """effect: how many times as long a token takes in that arm, beside that neighbour."""
    def effect(requests):
        return ratio(points(requests), (arm, kind), (arm, ALONE))
    return effect


def price(requests):
    """effect: an answer's time with nobody beside it, apart over shared: what the wall costs."""
    return pays(ALONE)(requests)


def pays(kind):
    """effect: an answer's time beside that neighbour, apart over shared: below 1 it pays."""
    def effect(requests):
        return ratio(points(requests, "mean_e2el_s"), ("split", kind), ("shared", kind))
    return effect


def in_words(requests):
    """What a machine's run says, for reading beside the study's."""
    said = [f"beside {kind} a token takes {number(slowdown(arm, kind)(requests))} ({arm})"
            for kind in ("arithmetic", "memory") for arm in ("shared", "split")]
    return "; ".join([*said, f"the wall alone costs {number(price(requests))}"])


def number(found):
    """(value, low, high) in words."""
    value, low, high = found
    if low != low:
        return f"{value:.2f} times as long"
    word = "longer" if low > 1 else "shorter" if high < 1 else "not shown to differ"
    return f"{value:.2f} times as long, {low:.2f} to {high:.2f}: {word}"


NAME, SLOW = "lab06_neighbours", "time of a token, beside it over with none"
CLAIMS = [
    Claim("06", "Sharing everything, an engine feels a neighbour's arithmetic", NAME, SLOW,
          slowdown("shared", "arithmetic"), above=FELT),
    Claim("06", "Apart, it does not (on a CPU: pinned; on a GPU: MPS, half each)", NAME, SLOW,
          slowdown("split", "arithmetic"), below=FELT),
    Claim("06", "Apart, it still feels a neighbour's memory traffic", NAME, SLOW,
          slowdown("split", "memory"), above=FELT),
    Claim("06", "The wall costs something while nobody is behind it", NAME,
          "time of an answer with none, apart over shared", price, above=FELT),
    Claim("06", "Beside a busy neighbour the wall pays", NAME,
          "time of an answer beside memory traffic, apart over shared", pays("memory"), below=1),
]
