"""The ledger: a verdict of each claim from the runs, none where the runs do not have it."""

import math

import pandas as pd
import pytest

from helpers import ledger, results
from helpers.errors import LabError
from helpers.ledger import Claim


def effect(runs):
    return tuple(runs.loc[0, ["value", "low", "high"]])


def claim(**more):
    return Claim("77", "two beat one", "lab77_x", "ratio", effect, **{"above": 1, **more})


def runs(low, high):
    return pd.DataFrame({"value": [(low + high) / 2], "low": [low], "high": [high]})


@pytest.mark.parametrize(("low", "high", "verdict"), [
    (1.1, 1.2, "supported"), (0.9, 1.2, "not decided"), (0.8, 0.9, "contradicted"),
    (math.nan, math.nan, "not decided")])
def test_the_interval_decides(low, high, verdict):
    row = claim().row(runs(low, high))
    assert row["verdict"] == verdict and row["needed"] == "above 1"


def test_runs_without_what_it_needs_decide_nothing():
    row = claim(below=2).row(pd.DataFrame({"other": [1]}))
    assert row["verdict"] == "not decided" and math.isnan(row["value"])
    assert row["needed"] == "above 1 and below 2"


def test_every_claim_has_a_row_and_the_latest_run_counts(monkeypatch):
    old = runs(0.5, 0.6).assign(run="a", machine="cpu-x")
    new = runs(1.5, 1.6).assign(run="b", machine="gpu-y")
    both = pd.concat([old, new])
    both.attrs["headers"] = {"a": {"time": "2026-01-01"}, "b": {"time": "2026-01-02"}}

    def load(experiment, machine):
        if experiment == "lab77_x":
            return both
        raise results.NothingRecorded("none")
    monkeypatch.setattr(results, "load", load)
    monkeypatch.setattr(ledger, "claims", lambda: [
        claim(), Claim("78", "never", "lab78_x", "ratio", effect, below=1),
        Claim("79", "by another", "lab79_x", "ratio", effect, above=1)])
    monkeypatch.setitem(ledger.SAME_ARMS, "lab79_x", "lab77_x")
    found = ledger.every().set_index("lab")
    assert found.loc["79"].verdict == "supported", "the run of an experiment with the same arms"
    assert found.loc["77"].verdict == "supported" and found.loc["77"].machine == "gpu-y"
    assert found.loc["78"].verdict == "not run" and math.isnan(found.loc["78"].low)


def test_a_damaged_run_is_said_and_not_taken_for_none(monkeypatch):
    def load(experiment, machine):
        raise LabError(f"{experiment}: line 3 is damaged.")
    monkeypatch.setattr(results, "load", load)
    with pytest.raises(LabError, match="line 3"):
        ledger.every()


def test_each_claim_of_the_course_has_a_bound_and_a_lab():
    for one in ledger.claims():
        assert one.needed and one.experiment.startswith(f"lab{one.lab}_"), one
