import json
import urllib.error
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import client, reference


@pytest.fixture(scope="module")
def server():
    with reference.serve(first_s=0.01, gap_s=0.001) as server:
        yield server


def post(server, path, **body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return answer.read()


def events(answer):
    return [line[6:] for line in answer.decode().splitlines() if line.startswith("data: ")]


@given(st.integers(1, 400), st.sampled_from([1, 2, 4, 7]))
def test_the_schedule_holds_every_token_once_at_its_time(tokens, per_chunk):
    chunks = reference.schedule(tokens, first_s=0.05, gap_s=0.01, tokens_per_chunk=per_chunk)
    assert sum(count for _, count in chunks) == tokens
    assert chunks[0] == (0.05, 1)
    assert all(0 < count <= per_chunk for _, count in chunks[1:])
    sent = 0
    for at, count in chunks:
        sent += count
        assert at == pytest.approx(0.05 + (sent - 1) * 0.01)


def test_the_tokenizer_counts_as_the_server_does(server, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(server.tokenizer)
    for text in [" a" * 7, "Hello, world:\n two  spaces", ""]:
        ids = tokenizer(text).input_ids
        assert len(ids) == reference.count_tokens(text)
        assert tokenizer.decode(ids) == text


def test_it_says_what_it_serves(server):
    for path, holds in [("/v1/models", "reference"), ("/health", ""), ("/metrics", "")]:
        with urllib.request.urlopen(server.url + path) as answer:
            assert answer.status == 200 and holds in answer.read().decode()


def test_usage_comes_at_the_end_or_in_every_chunk(server):
    body = {"prompt": "four", "max_tokens": 3, "stream": True}
    assert not any("usage" in event for event in events(post(server, "/v1/completions", **body)))
    options = {"include_usage": True}
    *chunks, last, done = events(post(server, "/v1/completions", **body, stream_options=options))
    assert not any("usage" in chunk for chunk in chunks) and done == "[DONE]"
    assert json.loads(last) == {"model": "reference", "choices": [], "usage": {
        "prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}}
    options["continuous_usage_stats"] = True
    *chunks, _, _ = events(post(server, "/v1/completions", **body, stream_options=options))
    assert [json.loads(chunk)["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 3]
    assert json.loads(chunks[-1])["choices"][0]["finish_reason"] == "length"


def test_an_answer_that_is_not_streamed(server):
    messages = [{"role": "user", "content": [{"type": "text", "text": "ab"}]}]
    chat = json.loads(post(server, "/v1/chat/completions", max_completion_tokens=4,
                           messages=messages))
    assert chat["choices"][0]["message"]["content"] == " a" * 4
    assert chat["usage"]["prompt_tokens"] == 2 and chat["usage"]["completion_tokens"] == 4
    plain = json.loads(post(server, "/v1/completions", prompt=[1, 2, 3], max_tokens=2))
    assert plain["choices"][0]["text"] == " a a" and plain["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize("path, body", [("/v1/nothing", {}),
                                        ("/v1/completions", {"model": "other", "prompt": "a"})])
def test_what_is_not_there_is_404(server, path, body):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post(server, path, **body)


def test_it_reports_its_own_lateness_once(server):
    server.lateness()
    client.streams(server, ["a"] * 4, concurrency=2, max_tokens=6)
    late = server.lateness()
    assert late["chunks"] == 24
    assert late["mean_s"] >= 0 and late["p99_s"] <= late["max_s"]
    assert server.lateness()["chunks"] == 0


def test_a_client_that_leaves_ends_its_stream(server):
    import socket

    server.lateness()
    body = json.dumps({"prompt": "a", "max_tokens": 1000, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(body), body))
        connection.recv(65536)
    assert client.stream(server, "a", max_tokens=60).outcome == "ok"
    assert server.lateness()["chunks"] < 1000


def test_stopping_twice_is_fine_and_leaves_nothing():
    server = reference.serve()
    folder = server.folder
    server.stop()
    server.stop()
    assert server.process.poll() is not None and not folder.exists()
