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

pd.set_option("display.max_colwidth", None)  # a note is a sentence: show all of it


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


def table(*keys, notebook=None, prefix=None):
    """Rows as a DataFrame to show: the keys given, then those of a notebook or a key prefix.

    Columns: what it is, value, unit, source and, where there is one, hardware.
    Raises LabError where a key is unknown or nothing is selected.
    """
    rows = [row(key) for key in keys]
    rows += [r for r in _rows().values() if r["key"] not in keys and _asked(r, notebook, prefix)]
    if not rows:
        raise LabError(f"data/study.csv has no rows for notebook={notebook!r}, prefix={prefix!r}.")
    frame = pd.DataFrame(rows, dtype=object).set_index("key")  # object: 128 stays an int
    frame["source"] = frame["source"].map(SOURCES)
    frame = frame.rename(columns={"note": "what it is"})
    hardware = ["hardware"] if frame["hardware"].any() else []
    return frame[["what it is", "value", "unit", "source", *hardware]]


def _asked(row, notebook, prefix):
    """True where the row belongs to the notebook or its key starts with the prefix."""
    return row["notebook"] == notebook or (prefix and row["key"].startswith(prefix))
