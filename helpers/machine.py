"""What this machine is: processor, memory, disk, GPU, and how fast its memory can be read."""

import functools
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import psutil

from helpers import profile

HARDWARE = Path(__file__).parent.parent / "data" / "hardware.csv"
GPU_READ_TEST = """
import torch, time
x = torch.zeros(2**30, dtype=torch.float32, device="cuda")
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


def memory_bandwidth(*, repeats=5):
    """Bytes a second at which this machine reads its memory, the best of `repeats`.

    On a CPU: all cores sum arrays that are far larger than the caches. On a GPU: one sum over
    4 GiB, in a process of its own. Reading is what a decode step does with the weights.
    """
    if profile.current().name == "gpu":
        command = [sys.executable, "-c", GPU_READ_TEST]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    arrays = [np.ones(2**26, dtype=np.float32) for _ in range(cores())]
    return max(_read_once(arrays) for _ in range(repeats))


def _read_once(arrays):
    with ThreadPoolExecutor(len(arrays)) as pool:
        start = time.perf_counter()
        list(pool.map(np.sum, arrays))
        return sum(array.nbytes for array in arrays) / (time.perf_counter() - start)


def engine_memory(server):
    """Bytes of memory that an engine takes: on a CPU what its processes hold, shared pages once
    (PSS); on a GPU all that is in use on the first card, so let nothing else run there.
    """
    if profile.current().name == "gpu":
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return int(answer.split()[0]) * 2**20
    top = psutil.Process(server.pid)
    return sum(process.memory_full_info().pss for process in [top, *top.children(recursive=True)])
