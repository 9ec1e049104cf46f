"""Two deployments at the same price: which one's requests cost less, and what to expect of a queue.

What an acceptable request costs is `metrics.cost_per_acceptable_request`. Pure.
"""

from helpers import intervals, metrics
from helpers.errors import LabError


def compare(requests, baseline, *, ttft_s, tpot_s, level=0.95):
    """(value, low, high): the cost of an acceptable request over that of the baseline's.

    The same price for both, so it cancels: the baseline's goodput over this one's, paired repeat
    by repeat (`intervals.ratio`): the same number in both was measured one after the other. Below
    1 is cheaper. Raises LabError where the two do not have the same repeats.
    """
    here, there = (
        {repeat: metrics.goodput(run, ttft_s=ttft_s, tpot_s=tpot_s)
         for repeat, run in rows.groupby("repeat")} for rows in (requests, baseline))
    if list(here) != list(there):
        raise LabError("The two deployments do not have the same repeats.",
                       fix="Compare runs that were measured in turns, repeat by repeat.")
    return intervals.ratio(list(there.values()), list(here.values()), level=level)


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
