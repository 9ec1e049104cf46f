"""The sampler reads what the engine counts while a block runs, on the caller's clock."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from helpers import reference, sampler


@pytest.fixture
def server():
    """A /metrics whose gauge counts how often it was read."""
    class Handler(BaseHTTPRequestHandler):
        reads = 0

        def do_GET(self):
            Handler.reads += 1
            fails = Handler.reads == 2
            self.send_response(503 if fails else 200)
            self.end_headers()
            self.wfile.write(b"" if fails else b'vllm:running{engine="0"} %d\n' % Handler.reads)

        def log_message(self, *_):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield SimpleNamespace(url=f"http://127.0.0.1:{http.server_port}")
    http.shutdown()


def test_it_samples_until_the_block_ends(server):
    start = time.perf_counter()
    with sampler.watch(server, "vllm:running", "vllm:absent", every_s=0.01) as counts:
        assert counts.empty
        time.sleep(0.2)
    end = time.perf_counter()
    assert list(counts.columns) == ["time", "vllm:running", "vllm:absent"]
    assert counts["vllm:running"].iloc[:2].tolist() == [1, 3]  # the second reading failed
    assert counts["vllm:absent"].isna().all() and len(counts) > 3
    assert start < counts.time.min() and counts.time.max() < end
    assert counts.time.is_monotonic_increasing
    time.sleep(0.05)
    assert len(counts) == counts["vllm:running"].iloc[-1] - 1, "it still reads"


def test_an_error_in_the_block_ends_it_and_passes(server):
    with pytest.raises(KeyError), sampler.watch(server, "vllm:running") as counts:
        time.sleep(0.05)
        raise KeyError
    assert len(counts) == 1


def test_a_server_that_is_gone_leaves_no_samples():
    with reference.serve(first_s=0.01, gap_s=0.002) as server:
        gone = SimpleNamespace(url=server.url)
    with sampler.watch(gone, "vllm:running", every_s=0.01) as counts:
        time.sleep(0.05)
    assert counts.empty and list(counts.columns) == ["time", "vllm:running"]
