"""Waiting for a core: what the kernel says of every thread's time in the run queue.

A thread that could compute but has no core waits in a run queue. /proc/PID/task/TID/schedstat has
three numbers: nanoseconds on a core, nanoseconds waiting for one, and how often it got one
(Documentation/scheduler/sched-stats.rst of the Linux kernel).
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from helpers import supervisor
from helpers.errors import LabError

PROC = Path("/proc")
COLUMNS = ["process", "run_ns", "wait_ns"]
LOOP = "import time; end = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
RUNQLAT = ("runqlat-bpfcc", "runqlat", "/usr/share/bcc/tools/runqlat")


def parse(text):
    """(ns on a core, ns waiting for one) of a schedstat file's text. Raises ValueError."""
    run, wait, _ = map(int, text.split())
    return run, wait


def read(pids):
    """A row a thread, indexed by (pid, tid): process (its name), run_ns, wait_ns, both so far.

    Threads that end meanwhile are left out. Raises LabError where the kernel keeps no such numbers.
    """
    if not (PROC / "self" / "schedstat").exists():
        raise LabError("This kernel does not say how long threads wait for a core.",
                       cause="/proc/self/schedstat is missing: a kernel without CONFIG_SCHED_INFO, "
                       "or a sandbox.", fix="Go on without this measurement.")
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            process = (PROC / str(pid) / "comm").read_text().strip()
            for thread in (PROC / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):
                    found[pid, int(thread.name)] = (
                        process, *parse((thread / "schedstat").read_text()))
    index = pd.MultiIndex.from_tuples(found, names=["pid", "tid"])
    return pd.DataFrame(list(found.values()), index=index, columns=COLUMNS)


def delay(before, after):
    """What lies between two readings, a row a process name: run_s, wait_s, share, threads.

    share = wait / (run + wait): of the time in which its threads could compute, the part in which
    they had no core; NaN where they never could. A thread that is new counts from 0, one that has
    ended does not count. Pure.
    """
    start = before.reindex(after.index)[["run_ns", "wait_ns"]].fillna(0)
    used = (after[["run_ns", "wait_ns"]] - start).assign(process=after.process, threads=1)
    found = used.groupby("process").sum()
    return pd.DataFrame({"run_s": found.run_ns / 1e9, "wait_s": found.wait_ns / 1e9,
                         "share": found.wait_ns / (found.run_ns + found.wait_ns),
                         "threads": found.threads})


def of(servers):
    """`read` of all processes of these engines: {name: table}."""
    return {name: read(supervisor.session_pids(one.pid)) for name, one in servers.items()}


def control(loops, *, seconds=0.3):
    """The share of waiting of so many busy loops on ONE core: about 0 for one, 1/2 for two.

    The loops are processes of their own, and end by themselves after `seconds`.
    """
    core = min(os.sched_getaffinity(0))
    started = [subprocess.Popen([sys.executable, "-I", "-S", "-c", LOOP.format(seconds)],
                                preexec_fn=lambda: os.sched_setaffinity(0, {core}))
               for _ in range(loops)]
    try:
        pids, last = [one.pid for one in started], None
        while any(one.poll() is None for one in started):
            now = read(pids)
            last = now if len(now) == loops or last is None else last
            with contextlib.suppress(subprocess.TimeoutExpired):
                started[0].wait(0.02)
    finally:
        for one in started:
            one.kill()
            one.wait()
    return float(last.wait_ns.sum() / (last.wait_ns + last.run_ns).sum())


def runqlat(seconds=2):
    """The histogram of bcc's runqlat, in microseconds, over all threads of the machine: its text.

    Raises LabError where it is not installed, or the kernel does not let it look.
    """
    tool = next(filter(None, map(shutil.which, RUNQLAT)), None)
    if tool is None:
        raise LabError("runqlat is not on this machine.",
                       cause="It comes with bcc, and wants root: it loads code into the kernel.",
                       fix="Go on: /proc/PID/schedstat has the same waiting, as sums.")
    done = subprocess.run([tool, str(seconds), "1"], capture_output=True, text=True,
                          timeout=seconds + 60)
    if done.returncode:
        raise LabError("runqlat may not look into this kernel.", log=done.stderr[-800:])
    return done.stdout.strip()
