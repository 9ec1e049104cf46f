"""The figure of lab 02: how much two engines that share a device feel each other."""

import numpy as np

from helpers.plots.base import arms_by_machine, axes


def progress(found, *, ax=None):
    """Normalized progress of pairs, a line each, between taking turns (1) and apart (2).

    found: rows with arm, concurrency, value, low, high (NaN: no interval, drawn hollow) and
    machine, which stands above its rows where there are several.
    """
    ax = axes(ax, data=found)
    places = arms_by_machine(ax, found, "value")
    ax.axvspan(1, 2, color="#eeeeee", lw=0, zorder=0)
    for end, name in ((1, "turns"), (2, "apart")):
        ax.axvline(end, color="black", lw=0.8)
        ax.annotate(name, (end, 0), xycoords=("data", "axes fraction"), xytext=(3, 3),
                    textcoords="offset points", fontsize=8, color="#666666")
    ends = found[["value", "low", "high"]].to_numpy()
    ax.set(xlabel="normalized progress of the pair", ylim=(places[-1] + 1, ax.get_ylim()[1]),
           xlim=(min(0.8, 0.95 * np.nanmin(ends)), max(2.2, 1.05 * np.nanmax(ends))))
    return ax
