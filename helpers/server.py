"""vLLM's server as an object: started at once, waited for when needed, ended with its owner.

    server = serve(models.prepare("smollm2-135m"))    # returns at once
    httpx.get(server.url + "/v1/models")              # .url waits until it is ready
    server.stop()
"""

import atexit
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from helpers import diagnose, exposition, models, ports, profile
from helpers.engine import Engine
from helpers.errors import LabError
from helpers.progress import Line, html_table

_live, _one_at_a_time = {}, threading.RLock()  # name -> Server
# no proxy between us and this machine; no connection kept for a forked child to share
_http = httpx.Client(trust_env=False, verify=False,
                     limits=httpx.Limits(max_connections=None, max_keepalive_connections=0))


def serve(model, *, name="engine", port=None, env=None, start_limit_s=900, **flags):
    """Start `vllm serve` on a model folder and return at once.

    model: a folder from models.prepare.  port: on 127.0.0.1; None takes 8000 or the next free.
    env: environment variables for the engine.  flags: vLLM's own, spelt with underscores; True is
    `--flag`, False `--no-flag`. Both go over the profile's, of which a None drops one.
    Called again with the same settings it returns the live server; with others it stops the one
    of that `name` first. Raises LabError for a folder that is not a model or a port in use.
    """
    ports.go_past_proxies()
    path = models.verify(model).absolute()
    flags = {**profile.current().engine_flags, **models.engine_flags(path), **flags}
    env = {**profile.current().engine_env, **(env or {})}
    env = {key: value for key, value in env.items() if value is not None}
    settings = (str(path), port, env, flags)
    with _one_at_a_time:
        old = _live.get(name)
        if old is not None:
            if old.settings == settings and old.state in ("starting", "ready"):
                old.start_limit_s = start_limit_s
                print(f"Already running, {old!r}")
                return old
            old.stop()
        _live[name] = server = Server(settings, name, start_limit_s)
    print(f"Starting in the background:\n\n{server.command}\n")
    return server


@atexit.register
def _stop_all():
    """The supervisors would do it; this way it is done by the time the process has ended."""
    for server in list(_live.values()):
        server.stop()


class Server:
    """One running engine. `.url`, `.metrics()`, `.kv_cache_tokens`, `.block_size` and
    `.warm_up()` wait until it is ready, and raise LabError if it has ended."""

    def __init__(self, settings, name, start_limit_s):
        path, port, env, flags = settings
        self.settings, self.name, self.start_limit_s = settings, name, start_limit_s
        self.tokenizer = Path(path)
        names = flags["served_model_name"] or path
        self.model = names if isinstance(names, str) else names[0]
        self._was_ready = self._stopped = False
        self._error, self._seen = None, 0  # bytes in its log when it was last known to be well
        self._started = time.time()
        self.port, self._reservation = ports.reserve(port)
        self._url = f"http://{ports.HOST}:{self.port}"
        try:
            self._engine = Engine(path, port=self.port, env=env, flags=flags, name=name)
        except BaseException:
            self._reservation.close()
            raise
        self.command, self.log_path = self._engine.command, self._engine.log_path
        self.pid, self.log = self._engine.pid, self._engine.log

    @property
    def state(self):
        """'starting', 'ready', 'stopped' or 'crashed'; does not wait."""
        if self._stopped:
            return "stopped"
        if self._error or self._engine.exit_code is not None or self._engine.core_ended:
            return "crashed"
        answers = self._was_ready or "Application startup complete" in self.log()
        return "ready" if answers else "starting"

    @property
    def url(self):
        """http://127.0.0.1:PORT, without /v1; waits until the engine is ready."""
        self.wait()
        return self._url

    @property
    def elapsed_s(self):
        """Seconds since serve() was called."""
        return time.time() - self._started

    def wait(self):
        """Return once the engine answers; one line tells how it gets on. Raises LabError."""
        self._raise_if_ended()
        if self._was_ready:
            return self._check_alive()
        line = Line()
        try:
            while (wrote := self.log_path.stat().st_mtime) and not self._healthy():
                if self.elapsed_s > self.start_limit_s:
                    self._fail(diagnose.too_slow(self.start_limit_s, self.log()))
                phase = diagnose.phase(self.log())
                line.update(f"Engine starting, {self.elapsed_s:.0f} s: {phase}")
                time.sleep(0.1)
                self._raise_if_ended()
            if other := ports.other_listener(self.port, session=self.pid):
                self._fail(diagnose.not_ours(self.port, other, self.log()))
        except BaseException as error:
            still = "still starting" if self.state == "starting" else "not started"
            line.done(f"Engine {still} after {self.elapsed_s:.0f} s: {type(error).__name__}")
            raise
        self._engine.watch_cores()
        self._was_ready = True
        self._reservation.close()
        # the last that it wrote before it was asked is that it is ready
        line.done(f"Engine ready {wrote - self._started:.0f} s after its start at {self._url}")

    def _healthy(self):
        """True once /health answers 200 (it answers 503 when the engine core is dead)."""
        try:
            timeout_s = 30 if self._was_ready else 5
            return _http.get(f"{self._url}/health", timeout=timeout_s).status_code == 200
        except httpx.TimeoutException:
            return self._was_ready  # a busy engine is not a dead one
        except httpx.TransportError:
            return False

    def _check_alive(self):
        """The server may answer for a moment after its core was killed: look at both, twice."""
        for pause_s in (1, 0):  # time for the engine to write down why
            if not self._engine.core_ended and self._healthy():
                self._seen = self.log_path.stat().st_size
                return
            time.sleep(pause_s)
        self._fail(diagnose.died(self.log(self._seen), self._engine.exit_code))

    def _raise_if_ended(self):
        if self._stopped:
            raise LabError(f"The server {self.name!r} was stopped.",
                           cause="Its stop() was called, or serve(...) with other settings.",
                           fix="Call serve(...) again.", log=self.log_tail(4))
        if self._error is not None:
            raise self._error
        code = self._engine.exit_code
        if code is not None:
            why = diagnose.died if self._was_ready else diagnose.failed_start
            self._fail(why(self.log(self._seen), code))

    def _fail(self, error):
        """Remember why, end what is left of the engine, and raise."""
        self._error = error
        self._end()
        raise error

    def _end(self):
        self._engine.end()
        self._reservation.close()

    def metrics(self):
        """{name: value} of /metrics; see `exposition.values` for the names."""
        return exposition.values(self._request("GET", "/metrics").text)

    def _request(self, method, path, **options):
        try:
            answer = _http.request(method, self.url + path, timeout=600, **options)
        except httpx.TransportError:
            self._check_alive()  # says why, if the engine has died meanwhile
            raise
        if answer.status_code != 200:
            self._check_alive()
            raise LabError(f"The engine answered {path} with {answer.status_code}: {answer.text}",
                           fix="Read the log lines below.", log=self.log_tail(8))
        return answer

    @property
    def kv_cache_tokens(self):
        """Tokens that the KV cache holds, from the engine's own log line or its metrics."""
        self.wait()
        line = self.cache_line
        found = re.search(r"([\d,]+) tokens", line) if line else None
        return int(found[1].replace(",", "") if found else self._cache("kv_cache_size_tokens"))

    @property
    def cache_line(self):
        """What its log says of the size of the KV cache, or None; does not wait."""
        found = re.search(r"\w+ KV cache size: [\d,]+ tokens.*", self.log())
        return found[0] if found else None

    @property
    def block_size(self):
        """Tokens in one block of the KV cache."""
        return int(self._cache("block_size"))

    def _cache(self, label):
        return exposition.cache_info(self._request("GET", "/metrics").text)[label]

    def warm_up(self, *, requests=8, max_tokens=16):
        """Send a few requests at once and drop them: the first ones of an engine are slow."""
        body = {"model": self.model, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        self.wait()
        line = Line("Warming up")

        def one(number):
            prompt = f"Warm-up {number}: " + "the quick brown fox " * 16
            self._request("POST", "/v1/completions", json=body | {"prompt": prompt})

        with ThreadPoolExecutor(requests) as pool:
            list(pool.map(one, range(requests)))
        line.done(f"Warm: {requests} requests in {line.elapsed_s:.1f} s")

    def log_tail(self, n=20):
        """The last n lines of the engine's log."""
        return "\n".join(self.log().splitlines()[-n:])

    def stop(self):
        """End the engine and everything it started; calling it twice is fine."""
        self._stopped = True
        self._end()
        if _live.get(self.name) is self:
            del _live[self.name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        return f"<Server {self.name!r}: {self.state}, {self.model} at {self._url}>"

    def _repr_html_(self):
        return html_table({"state": self.state, "model": self.model, "url": self._url,
                           "cache": self.cache_line or "not known yet",
                           "log": diagnose.last_lines(self.log(), 5)})
