"""The row: one request, with the same columns whichever tool sent it. And the row of an answer:
what the bytes of one streamed HTTP response, and the times they came at, say about it. Pure.
"""

import json
from bisect import bisect_left
from itertools import accumulate

import pandas as pd

COLUMNS = [
    "experiment", "arm", "engine", "repeat", "tool", "intended_s", "sent_s", "ttft_s",
    "chunk_times_s", "chunk_tokens", "itl_s", "e2el_s", "tpot_s", "input_tokens",
    "output_tokens", "outcome", "error", "text",
]
NAN = float("nan")


def table(rows, *, tool, settings, command="", report=""):
    """The DataFrame of a run, columns COLUMNS.

    intended_s, sent_s: seconds since the start of the run; intended_s is NaN in a closed loop,
    where nothing was intended. ttft_s, chunk_times_s (a list) and e2el_s: seconds since sent_s.
    itl_s: the gaps between chunks, a list. chunk_tokens: tokens of each chunk, None if not known.
    outcome: 'ok', 'error' (with its text in `error`), or 'cut_off' by the tool at the end of the
    run. attrs: tool, command (the shell command, if there is one), settings, and report (the
    table that the tool itself prints).
    """
    frame = pd.DataFrame([{"experiment": "", "arm": "", "engine": "", "repeat": 0, "tool": tool,
                           "text": "", **row} for row in rows], columns=COLUMNS)
    frame.attrs.update(tool=tool, command=command, settings=settings, report=report)
    return frame


def latencies(chunk_times_s, output_tokens):
    """ttft_s, itl_s, e2el_s and tpot_s of a finished answer, as columns of its row.

    chunk_times_s: seconds from sending to each chunk that carries a token.
    TPOT = (E2EL - TTFT) / (output_tokens - 1), as vllm/benchmarks/serve.py has it; NaN for a
    single token, or where the number of tokens is not known.
    """
    ttft_s, e2el_s = chunk_times_s[0], chunk_times_s[-1]
    gaps = [b - a for a, b in zip(chunk_times_s, chunk_times_s[1:], strict=False)]
    several = output_tokens == output_tokens and output_tokens > 1  # NaN is not equal to itself
    tpot_s = (e2el_s - ttft_s) / (output_tokens - 1) if several else NAN
    return {"chunk_times_s": chunk_times_s, "ttft_s": ttft_s, "itl_s": gaps, "e2el_s": e2el_s,
            "tpot_s": tpot_s}


def failed(error, *, outcome="error"):
    """The latency columns of a request that was not answered in full."""
    return {"ttft_s": NAN, "chunk_times_s": [], "chunk_tokens": None, "itl_s": [], "e2el_s": NAN,
            "tpot_s": NAN, "input_tokens": NAN, "output_tokens": NAN, "outcome": outcome,
            "error": error}


def from_answer(arrivals, *, sent):
    """The latency, token, outcome and text columns of one streamed OpenAI-style answer.

    arrivals: [(seconds, bytes)] as they came, on the clock of `sent`.
    """
    if not arrivals:
        return failed("the server closed the connection without an answer")
    try:
        return _answer(arrivals, sent)
    except ValueError as problem:
        return failed(f"the answer cannot be read ({problem})")


def _answer(arrivals, sent):
    status, complete, body = _http(arrivals)
    if status != 200:
        return failed(f"HTTP {status}: {_message(b''.join(data for _, data in body))}")
    chunks, known, ended = _Chunks(), {}, False
    for time, event in _events(body):
        if event == "[DONE]":
            ended = True
        elif "error" in event:
            return failed(f"the engine said: {_message(event)}")
        else:
            known = event.get("usage") or known
            ended = chunks.add(time - sent, event) or ended
    if not (ended and complete and chunks.times):
        cut = f"the stream was cut after {len(chunks.times)} chunks"
        return failed(cut) | {"chunk_times_s": chunks.times, "text": "".join(chunks.texts),
                              "ttft_s": chunks.times[0] if chunks.times else NAN}
    output_tokens = known.get("completion_tokens", NAN)
    counted = sum(chunks.tokens) == output_tokens
    return {**latencies(chunks.times, output_tokens), "output_tokens": output_tokens,
            "chunk_tokens": chunks.tokens if counted else None,
            "input_tokens": known.get("prompt_tokens", NAN), "outcome": "ok", "error": "",
            "text": "".join(chunks.texts)}


class _Chunks:
    """The chunks of an answer that carry tokens: times, texts, and tokens by `usage`."""

    def __init__(self):
        self.times, self.texts, self.tokens, self.seen = [], [], [], 0

    def add(self, time, event):
        """Note one event; True when it says that the answer is finished."""
        if not event.get("choices"):
            return False
        choice = event["choices"][0]
        delta = choice.get("delta") or {}
        text = choice.get("text") or next(filter(None, map(delta.get, (
            "content", "reasoning", "reasoning_content"))), "")
        seen = (event.get("usage") or {}).get("completion_tokens")
        if text if seen is None else seen > self.seen:
            self.times.append(time)
            self.texts.append(text)
            self.tokens.append((seen or 0) - self.seen)
            self.seen = seen or 0
        return bool(choice.get("finish_reason"))


def _http(arrivals):
    """(status, whether the body is whole, [(seconds, body bytes)]) of one HTTP/1.1 response."""
    raw = b"".join(data for _, data in arrivals)
    ends = list(accumulate(len(data) for _, data in arrivals))
    head, found, _ = raw.partition(b"\r\n\r\n")
    fields = head.lower()
    if not found or not fields.startswith(b"http/1."):
        return 0, False, [(arrivals[-1][0], raw)]
    at, pieces = len(head) + 4, []
    status = int(head.split(None, 2)[1])
    if b"transfer-encoding: chunked" not in fields:
        return status, True, [(arrivals[-1][0], raw[at:])]
    while (line := raw.find(b"\r\n", at)) >= 0:
        size = int(raw[at:line].partition(b";")[0], 16)
        if size == 0 or line + 2 + size > len(raw):
            return status, size == 0, pieces
        at = line + 2 + size
        pieces.append((arrivals[bisect_left(ends, at)][0], raw[line + 2:at]))
        at += 2
    return status, False, pieces


def _events(body):
    """(seconds, event) of each server-sent event, at the time its last byte came."""
    pending = b""
    for time, data in body:
        pending += data
        *whole, pending = pending.replace(b"\r\n", b"\n").split(b"\n\n")
        for event in whole:
            if event.startswith(b"data:"):
                text = event[5:].strip().decode()
                yield time, text if text == "[DONE]" else json.loads(text)


def _message(answer):
    """The sentence in an error answer of vLLM or another server."""
    try:
        answer = json.loads(answer) if isinstance(answer, bytes) else answer
        inner = answer.get("error", answer)
        return inner if isinstance(inner, str) else str(inner.get("message", inner))
    except (ValueError, AttributeError):
        return answer.decode(errors="replace").strip()[:500] or "no reason given"
