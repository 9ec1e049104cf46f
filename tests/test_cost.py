"""What an acceptable request costs, by worked examples, and which deployment's cost less."""

import math

import numpy as np
import pandas as pd
import pytest

from helpers import cost, metrics
from helpers.errors import LabError
from helpers.rows import latencies, table

LIMITS = {"ttft_s": 1.0, "tpot_s": 0.1}
PRICE = {"price_per_hour": 3.6, **LIMITS}  # a thousandth a second


def request(sent_s, *, ttft_s=0.5, tpot_s=0.05, tokens=11):
    times = [ttft_s + k * tpot_s for k in range(tokens)]
    return {"sent_s": sent_s, "intended_s": sent_s, "chunk_tokens": None, "outcome": "ok",
            "error": "", "input_tokens": 10, "output_tokens": tokens, **latencies(times, tokens)}


def run(repeats, *, seconds=10.0, good=5, late=0):
    """`repeats` runs of `seconds`: good requests in time and late ones, the last of them good."""
    rows = []
    for repeat in range(repeats):
        starts = np.linspace(0, seconds - 1, good)  # a good one lasts a second
        rows += [request(start) | {"repeat": repeat} for start in starts]
        rows += [request(0, ttft_s=2) | {"repeat": repeat} for _ in range(late)]
    return table(rows, tool="client", settings={})


def test_a_cost_worked_out_by_hand():
    """Three runs of 10 s at a thousandth a second, five acceptable each: two thousandths each."""
    found = metrics.cost_per_acceptable_request(run(3, late=2), quality_ok=True, **PRICE)
    assert found.cost == pytest.approx(0.002)
    assert (found.low, found.high) == pytest.approx((0.002, 0.002))
    assert (found.acceptable, found.sent, found.repeats) == (15, 21, 3)
    assert found.seconds == pytest.approx(30)


def test_twice_the_price_is_twice_the_cost_and_half_the_work_too():
    base = metrics.cost_per_acceptable_request(run(3), quality_ok=True, **PRICE)
    dear = metrics.cost_per_acceptable_request(run(3), quality_ok=True, **PRICE | {
        "price_per_hour": 7.2})
    slow = metrics.cost_per_acceptable_request(run(3, good=10), quality_ok=True, **PRICE)
    assert dear.cost == pytest.approx(2 * base.cost)
    assert slow.cost == pytest.approx(base.cost / 2)


def test_without_quality_or_in_time_nothing_is_acceptable():
    for rows, quality_ok in ((run(3), False), (run(3, good=2).assign(ttft_s=2.0), True)):
        found = metrics.cost_per_acceptable_request(rows, quality_ok=quality_ok, **PRICE)
        assert found.cost == found.high == math.inf and found.low == 0 and not found.acceptable


def test_failed_requests_are_paid_for_and_do_not_count():
    rows = run(3)
    rows.loc[1, ["outcome", "ttft_s", "e2el_s"]] = "error", math.nan, math.nan
    found = metrics.cost_per_acceptable_request(rows, quality_ok=True, **PRICE)
    assert found.acceptable == 14 and found.seconds == pytest.approx(30)
    assert found.low < 0.030 / 14 < found.high


@pytest.mark.parametrize("repeats", [1, 2])
def test_one_or_two_repeats_have_no_interval(repeats):
    found = metrics.cost_per_acceptable_request(run(repeats), quality_ok=True, **PRICE)
    assert found.cost == pytest.approx(0.002) and math.isnan(found.low) and math.isnan(found.high)


@pytest.mark.parametrize("price", [0, -1, math.nan, math.inf])
def test_a_price_that_is_none(price):
    with pytest.raises(ValueError, match="price"):
        metrics.cost_per_acceptable_request(run(3), quality_ok=True, **PRICE | {
            "price_per_hour": price})
    with pytest.raises(ValueError, match="some requests"):
        metrics.cost_per_acceptable_request(run(3)[:0], quality_ok=True, **PRICE)


def test_compare_is_the_ratio_of_costs_at_one_price():
    slow, quick = run(4), run(4, good=10)
    assert cost.compare(quick, slow, **LIMITS)[0] == pytest.approx(0.5)
    assert cost.compare(slow, slow, **LIMITS) == pytest.approx((1, 1, 1))
    with pytest.raises(LabError, match="same repeats"):
        cost.compare(slow, run(3), **LIMITS)


def test_ratios_at_every_load_and_a_control():
    runs = [run(3, good=good, seconds=seconds).assign(arm=arm, load=load, limit_ttft_s=1.0,
                                                      limit_tpot_s=0.1)
            for arm, load, good, seconds in (("BF16", 0.5, 5, 10), ("INT8", 0.5, 5, 10),
                                             ("BF16", 1.5, 10, 10), ("INT8", 1.5, 10, 8))]
    found = cost.ratios(pd.concat(runs, ignore_index=True)).set_index("label")
    assert list(found.index) == ["INT8 / BF16 at 0.5", "INT8 / BF16 at 1.5",
                                 "BF16 at 1.5 / at 0.5"]
    assert list(found.value) == pytest.approx([1, 0.8, 0.5])
    assert list(found.control) == [False, False, True]


def test_a_side_that_serves_nobody_while_the_other_does():
    some, none = run(3), run(3).assign(ttft_s=2.0)
    assert cost.compare(none, some, **LIMITS) == (math.inf, math.inf, math.inf)
    assert cost.compare(some, none, **LIMITS)[0] == 0
    assert math.isnan(cost.compare(none[none.repeat == 0], some[some.repeat == 0], **LIMITS)[1])
    assert cost.compare(none, none, **LIMITS) == (math.inf, 0, math.inf)  # nothing is known


@pytest.mark.parametrize("column", ["load", "rate"])
def test_a_bill_is_of_one_load(column):
    rows = run(3)
    metrics.cost_per_acceptable_request(rows.assign(**{column: 0.5}), quality_ok=True, **PRICE)
    with pytest.raises(ValueError, match="several loads"):
        metrics.cost_per_acceptable_request(rows.assign(**{column: rows.repeat}), quality_ok=True,
                                            **PRICE)


def test_in_time_agrees_with_a_queue_stepped_through():
    rate, capacity, wait_s = 10.0, 8.0, 1.0
    free, started = 0.0, []
    for k in range(200):
        start = max(free, k / rate)
        started.append(start - k / rate <= wait_s + 1e-9)
        free = start + 1 / capacity
    expected = cost.in_time(count=200, rate=rate, capacity=capacity, wait_s=wait_s)
    assert abs(sum(started) - expected) <= 1
    assert cost.in_time(count=200, rate=8, capacity=8, wait_s=1) == 200
    assert cost.in_time(count=20, rate=10, capacity=8, wait_s=1) == 20


def test_the_cost_is_the_price_over_goodput():
    rows = run(1, late=1)
    goodput = metrics.goodput(rows, **LIMITS)
    found = metrics.cost_per_acceptable_request(rows, quality_ok=True, **PRICE)
    assert found.cost == pytest.approx(0.001 / goodput)
