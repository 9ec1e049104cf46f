import asyncio
import math
import os
import signal
import threading
import time

import misbehaving
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import client, reference
from helpers.errors import LabError
from helpers.rows import COLUMNS, from_answer, latencies


@pytest.fixture(scope="module")
def server():
    with reference.serve(first_s=0.01, gap_s=0.002, tokens_per_chunk=4) as server:
        yield server


def refused(model, **more):
    with misbehaving.serve(model) as server, pytest.raises(LabError) as caught:
        client.stream(server, "Hello", max_tokens=3, **more)
    return str(caught.value)


def test_a_chat_request_has_a_time_for_every_chunk(server):
    row = client.stream(server, [{"role": "user", "content": "Hi"}], max_tokens=10)
    assert list(row.index) == COLUMNS
    assert row.outcome == "ok" and row.error == "" and row.text == " a" * 10
    assert (row.input_tokens, row.output_tokens) == (2, 10)
    assert row.chunk_tokens == [1, 4, 4, 1]
    assert len(row.chunk_times_s) == 4 and row.chunk_times_s == sorted(row.chunk_times_s)
    assert row.ttft_s == row.chunk_times_s[0] and row.e2el_s == row.chunk_times_s[-1]
    assert len(row.itl_s) == 3
    assert row.tpot_s == pytest.approx((row.e2el_s - row.ttft_s) / 9)


def test_a_str_goes_to_completions_and_a_single_token_has_no_tpot(server):
    row = client.stream(server, "Hello", max_tokens=1)
    assert row.output_tokens == 1 and row.itl_s == [] and math.isnan(row.tpot_s)


def test_token_ids_go_to_completions(server):
    row = client.stream(server, [5, 6, 7], max_tokens=2)
    assert (row.input_tokens, row.output_tokens) == (3, 2)
    rows = client.streams(server, [[5, 6, 7], [5]], concurrency=1, max_tokens=2)
    assert list(rows.input_tokens) == [3, 1]


def test_extra_fields_reach_the_server(server):
    row = client.stream(server, "Hello", max_tokens=9, max_completion_tokens=5)
    assert row.output_tokens == 5


def test_a_closed_loop_never_exceeds_its_concurrency(server):
    requests = client.streams(server, ["a" * n for n in range(1, 13)], concurrency=3, max_tokens=9)
    assert list(requests.columns) == COLUMNS
    assert list(requests.input_tokens) == list(range(1, 13))  # in the order of the prompts
    assert (requests.outcome == "ok").all() and requests.intended_s.isna().all()
    sent, ended = requests.sent_s, requests.sent_s + requests.e2el_s
    assert max(((sent <= moment) & (ended > moment)).sum() for moment in sent) <= 3
    assert requests.attrs["settings"]["concurrency"] == 3
    assert requests.attrs["tool"] == "client"


def test_each_prompt_may_have_a_limit_of_its_own_and_the_start_is_told(server):
    before = time.perf_counter()
    requests = client.streams(server, ["a", "b"], concurrency=2, max_tokens=[3, 9])
    assert list(requests.output_tokens) == [3, 9]
    started = requests.attrs["started"]
    assert before < started <= started + requests.sent_s.min() < time.perf_counter()
    with pytest.raises(ValueError):
        client.streams(server, ["a", "b"], concurrency=2, max_tokens=[3])


def test_an_open_loop_keeps_to_its_times_and_says_when_it_sent(server):
    requests = client.streams(server, ["a"] * 8, rate=200, max_tokens=5)
    assert list(requests.intended_s) == [k / 200 for k in range(8)]
    assert requests.sent_s.is_monotonic_increasing and (requests.outcome == "ok").all()


def test_an_open_loop_with_a_limit_waits_for_a_place(server):
    requests = client.streams(server, ["a"] * 6, rate=10_000, concurrency=1, max_tokens=5)
    assert (requests.sent_s.diff().dropna() > requests.e2el_s[:-1].min()).all()


def test_neither_concurrency_nor_rate_is_refused(server):
    with pytest.raises(ValueError, match="concurrency"):
        client.streams(server, ["a"], max_tokens=1)


def test_no_prompts_give_an_empty_table(server):
    assert client.streams(server, [], concurrency=2, max_tokens=1).empty


def test_it_works_while_the_callers_own_loop_runs(server):
    async def notebook_cell():
        return client.stream(server, "Hello", max_tokens=2)

    assert asyncio.run(notebook_cell()).outcome == "ok"


def test_a_name_that_is_not_served_says_which_are():
    message = refused("missing")
    assert "404" in message and "does not exist" in message and "It serves: another." in message


def test_a_refused_request_shows_the_engines_own_words():
    assert "HTTP 400: max_tokens is too large: 99." in refused("too-long")
    assert "HTTP 500: oops!" in refused("plain-500")


def test_a_server_that_is_gone_says_so(server):
    with reference.serve() as gone:
        pass
    with pytest.raises(LabError, match="no connection"):
        client.stream(gone, "Hello", max_tokens=3)


@pytest.mark.parametrize("model, says", [
    ("cut", "cut after 2 chunks"), ("polite-cut", "cut after 1 chunks"),
    ("silent", "without an answer"), ("error-event", "the engine died"),
    ("garbled", "cannot be read"), ("not-json", "cannot be read")])
def test_an_answer_that_ends_early_is_an_error(model, says):
    assert says in refused(model)


def test_an_answer_that_never_comes_ends_at_the_limit():
    assert "not finished after 0.3 s" in refused("never", timeout_s=0.3)


def test_some_failed_are_marked_and_all_failed_raise():
    with misbehaving.serve("cut", good_first=2) as server:
        requests = client.streams(server, ["a"] * 4, concurrency=1, max_tokens=3)
        assert list(requests.outcome) == ["ok", "ok", "error", "error"]
        cut = requests.iloc[2]
        assert cut.error == "the stream was cut after 2 chunks" and len(cut.chunk_times_s) == 2
        assert math.isnan(cut.e2el_s) and math.isnan(cut.tpot_s)
        with pytest.raises(LabError, match="All 3 requests"):
            client.streams(server, ["a"] * 3, concurrency=2, max_tokens=3)


def test_without_usage_tokens_are_not_guessed():
    with misbehaving.serve("no-usage") as server:
        row = client.stream(server, "Hello", max_tokens=3)
    assert row.chunk_tokens is None and math.isnan(row.output_tokens) and math.isnan(row.tpot_s)
    assert len(row.chunk_times_s) == 2 and row.text == " a b"


def test_usage_only_at_the_end_gives_the_count_but_not_the_chunks():
    with misbehaving.serve("usage-at-end") as server:
        row = client.stream(server, "Hello", max_tokens=3)
    assert row.chunk_tokens is None and row.output_tokens == 3 and row.input_tokens == 5


def test_an_interrupt_ends_the_requests_and_the_next_call_works(server):
    with reference.serve(first_s=60) as slow, pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        client.streams(slow, ["a"] * 3, concurrency=3, max_tokens=3)
    deadline = time.monotonic() + 5
    while any(thread.name == "client" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert client.stream(server, "Hello", max_tokens=2).outcome == "ok"


@given(st.data())
def test_bytes_may_be_split_anywhere(data):
    """However the network cuts the bytes, the text, the tokens and the order stay the same."""
    answer = misbehaving.ANSWERS["comments"]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(answer) - 1), max_size=12)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    row = from_answer([(float(at), piece) for at, piece in enumerate(pieces)], sent=0.0)
    assert row["outcome"] == "ok" and row["text"] == " a b c"
    assert row["chunk_tokens"] == [1, 2] and row["output_tokens"] == 3
    first_end = answer.index(b"\n\n\r\n", answer.index(b'" a"')) + 2
    arrived = next(at for at in range(len(pieces)) if sum(map(len, pieces[:at + 1])) >= first_end)
    assert row["ttft_s"] == arrived


@given(st.lists(st.floats(0.001, 10), min_size=1, max_size=20), st.integers(1, 100))
def test_the_tpot_identity_closes(gaps, tokens):
    times = [sum(gaps[:n + 1]) for n in range(len(gaps))]
    row = latencies(times, tokens)
    assert sum(row["itl_s"]) == pytest.approx(row["e2el_s"] - row["ttft_s"])
    if tokens > 1:
        assert row["tpot_s"] * (tokens - 1) + row["ttft_s"] == pytest.approx(row["e2el_s"])
    else:
        assert math.isnan(row["tpot_s"])
