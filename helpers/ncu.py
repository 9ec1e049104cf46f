"""Nsight Compute: runs a Python module under `ncu`, and reads what it counted."""

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import pandas as pd

from helpers import engine, profile, provenance, supervisor
from helpers.errors import LabError

METRICS = {"dram__bytes_read.sum": "read_bytes", "dram__bytes_write.sum": "write_bytes",
           "gpu__time_duration.sum": "duration_s"}
UNITS = {"": 1, "byte": 1, "B": 1, "K": 1e3, "M": 1e6, "G": 1e9, "s": 1, "second": 1, "m": 1e-3,
         "u": 1e-6, "n": 1e-9}
FOLDER = provenance.ROOT / "results" / "ncu"
PLACES = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")


def command(module, *arguments, log, graphs="graph"):
    """The command line that runs a module under ncu; log: the file for what ncu counts.

    Only what the module does between torch.cuda.profiler.start() and stop() is counted, and a CUDA
    graph as one; with graphs="node" every kernel in it by itself.
    """
    return [find() or "ncu", "--clock-control", "none", "--profile-from-start", "off",
            "--graph-profiling", graphs, "--metrics", ",".join(METRICS), "--csv",
            "--print-units", "base", "--log-file", str(log),
            sys.executable, "-m", module, *map(str, arguments)]


def find():
    """The path of Nsight Compute's command, or None."""
    found = [str(path) for pattern in PLACES for path in sorted(Path("/").glob(pattern[1:]))]
    return shutil.which("ncu") or (found[-1] if found else None)


def count(name, module, *arguments, graphs="graph"):
    """Run a module under ncu: (what it says, a list of dicts; what ncu counted, as in `read`).

    The module gets the arguments, and as the last one a file for a JSON line a stretch.
    Raises LabError where there is no ncu, where it may not read the counters, or where the probe
    fails; files stay in results/ncu.
    """
    if profile.gpu_name() is None or find() is None:
        raise LabError("DRAM bytes cannot be counted on this machine.",
                       cause="No NVIDIA driver answers." if profile.gpu_name() is None else
                       "Nsight Compute (ncu) is not installed.",
                       fix="Read the recorded points, or run this where both are there.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    log, said, out = (FOLDER / f"{name}.{kind}" for kind in ("csv", "jsonl", "log"))
    for file in (log, said, out):
        file.unlink(missing_ok=True)
    process = supervisor.start(command(module, *arguments, said, log=log, graphs=graphs),
                               env=os.environ | engine.DEFAULT_ENV, log_path=out,
                               cwd=provenance.ROOT)
    try:
        status = process.wait()
    finally:
        supervisor.stop(process)
    text, printed = (file.read_text(errors="replace") if file.exists() else ""
                     for file in (log, out))
    if "ERR_NVGPUCTRPERM" in text + printed:
        raise LabError("The counters of this GPU cannot be read.",
                       cause="The driver lets only an administrator read them (ERR_NVGPUCTRPERM).",
                       fix="Run as root with CAP_SYS_ADMIN, or have the driver loaded with "
                       "NVreg_RestrictProfilingToAdminUsers=0. Else leave it to another host.")
    if status or not said.exists():
        raise LabError(f"The probe {name!r} failed (status {status}).",
                       fix=f"Read {log} and {out}.", log=(text + printed)[-1500:])
    return [json.loads(line) for line in said.read_text().splitlines()], read(text)


def read(text):
    """A row for each kernel or graph that ncu counted, in order: name and the three METRICS.

    text: of `ncu --csv --page details`, a line a metric. Bytes and seconds, whatever its units.
    Raises LabError where a metric is missing or has no number.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found = {}
    for line in csv.DictReader(lines):
        if (column := METRICS.get(line.get("Metric Name"))) is None:
            continue
        row = found.setdefault(line["ID"], {"name": line["Kernel Name"]})
        try:
            row[column] = float(line["Metric Value"].replace(",", "")) * _unit(line["Metric Unit"])
        except (ValueError, KeyError):
            raise LabError(f"ncu gives no number: {line}.", cause="It does not have this counter "
                           "here, or a form that this program does not know.") from None
    table = pd.DataFrame(found.values(), columns=["name", *METRICS.values()])
    if table.empty or table.isna().any(axis=None):
        raise LabError("ncu counted nothing that can be read.", log=text[-1500:],
                       cause="No kernel ran while it looked, or one of its metrics is missing.")
    return table


def _unit(name):
    """'Mbyte' is 1e6, 'nsecond' and 'ns' 1e-9."""
    if name in UNITS:
        return UNITS[name]
    return UNITS[name[0]] * UNITS[name[1:]]
