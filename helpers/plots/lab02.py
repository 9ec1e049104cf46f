"""The figure of lab 02: how much two engines that share a device feel each other."""

import numpy as np

from helpers.plots.base import COLOURS, axes


def progress(found, *, ax=None):
    """Normalized progress of pairs, a line each, between taking turns (1) and apart (2).

    found: rows with arm, concurrency, value, low, high (NaN: no interval, drawn hollow) and
    machine, which stands above its rows where there are several.
    """
    ax = axes(ax, data=found)
    new = found.machine.ne(found.machine.shift()).tolist()
    places = np.arange(len(found)) + np.cumsum(new) * (sum(new) > 1)
    ax.axvspan(1, 2, color="#eeeeee", lw=0)
    for place, first, row in zip(places, new, found.itertuples(), strict=True):
        known, colour = row.low == row.low, COLOURS.get(row.arm, "C1")
        ax.plot([row.low, row.high], [place] * 2, color=colour, lw=2)
        ax.plot(row.value, place, "o", ms=5, color=colour, mfc=colour if known else "none")
        if first and sum(new) > 1:
            ax.annotate(row.machine, (0, place - 1), xycoords=("axes fraction", "data"),
                        xytext=(4, 0), textcoords="offset points", fontsize=8, va="center",
                        color="#666666")
    for end, name in ((1, "turns"), (2, "apart")):
        ax.axvline(end, color="black", lw=0.8)
        ax.annotate(name, (end, 0), xycoords=("data", "axes fraction"), xytext=(3, 3),
                    textcoords="offset points", fontsize=8, color="#666666")
    ax.set_yticks(places, [f"{row.arm}, {row.concurrency:g}" for row in found.itertuples()],
                  fontsize=8)
    ends = found[["value", "low", "high"]].to_numpy()
    ax.set(xlabel="normalized progress of the pair", ylim=(
        places[-1] + 1, places[0] - 0.6 - (sum(new) > 1)),
        xlim=(min(0.8, 0.95 * np.nanmin(ends)), max(2.2, 1.05 * np.nanmax(ends))))
    return ax
