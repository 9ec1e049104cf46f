"""Measurements that stay: one file a run, one line a request, and what they were measured on.

    results.record("02_clients", requests, server=server)
    requests = results.load("02_clients")                  # yours, and the recorded ones

A run is results/runs/EXPERIMENT/TIME-MACHINE-PID.jsonl. Its first line is {"header": {...}}, each
further line one request. It is written under another name, forced to the disk and renamed, so it
is whole or not there; nothing ever changes a run once it is written. Runs that ship with the
course are the same files, or these gzipped (.jsonl.gz), anywhere below data/recorded, in a folder
named for their experiment.
"""

import os
import re
from datetime import UTC, datetime

import pandas as pd

from helpers import provenance, run_file
from helpers import server as servers
from helpers.errors import LabError

ROOT = provenance.ROOT
RUNS, RECORDED = ROOT / "results" / "runs", ROOT / "data" / "recorded"


def record(experiment, requests, *, server=None, **about):
    """Write one run and return its path. requests: a DataFrame, one row a request (rows.py).

    experiment: letters, digits, '_', '-' and '.'; it names the folder, and fills the column.
    server: a Server or several in a list, for the header; left out, all that are live here.
    about: anything else worth keeping (seed=7, note="lid closed"), over requests.attrs.
    With LAB_QUICK nothing is written, and None returned: such numbers are no results.
    NaN is written as null. Raises LabError where there is nothing to record, a value is not
    JSON, or the disk is full or not writable; ValueError for such a name of an experiment.
    """
    _check_name(experiment)
    if not len(requests):
        raise LabError(f"There are no requests to record for {experiment!r}.",
                       fix="Run the measuring cell first.")
    if os.environ.get("LAB_QUICK"):
        print("LAB_QUICK: not recorded, since such numbers are no results.")
        return None
    requests = requests.assign(experiment=experiment)
    header = _header(experiment, requests, server, about)
    rows = requests.to_dict("records")
    lines = [run_file.line(row) for row in ({"header": header}, *rows)]
    return run_file.write(RUNS / experiment, header["run"], lines)


def load(experiment, *, machine=None):
    """Every recorded request of an experiment: the columns that were recorded, and four more.

    run: the file's name.  machine: its id, such as 'cpu-amd-epyc-2c'.  time: when it was
    recorded (UTC).  source: 'yours', or 'recorded' for what ships with the course.
    machine=: only machines whose id starts with it ('gpu' is any GPU).
    attrs['headers'] is {run: header}. Raises LabError if nothing is recorded, naming the
    notebook that records it, and for a damaged file, naming its line: nothing is skipped. A run
    of yours that ships as well is there once.
    """
    _check_name(experiment)
    files = {path.name.removesuffix(".gz"): (path, source)
             for path, source in reversed(list(_files(experiment)))}
    runs = [run_file.read(path, source) for path, source in reversed(files.values())]
    wanted = [(header, frame) for header, frame in runs
              if machine is None or header["machine"]["id"].startswith(machine)]
    if not wanted:
        raise _nothing(experiment, machine, {header["machine"]["id"] for header, _ in runs})
    together = pd.concat([frame for _, frame in wanted], ignore_index=True)
    together.attrs["headers"] = {header["run"]: header for header, _ in wanted}
    return together


class NothingRecorded(LabError):
    """There is no run of that experiment, or none of that machine."""


def latest(experiment, *, machine=None):
    """The rows of the newest run that `load` finds, or None where none is recorded.

    Raises LabError for a damaged file.
    """
    try:
        found = load(experiment, machine=machine)
    except NothingRecorded:
        return None
    headers = found.attrs["headers"]
    newest = max(headers, key=lambda run: headers[run]["time"])
    return found[found.run == newest].reset_index(drop=True)


def beside(experiment, requests, *, instead=None, machine="gpu-nvidia-h200"):
    """The requests at hand and, below them, the latest run of that machine that ships.

    instead: an experiment whose run stands in where none of the first ships. The column `machine`
    tells the two apart. Where no such run ships it says so, and returns the requests alone. Raises
    LabError for a damaged file.
    """
    mine = requests.assign(machine=f"this one ({provenance.machine()['id']})")
    shipped = _shipped(experiment, machine) or (_shipped(instead, machine) if instead else [])
    if not shipped:
        print(f"No run of {experiment!r} on {machine!r} ships with the course yet: "
              "this machine's stand alone.")
        return mine
    _, latest = max(shipped, key=lambda run: run[0]["time"])
    return pd.concat([mine, latest.assign(machine=f"recorded ({latest.machine[0]})")],
                     ignore_index=True)


def _shipped(experiment, machine):
    """[(header, rows)] of the runs of machines whose id begins so that ship."""
    shipped = (run_file.read(path, source) for path, source in _files(experiment)
               if source == "recorded")
    return [run for run in shipped if run[0]["machine"]["id"].startswith(machine)]


def _check_name(experiment):
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", experiment):
        raise ValueError(f"{experiment!r} is no name of an experiment: letters, digits, _ - .")


def _header(experiment, requests, server, about):
    """What the first line says: machine, software, engines, settings, columns, rows."""
    now, machine = datetime.now(UTC), provenance.machine()
    if server is None:
        server = list(servers._live.values())
    engines = server if isinstance(server, (list, tuple)) else [server]
    settings = requests.attrs.get("settings") or {}
    header = {
        "schema": run_file.SCHEMA, "experiment": experiment,
        "run": f"{now:%Y%m%dT%H%M%S.%fZ}-{machine['id']}-{os.getpid()}",
        "time": now.isoformat(), "machine": machine, "software": provenance.software(),
        "engines": [provenance.engine(one) for one in engines],
        "seed": about.get("seed", settings.get("seed")), "about": {**requests.attrs, **about},
        "rows": len(requests),
        "columns": {name: str(dtype) for name, dtype in requests.dtypes.items()},
    }
    return provenance.without_home(run_file.plain(header))


def _files(experiment):
    """(path, source) of every run of the experiment, the oldest first, the recorded ones last."""
    endings = (".jsonl", ".jsonl.gz")
    for top, source in ((RUNS / experiment, "yours"), (RECORDED, "recorded")):
        for path in sorted(top.rglob("*")):
            if path.name.endswith(endings) and path.parent.name == experiment:
                yield path, source


def _nothing(experiment, machine, machines):
    if machines:
        return NothingRecorded(f"{experiment!r} has no run on a machine {machine!r}.",
                               cause=f"It was recorded on {', '.join(sorted(machines))}.",
                               fix="Leave machine= out, or record it on such a machine.")
    makers = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("*/*.ipynb"))
              if re.search(rf"record\(\\*[\"']{re.escape(experiment)}\\*[\"']", path.read_text())]
    names = sorted({p.parent.name for top in (RUNS, RECORDED) for p in top.rglob("*.jsonl*")})
    known = f"Recorded so far: {', '.join(names)}." if names else "Nothing is recorded yet."
    fix = f"Run {' or '.join(makers)}: it records it." if makers else f"Check the name. {known}"
    return NothingRecorded(f"No run of {experiment!r} is recorded.", fix=fix)
