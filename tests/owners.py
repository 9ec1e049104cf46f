"""Owners of an engine, for the tests that end them: scripts and kernels; and what an engine left.

An owner runs `SERVE`, which reports its engine in a file, and goes on once `go` exists.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jupyter_client import KernelManager

from helpers import watcher

LIMIT_S = 10  # within which nothing of an engine may be left
SERVE = """
import json, os, sys, threading, time
from helpers import server, supervisor
engine = server.serve({model!r}, name="owned", port={port}, **{flags})
def report():
    with open({report!r} + ".new", "w") as file:
        json.dump({{"session": engine.pid, "port": engine.port, "owner": os.getpid()}}, file)
    os.rename({report!r} + ".new", {report!r})
def hold():
    while not os.path.exists({go!r}):
        time.sleep(0.05)
"""
READY = "engine.wait(); report(); hold()\n"
STARTING = """
while not supervisor.named(engine.pid, "VLLM::"):
    time.sleep(0.05)
report(); hold()
"""


def _processes():
    """{pid: (start time, session, state, name)} of every process, zombies too."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        head, _, tail = watcher.read(f"/proc/{pid}/stat").rpartition(")")
        fields = tail.split()
        if fields:
            found[int(pid)] = (int(fields[19]), int(fields[3]), fields[0], head.split("(", 1)[1])
    return found


@dataclass
class Tree:
    """A live engine's processes, port and files, noted in order to look for them later."""

    session: int
    port: int
    owner: int
    pids: dict = field(default_factory=dict)
    files: set = field(default_factory=set)

    def look(self):
        """Note what it has now."""
        arguments = Path(f"/proc/{self.session}/cmdline").read_bytes().split(b"\0")
        self.files.add(arguments[5].decode())  # the scratch folder
        found = _processes()
        ours = {pid for pid, (_, session, *_) in found.items() if session == self.session}
        self.pids |= {pid: found[pid] for pid in ours}
        self.files |= watcher.shared_memory(ours)
        return self

    def left(self):
        """What is still there: processes (zombies too), the port, files."""
        now = _processes()
        left = [f"{pid} {fields[3]} {fields[2]}" for pid, fields in now.items()
                if fields[1] == self.session
                or (pid in self.pids and self.pids[pid][0] == fields[0])]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                left.append(f"port {self.port}")
        return left + [path for path in self.files if os.path.exists(path)]

    def seconds_until_gone(self):
        """Seconds until nothing is left; fails after LIMIT_S."""
        start = time.monotonic()
        while left := self.left():
            assert time.monotonic() - start < LIMIT_S, f"left after {LIMIT_S} s: {left}"
            time.sleep(0.05)
        return time.monotonic() - start

    @property
    def lives(self):
        """The server answers, and every process noted is there."""
        now = _processes()
        gone = [fields[3] for pid, fields in self.pids.items() if pid not in now]
        with socket.create_connection(("127.0.0.1", self.port), 5) as probe:
            probe.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            answer = probe.recv(100)
        return b" 200 " in answer and not gone

    def core(self):
        """Process id of the engine core."""
        return next(p for p, fields in self.pids.items() if fields[3].startswith("VLLM::EngineC"))


class Owner:
    """A place to run an owner in: its code, its environment, the report of its engine."""

    def __init__(self, backend, folder, wait, flags):
        folder.mkdir()
        self.folder, self.report, self.go = folder, folder / "report.json", folder / "go"
        self.log, self.env, self.wait = folder / "owner.log", os.environ | backend["env"], wait
        self.serve = SERVE.format(model=str(backend["model"]), port=free_port(), flags=flags,
                                  report=str(self.report), go=str(self.go))
        self.code = self.serve + wait
        self.write(self.code)
        self._to_end = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._to_end.close()

    def write(self, code):
        """Make `code` the script owner.py."""
        (self.folder / "owner.py").write_text(code)

    def write_notebook(self):
        """Make the code a notebook, owner.ipynb."""
        cells = [nbformat.v4.new_code_cell(code) for code in (self.code, "print(engine)")]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), self.folder / "owner.ipynb")

    def run(self, *command):
        """Start a process (owner.py, if none is given), in a session of its own."""
        with open(self.log, "ab") as log:
            process = subprocess.Popen(command or [sys.executable, "owner.py"], env=self.env,
                                       cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log, start_new_session=True)
        self._to_end.callback(end, process)
        return process

    def read(self, name, limit_s=20):
        """The text of a file that the owner writes."""
        start = time.monotonic()
        while not (self.folder / name).exists() and time.monotonic() - start < limit_s:
            time.sleep(0.02)
        return (self.folder / name).read_text()

    def tree(self, limit_s=150):
        """The engine, once the owner has reported it."""
        start = time.monotonic()
        while not self.report.exists():
            said = self.log.read_text() if self.log.exists() else ""
            assert time.monotonic() - start < limit_s, f"no engine after {limit_s} s:\n{said}"
            time.sleep(0.02)
        tree = Tree(**json.loads(self.report.read_text())).look()
        self.report.unlink()
        return tree

    def kernel(self):
        """A Jupyter kernel; `.code` is not run yet."""
        kernel = Kernel(self.env, self.folder)
        self._to_end.callback(kernel.end)
        return kernel


class Kernel:
    """A kernel that runs cells."""

    def __init__(self, env, folder):
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env=env, cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def start(self, code):
        """Start a cell; gives its id for `finish`."""
        return self.client.execute(code, stop_on_error=False)  # else the next may be dropped

    def finish(self, cell, timeout_s=200):
        """(status, error name) of a started cell."""
        while True:
            reply = self.client.get_shell_msg(timeout=timeout_s)
            if reply["parent_header"]["msg_id"] == cell:
                return reply["content"]["status"], reply["content"].get("ename")

    def run(self, code):
        return self.finish(self.start(code))

    def interrupt(self):
        self.manager.interrupt_kernel()

    def end(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def end(process):
    """Kill a process and its session's group, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def free_port():
    """A port that nothing uses; far from 8000, where others' engines may be."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
