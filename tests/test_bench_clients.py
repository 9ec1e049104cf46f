import math

import pytest

from helpers import bench_clients, load
from helpers.rows import failed, latencies, table


def answer(times, tokens, **more):
    return {"sent_s": 0.0, "intended_s": math.nan, "chunk_tokens": None, "input_tokens": 1,
            "output_tokens": tokens, "outcome": "ok", "error": "",
            **latencies(times, tokens), **more}


def test_errors_are_against_the_schedule():
    rows = [answer([0.052, 0.091, 0.130], 9), {"sent_s": 0.0, **failed("gone")}]
    found = bench_clients.errors(table(rows, tool="client", settings={}), tokens_per_chunk=4)
    by_figure = found.groupby("figure").error_s.apply(list)
    assert by_figure["ttft"] == pytest.approx([0.002])
    assert by_figure["itl"] == pytest.approx([0.001, 0.001])  # true gaps: 40 ms
    assert by_figure["tpot"] == pytest.approx([abs(0.078 / 8 - 0.010)])


def test_a_tool_without_gaps_has_no_itl_errors():
    rows = [answer([0.05, 0.13], 9, itl_s=None)]
    found = bench_clients.errors(table(rows, tool="guidellm", settings={}), tokens_per_chunk=4)
    assert set(found.figure) == {"ttft", "tpot"}


def test_one_client_is_compared_with_finite_figures_and_no_worker(monkeypatch):
    monkeypatch.setattr(load, "start_worker", lambda **_: pytest.fail("not needed"))
    compared = bench_clients.compare_clients(streams=2, requests=4, tokens_per_chunk=4, repeats=2,
                                             tools=("client",))
    assert len(compared) == 6 and list(compared.figure[:3]) == ["ttft", "tpot", "itl"]
    assert compared[["mean_s", "p99_s", "max_s", "server_p99_s"]].map(math.isfinite).all().all()
    assert (compared[compared.figure == "itl"]["values"] == 4 * 25).all()
    shown = bench_clients.figures(compared, bars_s=bench_clients.BARS_S)
    assert list(shown.bar) == [5.0, 1.0, 1.0]
    assert "bar" not in bench_clients.figures(compared)
