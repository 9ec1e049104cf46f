"""Load on engines with what the engines, the kernel and torch's profiler say of it meanwhile."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from helpers import provenance, results, runqueue, trace
from helpers.errors import LabError

FOLDER = provenance.ROOT / "results" / "traces"
COUNTERS = {"steps": "vllm:iteration_tokens_total_count",
            "queue_s": "vllm:request_queue_time_seconds_sum",
            "prefill_s": "vllm:request_prefill_time_seconds_sum",
            "decode_s": "vllm:request_decode_time_seconds_sum"}
CORE = "VLLM::"  # the processes that compute; the others take requests and send answers


def flags(name):
    """Flags that let an engine be profiled, each into a folder of its own; off until asked."""
    return {"profiler_config": json.dumps({
        "profiler": "torch", "torch_profiler_dir": str(FOLDER / name.replace(" ", "_")),
        "torch_profiler_with_stack": False, "torch_profiler_dump_cuda_time_total": False,
        "ignore_frontend": True})}


def watched(servers, work):
    """work()'s requests with what went on in each engine meanwhile, the same in all its rows.

    steps: that it took. queue_s, prefill_s, decode_s: seconds of all its requests. core_run_s and
    core_wait_s: of the threads of its computing processes, on a core and waiting for one; host_:
    of its other processes; NaN on a kernel that does not say.  servers: {name: Server}; work: () ->
    requests with column engine.
    """
    before = {name: _counters(one) for name, one in servers.items()}
    threads = _threads(servers)
    requests = work()
    later = _threads(servers)
    found = {name: {
        **{key: value - before[name][key] for key, value in _counters(one).items()},
        **_waits(threads and runqueue.delay(threads[name], later[name]))}
        for name, one in servers.items()}
    columns = pd.DataFrame(found).T
    return requests.assign(**{key: requests.engine.map(columns[key]) for key in columns})


def _counters(server):
    values = server.metrics()
    return {key: values.get(name, float("nan")) for key, name in COUNTERS.items()}


def _threads(servers):
    """What `runqueue.of` has, or None where this kernel has no such numbers."""
    try:
        return runqueue.of(servers)
    except LabError:
        return None


def _waits(delay):
    if delay is None:
        return {f"{kind}_{what}_s": float("nan") for kind in ("core", "host")
                for what in ("run", "wait")}
    core = delay.index.str.startswith(CORE)
    return {f"{kind}_{what}_s": float(delay[rows][f"{what}_s"].sum())
            for kind, rows in (("core", core), ("host", ~core)) for what in ("run", "wait")}


def on_and_off(servers, work, *, first=False):
    """work() with the profiler off and on, `first` the one to begin with; both parts' requests.

    Columns: those of `watched`; profiled; spans: in the first row of an engine of the profiled part
    its steps (`trace.steps`), a list of dicts, else an empty list.
    """
    parts = []
    for on in (first, not first):
        rows = watched(servers, (lambda: _traced(servers, work)) if on else work)
        spans = [[] for _ in range(len(rows))]
        if on:
            for name, one in servers.items():
                place = rows.engine.tolist().index(name)
                spans[place] = trace.steps(trace.load(newest(one))).to_dict("records")
        parts.append(rows.assign(profiled=on, spans=pd.Series(spans, index=rows.index)))
    both = pd.concat(parts, ignore_index=True)
    both.attrs = {key: sum(part.attrs[key] for part in parts)
                  for key in ("wall_s", "client_cpu_s")}
    return both


def _traced(servers, work):
    """work(), profiled. However it ends, the profilers are stopped: writing takes seconds."""
    for one in servers.values():
        for old in _folder(one).glob("*.pt.trace.json*"):
            old.unlink()
    try:
        for one in servers.values():
            one._request("POST", "/start_profile")
        return work()
    finally:
        with ThreadPoolExecutor(len(servers)) as pool:
            list(pool.map(lambda one: one._request("POST", "/stop_profile"), servers.values()))


def _folder(server):
    config = server.settings[3].get("profiler_config")
    if config is None:
        raise LabError(f"The engine {server.name!r} was not started to be profiled.",
                       fix="Start it with **profiling.flags(NAME).")
    return Path(json.loads(config)["torch_profiler_dir"])


def newest(server):
    """The file of the last trace of an engine. Raises LabError where it wrote none."""
    files = sorted(_folder(server).glob("*.pt.trace.json*"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise LabError(f"The engine {server.name!r} wrote no trace.",
                       cause="Its profiler did not start.", fix="Read its log.",
                       log=server.log_tail(8))
    return files[-1]


def spans(requests):
    """The steps of all profiled turns: arm, repeat, engine, `trace.COLUMNS`, beside_s. Pure.

    beside_s: seconds of its span in which another engine of the turn had a step too.
    """
    rows = [{"arm": row.arm, "repeat": row.repeat, "engine": row.engine, **step}
            for row in requests[requests.profiled == True].itertuples()  # noqa: E712
            for step in row.spans]
    found = pd.DataFrame(rows, columns=["arm", "repeat", "engine", *trace.COLUMNS])
    beside = [_beside(turn) for _, turn in found.groupby(["arm", "repeat"])]
    return found.assign(beside_s=pd.concat(beside) if beside else [])


def _beside(turn):
    ends = turn.start_s + turn.span_s
    return pd.Series({at: sum(
        max(0.0, min(ends[at], ends[to]) - max(turn.start_s[at], turn.start_s[to]))
        for to in turn.index[turn.engine != turn.engine[at]]) for at in turn.index}, dtype=float)


def recorded():
    """The shipped decode steps, {machine: rows of `trace.typical`}, the latest of each machine."""
    shipped = results.load("lab05_trace")
    shipped = shipped[shipped.source == "recorded"]
    return {name: rows[rows.time == rows.time.max()]
            for name, rows in shipped.groupby("machine")}
