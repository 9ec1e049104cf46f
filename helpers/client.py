"""The client that lesson 02 builds by hand, made ready for many streams: the time of every token.

While answers stream in, it does one thing a chunk: note the time and keep the bytes. HTTP and
JSON are taken apart when all answers are there, so that reading one never delays the clock of
another. Each request has a connection of its own, opened before its clock starts; TTFT counts
from just before the request is written to the first chunk that carries a token.

The loop runs in a thread of its own (a notebook's own loop is busy), on uvloop, with the garbage
collector held back until the run is over.
"""

import asyncio
import concurrent.futures
import contextlib
import gc
import json
import threading
from time import perf_counter
from urllib.parse import urlsplit

import uvloop

from helpers.refusal import explain
from helpers.rows import NAN, failed, from_answer, table

CONNECT_S = 0.05  # in an open loop a connection is opened so long before its request is due
STREAMING = {"stream": True,
             "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


class Exchange(asyncio.Protocol):
    """One request on one connection; every piece of the answer with its time of arrival."""

    def __init__(self):
        self.transport, self.sent, self.arrivals, self.failure = None, 0.0, [], ""
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def send(self, request):
        self.sent = perf_counter()
        if self.transport:
            self.transport.write(request)

    def data_received(self, data):
        """The hot path: nothing else happens while answers come in."""
        self.arrivals.append((perf_counter(), data))

    def connection_lost(self, error):
        if not self.ended.done():
            self.ended.set_result(None)

    def give_up(self, timeout_s):
        self.failure = f"not finished after {timeout_s} s"
        self.close()

    def close(self):
        if self.transport:
            self.transport.abort()


def stream(server, messages, *, max_tokens, temperature=0, timeout_s=600, **body):
    """Send one request and return its row, a Series with the columns of helpers.rows.table.

    messages: a list of chat messages; or a str or a list of token ids, which go to
    /v1/completions as they are.
    body: more fields of the request (ignore_eos=True, stop=[...]). Raises LabError when the
    server does not answer, refuses the request (its own message is shown), or stops midway.
    """
    _, rows = _run(server, [messages], max_tokens=max_tokens, concurrency=1, timeout_s=timeout_s,
                   body={"temperature": temperature, **body})
    if rows[0]["outcome"] != "ok":
        raise explain(server, f"The request to {server.url} failed: {rows[0]['error']}",
                       rows[0]["error"])
    return table(rows, tool="client", settings={}).iloc[0]


def streams(server, prompts, *, max_tokens, concurrency=None, rate=None, temperature=0,
            timeout_s=600, **body):
    """Send every prompt and return a DataFrame, one row a request in the order of `prompts`.

    max_tokens: one limit for all, or a list with one for each prompt.
    concurrency: at most so many in flight; the next is sent when one has ended (closed loop).
    rate: request k is meant for k / rate seconds after the start, whether or not the server
    keeps up (open loop); with `concurrency` as well it waits for a free place.
    The columns are those of `helpers.rows.table`; the tokens are counted by the server (`usage`).
    attrs["started"] is time.perf_counter() at the start that `sent_s` counts from. A request that
    failed has outcome 'error' and says why in `error`. Raises LabError when all failed.
    """
    if concurrency is None and rate is None:
        raise ValueError("give `concurrency` (closed loop), `rate` (open loop), or both")
    started, rows = _run(server, prompts, max_tokens=max_tokens, rate=rate, timeout_s=timeout_s,
                         concurrency=concurrency or len(prompts),
                         body={"temperature": temperature, **body})
    if rows and all(row["outcome"] != "ok" for row in rows):
        raise explain(server, f"All {len(rows)} requests to {server.url} failed; "
                       f"the first: {rows[0]['error']}", rows[0]["error"])
    settings = {"concurrency": concurrency, "rate": rate, "max_tokens": max_tokens,
                "temperature": temperature, **body}
    frame = table(rows, tool="client", settings=settings)
    frame.attrs["started"] = started
    return frame


def _run(server, prompts, *, max_tokens, concurrency, body, timeout_s, rate=None):
    """(start time, rows of all requests), from a loop in a thread of its own; an interrupt ends
    them."""
    limits = max_tokens if isinstance(max_tokens, list) else [max_tokens] * len(prompts)
    requests = [_request(server, prompt, {"max_tokens": limit, **body})
                for prompt, limit in zip(prompts, limits, strict=True)]
    address = urlsplit(server.url)
    result, running = concurrent.futures.Future(), []

    async def main():
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await _exchange_all(address, requests, concurrency, rate, timeout_s)

    def work():
        try:
            result.set_result(uvloop.run(main()))
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=work, name="client", daemon=True)
    with _no_collection():
        thread.start()
        try:
            started, exchanges = result.result()
        except KeyboardInterrupt:
            for loop, task in running:
                with contextlib.suppress(RuntimeError):  # it has just ended by itself
                    loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            thread.join(5)
    return started, [_row(index, exchange, started, rate)
                     for index, exchange in enumerate(exchanges)]


def _request(server, prompt, body):
    """The bytes of one HTTP request, made before the clock starts."""
    chat = not isinstance(prompt, str) and all(isinstance(part, dict) for part in prompt)
    path = "/v1/chat/completions" if chat else "/v1/completions"
    data = json.dumps({"model": server.model, "messages" if chat else "prompt": prompt,
                       **STREAMING, **body}).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: {urlsplit(server.url).netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            "Connection: close\r\n\r\n")
    return head.encode() + data


async def _exchange_all(address, requests, concurrency, rate, timeout_s):
    """Send all requests through `concurrency` lanes; returns (start time, exchanges)."""
    exchanges, todo = [], iter(enumerate(requests))
    lanes = min(concurrency, len(requests))
    opened = [None if rate else await _connect(address) for _ in range(lanes)]
    started = perf_counter()

    async def lane(exchange):
        for index, request in todo:
            due = started + index / rate if rate else 0
            await asyncio.sleep(max(0, due - CONNECT_S - perf_counter()))
            exchange = exchange or await _connect(address)
            exchanges.append((index, exchange))
            await asyncio.sleep(max(0, due - perf_counter()))
            await _finish(exchange, request, timeout_s)
            exchange = None

    try:
        await asyncio.gather(*map(lane, opened))
    finally:
        for _, exchange in exchanges:
            exchange.close()
    return started, [exchange for _, exchange in sorted(exchanges, key=lambda pair: pair[0])]


async def _connect(address):
    """An open connection, or an exchange that says why there is none."""
    try:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Exchange, address.hostname, address.port))[1]
    except OSError as error:
        exchange = Exchange()
        exchange.failure = f"no connection ({error.strerror or error})"
        return exchange


async def _finish(exchange, request, timeout_s):
    """Send and wait until the server has closed the connection, or timeout_s have passed."""
    exchange.send(request)
    if not exchange.failure:
        give_up = asyncio.get_running_loop().call_later(timeout_s, exchange.give_up, timeout_s)
        await exchange.ended
        give_up.cancel()


def _row(index, exchange, started, rate):
    """One row, made when all answers are in."""
    row = {"intended_s": index / rate if rate else NAN, "sent_s": exchange.sent - started}
    if exchange.failure:
        return row | failed(exchange.failure)
    return row | from_answer(exchange.arrivals, sent=exchange.sent)


@contextlib.contextmanager
def _no_collection():
    """Hold the garbage collector back: a collection is a pause in every stream at once."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
