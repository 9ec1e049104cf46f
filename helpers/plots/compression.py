"""The figures of lesson 07: what a checkpoint is made of, and ratios with their intervals."""

import numpy as np

from helpers.plots.base import COLOURS, axes

PARTS = {"matrices of the layers": "#0072B2", "scales": "#E69F00", "kept at 16 bits": "#999999"}


def checkpoints(parts, *, ax=None):
    """One bar a scheme, of bytes by part: matrices of the layers, scales, kept at 16 bits.

    parts: a table of bytes, indexed by scheme, with these columns.
    """
    ax = axes(ax, data=parts)
    left = np.zeros(len(parts))
    for name, colour in PARTS.items():
        size = parts[name].to_numpy() / 2**20
        ax.barh(range(len(parts)), size, left=left, color=colour, label=name, lw=0)
        left += size
    for at, total in enumerate(left):
        ax.annotate(f"{total / left[0]:.0%}", (total, at), xytext=(4, 0), va="center",
                    textcoords="offset points", fontsize=8)
    ax.set_yticks(range(len(parts)), parts.index)
    ax.set(xlabel="checkpoint (MiB)", ylim=(len(parts) - 0.5, -0.5), xlim=(0, left.max() * 1.1))
    ax.legend(frameon=False, fontsize=8, loc="lower right", ncols=3, bbox_to_anchor=(1, 1),
              borderaxespad=1.6)
    return ax


def speed_ratios(found, *, ax=None):
    """Ratios to BF16 as dots, their intervals as lines; a line at 1: no difference.

    found: a table with arm, measure, ratio, low and high; NaN for an interval that there is not.
    """
    ax = axes(ax, data=found)
    measures = list(dict.fromkeys(found.measure))
    arms = list(dict.fromkeys(found.arm))
    for at, arm in enumerate(arms):
        rows = found[found.arm == arm].set_index("measure").reindex(measures)
        y = np.arange(len(measures)) + 0.7 * ((at + 0.5) / len(arms) - 0.5)
        ax.hlines(y, rows.low, rows.high, color=COLOURS.get(arm, f"C{at}"), lw=2)
        ax.plot(rows.ratio, y, "o", ms=5, color=COLOURS.get(arm, f"C{at}"), label=arm)
    ax.axvline(1, color="black", lw=0.8)
    ax.set_yticks(range(len(measures)), measures)
    ax.set(xlabel="ratio to BF16", ylim=(len(measures) - 0.5, -0.5))
    ax.legend(frameon=False, fontsize=8, loc="lower right", ncols=len(arms),
              bbox_to_anchor=(1, 1), borderaxespad=1.6)
    return ax
