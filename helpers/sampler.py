"""Samples of an engine's /metrics while something runs, on the clock of time.perf_counter()."""

import threading
from contextlib import contextmanager
from time import perf_counter

import httpx
import pandas as pd

from helpers import exposition


@contextmanager
def watch(server, *names, every_s=0.2):
    """Read /metrics every `every_s` seconds, in a thread, while the block runs.

        with sampler.watch(engine, "vllm:num_requests_running") as counts:
            ...
        counts        # one row a sample: time (perf_counter, s), then a column for each name

    names: as in `server.metrics()`. The table is filled when the block ends, so that taking the
    text apart costs nothing meanwhile; `time` is when the answer was there. A reading that fails
    is left out.
    """
    table, texts, url = pd.DataFrame(), [], server.url + "/metrics"
    enough = threading.Event()

    def read():
        with httpx.Client(trust_env=False, timeout=30) as http:
            while not enough.wait(every_s if texts else 0):
                try:
                    text = http.get(url).raise_for_status().text
                except httpx.HTTPError:
                    text = ""
                texts.append((perf_counter(), text))

    thread = threading.Thread(target=read, name="sampler", daemon=True)
    thread.start()
    try:
        yield table
    finally:
        enough.set()
        thread.join()
        read_out = [(time, exposition.values(text)) for time, text in texts if text]
        table["time"] = [time for time, _ in read_out]
        for name in names:
            table[name] = [values.get(name, float("nan")) for _, values in read_out]
