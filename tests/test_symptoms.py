"""The decision table: constructed runs of each kind are named, and every pair of signs is."""

import itertools

import pandas as pd
import pytest

from helpers import metrics, symptoms
from helpers.rows import failed, latencies, table


def run(*, ttft_s=0.1, itl_s=0.02, tokens=5, number=12, gap_s=0.5):
    """A run whose requests all take the same; ttft_s may be a function of the request's place."""
    rows = []
    for k in range(number):
        first_s = ttft_s(k) if callable(ttft_s) else ttft_s
        times = [first_s + itl_s * step for step in range(tokens)]
        rows.append({"intended_s": k * gap_s, "sent_s": k * gap_s, "chunk_tokens": None,
                     "outcome": "ok", "error": "", "input_tokens": 128, "output_tokens": tokens,
                     **latencies(times, tokens)})
    return table(rows, tool="client", settings={})


def point(*, queue_s=None, prefill_s=None, **of_run):
    found = metrics.points(run(**of_run)).iloc[0].to_dict()
    engine = {"queue_s": queue_s, "prefill_s": prefill_s}
    return found | {key: value for key, value in engine.items() if value is not None}


QUIET = {"queue_s": 0.0, "prefill_s": 0.08}
KINDS = {  # name: after, where before is QUIET
    "queue": {"ttft_s": 2.0, "queue_s": 1.9, "prefill_s": 0.08},
    "prefill": {"ttft_s": 0.5, "queue_s": 0.0, "prefill_s": 0.45},
    "queue and prefill": {"ttft_s": 1.1, "queue_s": 0.5, "prefill_s": 0.5},
    "front": {"ttft_s": 0.9, "queue_s": 0.0, "prefill_s": 0.08},
    "full batch": {"ttft_s": 2.0, "itl_s": 0.05, "queue_s": 1.5, "prefill_s": 0.2},
    "longer steps": {"ttft_s": 0.3, "itl_s": 0.05, "queue_s": 0.0, "prefill_s": 0.28},
    "decode": {"itl_s": 0.05, "queue_s": 0.0, "prefill_s": 0.08},
    "prefix reuse": {"ttft_s": 0.03, "queue_s": 0.0, "prefill_s": 0.02},
    "less load": {"ttft_s": 0.03, "itl_s": 0.01, "queue_s": 0.0, "prefill_s": 0.02},
    "faster decode": {"itl_s": 0.01, "queue_s": 0.0, "prefill_s": 0.08},
    "longer wait, faster decode": {"ttft_s": 0.9, "itl_s": 0.01, "queue_s": 0.8,
                                   "prefill_s": 0.08},
    "slower decode, shorter wait": {"ttft_s": 0.03, "itl_s": 0.05, "queue_s": 0.0,
                                    "prefill_s": 0.02},
    "nothing": {"ttft_s": 0.11, "itl_s": 0.021, "queue_s": 0.0, "prefill_s": 0.08},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_constructed_run_of_each_kind_is_named(name):
    found = symptoms.compare(point(**QUIET), point(**KINDS[name]))
    assert found.name == name and list(found.signs) == symptoms.SIGNS


def test_every_row_of_the_table_has_such_a_run():
    assert {name for name, *_ in symptoms.TABLE} == {*KINDS, "queue or prefill"}


def test_the_tutorials_first_case_without_the_engines_clocks():
    """Output and p95 TTFT up, ITL steady: queue and prefill are to be looked at."""
    slow, fast = point(gap_s=1.0), point(gap_s=0.25, ttft_s=lambda k: 0.1 + 0.3 * k)
    assert fast["output_tok_per_s"] > slow["output_tok_per_s"]
    found = symptoms.compare(slow, fast)
    assert found.name == "queue or prefill"
    assert "waiting queue" in found.look_at and "prefill" in found.look_at
    assert found.signs["waiting queue"] == "?"


def test_the_tutorials_second_case():
    """TTFT down on repeat questions, ITL unmoved: prefix reuse."""
    found = symptoms.compare(point(ttft_s=0.4), point(ttft_s=0.1))
    assert found.name == "prefix reuse" and "prefix cache" in found.look_at


def test_a_small_queue_is_no_cause_of_a_large_wait():
    found = symptoms.compare(point(**QUIET), point(ttft_s=2.0, queue_s=0.1, prefill_s=1.9))
    assert found.name == "prefill"


def test_what_could_not_be_seen_does_not_count():
    before, after = point(ttft_s=0.1), point(ttft_s=0.14)
    assert symptoms.compare(before, after).name == "queue or prefill"
    assert symptoms.compare(before, after, seen=1.5).name == "nothing"


def test_tpot_stands_in_where_a_tool_keeps_no_gaps():
    kept, not_kept = (metrics.points(run(itl_s=0.05).assign(**more)).iloc[0]
                      for more in ({}, {"itl_s": None}))
    assert symptoms.compare(point(), kept).signs == symptoms.compare(point(), not_kept).signs


def test_every_pair_of_client_signs_has_a_row():
    for ttft_s, itl_s in itertools.product((0.01, 0.1, 1.0), (0.002, 0.02, 0.2)):
        for engine in ({}, {"queue_s": 0.5, "prefill_s": 0.1}, {"queue_s": 0, "prefill_s": 0}):
            found = symptoms.compare(point(**QUIET), point(ttft_s=ttft_s, itl_s=itl_s, **engine))
            assert found.look_at


def test_a_run_whose_queue_grows_shows_within_itself():
    assert symptoms.within(run(ttft_s=lambda k: 0.1 + 0.2 * k)).name == "queue or prefill"
    assert symptoms.within(run()).name == "nothing"


@pytest.mark.parametrize("number", [0, 5])
def test_a_run_too_short_to_have_thirds(number):
    with pytest.raises(ValueError, match="first and last third"):
        symptoms.within(run(number=6).head(number))


def test_a_run_without_a_success_has_no_signs():
    rows = [{"sent_s": float(k), "intended_s": float(k), **failed("gone")} for k in range(6)]
    gone = table(rows, tool="client", settings={})
    with pytest.raises(ValueError, match="no sign"):
        symptoms.compare(point(), metrics.points(gone).iloc[0])
    with pytest.raises(ValueError, match="no sign"):
        symptoms.within(gone)


def test_a_missing_latency_is_named():
    with pytest.raises(KeyError, match="p95_ttft_s"):
        symptoms.compare({}, point())


def test_the_engines_clocks_are_means_of_the_requests_in_between():
    before = {"vllm:request_queue_time_seconds_sum": 1.0,
              "vllm:request_queue_time_seconds_count": 10,
              "vllm:request_prefill_time_seconds_sum": 2.0, "vllm:prefix_cache_hits_total": 64}
    after = {"vllm:request_queue_time_seconds_sum": 3.0,
             "vllm:request_queue_time_seconds_count": 14,
             "vllm:request_prefill_time_seconds_sum": 2.4, "vllm:prefix_cache_hits_total": 96}
    assert symptoms.clocks(before, after) == pytest.approx(
        {"queue_s": 0.5, "prefill_s": 0.1, "hit_tokens": 32, "preemptions": 0})
    with pytest.raises(ValueError, match="no request ended"):
        symptoms.clocks(before, before)


def test_the_table_to_show_has_a_row_for_each():
    shown = symptoms.table()
    assert list(shown.columns) == ["row", *symptoms.SIGNS, "look first at"]
    assert len(shown) == len(symptoms.TABLE) and isinstance(shown, pd.DataFrame)
