"""Checks, claims and figures of lab 05, on made-up runs of which the truth is known."""

import math

import pandas as pd
import pytest
import sharing
from checks import assert_judges
from figures import assert_has_units_and_takes_axes

from helpers import kernels, ledger, plots, profiling, trace
from helpers.check import lab05 as checks
from helpers.ledger import lab05

ABOUT = {"bandwidth": 1e9, "weight_bytes": 4e6, "cache_bytes": 25e4}  # 6 ms for a batch of 8
ARMS = {"one engine": "a", "one engine again": "a", "two engines": "ab", "two engines MPS": "ab"}


def step(batch, span_s, busy, gap_s, start_s=0.0, kind="decode"):
    return {"kind": kind, "batch": batch, "start_s": start_s, "period_s": span_s + gap_s,
            "span_s": span_s, "busy_s": busy * span_s, "graph": True, "matrices_s": span_s / 2,
            "attention_s": span_s / 4, "cache_s": 0.0, "other_s": 0.0}


def traced(span_s, *, busy=0.9, gap_s=0.001, cost=1.05, repeats=3):
    """span_s: {arm: seconds of a decode step of 8}; repeats differ by a hundredth."""
    parts = []
    for arm, length in span_s.items():
        for repeat in range(repeats):
            for on in (False, True):
                slow = 1 + 0.01 * ((repeat + len(arm)) % 3 - 1)
                rows = sharing.turn(arm, ARMS[arm], 8 * len(ARMS[arm]), repeat=repeat, output=12,
                                    step_s=length * slow * (cost if on else 1))
                steps = [step(0, length * slow, 1, 0, kind="prefill"),
                         step(3, length * slow, 1, 0)] + [
                    step(8, length * slow, busy, gap_s, n * length) for n in range(5)]
                first = ~rows.engine.duplicated()
                rows["spans"] = [steps if on and new else [] for new in first]
                parts.append(rows.assign(profiled=on, concurrency=8, **ABOUT))
    return pd.concat(parts, ignore_index=True)


def stepped(share, repeats=3):
    """share: {arm: of waiting}; an engine runs for 2 s."""
    return pd.concat([
        sharing.turn(arm, ARMS[arm], 16, repeat=repeat).assign(
            core_run_s=2.0, core_wait_s=2 * s / (1 - s), host_run_s=1.0, host_wait_s=0.0)
        for arm, value in share.items() for repeat in range(repeats)
        for s in [value + 0.002 * (repeat - 1)]], ignore_index=True)


LONGER = {"one engine": 0.010, "one engine again": 0.0101, "two engines": 0.018,
          "two engines MPS": 0.012}


@pytest.fixture(scope="module")
def runs():
    return traced(LONGER)


def verdicts(runs, **more):
    table = ledger.verdicts("05", {"lab05_spans": runs, **more})
    return dict(zip(table.claim.str.split(":| on the| \\(").str[0], table.verdict, strict=True))


def test_the_truth_is_found(runs):
    found = verdicts(runs, lab05_steps=stepped(
        {"one engine": 0.02, "one engine again": 0.022, "two engines": 0.4}))
    assert found == {
        "CPU queueing": "supported", "Spans": "supported", "MPS": "supported",
        "All steps of an engine together take longer, waits included": "supported",
        "Host-bound": "supported", "Memory-bound": "supported",
        "The profiler changes what it looks at by less than a tenth": "supported"}
    value, low, high = lab05.grew(runs)
    assert value == pytest.approx(1.8, abs=0.03) and low < 1.8 < high
    assert lab05.grew_with(runs)[0] == pytest.approx(12 / 18, abs=0.02)
    assert lab05.of_one("idle")(runs)[0] == pytest.approx(1 - 9 / 11, abs=0.01)
    assert lab05.of_one("floor")(runs)[0] == pytest.approx(0.6, abs=0.01)
    assert lab05.profiler(runs)[0] == pytest.approx(1.05, abs=0.01)


def test_the_other_truth_is_found_too():
    runs = traced({"one engine": 0.1, "one engine again": 0.1, "two engines": 0.1,
                   "two engines MPS": 0.15}, busy=1, cost=1.3)
    found = verdicts(runs, lab05_steps=stepped(
        {"one engine": 0.02, "one engine again": 0.022, "two engines": 0.025}))
    assert found["CPU queueing"] == "contradicted" and found["MPS"] == "contradicted"
    assert found["Spans"] == "not decided"  # no growth, and the interval holds 1
    assert found["Host-bound"] == found["Memory-bound"] == "contradicted"
    assert found["The profiler changes what it looks at by less than a tenth"] == "contradicted"


def test_only_the_fullest_decode_steps_count(runs):
    table = lab05.decode(runs)
    assert set(table.batch) == {8}
    assert len(table) == 4 * 3


def test_a_step_that_is_held_up_is_in_the_sum_and_not_in_the_span_of_a_decode_step():
    runs = traced(dict.fromkeys(LONGER, 0.01))
    late = [step(0, 1.0, 1, 0, kind="prefill")]
    runs["spans"] = [late + steps if steps and arm == "two engines" else steps
                     for arm, steps in zip(runs.arm, runs.spans, strict=True)]
    found = verdicts(runs)
    assert found["Spans"] == "not decided"
    assert found["All steps of an engine together take longer, waits included"] == "supported"


def test_turns_whose_batches_fill_differently_are_all_there(runs):
    one = runs.arm == "one engine"
    less = runs[one].assign(spans=[[step | {"batch": min(step["batch"], 7)} for step in steps]
                                   for steps in runs[one].spans])
    both = pd.concat([runs[~one], less], ignore_index=True)
    table = lab05.decode(both)
    assert len(table) == 4 * 3 and set(table.batch) == {7, 8}
    assert verdicts(both)["Spans"] == "supported"


def test_an_engine_that_strays_from_itself_hides_an_effect():
    runs = traced(LONGER | {"one engine again": 0.02})
    assert verdicts(runs)["Spans"] == "not decided"


@pytest.mark.parametrize("drop", ["one engine again", "two engines"])
def test_no_control_or_no_pair_decides_nothing(runs, drop):
    assert verdicts(runs[runs.arm != drop])["Spans"] == "not decided"


def test_a_quick_run_decides_nothing():
    found = verdicts(traced(LONGER, repeats=1), lab05_steps=stepped(
        {"one engine": 0.02, "two engines": 0.4}, repeats=1))
    assert set(found.values()) == {"not decided"} and len(found) == 7


def test_a_crashed_pair_is_no_steps(runs):
    crashed = pd.DataFrame([{"arm": "two engines", "repeat": 0, "outcome": "error"}])
    both = pd.concat([runs[runs.arm != "two engines"], crashed], ignore_index=True)
    assert "two engines" not in set(profiling.spans(both).arm)
    assert verdicts(both)["Host-bound"] == "supported"


def test_claims_say_what_they_need():
    assert all(claim.needed and claim.what for claim in ledger.claims("05"))
    assert {claim.experiment for claim in ledger.claims("05")} == {"lab05_steps", "lab05_spans"}


# The exercises


def test_share(capsys):
    assert_judges(checks.share, 0.5, [0, 1, 2], capsys, loops=2)


def test_floor(capsys):
    assert_judges(checks.floor, 0.006, [0.004, 6, 0.048], capsys, batch=8, **ABOUT)


def test_idle(runs, capsys):
    right = lab05.of_one("idle")(runs)[0]
    assert_judges(checks.idle, right, [1 - right, 0, 1], capsys, runs)


def test_grown(runs, capsys):
    assert_judges(checks.grown, lab05.grew(runs)[0], [1, 1 / 1.8], capsys, runs)


def test_verdict(runs, capsys):
    table = ledger.verdicts("05", {"lab05_spans": runs})
    for claim, word in (("Spans", "supported"), ("profiler", "supported")):
        row = table[table.claim.str.contains(claim)].iloc[0]
        wrong = [w for w in ("supported", "contradicted", "not decided", "yes") if w != word]
        assert_judges(checks.verdict, word, wrong, capsys, row)


# The figures and the kernels


def test_each_figure_has_units_and_takes_axes(runs):
    work = pd.DataFrame({"arm": "one engine", "engine": "a", "part": ["matrices", "other"],
                         "start_s": [0, 0.002], "dur_s": [0.001, 0.001]})
    assert_has_units_and_takes_axes(plots.anatomy, work, unit="ms")
    spans = profiling.spans(runs)
    one = spans[(spans.arm == "two engines") & (spans["repeat"] == 0)]
    assert_has_units_and_takes_axes(
        lambda rows, ax=None: plots.lanes(rows, seconds=0.05, ax=ax), one, unit="ms")
    found = pd.DataFrame([{"arm": "two engines", "concurrency": 8, "value": 1.8, "low": 1.7,
                           "high": math.nan, "smallest": 0.02, "machine": "this one"}])
    assert_has_units_and_takes_axes(plots.grown, found, unit="ratio")


def test_kernels_reach_a_share_of_the_bandwidth():
    rows = pd.DataFrame({"name": ["gemm", "gemm", "flash"], "part": ["matrices"] * 2 +
                         ["attention"], "read_bytes": [4e6, 4e6, 1e6], "write_bytes": [0, 0, 1e6],
                         "duration_s": [0.01, 0.01, 0.02], "bandwidth": 1e9})
    table = kernels.summary(rows)
    assert table.reached.to_dict() == pytest.approx({"matrices": 0.4, "attention": 0.1})
    assert table.kernels["matrices"] == 2 and kernels.summary(rows[:0]).empty


def test_spans_has_the_columns_of_a_trace(runs):
    spans = profiling.spans(runs)
    assert list(spans.columns) == ["arm", "repeat", "engine", *trace.COLUMNS, "beside_s"]
    assert profiling.spans(runs[:0]).empty


def test_beside_is_the_time_in_which_the_other_engine_has_a_step():
    steps = [[step(8, 2.0, 1, 1, 0.0), step(8, 2.0, 1, 1, 10.0)], [step(8, 2.0, 1, 1, 1.0)]]
    rows = pd.DataFrame({"arm": "two engines", "repeat": 0, "engine": ["a", "b"],
                         "profiled": True, "outcome": "ok", "spans": steps})
    assert profiling.spans(rows).beside_s.tolist() == pytest.approx([1, 0, 1])
    about = rows.assign(**ABOUT)
    table = lab05.decode(about).iloc[0]
    assert table.work_s == pytest.approx(3) and table.beside == pytest.approx(2 / 6)
