"""Which engine a request goes to, decided by its text alone; how such a rule is tuned and judged.

    rule = routing.tune(questions[tuning])       # questions: rows with text, loss and passage
    rule.engine("Why does it rain?")             # "simple" or "hard"
    routing.judge(questions[~tuning], rule)      # against sending as many at random

loss: what a request loses at the lower precision, in nats a token. Pure.
"""

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers import intervals

REASONS = re.compile(r"\b(why|how|explain|because|what happens)\b", re.IGNORECASE)


def words(text):
    """Its number of words."""
    return len(text.split())


def numbers(text):
    """Its number of numbers."""
    return len(re.findall(r"\d+", text))


def reasons(text):
    """How often it asks for a reason or a course of events: why, how, explain, what happens."""
    return len(REASONS.findall(text))


def letters(text):
    """Letters a word."""
    return sum(map(len, text.split())) / max(1, words(text))


def chance(text):
    """A number from 0 to 1 that knows nothing of it: its hash. The control."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


MEASURES = {function.__name__: function for function in (words, numbers, reasons, letters)}
CONTROL = {"chance": chance}


@dataclass(frozen=True, slots=True)
class Rule:
    """A request is hard where the measure of its text is above `above`; `flipped`, where it is
    not. Everything else is simple."""

    measure: str
    above: float
    flipped: bool = False

    def engine(self, text):
        """'hard' or 'simple'."""
        high = (MEASURES | CONTROL)[self.measure](text) > self.above
        return "hard" if high != self.flipped else "simple"

    def __str__(self):
        side = "at most" if self.flipped else "more than"
        return f"hard: {self.measure} {side} {self.above:.3g}"


def tune(questions, *, measures=MEASURES, shares=(0.3, 0.7)):
    """The rule under which the simple requests lose least, among all that call between `shares`
    of the questions simple.

    questions: rows with text and loss. Every measure is tried with every threshold that leaves
    such a share, both ways round; the best is the one with the largest gain: (mean loss of all -
    mean loss of the simple) * share of the simple. Raises ValueError where none leaves such a
    share.
    """
    found = [(gain(questions.loss, simple), rule)
             for rule in _rules(questions.text, measures)
             for simple in [np.array([rule.engine(text) == "simple" for text in questions.text])]
             if shares[0] <= simple.mean() <= shares[1]]
    if not found:
        raise ValueError("no threshold leaves such a share: the texts are all alike")
    return max(found, key=lambda pair: pair[0])[1]


def _rules(texts, measures):
    for name, measure in measures.items():
        values = np.unique([measure(text) for text in texts])
        for above in np.unique(np.quantile(values, np.linspace(0.1, 0.9, 17))):
            yield Rule(name, float(above))
            yield Rule(name, float(above), flipped=True)


def gain(loss, simple):
    """What a request loses less on average than at random routing of the same share.

    Only simple requests lose: the others stay at the higher precision. Of share s the rule loses
    s * mean(loss of the simple), chance loses s * mean(loss of all).
    """
    loss, simple = np.asarray(loss, dtype=float), np.asarray(simple, dtype=bool)
    return float(simple.mean() * (loss.mean() - loss[simple].mean())) if simple.any() else 0.0


def judge(questions, rule, *, seed=0, by="passage"):
    """A rule on questions that it was not tuned on: a Series.

    share: of simple ones. loss_simple, loss_hard: mean loss of each, at the lower precision.
    random: mean loss of a request, with as many sent there by chance; routed: by the rule; none
    of the others loses. best: by the losses themselves, which no router knows. difference, low,
    high: loss_simple - loss_hard, below 0 where simple requests do lose less; the interval by
    drawing whole groups of `by` anew (`intervals.bootstrap`), NaN where there are fewer than 2.
    """
    loss = questions.loss.to_numpy(float)
    simple = np.array([rule.engine(text) == "simple" for text in questions.text])
    sums = pd.DataFrame({"loss_simple": loss * simple, "simple": simple,
                         "loss_hard": loss * ~simple, "hard": ~simple})
    sums = sums.groupby(questions[by].to_numpy()).sum().to_numpy(float)  # a row a group
    share, low, high = simple.mean(), np.nan, np.nan
    if len(sums) > 1 and 0 < share < 1:
        low, high = intervals.bootstrap(sums, _difference, seed=seed)
    lowest = np.sort(loss)[:simple.sum()].sum() / len(loss)
    return pd.Series({
        "share": share, "loss_simple": loss[simple].mean() if share else np.nan,
        "loss_hard": loss[~simple].mean() if share < 1 else np.nan,
        "random": share * loss.mean(), "routed": (loss * simple).mean(), "best": lowest,
        "difference": _difference(sums), "low": low, "high": high})


def _difference(sums):
    """Mean loss of the simple less that of the hard; 0 where a resample has only one kind."""
    loss_simple, simple, loss_hard, hard = sums.sum(axis=0)
    return loss_simple / simple - loss_hard / hard if simple and hard else 0.0
