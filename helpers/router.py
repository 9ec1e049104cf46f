"""A router in front of two engines: Ray Serve, which chooses by a request's text alone.

    front = router.start({"simple": fp8, "hard": full}, rule)    # returns at once
    client.stream(front, "Why does it rain?", max_tokens=8)      # .url waits until it is ready
    front.stop()

Ray and all that it starts run under a supervisor: they end with stop(), and with this process. A
second start ends the first router.
"""

import atexit
import importlib.util
import json
import os
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path

from helpers import engine, ports, supervisor
from helpers.errors import LabError
from helpers.progress import Line

ROOT = Path(__file__).parents[1]
READY, FAILED = "The router is ready.", "The router failed"  # of router_app, which imports Ray
ENV = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
       "RAY_DISABLE_IMPORT_WARNING": "1", "DO_NOT_TRACK": "1",
       "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else an engine that Ray starts sees no GPU
       "RAY_worker_niceness": "0",  # by itself it is 15: on a busy machine the router would starve
       "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
_live = []  # the router, or nothing


class Front:
    """A running Ray Serve application. `.url` waits until it is ready; `.model` is what it serves.

    module: of this package, run as `python -m helpers.MODULE SETTINGS`; port is added to settings.
    """

    def __init__(self, module, settings, model, start_limit_s):
        self.model, self.start_limit_s = model, start_limit_s
        self._was_ready, self._started = False, time.monotonic()
        self.port, self._reservation = ports.reserve()
        engine.LOGS.mkdir(parents=True, exist_ok=True)
        self.log_path = engine.LOGS / f"router-{self.port}.log"
        self.log_path.write_bytes(b"")
        self._process = supervisor.start(
            [sys.executable, "-m", f"helpers.{module}",
             json.dumps({"port": self.port, **settings})], cwd=ROOT,
            env=os.environ | ENV, log_path=self.log_path)
        self.pid = self._process.pid  # of the supervisor

    @property
    def url(self):
        """http://127.0.0.1:PORT; waits until it is ready. Raises LabError if it has ended."""
        line = None
        while not self._was_ready or supervisor.exit_code(self._process) is not None:
            log, waited = self.log_path.read_text(errors="replace"), self.elapsed_s
            if supervisor.exit_code(self._process) is not None or FAILED in log:
                self.stop()
                raise LabError("The router ended.", cause=_reason(log), log=self.log_tail(8),
                               fix=f"Call router.start(...) again; its log is {self.log_path}.")
            if waited > self.start_limit_s:
                self.stop()
                raise LabError(f"The router was not ready after {self.start_limit_s} s.",
                               fix="Close other programs, and start it again.",
                               log=self.log_tail(8))
            line = line or Line()
            line.update(f"Router starting: {waited:.0f} s")
            if READY in log:
                self._was_ready = True
                self._reservation.close()
                line.done(f"Router ready {waited:.0f} s after its start")
            else:
                time.sleep(0.1)
        return f"http://{ports.HOST}:{self.port}"

    @property
    def elapsed_s(self):
        """Seconds since its start."""
        return time.monotonic() - self._started

    def log_tail(self, n=20):
        """The last n lines of its log."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-n:])

    def stop(self):
        """End Ray and the router; calling it twice is fine. The engines stay."""
        supervisor.stop(self._process)
        self._reservation.close()
        if self in _live:
            _live.remove(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def start(engines, rule, *, start_limit_s=180):
    """Start a router and return at once.

    engines: {"simple": Server, "hard": Server}, both serving the same model name.  rule: a
    routing.Rule. Raises LabError where Ray is not installed, or the engines' names differ.
    """
    need_ray()
    names = {server.model for server in engines.values()}
    if set(engines) != {"simple", "hard"} or len(names) != 1:
        raise LabError(f"A router takes engines 'simple' and 'hard' of one model, not "
                       f"{sorted(engines)} serving {sorted(names)}.",
                       fix="Start both engines with the same served_model_name.")
    addresses = {name: server.url for name, server in engines.items()}  # waits for them
    settings = {"engines": addresses, "rule": asdict(rule)}
    return alone(lambda: Front("router_app", settings, names.pop(), start_limit_s))


def need_ray():
    """Raises LabError where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise LabError("Ray is not installed here, so there is no router.",
                       cause="This environment was made without it.",
                       fix="make setup installs it; everything else goes on without.")


def alone(make):
    """End the application that runs, if one does, and return the one that make() starts."""
    ports.go_past_proxies()
    _stop_all()
    _live.append(make())
    return _live[0]


@atexit.register
def _stop_all():
    """The supervisor would do it; this way it is done by the time the process has ended."""
    for old in list(_live):
        old.stop()


def _reason(log):
    """The last error that a log names."""
    found = re.findall(r"^\S*(?:Error|Exception)\b.*|^The router failed: .*", log, re.MULTILINE)
    return found[-1][:300] if found else "Its log says no more."
