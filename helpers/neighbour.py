"""A noisy neighbour beside an engine, and the two ways of this machine to share: all, or split.

    ways = neighbour.ways()                      # {"shared": Way, "split": Way}
    beside = neighbour.start(ways)               # {"shared": Neighbour, "split": Neighbour}
    with beside["split"].busy("memory") as took: # meanwhile it reads memory as fast as it can
        ...
    print(took)                                  # {"kind": "memory", "passes": ..., "bytes": ...}
    neighbour.stop(ways, beside)                 # after the engines

What it does is in helpers.neighbour_worker. On a CPU, split gives engine and neighbour half of the
cores each. On a GPU both are clients of one MPS daemon, limited to half of the threads each.
"""

import contextlib
import json
import os
import select
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

from helpers import mps, profile, supervisor
from helpers.engine import LOGS
from helpers.errors import LabError

WORKER = Path(__file__).with_name("neighbour_worker.py")
KINDS = ("arithmetic", "cache", "memory")  # what it can be busy with
HALF = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}
LIMIT = 8 * 2**30  # bytes that a neighbour under MPS may take
ASK = {"cpu": 2**30, "gpu": 12 * 2**30}  # bytes that it asks for


@dataclass
class Way:
    """How engine and neighbour share: word, env of the engine, cores and env of the neighbour."""

    word: str
    engine_env: dict
    cores: list
    env: dict = field(default_factory=dict)
    daemon: object = None
    mechanism: str = "CPU pinning"  # its row in data/isolation.csv


def ways():
    """{'shared': Way, 'split': Way} of this machine; says what they are.

    Where a GPU has no MPS, 'split' is 'shared' again, and says so. On a machine with one core
    likewise: there is nothing to split.
    """
    if profile.current().name == "cpu":
        cores = mps.physical_cores()
        mine, others = mps.halves(cores)
        found = {"shared": Way(f"cores {cores} for both", mps.pinned(cores), cores),
                 "split": Way(f"engine on cores {mine}, neighbour on {others}", mps.pinned(mine),
                              others)}
    else:
        every = sorted(os.sched_getaffinity(0))
        found = {"shared": Way("time slicing", {}, every, mechanism="time slicing"),
                 "split": _mps(every)}
    print("\n".join(f"{name}: {way.word}" for name, way in found.items()))
    return found


def _mps(cores):
    try:
        daemon = mps.daemon()
    except LabError as none:
        print(none)
        return Way("time slicing again", {}, cores, mechanism="time slicing")
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={LIMIT // 2**30}G"}
    return Way("MPS, half of the threads each", daemon.env | HALF, cores,
               daemon.env | HALF | limit, daemon, "MPS")


class Neighbour:
    """One neighbour process, which does nothing until it is told; it ends with this process."""

    def __init__(self, name, way):
        device = "cuda" if profile.current().name == "gpu" else "cpu"
        cores = ",".join(map(str, way.cores))
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log_path = LOGS / f"neighbour-{name}-{os.getpid()}.log"
        self.process = supervisor.start(
            [sys.executable, str(WORKER), device, cores], env=os.environ | way.env,
            log_path=self.log_path, stdin=-1, stdout=-1)
        self._ready = False

    def ask(self, command, *, timeout_s=120):
        """Send a command and return its answer, a dict. Raises LabError if it does not come."""
        self.wait()
        return self._ask(command, timeout_s)

    def wait(self, timeout_s=120):
        """Return once its imports are done."""
        if not self._ready:
            self._answer("start", timeout_s)
            self._ready = True

    def _ask(self, command, timeout_s):
        with contextlib.suppress(BrokenPipeError):  # then there is no answer either
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        return self._answer(command, timeout_s)

    def _answer(self, command, timeout_s):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            raise LabError(f"The neighbour did not answer to {command!r}.",
                           cause="It has ended." if ready else f"It is not done in {timeout_s} s.",
                           log="\n".join(self.log_path.read_text().splitlines()[-8:]))
        return json.loads(line)

    @contextlib.contextmanager
    def busy(self, kind):
        """Keep it at work meanwhile, where `kind` is one of KINDS; else it rests.

        Yields a dict that holds, afterwards, what it did: kind, passes, seconds, bytes.
        """
        took = {"kind": kind, "passes": 0, "seconds": 0.0, "bytes": 0}
        self.wait()
        if kind not in KINDS:
            yield took
            return
        self.ask(kind)
        try:
            yield took
        finally:
            took.update(self.ask("rest"))

    def hold(self, size=None):
        """Let it take so many bytes, ASK if not given: {'held': whether, 'why': why not}."""
        return self.ask(f"hold {size or ASK[profile.current().name]}")

    def fault(self, timeout_s=60):
        """Let it make an error that it does not survive; {'the neighbour': how it ended}."""
        with contextlib.suppress(LabError):
            self.ask("fault", timeout_s=timeout_s)
        code = self.process.wait(timeout_s) - 128  # the watcher's status, 128 + the signal
        return {"the neighbour": signal.Signals(code).name if code > 0 else f"ended ({code + 128})"}

    def stop(self):
        """End it; calling it twice is fine. A resting client leaves MPS no work half done."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, with a command on its way
            self.process.stdin.close()
        with contextlib.suppress(Exception):
            self.process.wait(5)
        supervisor.stop(self.process)


def start(ways):
    """A Neighbour for each Way, started at once; their imports take a few seconds meanwhile."""
    return {name: Neighbour(name, way) for name, way in ways.items()}


def stop(ways, neighbours):
    """End the neighbours and the daemon, where there is one; the engines first."""
    for one in neighbours.values():
        one.stop()
    for way in ways.values():
        if way.daemon:
            way.daemon.stop()
