"""Admission: two engines behind Ray Serve, which takes so many requests, lets some wait, and
refuses the rest; and the same on two nodes, of which one is lost.

    front = admission.start([a, b], {"admission": limits, "open": None})
    client.streams(front.door("admission"), prompts, rate=8, max_tokens=32)
    nodes = admission.nodes(engine, model, limits)
    nodes.lose()                           # as if the machine of the second engine were gone

Ray and all that it starts run under a supervisor: they end with stop(), and with this process.
"""

import contextlib
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil

from helpers import client, experiment, results, router
from helpers.journal import Journal
from helpers.progress import Line
from helpers.steps import TOKEN_IDS

BOUND = "admission"
PAUSE_S = 0.5


class Doors(router.Front):
    """A running application. `door(name)` is a server for the client."""

    def door(self, name):
        """The door of that name: .url, .model; it waits until all are ready."""
        return SimpleNamespace(url=f"{self.url}/{name}", model=self.model)

    def events(self):
        """What it noted: a table with at (time.perf_counter()), running (replicas), nodes."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        return pd.DataFrame([json.loads(line) for line in lines if line.startswith('{"at"')])

    def lose(self):
        """Kill everything on the second node at once: its raylet, its replica, the engine."""
        pid = self.events().nodes.iloc[-1][0]
        lost = psutil.Process(pid)
        self.lost_at = time.perf_counter()
        for process in [lost, *lost.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def start(engines, doors, *, start_limit_s=180):
    """Ray Serve in front of running engines, a replica an engine at every door; returns at once.

    engines: Servers of one model.  doors: {name: limits()}, None for no limit. Raises LabError
    where Ray is not installed.
    """
    router.need_ray()
    settings = {"engines": [server.url for server in engines], "doors": doors}
    return router.alone(lambda: Doors("admission_app", settings, engines[0].model, start_limit_s))


def nodes(engine, model, limit, *, start_limit_s=400):
    """The same application on two nodes, each of which starts an engine for itself.

    engine: {"model": folder, "flags": {...}, "env": [variables of the one, of the other]}, or
    {"reference": {first_s, gap_s}}, the course's reference server.  model: the name it serves.
    A lost node is replaced as soon as it is missed.
    Raises LabError where Ray is not installed.
    """
    router.need_ray()
    settings = {"engine": engine, "doors": {BOUND: limit}}
    return router.alone(lambda: Doors("admission_app", settings, model, start_limit_s))


def limits(in_flight, capacity, wait_s, engines=2):
    """What a door lets in: {ongoing, queued, retry_after_s}.

    in_flight: requests at once over all engines, by Little's law capacity (requests a second) times
    the time of one.  ongoing: of one engine.  queued: capacity * wait_s, as many as are served
    within wait_s. retry_after_s: until a full queue is empty.
    """
    queued = max(1, int(capacity * wait_s))
    return {"ongoing": max(1, in_flight // engines), "queued": queued,
            "retry_after_s": max(1, round(queued / capacity))}


def refused_share(rate, capacity, *, seconds=float("inf"), room=0):
    """Share of requests that a bounded system refuses: 1 - (capacity * seconds + room) / arrived.

    room: places in the queue, which fill up first; their part vanishes as seconds grow. Places in
    the engines are no room: capacity * E2EL of them fill before the first answer is done.
    """
    let_in = capacity / rate + room / (rate * seconds)
    return max(0.0, 1 - let_in)


def prompts(number, length, seed):
    """Random prompts, lists of token ids; the same seed gives the same."""
    return np.random.default_rng(seed).choice(TOKEN_IDS, (number, length)).tolist()


def ask(target, texts, *, rate, max_tokens):
    """Requests at a rate, open loop, to one server or, shared out equally, to {name: Server}.

    Refused ones have outcome 'error' (`metrics.refused` finds them).
    """
    if not isinstance(target, dict):
        return client.streams(target, texts, rate=rate, max_tokens=max_tokens, ignore_eos=True)
    shares = {name: texts[place::len(target)] for place, name in enumerate(target)}
    return client.together(target, shares, max_tokens=max_tokens, ignore_eos=True,
                           rate=rate / len(target),
                           concurrency={name: len(part) for name, part in shares.items()})


def compare(name, arms, rates, *, input_len, max_tokens, seconds, repeats, **about):
    """Every arm at every rate, arms in balanced order (A B B A ...); one row a request.

    arms: {arm: target of `ask`}.  rates: {load: requests a second}.  seconds: {load: how long
    requests arrive}.  about: columns, the same in all rows. Columns added: arm, load, rate, repeat,
    seconds, client_share (of one core). A finished turn is on the disk; all is recorded as `name`.
    """
    loads, turns = list(rates), experiment.balanced(arms, rates, repeats)
    journal, line = Journal(name, [turns, rates, about, seconds]), Line()
    frames = journal.frames()
    for number, (repeat, place, arm) in list(enumerate(turns))[journal.done:]:
        at = loads[place]
        line.update(f"{name}: {number + 1} of {len(turns)}: {arm}, {at}")
        texts = prompts(max(4, round(rates[at] * seconds[at])), input_len, [repeat, place])
        time.sleep(PAUSE_S)
        run = ask(arms[arm], texts, rate=rates[at], max_tokens=max_tokens)
        frames.append(run.assign(arm=arm, load=at, rate=rates[at], repeat=repeat,
                                 seconds=seconds[at], **about,
                                 client_share=run.attrs["client_cpu_s"] / run.attrs["wall_s"]))
        journal.keep(number, frames[-1])
    line.done(f"{name}: {len(turns)} turns in {line.elapsed_s:.0f} s")
    together = pd.concat(frames, ignore_index=True)
    together.attrs = {}
    results.record(name, slim(together))
    journal.remove()
    return together


def slim(requests):
    """The rows without each token's time, which no reader of these records needs."""
    return requests.assign(chunk_times_s=None, itl_s=None, chunk_tokens=None, text="")


def through_a_loss(front, texts, *, rate, max_tokens, after_s):
    """Ask at a rate while, after_s seconds in, a node is lost; one row a request.

    Columns added, the same in all rows: lost_s, missed_s and full_s, seconds after the start at
    which the node was killed, at which a replica was first known to be missing, and at which both
    were there again (NaN: not by the end). rate.
    """
    target, before = front.door(BOUND), len(front.events())
    timer = threading.Timer(after_s, front.lose)
    timer.start()
    try:
        run = ask(target, texts, rate=rate, max_tokens=max_tokens)
    finally:
        timer.cancel()
    started, events = run.attrs["started"], front.events().iloc[before:]
    missed = events[events.running < 2]["at"]
    full = events[(events.running >= 2) & (events["at"] > missed.min())]["at"]
    return run.assign(rate=rate, lost_s=front.lost_at - started, missed_s=missed.min() - started,
                      full_s=full.min() - started)


