"""Puts runs of results/runs among those that ship with the course.

    python -m helpers.make.ship results/runs/07_speed/RUN.jsonl data/recorded/h200

A run that would fill more than LIMIT bytes goes without the time of every chunk and without the
answers' texts: its header says so in `left_out`. All else is as it was recorded.
"""

import gzip
import json
import sys
from pathlib import Path

from helpers import run_file

LIMIT = 600_000
LARGE = {"chunk_times_s": [], "itl_s": None, "chunk_tokens": None, "text": ""}


def ship(path, folder):
    """Write folder/EXPERIMENT/RUN.jsonl.gz; returns its path. Raises LabError for a damaged run."""
    header, _ = run_file.read(Path(path), "yours")
    data = Path(path).read_bytes()
    if len(gzip.compress(data)) > LIMIT:
        data = _lean(data.splitlines())
    target = Path(folder, header["experiment"], f"{header['run']}.jsonl.gz")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(data, mtime=0))
    run_file.read(target, "recorded")
    return target


def _lean(lines):
    first, *rows = map(json.loads, lines)
    dropped = {name: value for name, value in LARGE.items() if name in first["header"]["columns"]}
    first["header"]["left_out"] = list(dropped)
    return ("\n".join(run_file.line(row) for row in [first, *({**row, **dropped} for row in rows)])
            + "\n").encode()


if __name__ == "__main__":
    *runs, folder = sys.argv[1:]
    for run in runs:
        print(ship(run, folder))
