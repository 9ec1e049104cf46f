"""Claims of lab 08: what an FP8 cache does for one engine, for two, and for a speech model."""

import math

from helpers import experiment, intervals
from helpers.ledger import Claim

ONE, ONE_FP8 = "one engine", "one engine FP8"


def _speeds(requests):
    """Output tokens a second at the lowest concurrency, a row a repeat, a column an arm."""
    points = experiment.totals(requests)
    calm = points[points.concurrency == points.concurrency.min()]
    table = calm.pivot(index="repeat", columns="arm", values="output_tok_per_s")
    names = {name: ("two FP8" if name.endswith(" FP8") else "two") for name in table
             if name.startswith("two engines")}
    return table.rename(columns=names)


def _speed(over, under):
    def effect(requests):
        table = _speeds(requests)
        return intervals.ratio(table[over], table[under])
    return effect


def _averted(requests):
    """Preemptions of all 16-bit arms less those of the FP8 arms, in one repeat; mean, interval."""
    points = experiment.totals(requests)
    crowd = points[points.concurrency == points.concurrency.max()]
    table = crowd.pivot(index="repeat", columns="arm", values="preemptions")
    fp8 = [name for name in table if name.endswith("FP8")]
    others = [name.removesuffix(" FP8") for name in fp8]
    difference = (table[others].sum(axis=1) - table[fp8].sum(axis=1)).to_numpy()
    if len(difference) < 3 or not fp8:
        return math.nan, math.nan, math.nan
    return float(difference.mean()), *intervals.of_mean(difference)


CLAIMS = [
    Claim("08", "An FP8 cache makes one engine faster", "lab08_precision",
          "output tokens a second, FP8 over 16 bits", _speed(ONE_FP8, ONE), above=1),
    Claim("08", "An FP8 cache makes two engines faster", "lab08_precision",
          "output tokens a second, FP8 over 16 bits", _speed("two FP8", "two"), above=1),
    Claim("08", "Two engines with FP8 caches stay behind one with 16 bits", "lab08_precision",
          "output tokens a second, two over one", _speed("two FP8", ONE), below=1),
    Claim("08", "In a crowd an FP8 cache of as many bytes averts preemptions", "lab08_precision",
          "preemptions a repeat, 16 bits less FP8", _averted, above=0),
]
