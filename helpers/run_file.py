"""One run as a file: written whole or not at all, read back exactly or refused with its line."""

import contextlib
import errno
import gzip
import json
import math
import os
import time
import zlib
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from helpers.errors import LabError
from helpers.provenance import ROOT

SCHEMA = 1
RUN_COLUMNS = ["run", "machine", "time", "source"]
STALE_S = 3600  # a half-written file older than this is of a process that was killed


def line(value):
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


def plain(value):
    """The value as JSON has it: NaN as null, the infinities as 'Infinity' and '-Infinity'."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or value is pd.NaT or isinstance(value, (str, bool, int)):
        return None if value is pd.NA or value is pd.NaT else value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise LabError(f"A value of type {type(value).__name__} cannot be recorded: {value!r:.80}",
                   fix="Give it as a number, a text, or a list or dict of these.")


def write(folder, name, lines):
    """Write folder/name.jsonl so that it is whole or not there, even if the machine stops."""
    path, temporary = folder / f"{name}.jsonl", folder / f"{name}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        try:
            with open(temporary, "x", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(folder)
    except OSError as error:
        raise _not_written(path, error) from error
    return path


def _remove_stale(folder):
    for old in folder.glob("*.partial"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            if time.time() - old.stat().st_mtime > STALE_S:
                old.unlink()


def _sync_folder(folder):
    """Force the new name itself to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _not_written(path, error):
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return LabError(
        f"The run could not be written to {path.parent}: {error.strerror or error}.",
        cause="The disk is full, or your quota." if full else "The folder is not writable.",
        fix=("Free some space" if full else "Make that folder writable")
        + ", then run the recording cell again: the requests are still in memory.")


def read(path, source):
    """(header, requests) of one file; raises LabError that names the line which is wrong."""
    try:
        raw = path.read_bytes()
        lines = (gzip.decompress(raw) if path.suffix == ".gz" else raw).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, source, 1, f"it cannot be read ({error})") from error
    header = _parsed(lines[0] if lines else b"", path, source, 1).get("header")
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        raise _damaged(path, source, 1, f"it is not a header of version {SCHEMA}")
    rows = [_parsed(line, path, source, number) for number, line in enumerate(lines[1:], 2)]
    for number, row in enumerate(rows, 2):
        if row.keys() != header["columns"].keys():
            raise _damaged(path, source, number, "its columns are not those of the header")
    if len(rows) != header["rows"]:
        raise _damaged(path, source, len(lines) + 1,
                       f"the header promises {header['rows']} requests and {len(rows)} are there")
    return header, _frame(rows, header, source)


def _parsed(line, path, source, number):
    try:
        value = json.loads(line)
    except ValueError as error:
        raise _damaged(path, source, number, "it is not whole") from error
    if not isinstance(value, dict):
        raise _damaged(path, source, number, "it is not a request")
    return value


def _damaged(path, source, number, why):
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    yours = f"Move {shown} out of its folder, or delete it; the other runs are not affected."
    return LabError(f"{shown} is damaged at line {number}: {why}.",
                    cause="A copy that was interrupted, a full disk, or an edit by hand.",
                    fix=yours if source == "yours" else f"Get it back: git checkout -- {shown}")


def _frame(rows, header, source):
    frame = pd.DataFrame(rows, columns=list(header["columns"]), dtype=object)
    for name, dtype in header["columns"].items():
        if dtype == "object":
            frame[name] = pd.Series(map(_restored, frame[name]), dtype=object)
        else:
            frame[name] = frame[name].astype(dtype)
    run = (header["run"], header["machine"]["id"], pd.Timestamp(header["time"]), source)
    return frame.assign(**dict(zip(RUN_COLUMNS, run, strict=True)))


def _restored(value):
    """A list as it was before `plain`: null is NaN again."""
    if not isinstance(value, list):
        return value
    return [math.nan if item is None else float(item) if item in ("Infinity", "-Infinity") else item
            for item in value]
