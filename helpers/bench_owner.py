"""The owner's side of the bench worker: one process, started on first use, replaced if it ends."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from helpers import supervisor
from helpers.errors import LabError
from helpers.progress import Line

RESULTS = Path(__file__).parents[1] / "results"
ENV = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "VLLM_LOGGING_LEVEL": "ERROR",
       "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1"}
START_S, STOP_S = 300, 10  # how long imports may take; how long an interrupted run may take to end
COMMAND = [sys.executable, "-m", "helpers.bench_worker"]
_lock = threading.Lock()
_live = []  # the worker, or nothing


class Worker:
    """The process, its two pipes and its log."""

    def __init__(self):
        self.log_path = RESULTS / "logs" / f"bench-worker-{os.getpid()}.log"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.log_path.write_bytes(b"")
        self.process = supervisor.start(
            COMMAND, env=os.environ | ENV, log_path=self.log_path, cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.received, self.pid = b"", None

    def answer(self, line, text, timeout_s):
        """The next line of the worker as a dict; `line` shows `text` and the seconds meanwhile."""
        started = time.monotonic()
        while b"\n" not in self.received:
            waited = time.monotonic() - started
            line.update(f"{text}: {waited:.0f} s")
            if waited > timeout_s:
                raise TimeoutError
            if select.select([self.process.stdout], [], [], 1 - waited % 1)[0]:
                data = os.read(self.process.stdout.fileno(), 65536)
                if not data:
                    raise EOFError
                self.received += data
        first, _, self.received = self.received.partition(b"\n")
        return json.loads(first)

    def ready(self, line):
        """Wait until the imports are done."""
        if self.pid is None:
            self.pid = self.answer(line, "vllm bench: importing vLLM, once", START_S)["pid"]

    def interrupt(self, line):
        """End the run in progress; True if the worker can be used again."""
        try:
            os.kill(self.pid, signal.SIGINT)
            self.answer(line, "vllm bench: ending the run", STOP_S)
            return True
        except (OSError, EOFError, TimeoutError, KeyboardInterrupt):
            return False

    def stop(self):
        supervisor.stop(self.process)
        self.process.stdin.close()
        self.process.stdout.close()

    def log_tail(self):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-15:])


def start_worker(*, wait=False):
    """Start the worker, if none runs, and return at once: its imports overlap what you do next.

    wait: return when they are done, for a measurement that a busy core would disturb.
    """
    with _lock:
        worker = _current()
        if wait:
            try:
                worker.ready(Line())
            except (EOFError, OSError) as error:
                raise _ended(worker) from error


def stop_worker():
    """End the worker; the next run starts a new one."""
    with _lock:
        while _live:
            _live.pop().stop()


def run(flags, *, line, text, timeout_s):
    """Run `vllm bench serve` with these flags in the worker; returns the text that it printed.

    Raises LabError if the run fails, takes more than timeout_s or ends the worker. After that,
    or an interrupt, the next call works.
    """
    with _lock:
        worker, usable = _current(), False
        try:
            worker.ready(line)
            worker.process.stdin.write(json.dumps(flags).encode() + b"\n")
            worker.process.stdin.flush()
            reply, usable = worker.answer(line, text, timeout_s), True
        except TimeoutError as error:  # an OSError too: it must come first
            usable = worker.pid is not None and worker.interrupt(line)
            raise LabError(f"vllm bench was not done after {timeout_s:.0f} s.",
                           cause="The server is slower than the load that was asked for, or stuck.",
                           fix="Ask for fewer or shorter requests, or give more timeout_s.",
                           log=worker.log_tail()) from error
        except (EOFError, OSError) as error:
            raise _ended(worker) from error
        except KeyboardInterrupt:
            usable = worker.pid is not None and worker.interrupt(line)
            raise
        finally:
            if not usable:
                _live.remove(worker)
                worker.stop()
    if reply["error"]:
        raise LabError(f"vllm bench failed: {reply['error']}", log=worker.log_tail())
    return reply["report"]


def _ended(worker):
    done = "in the middle of a run" if worker.pid else "while it started"
    return LabError(f"The bench worker ended {done}.", log=worker.log_tail(),
                    fix="Run the cell again: a new worker starts.")


def _current():
    """The live worker, started if there is none."""
    if _live and _live[0].process.poll() is not None:
        _live.pop().stop()
    if not _live:
        _live.append(Worker())
    return _live[0]
