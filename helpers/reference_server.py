"""The process of the reference server (see reference.py): tokens on a schedule, and no model.

A Protocol on a plain asyncio loop rather than a web framework: at 100 streams and 100 chunks a
second there are 100 microseconds for a chunk. epoll waits in whole milliseconds, so the loop
waits with select(2), in microseconds.
"""

import argparse
import asyncio
import ctypes
import gc
import json
import os
import re
import select
import selectors
from array import array

from helpers.reference import count_tokens, schedule

PR_SET_TIMERSLACK = 29  # prctl(2); in nanoseconds
PARSE_AFTER_S = 0.002
TOKEN = " a"  # the text of every token; the server's tokenizer counts it as one


class PreciseSelector(selectors.EpollSelector):
    """Waits to the microsecond where epoll rounds up to the next millisecond."""

    def select(self, timeout=None):
        if timeout is None or timeout > 0:
            select.select([self.fileno()], [], [], timeout)
        return super().select(0)


class Connection(asyncio.Protocol):
    """One client connection; answers one request at a time (HTTP/1.1, kept alive)."""

    def __init__(self, settings, lateness):
        self.settings, self.lateness = settings, lateness
        self.loop = asyncio.get_running_loop()
        self.buffer, self.timer = b"", None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, error):
        if self.timer:
            self.timer.cancel()

    def data_received(self, data):
        """Note the arrival, and parse a little later: others of a burst are noted first."""
        arrived = self.loop.time()
        self.buffer += data
        self.loop.call_later(min(PARSE_AFTER_S, self.settings.first_s / 4), self.parse, arrived)

    def parse(self, arrived):
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        length = int(length[1]) if length else 0
        if not found or len(rest) < length:
            return
        self.buffer, self.arrived = rest[length:], arrived
        self.close = re.search(rb"(?i)\r\nconnection: *close", head) is not None
        method, path = head.split(b" ", 2)[:2]
        if method == b"POST":
            self.generate(path.decode(), json.loads(rest[:length]))
        else:
            self.get(path.decode())

    def get(self, path):
        if path == "/lateness":
            self.reply(report(self.lateness))
            del self.lateness[:]
        elif path == "/v1/models":
            self.reply({"object": "list", "data": [{"id": self.settings.model, "object": "model"}]})
        elif path in ("/health", "/metrics"):
            self.reply({})
        else:
            self.reply({"error": {"message": f"no {path} here", "code": 404}}, status=404)

    def generate(self, path, body):
        settings, self.body = self.settings, body
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return self.reply({"error": {"message": f"no {path} here", "code": 404}}, status=404)
        if body.get("model", settings.model) != settings.model:
            message = f"The model `{body['model']}` does not exist."
            return self.reply({"error": {"message": message, "code": 404}}, status=404)
        self.chat = path == "/v1/chat/completions"
        self.tokens = body.get("max_completion_tokens") or body.get("max_tokens") or 16
        self.prompt_tokens = count_tokens(body["messages"] if self.chat else body["prompt"])
        self.chunks = schedule(self.tokens, first_s=settings.first_s, gap_s=settings.gap_s,
                               tokens_per_chunk=settings.tokens_per_chunk)
        self.sent_chunks = self.sent_tokens = 0
        if body.get("stream"):
            self.prepare()
            self.transport.write(STREAM_HEAD)
            self.wait(self.send)
        else:
            self.chunks = self.chunks[-1:]
            self.wait(self.send_whole)

    def wait(self, then):
        self.due = self.arrived + self.chunks[self.sent_chunks][0]
        self.timer = self.loop.call_at(self.due, then)

    def send(self):
        """The hot path: write the bytes made ready before, note how late, prepare the next."""
        self.transport.write(self.ready)
        self.lateness.append(self.loop.time() - self.due)
        self.sent_chunks += 1
        if self.sent_chunks < len(self.chunks):
            self.wait(self.send)
            self.prepare()
        elif self.close:
            self.transport.close()

    def send_whole(self):
        text = TOKEN * self.tokens
        said = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        self.reply({"model": self.settings.model, "usage": self.usage(self.tokens),
                    "choices": [{"index": 0, **said, "finish_reason": "length"}]})

    def usage(self, completion):
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": completion,
                "total_tokens": self.prompt_tokens + completion}

    def prepare(self):
        """The bytes of the next chunk; the last carries the usage and the end as well."""
        tokens = self.chunks[self.sent_chunks][1]
        options = self.body.get("stream_options") or {}
        self.sent_tokens += tokens
        last = self.sent_tokens == self.tokens
        each = self.usage(self.sent_tokens) if options.get("continuous_usage_stats") else None
        self.ready = b""
        if self.chat and self.sent_chunks == 0:
            self.ready += self.event({"role": "assistant", "content": ""}, each and self.usage(0))
        delta = {"content": TOKEN * tokens} if self.chat else TOKEN * tokens
        self.ready += self.event(delta, each, "length" if last else None)
        if last:
            if options.get("include_usage"):
                self.ready += framed({"model": self.settings.model, "choices": [],
                                      "usage": self.usage(self.tokens)})
            self.ready += b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"

    def event(self, content, usage, finish_reason=None):
        choice = {"index": 0, "delta" if self.chat else "text": content,
                  "finish_reason": finish_reason}
        event = {"model": self.settings.model, "choices": [choice]}
        return framed(event | {"usage": usage} if usage else event)

    def reply(self, body, *, status=200):
        body = json.dumps(body).encode()
        self.transport.write(b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n%s" % (status, len(body), body))
        if self.close:
            self.transport.close()


STREAM_HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n")


def framed(event):
    """One server-sent event as one HTTP chunk."""
    data = b"data: %s\n\n" % json.dumps(event).encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def report(lateness):
    """How late the chunks went out, in seconds: count, mean, 99th percentile and maximum."""
    late = sorted(lateness) or [0.0]
    return {"chunks": len(lateness), "mean_s": sum(late) / len(late),
            "p99_s": late[int(0.99 * (len(late) - 1))], "max_s": late[-1]}


async def main(settings):
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # wake within microseconds, not tens of them
    lateness, loop = array("d"), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(settings, lateness), "127.0.0.1",
                                      settings.port, backlog=1024)
    os.write(1, b"%d\n" % server.sockets[0].getsockname()[1])  # at once, or not at all
    gc.disable()  # a collection is a pause; nothing here makes cycles that grow
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="reference")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--first-s", type=float, default=0.05)
    parser.add_argument("--gap-s", type=float, default=0.01)
    parser.add_argument("--tokens-per-chunk", type=int, default=1)
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(PreciseSelector())) as run:
        run.run(main(parser.parse_args()))
