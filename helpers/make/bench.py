"""`make bench`: every performance figure of the course beside its bar, and beside its peer.

    python -m helpers.make.bench              # all sections, about 20 minutes on 2 cores
    python -m helpers.make.bench setup points # some: see SECTIONS in bench_sections.py

Prints one table and writes it to results/bench.json. A bar that is not met is in the table; a
section that cannot be measured is too, as failed, and makes the exit status 1.
"""

import json
import os
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from helpers import provenance
from helpers.make import report

RESULTS = provenance.ROOT / "results"


@dataclass(slots=True)
class Figure:
    """One measured number. bar: the most it may be, in its unit; None where there is no bar.

    at_least: the bar is the least. peers: {name: the same measured on another tool in the same
    run}. note: why it failed, or what the number is made of.
    """

    name: str
    unit: str
    measured: float | None
    bar: float | None = None
    at_least: bool = False
    peers: dict = field(default_factory=dict)
    note: str = ""
    section: str = ""

    @property
    def met(self):
        """'yes', 'no', 'failed', or '' where there is no bar."""
        if self.measured is None:
            return "failed"
        if self.bar is None:
            return ""
        met = self.measured >= self.bar if self.at_least else self.measured <= self.bar
        return "yes" if met else "no"


def run(sections):
    """The figures of {name: function}, one section after the other, each with what it printed."""
    found = []
    for name, section in sections.items():
        print(f"\n=== {name} ===", flush=True)
        started = time.monotonic()
        try:
            figures = section()
        except Exception as error:  # whatever went wrong, the other sections still count
            traceback.print_exc()
            figures = [Figure(name, "", None, note=f"{type(error).__name__}: {error}")]
        for figure in figures:
            figure.section = name
        found += figures
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return found


def table(figures):
    """The figures as text: figure, bar, measured, peers, met."""
    rows = [("figure", "bar", "measured", "peer", "met?")]
    for one in figures:
        peers = ", ".join(f"{name} {shown(value)}" for name, value in one.peers.items())
        bar = "at least " * one.at_least + f"{shown(one.bar)} {one.unit}"
        rows.append((one.name, bar if one.bar is not None else "",
                     f"{shown(one.measured)} {one.unit}" if one.measured is not None else "",
                     peers, one.met))
    wide = [max(len(row[place]) for row in rows) for place in range(5)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, wide, strict=True)).rstrip()
             for row in rows]
    notes = [f"{one.name}{' failed' if one.met == 'failed' else ''}: {one.note:.300}"
             for one in figures if one.note]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], *notes])


def shown(value):
    """A number with three digits that count, or a text as it is."""
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def save(figures, load_before):
    """Write results/bench.json: the figures, the machine, and how busy that was before."""
    about = {"time": datetime.now(UTC).isoformat(), "machine": provenance.machine(),
             "software": provenance.software(), "load_average_before": load_before,
             "figures": [asdict(figure) | {"met": figure.met} for figure in figures]}
    report.write(RESULTS / "bench.json", json.dumps(about, indent=1) + "\n")


def main(names):
    """Run the sections named, or all; returns the exit status."""
    from helpers.make.bench_sections import SECTIONS

    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        print(f"There is no section {unknown[0]!r}. There are: {', '.join(SECTIONS)}.")
        return 2
    load_before = os.getloadavg()[0]
    figures = run({name: SECTIONS[name] for name in names or SECTIONS})
    save(figures, load_before)
    print(f"\n{table(figures)}\n\nLoad average before: {load_before:.1f} on {os.cpu_count()} cores."
          f" In results/bench.json too.")
    return int(any(figure.met == "failed" for figure in figures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
