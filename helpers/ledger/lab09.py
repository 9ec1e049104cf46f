"""Claims of lab 09: what an FP8 cache loses, with its scales at 1 and calibrated, and by task.

Rows of lab09_nll are tokens: arm, text, place, nll. Rows of lab09_longer are stretches of 100
tokens of the two FP8 arms: arm, text, stretch, nll. Rows of lab09_tasks: arm, task, example, right.
Tokens are compared in stretches, since neighbours are not independent.
"""

import math

import pandas as pd

from helpers import quality
from helpers.ledger import Claim

BASE, AGAIN = "16 bits", "16 bits again"
PLAIN, CALIBRATED, COARSE = "FP8 uncalibrated", "FP8 calibrated", "4-bit"
STRETCH = 100  # tokens


def stretches(tokens):
    """Mean NLL of each stretch of 100 tokens, a row a stretch, a column an arm.

    The end of a text is left out where it is less than half a stretch: so few tokens scatter more.
    """
    numbered = tokens.assign(stretch=tokens.place // STRETCH)
    size = numbered.groupby(["arm", "text", "stretch"]).place.transform("size")
    return numbered[size >= STRETCH / 2].pivot_table(
        "nll", ["text", "stretch"], "arm", sort=False).dropna()


def difference(tokens, over, under=BASE):
    """`quality.Difference` of two arms' NLL, stretch by stretch. Raises KeyError, ValueError."""
    means = stretches(tokens[tokens.arm.isin([over, under])])
    return quality.paired(means[over], means[under])


def long_form(means):
    """What `stretches` gives, a row an arm and stretch: to record it."""
    return means.reset_index().melt(["text", "stretch"], var_name="arm", value_name="nll")


def longer(rows):
    """`quality.Difference`, calibrated less uncalibrated, of rows of `long_form`."""
    means = rows.pivot(index=["text", "stretch"], columns="arm", values="nll")
    return quality.paired(means[CALIBRATED], means[PLAIN])


def needed(found, effect):
    """Pairs that would show `effect` with this scatter: n * (detectable / effect)²."""
    return math.ceil(found.pairs * (found.detectable / effect) ** 2)


def by_task(answers, over, under=BASE):
    """{task: `quality.Difference` of the shares right}, question by question."""
    found = {}
    for task, rows in answers.groupby("task", sort=False):
        right = rows.pivot(index="example", columns="arm", values="right")
        found[task] = quality.paired_share(right[over], right[under])
    return found


def _lost(over):
    return lambda tokens: _ends(difference(tokens, over))


def _longer(rows):
    return _ends(longer(rows))


def _ends(found):
    if found.low == found.high:
        raise ValueError("both arms answer alike, token for token: no FP8 here")
    return found.mean, found.low, found.high


def _share(task):
    def effect(answers):
        found = by_task(answers, CALIBRATED)[task]
        return found.mean, found.low, found.high
    return effect


def table(tokens):
    """A row an arm: what it loses to 16 bits, and last calibrated less uncalibrated."""
    arms = [arm for arm in tokens.arm.unique() if arm != BASE]
    pairs = {arm: (arm, BASE) for arm in arms}
    if {PLAIN, CALIBRATED} <= set(arms):
        pairs["calibrated less uncalibrated"] = (CALIBRATED, PLAIN)
    found = {name: difference(tokens, *pair) for name, pair in pairs.items()}
    return pd.DataFrame({name: [d.mean, d.low, d.high, d.detectable, d.pairs]
                         for name, d in found.items()},
                        index=["difference", "low", "high", "detectable", "pairs"]).T


NLL, SHARE = "nats a token", "share right, calibrated FP8 less 16 bits"
CLAIMS = [
    Claim("09", "An FP8 cache with scales of 1 loses likelihood", "lab09_nll",
          f"{NLL}, less 16 bits", _lost(PLAIN), above=0),
    Claim("09", "So does an FP8 cache with calibrated scales", "lab09_nll",
          f"{NLL}, less 16 bits", _lost(CALIBRATED), above=0),
    Claim("09", "Calibrated scales lose less than scales of 1", "lab09_longer",
          f"{NLL}, calibrated less uncalibrated", _longer, below=0),
    Claim("09", "4-bit weights lose (the control)", "lab09_nll",
          f"{NLL}, less 16 bits", _lost(COARSE), above=0),
    Claim("09", "Instruction following falls", "lab09_tasks", SHARE, _share("instructions"),
          below=0),
    Claim("09", "Arithmetic rises", "lab09_tasks", SHARE, _share("arithmetic"), above=0),
    Claim("09", "Science rises", "lab09_tasks", SHARE, _share("science"), above=0),
]
