"""The figures, flags and findings of the two texts that this course checks, from data/study.csv.

A notebook prints what it compares with through this module: no such number is typed into prose.
"""

import csv
import difflib
from functools import cache
from pathlib import Path

import pandas as pd

from helpers.errors import LabError

CSV = Path(__file__).resolve().parent.parent / "data" / "study.csv"
SOURCES = {"study": "the engine-sharing study", "tutorial": "the classroom tutorial"}


@cache
def _rows():
    """All rows as {key: row}, each row a dict of the CSV's columns, its value converted."""
    with CSV.open(newline="", encoding="utf-8") as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    for row in rows.values():
        row["value"] = _convert(row["value"], row["unit"])
    return rows


def _convert(text, unit):
    """int or float where the text is a number; a version such as 3.11 stays text."""
    if unit == "version":
        return text
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def row(key):
    """The row of `key` as a dict: key, source, kind, value, unit, hardware, note, notebook.

    Raises LabError, naming keys that look alike, where there is no such key.
    """
    rows = _rows()
    if key not in rows:
        near = difflib.get_close_matches(key, rows, n=5, cutoff=0.5)
        fix = f"did you mean {', '.join(near)}?" if near else f"look the key up in {CSV.name}"
        raise LabError(f"data/study.csv has no row '{key}'.", cause="a misspelt key", fix=fix)
    return dict(rows[key])


def value(key):
    """The value of `key`: an int or a float in the row's unit, or a str. Raises as `row`."""
    return row(key)["value"]


def table(*keys, prefix=None):
    """Rows as a table to show: those of the keys, then those whose key starts with `prefix`.

    Columns: what it is, the flag where it is one, what the text says (value and unit), and the
    hardware where it is named. Returns a pandas Styler; its DataFrame is `.data`. Raises LabError
    where a key is unknown or nothing is selected.
    """
    rows = [row(key) for key in keys]
    if prefix is not None:
        rows += [r for r in _rows().values() if r["key"].startswith(prefix)]
    if not rows:
        raise LabError(f"data/study.csv has no row whose key starts with {prefix!r}.")
    return left_aligned(pd.DataFrame([_shown(r) for r in rows]).fillna(""))


def left_aligned(frame):
    """The frame as a Styler with its text to the left and no index; empty columns left out.

    Numbers have three decimals, and where there is none it says so.
    """
    styler = frame.loc[:, (frame != "").any()].style.hide(axis="index")
    styler.format(precision=3, na_rep="none")
    return styler.set_table_styles([{"selector": "th, td", "props": "text-align: left"}])


def _shown(row):
    """One row as a reader sees it."""
    value = row["value"]
    number = f"{value:,}" if isinstance(value, int) and value >= 10_000 else value
    return {
        "what it is": row["note"],
        "flag": _flag(row["key"]),
        SOURCES[row["source"]]: f"{number} {row['unit']}".removesuffix(" version").strip(),
        "hardware": row["hardware"],
    }


def _flag(key):
    """study_serve_flag_max_num_seqs is --max-num-seqs; a variable or a program is no flag."""
    _, found, name = key.partition("_flag_")
    if not found or name == "tool" or name.startswith("env_"):
        return ""
    return "--" + name.replace("_", "-")
