"""The figure of lab 08: what a decoded token reads, for each arm."""

import numpy as np

from helpers.plots.base import COLOURS, axes


def token_bytes(parts, *, ax=None):
    """One bar an arm: megabytes that a decoded token reads, weights and cache.

    parts: a table of bytes, indexed by arm, with columns weights and cache.
    """
    ax = axes(ax, data=parts)
    places, left = np.arange(len(parts)), np.zeros(len(parts))
    for name, colour in (("weights", COLOURS["weights"]), ("cache", COLOURS["FP8"])):
        width = parts[name].to_numpy(dtype=float) / 1e6
        ax.barh(places, width, left=left, color=colour, label=name, lw=0)
        left += width
    for place, total in zip(places, left, strict=True):
        ax.annotate(f"{total:.1f}", (total, place), xytext=(4, 0), va="center",
                    textcoords="offset points", fontsize=8)
    ax.set_yticks(places, parts.index, fontsize=8)
    ax.set(xlabel="read for a decoded token (MB)", xlim=(0, 1.12 * left.max()),
           ylim=(len(parts) - 0.5, -0.5))
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1),
              borderaxespad=1.6)
    return ax
