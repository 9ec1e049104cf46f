"""A server that goes wrong on purpose, in the way that the request's `model` names."""

import contextlib
import json
import socket
import threading
from types import SimpleNamespace

HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n")


def chunk(event):
    data = b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def token(text=" a", finish=None, **more):
    return chunk({"choices": [{"text": text, "finish_reason": finish}], **more})


def refusal(status, message):
    body = json.dumps({"error": {"message": message}}).encode()
    return (b"HTTP/1.1 %d No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" %
            (status, len(body))) + body


USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
DONE = chunk(b"[DONE]") + b"0\r\n\r\n"
ANSWERS = {
    "missing": refusal(404, "The model `missing` does not exist."),
    "too-long": refusal(400, "max_tokens is too large: 99."),
    "plain-500": b"HTTP/1.1 500 Oops\r\nContent-Length: 5\r\nConnection: close\r\n\r\noops!",
    "cut": HEAD + token() + token() + token()[:12],
    "polite-cut": HEAD + token() + b"0\r\n\r\n",
    "silent": b"",
    "error-event": HEAD + token() + chunk({"error": {"message": "the engine died"}}) + DONE,
    "no-usage": HEAD + token() + token("") + token(" b", "stop") + DONE,
    "usage-at-end": HEAD + token() + token(" b c", "length")
    + chunk({"choices": [], "usage": USAGE}) + DONE,
    "garbled": HEAD + b"zz\r\nwhat\r\n",
    "not-json": HEAD + chunk(b"{half") + DONE,
    "comments": HEAD + b"8\r\n: ping\n\n\r\n" + token(usage={**USAGE, "completion_tokens": 1})
    + token(" b c", "length", usage=USAGE) + DONE,
}


@contextlib.contextmanager
def serve(model, *, good_first=0):
    """Answer as ANSWERS[model] has it; 'never' keeps the connection open without a word.

    The first good_first requests get a whole answer of three tokens instead.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    server = SimpleNamespace(url=f"http://127.0.0.1:{listener.getsockname()[1]}", model=model,
                             tokenizer="", command="misbehaving")
    open_connections, left = [], iter(range(good_first))

    def answer(connection):
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        if data.startswith(b"GET"):
            body = b'{"data": [{"id": "another"}]}'
            connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        elif next(left, None) is not None:
            connection.sendall(ANSWERS["comments"])
        elif model == "never":
            return
        else:
            connection.sendall(ANSWERS[model])
        connection.shutdown(socket.SHUT_WR)  # a close with unread bytes would be a reset

    def accept():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_connections.append(connection)
                answer(connection)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server
    finally:
        listener.close()
        for connection in open_connections:
            connection.close()
