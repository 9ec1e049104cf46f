"""The claims of lab 03: what a batch and a smaller cache do to bytes, and bytes to time. Pure.

Rows of lab03_dram are of helpers.dram (a row a step). Rows of lab03_steps are of
`steps.decode_steps`, with arm, repeat, step_s (`steps.step_times`),
weight_bytes (of a step), cache_bytes (a token of context) and bandwidth (bytes a second, read).
"""

import numpy as np

from helpers import dram, intervals
from helpers.ledger import Claim

SMALL, LARGE = 16, 32  # the batches of the study


def counted(over, under):
    """effect: bytes a token at one (arm, batch) over those at another, both at most contexts."""
    def effect(requests):
        each = requests[requests.tokens == dram.CONTEXT]
        each = each.assign(token_bytes=each.read_bytes / each.batch)
        table = each.pivot_table("token_bytes", "repeat", ["arm", "batch"])
        return intervals.ratio(table[over], table[under])
    return effect


def worst(requests):
    """The largest difference of a point from what config.json predicts, as a share; by repeat."""
    step_bytes = requests.weight_bytes + requests.batch * requests.context * requests.cache_bytes
    errors = (requests.read_bytes / step_bytes - 1).abs().groupby(requests.repeat).max()
    low, high = intervals.of_mean(errors) if len(errors) > 2 else (np.nan, np.nan)
    return float(errors.mean()), low, high


def points(requests):
    """A row a (arm, batch, context, repeat): step_s, the median of its requests; token_s and
    token_bytes, of one token; least_s, these bytes over the bandwidth."""
    columns = ["weight_bytes", "cache_bytes", "bandwidth"]
    found = requests.groupby(["arm", "batch", "context", "repeat"]).agg(
        {"step_s": "median", **dict.fromkeys(columns, "first")}).reset_index()
    found["token_s"] = found.step_s / found.batch
    found["token_bytes"] = found.weight_bytes / found.batch + found.context * found.cache_bytes
    return found.assign(least_s=found.token_bytes / found.bandwidth)


def _at(requests, arm="steps"):
    """Points at the longest context of one arm."""
    found = points(requests[requests.arm == arm])
    return found[found.context == found.context.max()]


def _times(requests, arm):
    table = _at(requests, arm).pivot(index="repeat", columns="batch", values="token_s")
    return table[LARGE], table[SMALL]


def strayed(requests):
    """The most by which the ratio of 'again' differs from that of 'steps' in any repeat."""
    (large, small), (again, small_again) = (_times(requests, arm) for arm in ("steps", "again"))
    return intervals.strayed(again / small_again, large / small)


def faster(requests, arm="steps"):
    """Time of a token at the larger batch over that at the smaller: (value, low, high).

    The interval is `intervals.ratio` over repeats, `intervals.widened` to what the control
    `strayed`. NaN ends below three repeats.
    """
    return intervals.widened(intervals.ratio(*_times(requests, arm)), strayed(requests))


def fewer(requests):
    """Bytes of a token at the larger batch over those at the smaller, by config.json."""
    at = _at(requests).groupby("batch").token_bytes.first()
    return float(at[LARGE] / at[SMALL])


def follows(requests):
    """`faster` over `fewer`: 1 if time goes with bytes."""
    expected = fewer(requests)
    return tuple(number / expected for number in faster(requests))


CLAIMS = [
    Claim("03", "A larger batch moves fewer bytes a token", dram.NAME,
          "counted bytes a token, batch of 32 over 16",
          counted(("BF16 cache", LARGE), ("BF16 cache", SMALL)), below=1),
    Claim("03", "An FP8 cache moves fewer bytes a token", dram.NAME,
          "counted bytes a token, FP8 over BF16 cache, batch of 16",
          counted(("FP8 cache", SMALL), ("BF16 cache", SMALL)), below=1),
    Claim("03", "Weights and cache are all that a decode graph reads, within 1 percent", dram.NAME,
          "largest difference from config.json, as a share", worst, below=0.01),
    Claim("03", "A larger batch takes less time a token", "lab03_steps",
          "time of a token, batch of 32 over 16", faster, below=1),
    Claim("03", "The time of a token goes with its bytes, within a tenth", "lab03_steps",
          "time ratio over bytes ratio, batch of 32 and 16", follows, above=0.9, below=1.1),
]
