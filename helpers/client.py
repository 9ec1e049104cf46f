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
from time import perf_counter, thread_time
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
    _, found = _run({"": server}, {"": ([messages], max_tokens, 1)}, timeout_s=timeout_s,
                    body={"temperature": temperature, **body})
    rows = found[""]
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
    attrs: started, time.perf_counter() at the start that `sent_s` counts from; wall_s, and
    client_cpu_s, what this client's one thread used of a core meanwhile. A request that failed
    has outcome 'error' and says why in `error`. Raises LabError when all failed.
    """
    if concurrency is None and rate is None:
        raise ValueError("give `concurrency` (closed loop), `rate` (open loop), or both")
    group = (prompts, max_tokens, concurrency or len(prompts))
    clock, found = _run({"": server}, {"": group}, rate=rate, timeout_s=timeout_s,
                        body={"temperature": temperature, **body})
    rows = found[""]
    if rows and all(row["outcome"] != "ok" for row in rows):
        raise explain(server, f"All {len(rows)} requests to {server.url} failed; "
                       f"the first: {rows[0]['error']}", rows[0]["error"])
    settings = {"concurrency": concurrency, "rate": rate, "max_tokens": max_tokens,
                "temperature": temperature, **body}
    frame = table(rows, tool="client", settings=settings)
    frame.attrs.update(clock)
    return frame


def together(servers, prompts, *, max_tokens, concurrency, rate=None, temperature=0, timeout_s=600,
             **body):
    """Load several servers at once, on one clock; returns a DataFrame, column `engine` the name.

    servers: {name: Server}.  prompts: {name: its prompts}; a prompt of bytes is a whole HTTP
    request and is sent as it is.  concurrency: {name: most requests in flight there} (closed
    loops).  rate: requests a second to each server, whether or not it keeps up (open loops).
    max_tokens: as in `streams`, or {name: such}. All connections are open before the
    clock starts; sent_s of every row counts from that start. attrs as in `streams`. Raises LabError
    where all failed.
    """
    limits = max_tokens if isinstance(max_tokens, dict) else dict.fromkeys(servers, max_tokens)
    groups = {name: (prompts[name], limits[name], concurrency[name]) for name in servers}
    clock, found = _run(servers, groups, rate=rate, timeout_s=timeout_s,
                        body={"temperature": temperature, **body})
    rows = [{"engine": name, **row} for name, part in found.items() for row in part]
    if rows and all(row["outcome"] != "ok" for row in rows):
        raise explain(servers[rows[0]["engine"]], f"All {len(rows)} requests failed; the first: "
                      f"{rows[0]['error']}", rows[0]["error"])
    frame = table(rows, tool="client", settings={
        "concurrency": concurrency, "max_tokens": max_tokens, "temperature": temperature, **body})
    frame.attrs.update(clock)
    return frame


def _run(servers, groups, *, body, timeout_s, rate=None):
    """(attrs of the clock, {name: rows}) of {name: (prompts, max_tokens, concurrency)}, from a loop
    in a thread of its own; an interrupt ends them."""
    work_list = [(urlsplit(servers[name].url), _requests(servers[name], prompts, limit, body),
                  concurrency) for name, (prompts, limit, concurrency) in groups.items()]
    result, running = concurrent.futures.Future(), []

    async def main():
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        used = thread_time()
        started, exchanges = await _exchange_all(work_list, rate, timeout_s)
        return {"started": started, "wall_s": perf_counter() - started,
                "client_cpu_s": thread_time() - used}, exchanges

    def work():
        try:
            result.set_result(uvloop.run(main()))
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=work, name="client", daemon=True)
    with _no_collection():
        thread.start()
        try:
            clock, exchanges = result.result()
        except KeyboardInterrupt:
            for loop, task in running:
                with contextlib.suppress(RuntimeError):  # it has just ended by itself
                    loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            thread.join(5)
    return clock, {name: [_row(index, exchange, clock["started"], rate)
                          for index, exchange in enumerate(part)]
                   for name, part in zip(groups, exchanges, strict=True)}


def _requests(server, prompts, max_tokens, body):
    """The bytes of every request, made before the clock starts."""
    limits = max_tokens if isinstance(max_tokens, list) else [max_tokens] * len(prompts)
    return [prompt if isinstance(prompt, bytes) else
            _request(server, prompt, {"max_tokens": limit, **body})
            for prompt, limit in zip(prompts, limits, strict=True)]


def _request(server, prompt, body):
    """The bytes of one HTTP request."""
    chat = not isinstance(prompt, str) and all(isinstance(part, dict) for part in prompt)
    path = urlsplit(server.url).path.rstrip("/") + (
        "/v1/chat/completions" if chat else "/v1/completions")
    data = json.dumps({"model": server.model, "messages" if chat else "prompt": prompt,
                       **STREAMING, **body}).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: {urlsplit(server.url).netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
            "Connection: close\r\n\r\n")
    return head.encode() + data


async def _exchange_all(groups, rate, timeout_s):
    """Send the requests of every (address, requests, concurrency) on one clock; returns
    (start time, exchanges of each)."""
    opened = [[None if rate else await _connect(address)
               for _ in range(min(concurrency, len(requests)))]
              for address, requests, concurrency in groups]
    started = perf_counter()
    return started, await asyncio.gather(*(
        _exchange_group(address, requests, lanes, started, rate, timeout_s)
        for (address, requests, _), lanes in zip(groups, opened, strict=True)))


async def _exchange_group(address, requests, opened, started, rate, timeout_s):
    """Send the requests of one server through as many lanes as there are in `opened`."""
    exchanges, todo = [], iter(enumerate(requests))

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
    return [exchange for _, exchange in sorted(exchanges, key=lambda pair: pair[0])]


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
