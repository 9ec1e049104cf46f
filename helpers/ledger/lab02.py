"""The claims of lab 02: the study's findings on MPS, for which pinned cores stand in on a CPU.

"With" is the pair in this machine's other way (`mps.ways`), "without" the pair as it is. Beside the
columns of `experiment.run` rows have `steps`: by how much the engine's counter of them rose.
"""

import pandas as pd

from helpers import experiment, intervals, pace
from helpers.ledger import Claim, as_text

ONE, TWO = "one engine", "two engines"
WITH = ("two engines MPS", "two engines pinned", "two engines again")


def arm_with(requests):
    """The name of the arm with. Raises IndexError where no engine of it answered."""
    arms = set(requests[requests.outcome == "ok"].arm)
    return [arm for arm in WITH if arm in arms][0]


def over(base):
    """effect: output tokens a second of the pair with over those of `base`, at the most load.

    The interval is that of `compared`, `intervals.widened` to what its control strayed from 1.
    """
    def effect(requests):
        row = compared(requests, base).iloc[-1]
        return intervals.widened(row[["ratio", "low", "high"]], row.smallest)
    return effect


def compared(requests, base):
    """`experiment.against` `base` of the arm with, a row a load. Where the base was not measured
    twice, smallest is the one engine's difference from itself."""
    points = experiment.totals(requests)
    control = experiment.against(points, base=ONE).groupby("concurrency").smallest.first()
    found = experiment.against(points, base=base)
    found = found[found.arm == arm_with(requests)]
    return found.assign(smallest=found.smallest.fillna(found.concurrency.map(control)))


def batch(requests):
    """effect: tokens a step of the pair with over those of the one engine, at the most load."""
    at = pace.table(requests[requests.concurrency == requests.concurrency.max()])
    at = at.pivot(index="repeat", columns="arm", values="batch").dropna()
    return intervals.ratio(at[arm_with(requests)], at[ONE])


def progress_of(which):
    """effect: `pace.progress` at the most load, of the pair with ('with') or without."""
    def effect(requests):
        arm = arm_with(requests) if which == "with" else TWO
        most = requests.concurrency.max()
        return pace.progress(_at(requests, arm, most), _at(requests, ONE, most / 2))
    return effect


def _at(requests, arm, concurrency):
    return requests[(requests.arm == arm) & (requests.concurrency == concurrency)]


def with_over_without(requests):
    """`compared` with the pair without; seen: the interval excludes 1, and the effect is larger
    than smallest."""
    found = compared(requests, TWO)
    beyond = (found.ratio - 1).abs() > found.smallest
    return found.assign(seen=((found.low > 1) | (found.high < 1)) & beyond)


def progresses(requests):
    """`pace.progress` of both pairs, a row an arm and load: value, low, high.

    Only loads of which half was measured too: the one engine under it is "alone".
    """
    loads = sorted(requests.concurrency.unique())
    rows = [{"arm": arm, "concurrency": load, **dict(zip(("value", "low", "high"), pace.progress(
        _at(requests, arm, load), _at(requests, ONE, load / 2)), strict=True))}
        for load in loads if load / 2 in loads for arm in dict.fromkeys([TWO, arm_with(requests)])]
    return pd.DataFrame(rows)


def in_words(requests):
    """What a machine's run says of the three findings, for reading beside the study's."""
    arm = arm_with(requests)
    more, gap = over(TWO)(requests), over(ONE)(requests)
    without, with_ = (progress_of(which)(requests)[0] for which in ("without", "with"))
    return (f"{arm} do {as_text(more)} of the pair without, and {as_text(gap)} of one engine; "
            f"progress {without:.2f} ({_place(without)}) without, {with_:.2f} "
            f"({_place(with_)}) with")


def _place(progress):
    return ("worse than turns" if progress < 0.95 else "as in turns" if progress < 1.05
            else "part of the way apart" if progress < 1.8 else "hardly feeling each other")


CLAIMS = [
    Claim("02", "MPS lets two engines do more (on a CPU: pinned cores do)", "lab02_sharing",
          "output tokens a second, the pair with over the pair without", over(TWO), above=1),
    Claim("02", "Even so, two engines do less than one", "lab02_sharing",
          "output tokens a second, the pair with over one engine", over(ONE), below=1),
    Claim("02", "It shares the device, not the batches", "lab02_sharing",
          "tokens a step, the pair with over one engine", batch, above=0.4, below=0.65),
    Claim("02", "With it, two engines get more done than by taking turns", "lab02_sharing",
          "normalized progress of the pair with", progress_of("with"), above=1),
]
