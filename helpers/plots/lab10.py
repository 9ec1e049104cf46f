"""The figures of lab 10: speed and goodput of each topology; losses by rule; the ledger."""

import math
import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from helpers.plots.base import COLOURS, axes

VERDICTS = {"supported": "#009E73", "contradicted": "#D55E00", "not decided": "#999999",
            "not run": "#CCCCCC"}


def topologies(points, *, ax=None):
    """Output tokens a second of each arm by load: pale all, full those of requests in time.

    points: rows of ledger.lab10.points, one a turn. Bars are means over repeats, dots the repeats.
    """
    ax = axes(ax, data=points)
    arms, loads = list(pd.unique(points.arm)), sorted(points.concurrency.unique())
    width = 0.84 / len(arms)
    for at, arm in enumerate(arms):
        rows = points[points.arm == arm]
        colour = COLOURS.get(arm, f"C{at}")
        for place, load in enumerate(loads):
            turns, x = rows[rows.concurrency == load], place + (at - (len(arms) - 1) / 2) * width
            for measure, alpha in (("output_tok_per_s", 0.3), ("good_tok_per_s", 1)):
                ax.bar(x, turns[measure].mean(), 0.9 * width, color=colour, alpha=alpha, lw=0,
                       label=arm if alpha == 1 and place == 0 else None)
                ax.plot([x] * len(turns), turns[measure], ".", ms=3, color="black")
    ax.set_xticks(range(len(loads)), [f"{load} in flight" for load in loads])
    ax.set(ylabel="output tokens a second")
    ax.legend(frameon=False, fontsize=7, title="full: within the SLO; pale: the rest",
              title_fontsize=7, loc="upper left")
    ax.set_ylim(0, 1.45 * points.output_tok_per_s.max())
    return ax


def routes(judged, *, ax=None):
    """Mean loss of a request by way of routing, one bar a way: random, by rule, at best.

    judged: {rule's name: a Series of routing.judge}.
    """
    ax = axes(ax)
    for at, found in enumerate(judged.values()):
        for side, (way, colour) in enumerate((("random", "#999999"), ("routed", "#0072B2"),
                                              ("best", "#009E73"))):
            ax.bar(at + (side - 1) * 0.27, found[way], 0.25, color=colour,
                   label={"random": "as many by chance", "routed": "by the rule",
                          "best": "by the losses themselves"}[way] if at == 0 else None)
    ax.axhline(0, color="black", lw=0.8)
    ax.set_xticks(range(len(judged)), judged)
    low, high = ax.get_ylim()
    ax.set(ylabel="loss a request (nats a token)", ylim=(low, high + 0.3 * (high - low)))
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    return ax


def ledger(table, *, ax=None):
    """Every claim's interval against its bound: right of the line is where it must lie.

    table: rows of ledger.every or ledger.verdicts. Each row has a scale of its own, since their
    units differ; the numbers stand at the right. A row with no number has no interval.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(8.5, 0.8 + 0.36 * len(table)), layout="constrained")
    ax = axes(ax, data=table)
    for at, row in enumerate(table.itertuples()):
        colour, ends = VERDICTS[row.verdict], _margins(row)
        number = "no number"
        if not math.isnan(ends[1]):
            scale = np.nanmax(np.abs(np.where(np.isfinite(ends), ends, np.nan))) or 1
            ends = np.clip(np.array(ends) / scale, -1, 1)
            ax.plot(ends[[0, 2]], [at, at], lw=3, alpha=0.5, color=colour, solid_capstyle="butt")
            ax.plot(ends[1], at, "o", ms=5, color=colour)
            number = f"{row.value:.3g}" + ("" if math.isnan(row.low) else
                                           f" ({row.low:.3g} to {row.high:.3g})")
        ran = row.verdict != "not run"
        ax.annotate(f"{number}, {row.needed}: {row.verdict}" if ran else "not run", (1.08, at),
                    fontsize=7, va="center", color=colour if ran else "#777777",
                    annotation_clip=False)
    ax.axvline(0, color="black", lw=1)
    names = [textwrap.fill(f"{row.lab}  {row.claim}", 52) for row in table.itertuples()]
    ax.set_yticks(range(len(table)), names, fontsize=7)
    ax.set_xticks([-0.6, 0.6], ["against", "for"], fontsize=8)
    ax.set(xlim=(-1.05, 1.05), ylim=(len(table) - 0.4, -0.6))
    ax.tick_params(length=0)
    return ax


def _margins(row):
    """How far the worst end, the value and the best point of an interval lie on the wanted side of
    the bound; below 0 on the other."""
    above, below = _bounds(row.needed)
    found = [min(x - above if above is not None else math.inf,
                 below - x if below is not None else math.inf) if x == x else math.nan
             for x in (row.low, row.value, row.high)]
    # between two bounds the value can lie further in than both ends; NaN ends stay NaN
    return [min(found[0], found[2]), found[1], np.max(found)]


def _bounds(needed):
    """(above, below) of a Claim's `needed`, None where there is none."""
    words = needed.split()
    ends = {words[at]: float(words[at + 1]) for at in range(len(words))
            if words[at] in ("above", "below")}
    return ends.get("above"), ends.get("below")
