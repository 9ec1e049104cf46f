import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import metrics
from helpers.rows import failed, latencies, table


def request(*, sent_s, times, tokens, input_tokens=10):
    return {"intended_s": math.nan, "sent_s": sent_s, "chunk_tokens": None, "outcome": "ok",
            "error": "", "input_tokens": input_tokens, "output_tokens": tokens,
            **latencies(times, tokens)}


def frame(rows):
    return table(rows, tool="client", settings={})


def test_percentile_is_linear_between_ranks():
    assert metrics.percentile([4, 1, 3, 2], 50) == 2.5
    assert metrics.percentile([10, 20], 95) == pytest.approx(19.5)
    assert metrics.percentile([10, math.nan, 20], 0) == 10
    assert metrics.percentile([7], 99) == 7


@pytest.mark.parametrize("values, q", [([], 50), ([math.nan], 50), ([1, 2], 101), ([1, 2], -1)])
def test_percentile_refuses_what_has_none(values, q):
    with pytest.raises(ValueError):
        metrics.percentile(values, q)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 100))
def test_percentile_stays_within_the_values_and_agrees_with_numpy(values, q):
    found = metrics.percentile(values, q)
    assert min(values) - 1e-6 <= found <= max(values) + 1e-6
    assert found == pytest.approx(np.percentile(values, q))


def test_points_of_two_requests_worked_out_by_hand():
    requests = frame([request(sent_s=0.5, times=[0.1, 0.2, 0.4], tokens=4),
                      request(sent_s=1.0, times=[0.2, 0.5], tokens=2, input_tokens=30),
                      {"sent_s": 0.0, "intended_s": math.nan, **failed("no connection")},
                      {"sent_s": 9.0, "intended_s": math.nan, **failed("late", outcome="cut_off")}])
    (point,) = metrics.points(requests).to_dict("records")
    assert (point["ok"], point["failed"], point["cut_off"]) == (2, 1, 1)
    assert point["duration_s"] == pytest.approx(1.0)  # from 0.5 to 1.5: ok requests only
    assert point["request_per_s"] == pytest.approx(2)
    assert point["output_tok_per_s"] == pytest.approx(6)
    assert point["total_tok_per_s"] == pytest.approx(46)
    assert point["in_flight"] == pytest.approx(0.9)
    assert point["mean_ttft_s"] == pytest.approx(0.15)
    assert point["p50_ttft_s"] == pytest.approx(0.15)
    assert point["mean_tpot_s"] == pytest.approx((0.1 + 0.3) / 2)
    assert point["mean_itl_s"] == pytest.approx((0.1 + 0.2 + 0.3) / 3)  # pooled
    assert point["p95_e2el_s"] == pytest.approx(0.4 + 0.95 * 0.1)
    assert point["tool"] == "client" and point["repeat"] == 0


def test_points_has_a_row_for_each_run_and_keeps_the_columns_that_tell_them_apart():
    one = frame([request(sent_s=0, times=[0.1, 0.2], tokens=2)])
    both = pd.concat([one.assign(concurrency=1), one.assign(concurrency=2, repeat=1)])
    points = metrics.points(both)
    assert list(points.concurrency) == [1, 2] and list(points.repeat) == [0, 1]
    assert "rate" not in points


def test_points_without_a_single_success_is_nan_not_a_crash():
    points = metrics.points(frame([{"sent_s": 0.0, "intended_s": math.nan, **failed("gone")}]))
    assert points.failed[0] == 1 and math.isnan(points.output_tok_per_s[0])
    assert math.isnan(points.p99_itl_s[0])


def test_a_tool_that_keeps_no_gaps_has_no_itl():
    rows = [request(sent_s=0, times=[0.1, 0.2], tokens=2) | {"itl_s": None}]
    assert math.isnan(metrics.points(frame(rows)).mean_itl_s[0])


def test_points_says_which_column_is_missing():
    with pytest.raises(KeyError):
        metrics.points(pd.DataFrame({"tool": ["x"]}))


@given(st.integers(1, 6), st.integers(1, 8), st.floats(0.01, 5), st.floats(0, 1))
def test_a_closed_loop_closes(concurrency, rounds, e2el_s, head):
    """requests x mean E2EL / concurrency = duration, where every place is always taken."""
    rows = [request(sent_s=turn * e2el_s, times=[head * e2el_s, e2el_s], tokens=5)
            for turn in range(rounds) for _ in range(concurrency)]
    (point,) = metrics.points(frame(rows)).to_dict("records")
    assert point["ok"] * point["mean_e2el_s"] / concurrency == pytest.approx(point["duration_s"])
    assert point["in_flight"] == pytest.approx(concurrency)
    assert point["mean_tpot_s"] * 4 == pytest.approx(point["mean_e2el_s"] - point["mean_ttft_s"])


# -- open loops: lateness, and requests that meet a limit ---------------------------------------


def open_loop(late_s, *, gap_s=0.5):
    rows = [request(sent_s=k * gap_s + late, times=[0.1, 0.2], tokens=2)
            | {"intended_s": k * gap_s} for k, late in enumerate(late_s)]
    return frame(rows)


def test_late_is_sent_minus_intended():
    assert list(metrics.late(open_loop([0, 0.25]))) == [0, 0.25]
    closed = frame([request(sent_s=3, times=[0.1], tokens=1)])
    assert metrics.late(closed).isna().all() and metrics.on_schedule(closed)


@pytest.mark.parametrize("late_s, valid", [
    ([0.0] * 40, True), ([0.24] * 40, True), ([0.26] * 40, False),
    ([0.0] * 39 + [9.0], True),  # one accident in forty
    ([0.02 * k for k in range(40)], False),  # falls further and further behind
])
def test_a_client_too_slow_for_its_schedule_marks_its_run(late_s, valid):
    run = open_loop(late_s)
    assert metrics.on_schedule(run) is valid
    point = metrics.points(run).iloc[0]
    assert point.valid == valid
    assert point.p95_late_s == pytest.approx(metrics.percentile(late_s, 95))


def test_points_of_a_closed_loop_are_valid():
    point = metrics.points(frame([request(sent_s=0, times=[0.1], tokens=1)])).iloc[0]
    assert point.valid and math.isnan(point.p95_late_s)


SLO = {"ttft_s": 0.2, "tpot_s": 0.05}


def test_goodput_worked_out_by_hand():
    """Two seconds from first send to last token; four good of seven."""
    rows = [request(sent_s=1.0, times=[0.2, 0.25], tokens=2),  # just within both
            request(sent_s=1.1, times=[0.21, 0.22], tokens=2),  # too late
            request(sent_s=1.2, times=[0.1, 0.2], tokens=2),  # too slow
            request(sent_s=1.3, times=[0.1], tokens=1),  # no TPOT
            request(sent_s=1.4, times=[0.1, 0.3], tokens=6),  # 0.04 s a token
            request(sent_s=2.8, times=[0.1, 0.2], tokens=11),
            {"sent_s": 0.0, "intended_s": math.nan, **failed("gone")}]
    assert list(metrics.meets(frame(rows), **SLO)) == [True, False, False, True, True, True, False]
    assert metrics.goodput(frame(rows), **SLO) == pytest.approx(4 / 2)


def test_goodput_without_a_success_is_zero_and_of_nothing_an_error():
    rows = [{"sent_s": 0.0, "intended_s": math.nan, **failed("gone")}]
    assert metrics.goodput(frame(rows), **SLO) == 0
    with pytest.raises(ValueError, match="no goodput of no requests"):
        metrics.goodput(frame([]), **SLO)


def test_goodput_refuses_several_runs_but_not_several_engines():
    one = frame([request(sent_s=0, times=[0.1, 0.12], tokens=2)])
    assert metrics.goodput(pd.concat([one, one.assign(engine="b")]), **SLO) > 0
    for key, other in (("repeat", 1), ("rate", 4.0)):
        both = pd.concat([one.assign(rate=1.0), one.assign(**{"rate": 1.0, key: other})])
        with pytest.raises(ValueError, match=key):
            metrics.goodput(both, **SLO)


@given(st.floats(0, 1), st.floats(0, 1), st.lists(st.floats(0.01, 1), min_size=1, max_size=9))
def test_looser_limits_never_cost_goodput(ttft_s, tpot_s, times):
    run = frame([request(sent_s=k, times=[t, 2 * t], tokens=2) for k, t in enumerate(times)])
    tight = metrics.goodput(run, ttft_s=ttft_s, tpot_s=tpot_s)
    loose = metrics.goodput(run, ttft_s=ttft_s + 0.1, tpot_s=tpot_s + 0.1)
    throughput = metrics.points(run).request_per_s[0]
    assert 0 <= tight <= loose <= throughput + 1e-9


def test_under_a_limit_each_run_has_its_goodput_and_share():
    run = frame([request(sent_s=0, times=[0.1, 0.12], tokens=2),
                 request(sent_s=0.5, times=[0.3, 0.5], tokens=2)])
    both = pd.concat([run.assign(rate=2.0), run.head(1).assign(rate=1.0)])
    found = metrics.under(both, **SLO)
    assert list(found.rate) == [2, 1] and list(found.good_share) == [0.5, 1]
    assert list(found.goodput_per_s) == pytest.approx([1 / 1.0, 1 / 0.12])
    assert list(found.request_per_s) == pytest.approx([2, 1 / 0.12])


@pytest.mark.parametrize("shares, valid, expected", [
    ([1, 0.96, 0.4], [True] * 3, 2.0), ([0.9, 1, 1], [True] * 3, 0.0),
    ([1, 1, 1], [True, True, False], 2.0), ([1, 0.5, 1], [True] * 3, 1.0), ([1], [False], 0.0)])
def test_the_knee_is_the_highest_rate_up_to_which_nearly_all_are_good(shares, valid, expected):
    runs = pd.DataFrame({"rate": [1.0, 2.0, 3.0][:len(shares)], "good_share": shares,
                         "valid": valid})
    assert metrics.knee(runs) == expected


def test_the_knee_takes_the_median_of_repeats():
    runs = pd.DataFrame({"rate": [1.0, 1.0, 1.0], "good_share": [1, 1, 0.2], "valid": [True] * 3})
    assert metrics.knee(runs) == 1.0
