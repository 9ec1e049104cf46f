"""The figures of lab 03: bytes that a decoded token moves, and the time that it takes."""

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from helpers.plots.base import COLOURS, axes

PARTS = {"weights": COLOURS["weights"], "cache": COLOURS["FP8"],
         "output projection": COLOURS["card"]}
MARKS = "XosD^"


def bytes_over_batch(lines, dots, *, ax=None):
    """MB a token over the batch: lines as worked out, dots as counted.

    lines: a table indexed by batch, a column of MB for each configuration.
    dots: rows with source, arm (a column of lines, whose colour they get), batch and mb; one mark
    for each source. None of a source, and it has no mark.
    """
    ax = axes(ax, data=lines)
    colours = {name: _colour(name, at) for at, name in enumerate(lines)}
    for name, colour in colours.items():
        ax.plot(lines.index, lines[name], lw=1.3, color=colour, label=name)
    sources = dots.groupby("source", sort=False)
    for at, (mark, (source, rows)) in enumerate(zip(MARKS, sources, strict=False)):
        style = {"marker": mark, "s": 40 + 25 * at, "edgecolor": "white", "lw": 0.7}
        ax.scatter(rows.batch, rows.mb, c=rows.arm.map(colours), zorder=9 - at, **style)
        ax.scatter([], [], c="#555555", label=source, **style)
    _batches(ax, lines.index)
    ax.set(ylabel="MB a token (10⁶ bytes, logarithmic)", yscale="log")
    ax.set_yticks([20, 50, 100, 200, 500, 1000], ["20", "50", "100", "200", "500", "1000"])
    ax.minorticks_off()
    ax.set_ylim(0.85 * min(lines.min(axis=None), dots.mb.min() if len(dots) else np.inf),
                1.2 * max(lines.max(axis=None), dots.mb.max() if len(dots) else 0))
    ax.legend(frameon=False, fontsize=8)
    return ax


def token_parts(parts, *, ax=None):
    """One bar a configuration: what a token reads of each part, in MB; parts: columns of PARTS."""
    ax = axes(ax, data=parts)
    places, left = np.arange(len(parts)), np.zeros(len(parts))
    for name in parts.columns:
        ax.barh(places, parts[name], left=left, color=PARTS[name], label=name, lw=0)
        left = left + parts[name].to_numpy(float)
    for place, total in zip(places, left, strict=True):
        ax.annotate(f"{total:.1f}", (total, place), xytext=(4, 0), va="center",
                    textcoords="offset points", fontsize=8)
    ax.set_yticks(places, parts.index, fontsize=8)
    ax.set(xlabel="read for a decoded token (MB)", xlim=(0, 1.12 * left.max()),
           ylim=(len(parts) - 0.5, -0.5))
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1),
              borderaxespad=1.6)
    return ax


def time_over_batch(points, *, ax=None):
    """Time of a token over the batch, measured and as bytes alone would have it.

    points: one row a (machine, batch, repeat) with token_s, measured, and least_s, the bytes of the
    token over the memory's bandwidth. A bar spans the repeats.
    """
    ax = axes(ax, data=points)
    for at, (machine, rows) in enumerate(points.groupby("machine", sort=False)):
        found = 1000 * rows.groupby("batch").token_s.agg(["mean", "min", "max"])
        ends = [found["mean"] - found["min"], found["max"] - found["mean"]]
        ax.errorbar(found.index, found["mean"], ends, fmt="o-", ms=4, lw=1.2, capsize=3,
                    color=f"C{at}", label=machine)
        least = 1000 * rows.groupby("batch").least_s.mean()
        ax.plot(least.index, least, "--", lw=1, color=f"C{at}")
    _batches(ax, points.batch)
    ax.set(ylabel="time of a token (ms, logarithmic)", yscale="log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_ylim(top=4 * ax.get_ylim()[1])
    ax.legend(frameon=False, fontsize=8, loc="upper right", title_fontsize=8,
              title="measured; dashed: its bytes / bandwidth")
    return ax


def _colour(name, at):
    """'BF16 cache' and '4-bit weights' have the colours of 'BF16' and '4-bit'."""
    return COLOURS.get(name) or COLOURS.get(name.split()[0], f"C{at}")


def _batches(ax, batches):
    sizes = sorted({int(batch) for batch in batches})
    sizes = [size for size in sizes if size & (size - 1) == 0]
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.set_xlabel("sequences in the batch")
