"""Two deployments at the same price: which one's requests cost less, and what to expect of a queue.

What an acceptable request costs is `metrics.cost_per_acceptable_request`. Pure.
"""

import math

import pandas as pd

from helpers import intervals, metrics
from helpers.errors import LabError


def compare(requests, baseline, *, ttft_s, tpot_s, level=0.95):
    """(value, low, high): the cost of an acceptable request over that of the baseline's.

    The same price for both, so it cancels: the baseline's goodput over this one's, paired repeat
    by repeat (`intervals.ratio`): the same number in both was measured one after the other. Below
    1 is cheaper. (inf, inf, inf) where this one serves nobody in time and the baseline somebody,
    over three repeats or more. Raises LabError where the two do not have the same repeats.
    """
    here, there = (
        {repeat: metrics.goodput(run, ttft_s=ttft_s, tpot_s=tpot_s)
         for repeat, run in rows.groupby("repeat")} for rows in (requests, baseline))
    if list(here) != list(there):
        raise LabError("The two deployments do not have the same repeats.",
                       fix="Compare runs that were measured in turns, repeat by repeat.")
    if len(here) >= 3 and not any(here.values()) and any(there.values()):
        return math.inf, math.inf, math.inf
    return intervals.ratio(list(there.values()), list(here.values()), level=level)


def ratios(requests, *, baseline="BF16"):
    """`compare` at every load: one row each with label, value, low, high and control.

    requests: rows with arm, load, repeat, and the limits they were sent under in limit_ttft_s
    and limit_tpot_s. The last row is a control that must differ: the baseline against itself at
    the two lowest loads, which costs as much more as it is sent less.
    """
    limits = {"ttft_s": requests.limit_ttft_s.iloc[0], "tpot_s": requests.limit_tpot_s.iloc[0]}
    runs = dict(list(requests.groupby(["arm", "load"])))
    loads = sorted(requests.load.unique())
    pairs = [(arm, load, baseline, load) for load in loads for arm in requests.arm.unique()
             if arm != baseline] + [(baseline, loads[1], baseline, loads[0])] * (len(loads) > 1)
    return pd.DataFrame([
        {"label": f"{arm} / {other} at {load:g}" if arm != other else
         f"{arm} at {load:g} / at {there:g}",
         **dict(zip(("value", "low", "high"),
                    compare(runs[arm, load], runs[other, there], **limits), strict=True)),
         "control": arm == other} for arm, load, other, there in pairs])


def in_time(*, count, rate, capacity, wait_s):
    """How many of `count` requests start in time when they come faster than they can be served.

    Request k comes after k / rate seconds and is served after k / capacity: it waits
    k / capacity - k / rate. So k = wait_s / (1 / capacity - 1 / rate) is the last in time: a
    queue as a fluid, with nothing in it at the start. All are, where rate <= capacity.
    rate, capacity: requests a second.
    """
    if rate <= capacity:
        return count
    return min(count, wait_s / (1 / capacity - 1 / rate))
