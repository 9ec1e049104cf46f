"""Single kernels of a decode step, counted by Nsight Compute: bytes, time, and so the bandwidth.

    python -m helpers.kernels     # on a machine with an NVIDIA GPU, ncu and vLLM

Where lab 03 counts a decode graph as one, here every kernel in it is counted by itself; recorded, a
row a kernel, as `lab05_kernels`. Counting empties the GPU's caches before every kernel.
"""

import sys

import pandas as pd

from helpers import dram_probe, machine, models, ncu, results, trace
from helpers.command import shell_command
from helpers.dram import MODEL, PROBE
from helpers.errors import LabError

NAME = "lab05_kernels"


def command():
    """What a person would type to record them."""
    return shell_command([sys.executable.rsplit("/", 1)[-1], "-m", "helpers.kernels"])


def measure(model=MODEL):
    """One decode step of 16 sequences, a row a kernel: ncu's columns, part, bandwidth of the GPU.

    Raises LabError as `ncu.count` does.
    """
    folder = models.prepare(model)
    bandwidth = machine.memory_bandwidth()
    _, counted = ncu.count("kernels", PROBE, "kernels", folder, "auto", graphs="node")
    return counted.assign(part=counted.name.map(trace.part), bandwidth=bandwidth, model=model,
                          batch=dram_probe.KERNELS[0], outcome="ok")


def recorded():
    """The latest recorded run of a GPU; where there is none it says so, and has no rows."""
    found = results.latest(NAME, machine="gpu")
    if found is None:
        print("No GPU's single kernels are recorded yet: none ships with the course.")
        return pd.DataFrame(columns=["name", "part", "bandwidth", *ncu.METRICS.values()])
    return found


def summary(rows):
    """A row a part: kernels, ms, MB read, and `reached`: bytes moved in a second over bandwidth."""
    groups = rows.groupby("part")
    moved = groups.read_bytes.sum() + groups.write_bytes.sum()
    duration_s = groups.duration_s.sum()
    return pd.DataFrame({"kernels": groups.size(), "ms": 1e3 * duration_s,
                         "read_mb": groups.read_bytes.sum() / 1e6,
                         "reached": moved / duration_s / groups.bandwidth.first()})


def main():
    """The one command: count and record."""
    try:
        rows = measure()
        print(results.record(NAME, rows, server=[]), summary(rows), sep="\n")
    except LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
