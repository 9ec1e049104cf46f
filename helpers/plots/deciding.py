"""The figures of lesson 09: what an acceptable request costs, and which differences were seen."""

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from helpers.plots.base import COLOURS, axes


def cost(costs, *, ax=None):
    """Cost of a thousand acceptable requests against the load; dashed as predicted.

    costs: rows with arm, load (of the baseline's capacity), cost, low, high and predicted, each
    of a thousand. An infinite cost (none acceptable) is an arrow at the top.
    """
    ax = axes(ax, data=costs)
    finite = costs[["cost", "predicted"]].replace(np.inf, np.nan).max().max()
    top = 3 * (finite if finite == finite else 1)
    for at, (arm, rows) in enumerate(costs.groupby("arm", sort=False)):
        rows, colour = rows.sort_values("load"), COLOURS.get(arm, f"C{at}")
        there = rows[np.isfinite(rows.cost)]
        ends = np.abs(there[["low", "high"]].T.to_numpy() - there.cost.to_numpy())
        shift = 0.015 * (at - 0.5) * costs.load.max()  # side by side
        ax.errorbar(there.load + shift, there.cost, np.nan_to_num(ends, posinf=top), fmt="o", ms=5,
                    capsize=3, lw=1, color=colour, label=arm)
        ax.plot(rows.load, rows.predicted, "--", lw=1, color=colour)
        for load in rows.load[~np.isfinite(rows.cost)]:
            ax.annotate("none in time", (load + shift, 1), xycoords=("data", "axes fraction"),
                        xytext=(0, -22 - 12 * at), textcoords="offset points", color=colour,
                        fontsize=8, ha="center")
    ax.set(xlabel="offered load, as a share of the baseline's capacity", yscale="log",
           ylabel="cost of 1,000 acceptable\nrequests (logarithmic)",
           xlim=(0, 1.1 * costs.load.max()))
    bottom = costs[["cost", "low", "predicted"]].replace([0, np.inf], np.nan).min().min()
    ax.set_ylim((bottom if bottom == bottom else 1) / 1.5, top)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(frameon=False, fontsize=8, title="dashed: predicted", title_fontsize=8)
    return ax


def ratios(rows, *, margin=0.05, ax=None):
    """Ratios of costs with their intervals, one line each; the band is 1 ± margin.

    rows: label, value, low, high, control (a bool: grey), and machine, which stands above its
    rows where there are several. A ratio with no interval is hollow; an infinite one stands at
    the right edge.
    """
    ax = axes(ax, data=rows)
    known = rows[["value", "low", "high"]].replace(np.inf, np.nan).max().max()
    edge = 1.15 * max(1.3, known if known == known else 1.3)
    new = rows.machine.ne(rows.machine.shift()).tolist()
    places = np.arange(len(rows)) + np.cumsum(new) * (sum(new) > 1)
    for place, first, row in zip(places, new, rows.itertuples(), strict=True):
        colour = COLOURS["card"] if row.control else COLOURS["throughput"]
        value, measured = min(row.value, edge), row.low == row.low
        if measured:
            ax.plot([min(row.low, edge), min(row.high, edge)], [place] * 2, color=colour, lw=2)
        ax.plot(value, place, "o", ms=5, color=colour, mfc=colour if measured else "none")
        if first and sum(new) > 1:
            ax.text(0.01 * edge, place - 1, row.machine, fontsize=8, va="center", color="#666666")
    ax.axvspan(1 - margin, 1 + margin, color="black", alpha=0.1, lw=0)
    ax.axvline(1, color="black", lw=1)
    ax.set_yticks(places, rows.label, fontsize=8)
    ax.set(xlim=(-0.02 * edge, edge * 1.03),
           ylim=(places[-1] + 0.6, places[0] - 0.6 - (sum(new) > 1)),
           xlabel="cost of an acceptable request, one over the other (ratio)")
    return ax
