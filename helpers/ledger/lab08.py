"""Claims of lab 08: what an FP8 cache does for one engine, for two, and for a speech model."""

import math

import pandas as pd

from helpers import experiment, intervals, metrics, overlap
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
    """effect: `intervals.ratio`, its interval widened to what one engine differed from itself."""
    def effect(requests):
        table = _speeds(requests)
        strayed = intervals.strayed(table[f"{ONE} again"], table[ONE])
        return intervals.widened(intervals.ratio(table[over], table[under]), strayed)
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


def duets(requests, base="16 bits"):
    """Each arm of the duet over `base` in tokens a second while both are loaded (`overlap.rates`).

    A row an (arm, service) with ratio, low, high; the service `both` is the mean of the two ratios,
    NaN where one made no token with `base` while both were loaded.
    """
    rates = overlap.rates(requests).pivot(index="repeat", columns=["engine", "arm"],
                                        values="tok_per_s").dropna()
    services, found = list(rates.columns.unique("engine")), {}
    for arm in rates.columns.unique("arm").drop(base):
        for name in services:
            found[arm, name] = intervals.ratio(rates[name][arm], rates[name][base])
        new, old = ({name: rates[name][each] for name in services} for each in (arm, base))
        found[arm, "both"] = [math.nan] * 3
        if all((rate > 0).all() for rate in old.values()):
            found[arm, "both"] = [number / len(services)
                                  for number in metrics.normalized_progress(new, old)]
    return pd.DataFrame(found, index=["ratio", "low", "high"]).T


def _duet(requests):
    return tuple(duets(requests).loc["FP8", "both"])


CLAIMS = [
    Claim("08", "An FP8 cache makes one engine faster", "lab08_precision",
          "output tokens a second, FP8 over 16 bits", _speed(ONE_FP8, ONE), above=1),
    Claim("08", "An FP8 cache makes two engines faster", "lab08_precision",
          "output tokens a second, FP8 over 16 bits", _speed("two FP8", "two"), above=1),
    Claim("08", "Two engines with FP8 caches stay behind one with 16 bits", "lab08_precision",
          "output tokens a second, two over one", _speed("two FP8", ONE), below=1),
    Claim("08", "In a crowd an FP8 cache of as many bytes averts preemptions", "lab08_precision",
          "preemptions a repeat, 16 bits less FP8", _averted, above=0),
    Claim("08", "Beside a text model, a speech model with an FP8 cache leaves more for both",
          "lab08_whisper", "tokens a second, FP8 over 16 bits, mean of text and speech",
          _duet, above=1),
]
