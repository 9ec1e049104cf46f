"""The ledger: every hypothesis of the labs as a claim about a number that a lab measured.

    ledger.verdicts("01", {"lab01_sweep": runs})   # in lab 01, on the reader's own runs
    ledger.every("gpu")                            # in the last lab, on all that is recorded

The claims of lab 01 are the list CLAIMS in helpers/ledger/lab01.py, and so on.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from helpers import decision, results

SAME_ARMS = {"lab01_sweep": "lab02_sharing"}  # an experiment whose runs have all arms of the first


@dataclass(frozen=True, slots=True)
class Claim:
    """A hypothesis: the number of it must lie above `above`, below `below`, or between.

    lab: '01'.  experiment: the name its runs are recorded under.  effect: function of the requests
    of one run of it -> (value, low, high); a KeyError, IndexError or ValueError of it means that
    this run does not have what it needs, and decides nothing.  what: what the number is.
    """

    lab: str
    text: str
    experiment: str
    what: str
    effect: Callable
    above: float = -math.inf
    below: float = math.inf

    def row(self, requests):
        """The claim with its number, the interval, and the verdict, as a dict."""
        try:
            value, low, high = self.effect(requests)
        except (KeyError, IndexError, ValueError):
            value = low = high = math.nan
        verdict = decision.verdict((low, high), above=self.above, below=self.below)
        return {"lab": self.lab, "claim": self.text, "what": self.what, "value": value, "low": low,
                "high": high, "needed": self.needed, "verdict": verdict}

    @property
    def needed(self):
        """Where the whole interval must lie, in words."""
        ends = [f"above {self.above:g}"] * (self.above > -math.inf) + \
            [f"below {self.below:g}"] * (self.below < math.inf)
        return " and ".join(ends)


def as_text(found):
    """(value, low, high) of a ratio as text that says whether it is more than 1, or less."""
    value, low, high = found
    if low != low:
        return f"{value:.2f} (no interval)"
    word = "more" if low > 1 else "less" if high < 1 else "not shown to differ"
    return f"{value:.2f} ({low:.2f} to {high:.2f}, {word})"


def claims(lab=None):
    """The claims of one lab, or of all of them in order."""
    names = [path.stem for path in sorted(Path(__file__).parent.glob("lab*.py"))
             if lab is None or path.stem == f"lab{lab}"]
    return [claim for name in names
            for claim in importlib.import_module(f"helpers.ledger.{name}").CLAIMS]


def verdicts(lab, runs):
    """A table, a row a claim of the lab: value, low, high, needed, verdict.

    runs: {experiment: requests of one run}; claims whose experiment is not there are left out.
    """
    return pd.DataFrame([claim.row(runs[claim.experiment]) for claim in claims(lab)
                         if claim.experiment in runs])


def every(machine=None):
    """The verdicts of all labs, each on the latest run that is recorded, and its machine's id.

    machine: as in results.load. A claim of an experiment that is not recorded, and has no other
    with the same arms (SAME_ARMS), has no number. Raises LabError for a damaged file.
    """
    found, latest = [], {}
    for claim in claims():
        if claim.experiment not in latest:
            latest[claim.experiment] = _latest(claim.experiment, machine)
        run = latest[claim.experiment]
        none = {"lab": claim.lab, "claim": claim.text, "what": claim.what, "value": math.nan,
                "low": math.nan, "high": math.nan, "needed": claim.needed, "verdict": "not run"}
        found.append(none | {"machine": ""} if run is None else
                     claim.row(run) | {"machine": run.machine.iloc[0]})
    return pd.DataFrame(found)


def _latest(experiment, machine):
    names = filter(None, (experiment, SAME_ARMS.get(experiment)))
    runs = (results.latest(name, machine=machine) for name in names)
    return next((run for run in runs if run is not None), None)
