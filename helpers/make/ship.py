"""Puts runs of results/runs among those that ship with the course.

    python -m helpers.make.ship results/runs/07_speed/RUN.jsonl data/recorded/h200

A run that would fill more than LIMIT bytes goes without the time of every chunk and the answers'
texts, or, where its rows are tokens, without their texts: its header says so in `left_out`. All
else is as it was recorded.
"""

import gzip
import json
import sys
from pathlib import Path

from helpers import run_file

LIMIT = 600_000
REQUEST = {"chunk_times_s": [], "itl_s": None, "chunk_tokens": None, "text": ""}
TOKEN = {"token": ""}


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
    columns = first["header"]["columns"]
    large = REQUEST if "chunk_times_s" in columns else TOKEN
    dropped = {name: value for name, value in large.items() if name in columns}
    first["header"]["left_out"] = list(dropped)
    return ("\n".join(run_file.line(row) for row in [first, *({**row, **dropped} for row in rows)])
            + "\n").encode()


if __name__ == "__main__":
    *runs, folder = sys.argv[1:]
    for run in runs:
        print(ship(run, folder))
