"""What this machine is: processor, memory, disk, GPU, and how fast its memory can be read."""

import contextlib
import functools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from helpers import profile
from helpers.errors import LabError

HARDWARE = Path(__file__).parent.parent / "data" / "hardware.csv"
SAMPLE_S = 0.2
GPU_READ_TEST = """
import torch, time
size = min(2**30, torch.cuda.mem_get_info()[0] // 8)  # at most half of what is free
x = torch.zeros(size, dtype=torch.float32, device="cuda")
best = 0
for _ in range(8):
    torch.cuda.synchronize(); start = time.perf_counter()
    x.sum(); torch.cuda.synchronize()
    best = max(best, x.numel() * 4 / (time.perf_counter() - start))
print(best)
"""


@functools.cache
def processor():
    """The processor's name from /proc/cpuinfo."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1].strip() if found else "unknown processor"


def cores():
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def name():
    """One line for captions: the GPU in use, or the processor and its cores."""
    if profile.current().name == "gpu":
        return profile.gpu_name() or "GPU"
    return f"{processor()}, {cores()} cores"


def describe():
    """A table of the machine: processor, cores, memory, disk, GPU. GiB is 2^30 bytes."""
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(Path.home())
    rows = {
        "processor": processor(),
        "cores": cores(),
        "memory": f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB free",
        "disk": f"{disk.free / 2**30:.0f} GiB free",
        "GPU": profile.gpu_name() or "none",
    }
    return pd.DataFrame({"this machine": rows})


def hardware():
    """The course's hardware sheet, indexed by name; see data/README.md for its units."""
    return pd.read_csv(HARDWARE).set_index("name")


def memory_bandwidth(*, repeats=5, threads=None):
    """Bytes a second at which this machine reads its memory, the best of `repeats`.

    On a CPU: so many threads, one a core if not given, sum parts of 1 GiB, far more than caches
    hold. On a GPU: one sum over 4 GiB, or half of what is free, in a process of its own; threads
    mean nothing there. Reading is what a decode step does with the weights. Raises LabError.
    """
    if profile.current().name == "gpu":
        done = subprocess.run([sys.executable, "-c", GPU_READ_TEST], capture_output=True, text=True)
        if done.returncode:
            raise LabError("The GPU's memory could not be read.", cause="Too little of it is free.",
                           fix="Stop an engine and run the cell again.", log=done.stderr[-1500:])
        return float(done.stdout)
    threads = threads or cores()
    arrays = [np.ones(2**28 // threads, dtype=np.float32) for _ in range(threads)]
    return max(_read_once(arrays) for _ in range(repeats))


def _read_once(arrays):
    with ThreadPoolExecutor(len(arrays)) as pool:
        start = time.perf_counter()
        list(pool.map(np.sum, arrays))
        return sum(array.nbytes for array in arrays) / (time.perf_counter() - start)


@functools.cache
def fp8_cache():
    """Whether vLLM can keep an FP8 cache here; says so once if it cannot.

    On a CPU its kernels need AVX-512 or AMX (vllm/v1/attention/backends/cpu_attn.py), on an
    NVIDIA GPU compute capability 8.9 or more: older ones have no FP8 arithmetic.
    """
    if profile.current().name == "gpu":
        found = _first_gpu("compute_cap") >= 8.9
    else:
        flags = Path("/proc/cpuinfo").read_text()
        found = any(flag in flags for flag in ("avx512f", "amx_tile"))
    if not found:
        print("No FP8 cache on this machine: 16 bits again, which must change nothing.")
    return found


@contextlib.contextmanager
def gpu_busy(every_ms=100):
    """Watches the first GPU: yields a function (start, end) of time.perf_counter() values that
    returns the mean share of time, 0 to 1, in which a kernel ran between. NaN where not known.

    It is nvidia-smi's utilization.gpu: a kernel ran, however few of the GPU's units it used. A
    value speaks of the time before it, SAMPLE_S on a data-centre card (NVML's documentation: 1/6
    to 1 s), so values of the first SAMPLE_S are left out where there are later ones.
    """
    samples = []

    def between(start, end):
        seen = [(at, busy) for at, busy in list(samples) if start <= at <= end]
        whole = [busy for at, busy in seen if at >= start + SAMPLE_S]
        return float(np.mean(whole or [busy for _, busy in seen] or [np.nan]))
    if profile.current().name != "gpu":
        yield between
        return
    command = ["nvidia-smi", "--id=0", "--query-gpu=utilization.gpu",
               "--format=csv,noheader,nounits", f"--loop-ms={every_ms}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        def read():
            for line in process.stdout:
                if line.strip().isdigit():  # a GPU cut into MIG slices has none
                    samples.append((time.perf_counter(), int(line) / 100))
        threading.Thread(target=read, daemon=True).start()
        try:
            yield between
        finally:
            process.kill()


def engine_memory(server):
    """Bytes of memory that an engine takes: on a CPU what its processes hold, shared pages once
    (PSS); on a GPU all that is in use on the first card, so let nothing else run there.
    """
    if profile.current().name == "gpu":
        return int(_first_gpu("memory.used")) * 2**20
    top = psutil.Process(server.pid)
    return sum(process.memory_full_info().pss for process in [top, *top.children(recursive=True)])


def _first_gpu(field):
    """A number that nvidia-smi knows of the first GPU, in nvidia-smi's unit."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(answer.split()[0])
