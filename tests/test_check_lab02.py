"""Checks, claims and figure of lab 02, on made-up runs of which the truth is known."""

import math

import numpy as np
import pandas as pd
import pytest
import sharing
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import experiment, ledger, plots
from helpers.check import lab02 as check
from helpers.ledger import lab02


def one_step(batch):
    return 0.010 + 0.001 * batch


def made(*, without, with_, repeats=3, arm="two engines MPS"):
    """Runs in which a busy neighbour makes a step so many times as long, without and with."""
    return sharing.runs({
        "one engine": ("a", one_step), "one engine again": ("a", one_step),
        "two engines": ("ab", lambda batch: without * one_step(batch)),
        arm: ("ab", lambda batch: with_ * one_step(batch))}, repeats=repeats, loads=(4, 8))


@pytest.fixture(scope="module")
def runs():
    return made(without=2, with_=1.4)


@pytest.mark.parametrize("name, right, wrong", [
    ("between", (100, 200), [(200, 100), (100, 150), 100, (100,), "no"]),
    ("batch", 4, [8, 2, "four"]), ("ratio", 2 / 1.4, [1.4 / 2, 1, "more"]),
    ("verdict", "supported", ["contradicted", "not decided", True])])
def test_checks(name, right, wrong, runs, capsys):
    most = runs[runs.concurrency == 8]
    arguments = {"between": [100], "batch": [runs, "two engines MPS", 8],
                 "ratio": [experiment.totals(most), "two engines MPS", "two engines"],
                 "verdict": [(1.2, 1.5)]}[name]
    assert_judges(getattr(check, name), right, wrong, capsys, *arguments)


def test_an_end_that_is_left_open_is_unanswered(capsys):
    check.between((..., ...), 100)
    assert capsys.readouterr().out.startswith("○")


@pytest.mark.parametrize("interval, verdict", [
    ((0.8, 0.9), "contradicted"), ((0.9, 1.1), "not decided"),
    ((math.nan, math.nan), "not decided")])
def test_verdict_follows_the_interval(interval, verdict, capsys):
    check.verdict(verdict, interval)
    said = capsys.readouterr().out
    assert said.startswith("✓") and "nan" not in said


# The claims


def verdicts(runs):
    found = ledger.verdicts("02", {"lab02_sharing": runs})
    return found.verdict.tolist(), found


def test_the_studys_findings_where_they_are_true(runs):
    judged, found = verdicts(runs)  # with: 2 * 4 / (1.4 * 14) against 8 / 18
    assert judged == ["supported", "supported", "supported", "supported"]
    one, two = 8 / 0.018, 2 * 4 / (1.4 * 0.014)
    assert found.value.tolist() == pytest.approx([2 / 1.4, two / one, 0.5, 2 / 1.4], rel=0.02)


@pytest.mark.parametrize("without, with_, expected", [
    (1, 1, ["not decided", "contradicted"]),  # nothing to gain, and a large device
    (1.2, 2.5, ["contradicted", "supported"])])
def test_claims_can_fail(without, with_, expected):
    assert verdicts(made(without=without, with_=with_))[0][:2] == expected


def test_one_repeat_decides_nothing_and_a_crashed_arm_neither():
    judged, found = verdicts(made(without=2, with_=1.4, repeats=1))
    assert judged == ["not decided"] * 4 and found.value.notna().all()
    left = made(without=2, with_=1.4)
    left = left[left.arm != "two engines MPS"]
    assert verdicts(left)[0] == ["not decided"] * 4


def test_a_control_that_strayed_far_decides_nothing(runs):
    noisy = runs.copy()
    noisy.loc[(noisy.arm == "one engine again") & (noisy.repeat == 1), "e2el_s"] *= 4
    judged, found = verdicts(noisy)
    assert judged[0] == "not decided" and found.low[0] < 1 < found.value[0]


def test_arm_with_is_found_by_its_name():
    assert lab02.arm_with(made(without=2, with_=1, arm="two engines pinned")) == \
        "two engines pinned"
    with pytest.raises(IndexError):
        lab02.arm_with(made(without=2, with_=1, arm="four engines"))


def test_with_over_without_is_judged_by_the_engine_against_itself(runs):
    found = lab02.with_over_without(runs)
    assert found.arm.unique().tolist() == ["two engines MPS"] and found.seen.all()
    assert found.ratio.tolist() == pytest.approx([2 / 1.4] * 2, rel=0.02)
    noisy = runs.copy()
    again = noisy.arm == "one engine again"
    noisy.loc[again & (noisy.repeat == 1), "e2el_s"] *= 3
    assert not lab02.with_over_without(noisy).seen.any()


def test_where_the_pair_was_measured_twice_it_is_its_own_control(runs):
    noisy = runs.copy()
    noisy.loc[(noisy.arm == "one engine again") & (noisy.repeat == 1), "e2el_s"] *= 3
    twin = runs[runs.arm == "two engines"].assign(arm="two engines again")
    both = pd.concat([noisy, twin], ignore_index=True)
    assert lab02.with_over_without(both).seen.all()
    judged, found = verdicts(both)
    assert judged[0] == "supported" and found.low[0] > 1, "the steady pair decides"
    assert found.high[1] > 1.5 * found.value[1], "over the one engine its own control counts"


@pytest.mark.parametrize("without, with_, words", [
    (2, 1.05, ["more", "as in turns", "hardly feeling"]),
    (2.5, 2.5, ["not shown to differ", "worse than turns"]),
    (1.4, 2, ["less", "part of the way apart", "as in turns"])])
def test_in_words_chooses_words_by_numbers(without, with_, words):
    said = lab02.in_words(made(without=without, with_=with_))
    assert all(word in said for word in words), said


def test_in_words_of_a_quick_run():
    assert "no interval" in lab02.in_words(made(without=2, with_=1, repeats=1))


def test_progress_is_drawn_between_turns_and_apart(runs):
    found = lab02.progresses(runs).assign(machine="mine")
    assert found.concurrency.unique().tolist() == [8]  # of 4 half was not measured
    assert found.value.tolist() == pytest.approx([1, 2 / 1.4], rel=0.02)
    both = pd.concat([found, found.assign(machine="recorded", low=np.nan, high=np.nan)])
    ax = plots.progress(both)
    assert_has_units_and_takes_axes(plots.progress, both, unit="progress")
    assert len(ax.get_yticklabels()) == 4
    assert {"mine", "recorded", "turns", "apart"} <= {text.get_text() for text in ax.texts}
