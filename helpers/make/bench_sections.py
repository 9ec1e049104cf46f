"""What `make bench` measures: a function a section, each returning its figures."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

import httpx
import psutil

from helpers import bench_clients, load, models, profile, reference, server
from helpers.bench_owner import ENV
from helpers.make import bench_batching, bench_compress, run
from helpers.make.bench import RESULTS, Figure
from helpers.make.leftovers import Watch
from helpers.tool_files import read_vllm_bench

ROOT = run.ROOT
GONE_S = 10  # within which nothing may be left of an engine
OWNER = """
import os, sys
from helpers import models, server
engine = server.serve(sys.argv[1], name="bench-owner")
engine.wait()
print("ready", engine.elapsed_s, flush=True)
sys.stdin.read()
"""
PEER_OWNER = "import subprocess, sys; subprocess.Popen(sys.argv[1], shell=True).wait()"


def setup_again():
    """`make setup` where all is set up: the second of two calls."""
    if not (ROOT / ".venv" / "setup.json").exists():
        raise RuntimeError("this environment was not made by make setup")
    for _ in range(2):
        started = time.monotonic()
        subprocess.run(["make", "-s", "setup"], cwd=ROOT, check=True, timeout=60)
        seconds = time.monotonic() - started
    return [Figure("make setup, when all is set up", "s", seconds, bar=2)]


def engine():
    """Start, stop and the owner's sudden end: ours, and the command that it prints, by hand.

    Ours, theirs, ours: both of our starts count.
    """
    path = models.prepare(profile.current().model)
    first = server.serve(path, name="bench")
    first.wait()
    start_s, command, port = first.elapsed_s, first.command, first.port
    stop_s = _seconds(first.stop)
    peer = _by_hand(command, port)
    second_s, gone_s = _owner_killed(path)
    return [
        Figure("engine start, until it answers", "s", mean([start_s, second_s]),
               peers={"vllm serve": peer["start_s"]}),
        Figure("engine stop, until nothing is left", "s", stop_s, bar=GONE_S,
               peers={"SIGTERM to vllm serve": peer["stop_s"]}),
        Figure("owner killed, until nothing is left", "s", gone_s, bar=GONE_S,
               peers={"vllm serve": f"{peer['left']} processes after {GONE_S} s"}),
    ]


def _seconds(function):
    started = time.monotonic()
    function()
    return time.monotonic() - started


def _by_hand(command, port):
    """vLLM's own command under a process that is then killed: start, what is left, and stop."""
    watch = Watch()
    started = time.monotonic()
    with open(RESULTS / "logs" / "bench-peer.log", "wb") as log:
        owner = subprocess.Popen([sys.executable, "-c", PEER_OWNER, command], stdout=log,
                                 stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                                 env=_on_path(watch.env))
    try:
        _wait_healthy(port, owner)
        start_s = time.monotonic() - started
        watch.look()
        owner.kill()
        owner.wait()
        left = watch.wait_gone(GONE_S)
        for pid in [pid for pid, name in left.items() if name == "vllm"]:
            psutil.Process(pid).terminate()
        stop_s = _seconds(lambda: watch.wait_gone(60))
        return {"start_s": start_s, "left": len(left), "stop_s": stop_s}
    finally:
        watch.end()
        owner.wait()


def _on_path(env):
    """The environment with `env`, where typing vllm finds the one of this Python."""
    return os.environ | env | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _wait_healthy(port, owner, limit_s=300):
    started = time.monotonic()
    while time.monotonic() - started < limit_s and owner.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.25)
    raise RuntimeError("vllm serve, typed by hand, did not start: see results/logs/bench-peer.log")


def _owner_killed(path):
    """Seconds from serve() to ready in another process; then from its SIGKILL to nothing left."""
    watch = Watch()
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(path)], env=watch.env, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        line = next(line for line in owner.stdout if line.startswith("ready"))
        watch.look()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        gone_s = _seconds(lambda: watch.wait_gone(60))
        return float(line.split()[1]), gone_s
    finally:
        watch.end()
        owner.kill()
        owner.communicate()


def points():
    """What a point of `vllm bench` costs beyond its load: the first, a later one, its own command.

    Against the server with known latencies, so that the load is the same every time.
    """
    load.stop_worker()
    costs = []
    with reference.serve(first_s=0.05, gap_s=0.01) as target:
        for seed in range(4):
            started = time.monotonic()
            requests = load.vllm_bench(target, input_len=64, output_len=64, concurrency=4,
                                       num_prompts=16, seed=seed)
            costs.append(time.monotonic() - started - _busy_s(requests))
        started = time.monotonic()
        subprocess.run(requests.attrs["command"], shell=True, check=True, env=_on_path(ENV),
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        peer = time.monotonic() - started - _busy_s(read_vllm_bench(requests.attrs["file"]))
    load.stop_worker()
    return [Figure("first vllm bench point, beyond its load", "s", costs[0],
                   peers={"vllm bench serve": peer}),
            Figure("later vllm bench points, beyond their load", "s", mean(costs[1:]), bar=1,
                   peers={"vllm bench serve": peer})]


def _busy_s(requests):
    return (requests.sent_s + requests.e2el_s).max() - requests.sent_s.min()


def clients():
    """|measured - true| of our client and of the tools, at 8 streams and at 100, in ms."""
    figures = []
    for tokens in (1, 4):
        compared = bench_clients.compare_clients(tokens_per_chunk=tokens)
        for figure, bar_s in bench_clients.BARS_S.items():
            figures += [_error(compared, figure, column, bar_s, tokens)
                        for column in ("mean_s", "p99_s")]
    compared = bench_clients.compare_clients(streams=100, requests=300, repeats=4,
                                             tools=("client", "vllm bench"))
    ttft = compared[compared.figure == "ttft"].groupby("tool").mean_s.mean()
    figures.append(Figure("TTFT error at 100 streams, ours / vllm bench's", "",
                          ttft["client"] / ttft["vllm bench"], bar=0.25,
                          peers={"vllm bench": 1.0}))
    load.stop_worker()
    return figures


def _error(compared, figure, column, bar_s, tokens):
    """One figure of the comparison at 8 streams; its peers are the tools that keep it.

    With them, how late the server itself sent: no client can be blamed for that.
    """
    found = compared[compared.figure == figure]
    by_tool = found.groupby("tool", sort=False)[column].mean() * 1000
    late = {"server late": found[f"server_{column}"].mean() * 1000}
    statistic = {"mean_s": "mean", "p99_s": "99th percentile"}[column]
    return Figure(f"{figure.upper()} error, {tokens} tokens a chunk, {statistic}", "ms",
                  by_tool["client"], bar=bar_s * 1000,
                  peers=by_tool.drop("client").to_dict() | late)


def order():
    """Lessons 02, 00, 01 in that order, then 01 again: each from a fresh kernel to its end."""
    runner = run.Runner(RESULTS / "bench", timeout_s=1200)
    passes = [[run.find(name) for name in names] for names in (("02", "00", "01"), ("01",))]
    figures = []
    for paths, name in zip(passes, ("02, 00, 01 in that order", "01 again"), strict=True):
        outcomes = asyncio.run(runner.run_all(paths, exitfirst=False))
        if runner.interrupted:
            raise KeyboardInterrupt
        failed = [outcome.name for outcome in outcomes if outcome.state != "ok"]
        figures += [Figure(f"lessons {name}: not passed", "", len(failed), bar=0,
                           note=", ".join(failed)),
                    Figure(f"lessons {name}: time", "min",
                           sum(outcome.seconds for outcome in outcomes) / 60)]
    return figures


SECTIONS = {"setup": setup_again, "engine": engine, "points": points, "clients": clients,
            "settings": bench_batching.settings, "steps": bench_batching.step_model,
            "compress": bench_compress.compression, "order": order}
