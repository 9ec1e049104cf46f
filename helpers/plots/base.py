"""What all figures share: size, colours, caption.

About 6 by 3.5 inches, units on the axes. The same configuration has the same colour in every
figure. The caption says on which machine and model: `label(...)` sets it for a notebook, and
data that carries one in `.attrs["caption"]` brings its own.
"""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np

SIZE = (6, 3.5)
WORKED_OUT = SimpleNamespace(attrs={"caption": "worked out, not measured"})
# Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = {
    "ttft": "#0072B2", "tpot": "#D55E00", "itl": "#E69F00", "e2el": "#009E73",
    "throughput": "#000000", "prefill": "#0072B2", "decode": "#D55E00",
    "client": "#0072B2", "vllm bench": "#D55E00", "guidellm": "#009E73",
    "weights": "#0072B2", "card": "#999999", "free": "#009E73",
    "same seed": "#D55E00", "fresh seed": "#0072B2",
    "cold": "#0072B2", "warm": "#D55E00", "shared block": "#009E73", "own block": "#56B4E9",
    "BF16": "#0072B2", "BF16 again": "#56B4E9", "INT8": "#009E73", "FP8": "#E69F00",
    "FP8 online": "#CC79A7", "4-bit": "#D55E00", "no difference": "#999999", "FP8 cache": "#882255",
    "shared": "#D55E00", "split": "#0072B2",
    "four times the capacity": "#0072B2", "half": "#E69F00", "closed loop": "#009E73",
    "two engines pinned": "#009E73", "two engines again": "#E69F00",
    "no limit": "#E69F00", "no limit again": "#F0D08A", "admission": "#009E73",
    "one engine": "#0072B2", "one engine again": "#56B4E9", "two engines": "#D55E00",
    "two engines MPS": "#009E73", "one of each": "#882255", "one engine FP8": "#E69F00",
} | {f"two engines {way} FP8": "#CC79A7" for way in ("MPS", "pinned", "again")}


_label = [""]


def label(caption):
    """The caption of the figures that follow, unless their data carries its own."""
    _label[0] = caption


def axes(ax=None, *, data=None, height=SIZE[1]):
    """The axes to draw on, new ones of the course's width if none are given; height in inches."""
    if ax is None:
        _, ax = plt.subplots(figsize=(SIZE[0], height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    caption = getattr(data, "attrs", {}).get("caption") or _label[0]
    if caption:
        ax.annotate(caption, (0, 1), xytext=(0, 4), xycoords="axes fraction", va="bottom",
                    textcoords="offset points", fontsize=7, color="#666666")
    return ax


def arms_by_machine(ax, found, value):
    """A row an arm and load: a dot at the column `value`, a line from low to high; returns places.

    found: rows with arm, concurrency, low, high (NaN: no interval, the dot is hollow) and machine,
    which stands above its rows where there are several. The y axis is set up, top down.
    """
    new = found.machine.ne(found.machine.shift()).tolist()
    several = sum(new) > 1
    places = np.arange(len(found)) + np.cumsum(new) * several
    for place, first, row in zip(places, new, found.itertuples(), strict=True):
        known, colour = row.low == row.low, COLOURS.get(row.arm, "C1")
        ax.plot([row.low, row.high], [place] * 2, color=colour, lw=2)
        ax.plot(getattr(row, value), place, "o", ms=5, color=colour,
                mfc=colour if known else "none")
        if first and several:
            ax.annotate(row.machine, (0, place - 1), xycoords=("axes fraction", "data"),
                        xytext=(4, 0), textcoords="offset points", fontsize=8, va="center",
                        color="#666666")
    ax.set_yticks(places, [f"{row.arm}, {row.concurrency:g}" for row in found.itertuples()],
                  fontsize=8)
    ax.set_ylim(places[-1] + 0.6, places[0] - 0.6 - several)
    return places
