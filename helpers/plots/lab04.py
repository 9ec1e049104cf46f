"""The figure of lab 04: what each service keeps of its speed beside another."""

import numpy as np

from helpers.plots.base import COLOURS, SIZE, axes

SERVICES = {"text": "#0072B2", "speech": "#D55E00", "text b": "#009E73", "half a": "#0072B2",
            "half b": "#009E73"}


def kept(found, *, ax=None):
    """A bar an arm, made of what its services keep of their speed alone: the normalized progress.

    found: one row per (machine, arm, engine): kept, the mean over repeats, and value, low, high of
    the arm's progress (NaN for an interval that there is not). Lines at 1, taking turns, and at 2,
    where neither feels the other. A machine's name stands above its bars where there are several.
    """
    bars = list(found.groupby(["machine", "arm"], sort=False))
    ax = axes(ax, data=found, height=max(SIZE[1], 0.5 + 0.5 * len(bars)))  # a bar holds its text
    several, seen, places, names = found.machine.nunique() > 1, set(), [], []
    for (machine, arm), rows in bars:
        place = places[-1] + 1 if places else 0
        if several and machine not in seen:
            ax.annotate(machine, (0, place), xycoords=("axes fraction", "data"), xytext=(4, 0),
                        textcoords="offset points", fontsize=8, va="center", color="#666666")
            place += 1
        seen.add(machine)
        left = 0
        for row in rows.itertuples():
            ax.barh(place, row.kept, left=left, height=0.7, lw=1, edgecolor="white",
                    color=COLOURS.get(row.engine, SERVICES.get(row.engine, "C7")))
            text = f"{row.engine} {row.kept:.2f}" if row.kept > 0.3 else f"{row.kept:.2f}"
            ax.annotate(text if row.kept > 0.12 else "", (left + row.kept / 2, place), ha="center",
                        va="bottom", fontsize=7, color="white")
            left += row.kept
        ax.plot([row.low, row.high], [place] * 2, color="black", lw=2)
        ax.plot(row.value, place, "o", ms=4, color="black")
        places.append(place)
        names.append(arm)
    for end, name in ((1, "turns"), (2, "apart")):
        ax.axvline(end, color="black", lw=0.8, ls="--")
        ax.annotate(name, (end, 0), xycoords=("data", "axes fraction"), xytext=(3, 3),
                    textcoords="offset points", fontsize=8, color="#666666")
    ax.set_yticks(places, names, fontsize=8)
    # an interval that reaches beyond 4 says only that nothing is known
    widest = max(found.value.max(), min(4, np.nan_to_num(found.high.max())))
    ax.set(xlabel="part of its speed alone; the sum is the normalized progress",
           xlim=(0, max(2.2, 1.05 * widest)), ylim=(places[-1] + 1, -0.7))
    return ax
