"""vLLM's server as an object: started at once, waited for when needed, ended with its owner.

    server = serve(models.prepare("smollm2-135m"))    # returns at once
    httpx.get(server.url + "/v1/models")              # .url waits until it is ready
    server.stop()
"""

import html
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from helpers import diagnose, exposition, models, ports, profile, supervisor
from helpers.command import shell_command, to_arguments, vllm_executable
from helpers.errors import LabError
from helpers.progress import Line

LOGS = Path(__file__).parent.parent / "results" / "logs"
DEFAULT_ENV = {
    "VLLM_NO_USAGE_STATS": "1",  # no report leaves this machine
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",  # the model is a folder: nothing is fetched
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
}
# Without it the first request for logprobs compiles a kernel: a pause, and the end of the engine
# on a machine that has no C++ compiler.
EAGER_ENV = {"TORCH_COMPILE_DISABLE": "1"}
_live = {}  # name -> Server


def serve(model, *, name="engine", port=None, env=None, start_limit_s=900, **flags):
    """Start `vllm serve` on a model folder and return at once.

    model: a folder from models.prepare.  port: on 127.0.0.1; None takes 8000 or the next free.
    env: environment variables for the engine.  flags: vLLM's own, spelt with underscores, over
    the profile's; True is `--flag`, False `--no-flag`, None drops a default.
    Called again with the same settings it returns the live server; with others it stops the one
    of that `name` first. Raises LabError for a folder that is not a model or a port in use.
    """
    path = models.verify(model)
    flags = {**_defaults(path), **flags}
    settings = (str(path), port, env, flags)
    old = _live.get(name)
    if old is not None:
        if old.settings == settings and old.state in ("starting", "ready"):
            print(f"Already running, {old!r}")
            return old
        old.stop()
    _live[name] = Server(settings, name, start_limit_s)
    print(f"Starting in the background:\n\n{_live[name].command}\n")
    return _live[name]


def _defaults(path):
    flags = {**profile.current().engine_flags, "served_model_name": models.served_name(path)}
    if models.has_random_weights(path):
        print("This folder has no weights: vLLM makes random ones, and the text means nothing.")
        flags["load_format"] = "dummy"
    return flags


class Server:
    """One running engine. `.url`, `.metrics()`, `.kv_cache_tokens`, `.block_size` and
    `.warm_up()` wait until it is ready, and raise LabError if it has ended."""

    def __init__(self, settings, name, start_limit_s):
        path, port, env, flags = settings
        self.settings, self.name, self.start_limit_s = settings, name, start_limit_s
        self.tokenizer = Path(path)
        self.port, self._port_lock = ports.reserve(port)
        names = flags["served_model_name"]
        self.model = names if isinstance(names, str) else names[0]
        arguments = ["serve", path, "--host", "127.0.0.1", "--port", str(self.port)]
        arguments += to_arguments(flags)
        eager = EAGER_ENV if flags.get("enforce_eager") else {}
        self._env = DEFAULT_ENV | eager | (env or {})
        self.command = shell_command(["vllm", *arguments], self._env)
        self.log_path = LOGS / f"{name}-{self.port}.log"
        self._was_ready = self._stopped = False
        self._cores = []  # process ids of the engine core and its workers, once it is ready
        self._error = None
        self._started = time.monotonic()
        try:
            LOGS.mkdir(parents=True, exist_ok=True)
            self.log_path.write_bytes(b"")
        except OSError as error:
            raise LabError(
                f"The engine's log cannot be written: {error}.", cause="No space left on the disk.",
                fix="Free some space, or make the results folder writable.",
            ) from error
        self._process = supervisor.start(
            [vllm_executable(), *arguments], env=os.environ | self._env, log_path=self.log_path
        )

    @property
    def state(self):
        """'starting', 'ready', 'stopped' or 'crashed'; does not wait."""
        if self._stopped:
            return "stopped"
        if self._error or self._process.poll() is not None or self._core_ended():
            return "crashed"
        return "ready" if self._was_ready else "starting"

    @property
    def pid(self):
        """Process id of the supervisor, and of the session that the whole engine runs in."""
        return self._process.pid

    @property
    def url(self):
        """http://127.0.0.1:PORT, without /v1; waits until the engine is ready."""
        self.wait()
        return self._url

    @property
    def _url(self):
        return f"http://127.0.0.1:{self.port}"

    def wait(self):
        """Return once the engine answers; one line tells how it gets on. Raises LabError."""
        if self._was_ready:
            return self._check_alive()
        line = Line()
        while not self._healthy():
            self._raise_if_ended()
            if self.elapsed_s > self.start_limit_s:
                self._fail(diagnose.too_slow(self.start_limit_s, self.log_tail(12)))
            line.update(f"Engine starting, {self.elapsed_s:.0f} s: {diagnose.phase(self.log())}")
            time.sleep(0.25)
        self._was_ready = True
        self._check_name()
        self._cores = supervisor.named(self.pid, "VLLM::")
        line.done(f"Engine ready {self.elapsed_s:.0f} s after its start at {self._url}")

    @property
    def elapsed_s(self):
        """Seconds since serve() was called."""
        return time.monotonic() - self._started

    def _healthy(self):
        """True once /health answers 200 (it answers 503 when the engine core is dead)."""
        try:
            return httpx.get(f"{self._url}/health", timeout=30).status_code == 200
        except httpx.TimeoutException:
            return self._was_ready  # a busy engine is not a dead one
        except httpx.TransportError:
            return False

    def _check_alive(self):
        """The server may answer for a moment after its core was killed: look at both."""
        self._raise_if_ended()
        if self._core_ended() or not self._healthy():
            time.sleep(1)  # the engine writes down why
            self._fail(diagnose.died(self.log(), self._process.poll()))

    def _core_ended(self):
        return any(supervisor.ended(pid) for pid in self._cores)

    def _check_name(self):
        """Another program may have taken the port between our look and the engine's."""
        served = [m["id"] for m in httpx.get(f"{self._url}/v1/models", timeout=30).json()["data"]]
        if self.model not in served:
            self._fail(LabError(
                f"Port {self.port} answers for {served}, not for {self.model}.",
                cause="Another server took the port at the same moment.",
                fix="Call serve(...) again: it takes another port.",
            ))

    def _raise_if_ended(self):
        if self._stopped:
            raise LabError(f"The server {self.name!r} was stopped.", fix="Call serve(...) again.")
        if self._error is not None:
            raise self._error
        code = self._process.poll()
        if code is not None:
            if self._was_ready:
                self._fail(diagnose.died(self.log(), code))
            self._fail(diagnose.failed_start(self.log(), code))

    def _fail(self, error):
        """Remember why, end what is left of the engine, and raise."""
        self._error = error
        self._end()
        raise error

    def _end(self):
        supervisor.stop(self._process)
        self._port_lock.release()

    def metrics(self):
        """{name: value} of /metrics; see `exposition.values` for the names."""
        return exposition.values(self._get("/metrics").text)

    def _get(self, path):
        return httpx.get(self.url + path, timeout=30)

    @property
    def kv_cache_tokens(self):
        """Tokens that the KV cache holds, from the engine's own log line or its metrics."""
        self.wait()
        found = re.search(r"KV cache size: ([\d,]+) tokens", self.log())
        if found:
            return int(found[1].replace(",", ""))
        return int(exposition.cache_info(self._get("/metrics").text)["kv_cache_size_tokens"])

    @property
    def block_size(self):
        """Tokens in one block of the KV cache."""
        return int(exposition.cache_info(self._get("/metrics").text)["block_size"])

    def warm_up(self, *, requests=8, max_tokens=16):
        """Send a few requests at once and drop them: the first ones of an engine are slow."""
        body = {"model": self.model, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        url = f"{self.url}/v1/completions"
        line = Line("Warming up")
        start = time.monotonic()

        def one(number):
            prompt = f"Warm-up {number}: " + "the quick brown fox " * 16
            httpx.post(url, json=body | {"prompt": prompt}, timeout=600).raise_for_status()

        with ThreadPoolExecutor(requests) as pool:
            list(pool.map(one, range(requests)))
        line.done(f"Warm: {requests} requests in {time.monotonic() - start:.1f} s")

    def log(self):
        """The engine's whole log so far."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

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
        cache = re.search(r"KV cache size: [\d,]+ tokens", self.log())
        rows = {"state": self.state, "model": self.model, "url": self._url,
                "cache": cache[0] if cache else "not known yet", "log": self.log_tail(5)}
        cells = "".join(
            f"<tr><th style='text-align:left;vertical-align:top'>{key}</th>"
            f"<td style='text-align:left;white-space:pre-wrap'>{html.escape(value)}</td></tr>"
            for key, value in rows.items()
        )
        return f"<table>{cells}</table>"
