"""Lab 10's checks, claims and figures, on runs and losses that are made here."""

import math

import numpy as np
import pandas as pd
import pytest
from checks import assert_judges

from helpers import ledger, plots, rows
from helpers.check import lab10 as check
from helpers.ledger import lab10
from helpers.plots.lab10 import _margins

LIMITS = {"ttft_s": 0.5, "tpot_s": 0.02}
POOLS = pd.DataFrame([("one", "a", 1000), ("two", "a", 490), ("two", "b", 490),
                      ("each", "a", 490), ("each", "b", 1000)], columns=["arm", "engine", "tokens"])


def turn(arm, repeat, *, concurrency=16, engines=("a", "b"), gap_s=0.01, late=0, preemptions=0,
         n=8):
    """Requests of one turn: n an engine, all at once, 11 tokens each, `late` of them too late."""
    made = []
    for engine in engines:
        for number in range(n):
            first = 1.0 if number < late else 0.1
            times = [first + gap_s * k for k in range(11)]
            made.append({"engine": engine, "sent_s": 0.0, **rows.latencies(times, 11),
                         "chunk_tokens": [1] * 11, "input_tokens": 5, "output_tokens": 11,
                         "outcome": "ok", "error": "", "intended_s": math.nan})
    return rows.table(made, tool="client", settings={}).assign(
        arm=arm, repeat=repeat, concurrency=concurrency, preemptions=preemptions, engine_cpu_s=1.0,
        client_cpu_s=0.1, client_share=0.1, client_ok=True, wall_s=1.0, gpu_busy=0.9,
        limit_ttft_s=LIMITS["ttft_s"], limit_tpot_s=LIMITS["tpot_s"])


@pytest.fixture(scope="module")
def runs():
    """Two FP8 engines are twice as fast as one, but half of their requests are late."""
    frames = []
    for repeat in range(3):
        slow = 0.01 + 0.0001 * repeat
        frames += [turn("one engine", repeat, engines="a", n=16, gap_s=slow, preemptions=3),
                   turn("one engine again", repeat, engines="a", n=16, gap_s=1.01 * slow),
                   turn("two engines MPS", repeat, gap_s=1.5 * slow, preemptions=4),
                   turn("two engines MPS FP8", repeat, gap_s=slow / 3, late=1),
                   turn("one of each", repeat, gap_s=slow / 2, late=0)]
    return pd.concat(frames, ignore_index=True)


def test_checks(capsys):
    assert_judges(check.misread, 1.875, [1.0, 0.9375], capsys)
    about = {"requests": 8, "tokens": 140}
    assert_judges(check.too_small, {"one", "two", "each"}, [{"two"}, set(), {"one", "two"}],
                  capsys, POOLS, **about)
    check.too_small({"two", "each"}, POOLS, requests=8, tokens=124)
    assert capsys.readouterr().out.startswith("✓")
    first = turn("one engine", 0, engines="a", n=16, late=4)
    assert_judges(check.in_time, 12 * 11 / 1.1, [16 * 11 / 1.1, 12], capsys, first, **LIMITS)
    assert_judges(check.in_time, 0, [3], capsys, turn("x", 0, late=8), **LIMITS)
    losses = pd.DataFrame({"loss": [0.1, -0.02, 0.04]})
    assert_judges(check.at_random, 0.02, [0.04, 0, -0.02], capsys, losses, 0.5)


def test_points_tell_all_tokens_from_those_in_time(runs):
    found = lab10.points(runs).set_index(["arm", "repeat"])
    late = found.loc["two engines MPS FP8", 0]
    assert late.good_share == 14 / 16
    assert late.good_tok_per_s == pytest.approx(late.output_tok_per_s * 14 / 16)
    whole = found.loc["one of each", 1]
    assert whole.good_tok_per_s == pytest.approx(whole.output_tok_per_s)
    assert found.loc["two engines MPS", 2].preemptions == 8  # of both engines


def test_claims_on_these_runs(runs):
    table = ledger.verdicts("10", {"lab10_topologies": runs}).set_index("claim")
    assert len(table) == 4
    assert table.verdict["One engine of each kind does more than two 16-bit ones"] == "supported"
    assert table.verdict["Yet one 16-bit engine does the most in time"] == "supported"
    assert table.value["Two 16-bit engines preempt where two FP8 engines do not"] == 8
    quick = runs[runs.arm.str.startswith("one") & (runs.repeat == 0)]
    assert set(ledger.verdicts("10", {"lab10_topologies": quick}).verdict) == {"not decided"}


def test_it_is_said_in_words(runs):
    told = lab10.in_words(runs)
    assert "the most throughput: one of each" in told and "two engines MPS FP8 over" in told
    assert "no interval" in lab10.in_words(runs[runs.repeat == 0])


def test_table_has_both_measures(runs):
    table = lab10.table(runs)
    assert set(table.measure) == {"throughput", "goodput"} and len(table) == 8
    assert not table[table.arm == "one engine again"].seen.any()


def questions(shift):
    dice = np.random.default_rng(0)
    return pd.DataFrame([{
        "passage": f"p{group}", "text": "word " * count, "half": ["tuning", "judging"][group % 2],
        "loss": 0.02 + shift * (count > 20) + 0.005 * dice.normal()}
        for group in range(24) for count in dice.integers(5, 40, 5)])


@pytest.mark.parametrize(("shift", "verdict"), [(0.05, "supported"), (-0.05, "supported"),
                                                (0, "not decided")])
def test_whether_simple_requests_lose_less(shift, verdict):
    """With a shift below 0 it is the long ones that are simple: the rule finds that too."""
    table = ledger.verdicts("10", {"lab10_router": questions(shift)}).set_index("claim")
    assert table.verdict["Simple requests lose less than hard ones"] == verdict


def test_a_machine_without_an_fp8_cache_decides_nothing():
    same = questions(0).assign(loss=0.0)
    assert set(ledger.verdicts("10", {"lab10_router": same}).verdict) == {"not decided"}


def test_what_the_router_costs():
    rows_ = pd.DataFrame([{"arm": arm, "repeat": repeat, "ttft_s": first * (1 + repeat / 50)}
                          for arm, first in (("direct", 0.1), ("router", 0.12)) for repeat in
                          range(3) for _ in range(4)])
    row = ledger.verdicts("10", {"lab10_latency": rows_}).iloc[0]
    assert row.value == pytest.approx(1.2) and row.verdict == "contradicted"


def test_figures(runs):
    ax = plots.topologies(lab10.points(runs))
    assert ax.get_ylabel() == "output tokens a second" and len(ax.patches) == 10
    table = ledger.verdicts("10", {"lab10_topologies": runs, "lab10_router": questions(0.05)})
    ax = plots.ledger(pd.concat([table, table.iloc[:1].assign(
        value=math.nan, low=math.nan, high=math.nan, verdict="not run")]))
    told = [text.get_text() for text in ax.texts]
    assert told[-1] == "not run" and any("supported" in text for text in told)
    judged = {"rule": {"random": 0.02, "routed": 0.01, "best": -0.01}}
    assert len(plots.routes(judged).patches) == 3


@pytest.mark.parametrize(("needed", "ends", "sides"), [
    ("above 1", (0.5, 0.8, 1.2), (-0.5, -0.2, 0.2)), ("below 1", (0.5, 0.8, 1.2), (-0.2, 0.2, 0.5)),
    ("above 0.4 and below 0.6", (0.45, 0.5, 0.7), (-0.1, 0.1, 0.1))])
def test_the_wanted_side_is_the_right_one(needed, ends, sides):
    row = pd.Series({"low": ends[0], "value": ends[1], "high": ends[2], "needed": needed})
    assert _margins(row) == pytest.approx(sides)


def test_a_value_between_two_bounds_lies_on_its_bar():
    row = {"lab": "05", "claim": "within a tenth", "value": 1.08, "low": 0.86, "high": 1.3,
           "needed": "above 0.9 and below 1.1", "verdict": "not decided"}
    ax = plots.ledger(pd.DataFrame([row]))
    bar, dot = (line.get_xdata() for line in ax.lines[:2])
    assert bar[0] < 0 and bar[0] <= np.atleast_1d(dot)[0] <= bar[1]
