#!/usr/bin/env python3
"""Stands in for the command `vllm` in tests (LAB_VLLM): up in a tenth of a second, no model.

It has what the tests of the supervisor need of vLLM: an engine core and a worker as child and
grandchild, under vLLM's names; shared memory that they map; OpenMP's file in /dev/shm; a socket
and a file in the temporary folder; a log and HTTP answers like vLLM's.
`--standin JSON` (in serve(): standin={...}) makes it misbehave:
  slow_s: seconds before it answers          crash: name of a file in tests/samples/logs to die with
  code: exit status of that crash            stubborn: the worker ignores SIGTERM
  orphan: a process whose parent has ended   kill: kills itself while starting
"""

import argparse
import contextlib
import ctypes
import json
import mmap
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TOKENS, BLOCK = 46592, 128
LOGS = Path(__file__).parent / "samples" / "logs"


def log(who, text):
    print(f"({who} pid={os.getpid()}) {text}", flush=True)


def info(who, where, text):
    log(who, time.strftime(f"INFO %m-%d %H:%M:%S [{where}] ") + text)


def process(name, work, stubborn=False):
    """Fork a process called `name` that does `work()` and then waits to be ended."""
    pid = os.fork()
    if pid:
        return pid
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
    signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else signal.SIG_DFL)
    work()
    while True:
        signal.pause()


def shared(name):
    """A file in /dev/shm that this process has mapped, as vLLM's message queue is."""
    path = f"/dev/shm/{name}"
    with open(path, "w+b") as file:
        file.truncate(4096)
        shared.maps = [*getattr(shared, "maps", []), mmap.mmap(file.fileno(), 4096)]


def core(options):
    shared(f"psm_standin_{os.getpid()}")
    Path(f"/dev/shm/__KMP_REGISTERED_LIB_{os.getpid()}_0").touch()
    Path(os.environ.get("TMPDIR", "/tmp"), f"vllm_dist_{os.getpid()}").touch()
    process("VLLM::Worker", lambda: shared(f"psm_standin_{os.getpid()}"), options.get("stubborn"))
    if options.get("orphan"):
        if os.fork() == 0:
            process("VLLM::Orphan", lambda: (os.setsid(), shared(f"psm_standin_{os.getpid()}")))
            os._exit(0)
        os.wait()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/health":
            return self.answer(200 if self.server.core_lives() else 503, b"")
        if self.path == "/v1/models":
            names = [{"id": name, "object": "model"} for name in self.server.names]
            return self.answer(200, json.dumps({"object": "list", "data": names}).encode())
        if self.path == "/metrics":
            return self.answer(200, metrics(self.server).encode(), "text/plain")
        self.answer(404, b"{}")

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("model") not in self.server.names:
            wrong = {"message": f"The model `{asked.get('model')}` does not exist.", "code": 404}
            return self.answer(404, json.dumps({"error": wrong}).encode())
        self.server.served += 1
        usage = {"prompt_tokens": 8, "completion_tokens": asked.get("max_tokens", 16)}
        text = {"choices": [{"text": " one", "finish_reason": "length"}], "usage": usage}
        self.answer(200, json.dumps(text).encode())

    def answer(self, code, body, kind="application/json"):
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code="-", size="-"):
        log("APIServer", f'INFO:     127.0.0.1:9 - "{self.requestline}" {code}')


def metrics(server):
    """A page as vLLM's: some counters, a gauge, a histogram, `_created` series, labels."""
    labels = f'engine="0",model_name="{server.names[0]}"'
    return f"""\
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{{labels}}} {8.0 * server.served}
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{{{labels}}} 1.79597028358e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{{labels}}} 0.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{{{labels},finished_reason="stop"}} 7.0
vllm:request_success_total{{{labels},finished_reason="length"}} 10.0
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{{{labels},le="10.0"}} {server.served}
vllm:request_prompt_tokens_bucket{{{labels},le="+Inf"}} {server.served}
vllm:request_prompt_tokens_count{{{labels}}} {server.served}
vllm:request_prompt_tokens_sum{{{labels}}} {8.0 * server.served}
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{{block_size="{BLOCK}",engine="0",kv_cache_size_tokens="{TOKENS}"}} 1.0
"""


class Server(ThreadingHTTPServer):
    allow_reuse_address = daemon_threads = True
    served = 0

    def core_lives(self):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.core, os.WNOHANG)[0] == 0:
                return True
        self.core_died = True
        return False

    def service_actions(self):
        """Like vLLM: say that the core has died, answer 503 for a moment, end."""
        if self.core_lives():
            return
        if not hasattr(self, "died_at"):
            self.died_at = time.monotonic()
            log("APIServer", "ERROR 11-29 16:00:00 [core_client.py:600] Engine core proc EngineCore"
                " died unexpectedly, shutting down client.")
        if time.monotonic() > self.died_at + 1:
            sys.exit(1)


def main():
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--standin", type=json.loads, default={})
    arguments, rest = parser.parse_known_args()
    options = arguments.standin
    info("APIServer", "api_utils.py:286", f"non-default args: {vars(arguments)} {rest}")
    if "crash" in options:
        print((LOGS / options["crash"]).read_text(), flush=True)
        sys.exit(options.get("code", 1))
    child = process("VLLM::EngineCore", lambda: core(options), options.get("stubborn"))
    if options.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(options.get("slow_s", 0))
    if not options.get("stubborn"):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    info("EngineCore", "kv_cache_utils.py:900", f"CPU KV cache size: {TOKENS:,} tokens, "
         "Maximum concurrency for 2,048 tokens per request: 22.75x")
    Server.core, Server.names = child, arguments.served_model_name or [arguments.model]
    server = Server((arguments.host, arguments.port), Handler)
    log("APIServer", "INFO:     Application startup complete.")
    server.serve_forever(poll_interval=0.1)


if __name__ == "__main__":
    main()
