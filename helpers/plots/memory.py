"""The figures of lesson 03: what fits on a card, how caches grow, what a longer cache costs."""

import numpy as np
from matplotlib.ticker import FuncFormatter

from helpers.plots.base import COLOURS, WORKED_OUT, axes
from helpers.sizing import GIB

PARTS = {"weights": "#0072B2", "rest": "#CC79A7", "cache": "#009E73"}
KINDS = {"MHA": "#D55E00", "GQA": "#0072B2", "MQA": "#E69F00", "MLA": "#009E73"}
LINES = {"+ windows": "--", "+ encoder": ":"}


def sizing(need, *, ax=None):
    """Weights, rest and cache as one bar against the card; the title says what does not fit.

    need: a helpers.sizing.Need.
    """
    ax = axes(ax, data=WORKED_OUT)
    start = 0
    for name, colour in PARTS.items():
        size = getattr(need, name) / GIB
        ax.barh(0, size, left=start, color=colour, label=f"{name} {size:.1f}")
        start += size
    card = need.card / GIB
    ax.barh(1, card, color=COLOURS["card"], label=f"card {card:.0f}")
    ax.axvline(card, color="black", lw=1.5)
    if need.over > 0:
        ax.barh(0, start - card, left=card, color="none", edgecolor="white", hatch="///", lw=0)
    ax.set_title(need.verdict, loc="left", fontsize=9, pad=14,
                 color=COLOURS["tpot"] if need.over > 0 else "black")
    ax.set(yticks=[0, 1], yticklabels=["needed", "card"], xlabel="GiB; hatched: does not fit")
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return ax


def cache_growth(sizes, kinds, *, ax=None):
    """Bytes of cache of one sequence against its tokens, a line a model, by kind of attention.

    sizes: a DataFrame, index tokens, a column of bytes for each model. kinds: {model: what
    helpers.sizing.attention says}.
    """
    ax = axes(ax, data=sizes)
    for model in sizes.columns[::-1]:
        kind, _, extra = kinds[model].partition(" ")
        ax.plot(sizes.index, sizes[model] / GIB, LINES.get(extra, "-"), color=KINDS[kind], lw=1.5)
    ends = (sizes.iloc[-1] / GIB).sort_values()
    heights = _apart(np.log10(ends), 0.27)
    for model, height in zip(ends.index, heights, strict=True):
        ax.annotate(f"{model} ({kinds[model]})", (sizes.index[-1], ends[model]),
                    xytext=(1.15 * sizes.index[-1], 10**height), fontsize=6.5, va="center",
                    color=KINDS[kinds[model].partition(" ")[0]], annotation_clip=False,
                    arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "#999999",
                                "relpos": (0, 0.5), "shrinkA": 2})
    ax.set(xscale="log", yscale="log", xlabel="tokens of one sequence (logarithmic)",
           ylabel="cache (GiB, logarithmic)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,g}"))
    return ax


def _apart(heights, least):
    """The heights, in rising order, moved up where a neighbour is less than `least` below."""
    moved = []
    for height in heights:
        moved.append(max(height, moved[-1] + least) if moved else height)
    return moved


def by_context(rows, lines, *, ax=None):
    """ITL of each request against context, a colour an arm, and the lines; those of no arm dashed.

    rows: DataFrame with arm, context (tokens) and gap_s, a mean ITL.
    lines: {arm: (slope, intercept, ...)}, in seconds.
    """
    ax = axes(ax, data=rows)
    ends = np.array([rows.context.min(), rows.context.max()])
    for at, (arm, (slope, intercept, *_)) in enumerate(lines.items()):
        some, colour = rows[rows.arm == arm], ARMS.get(arm, f"C{at}")
        line = 1000 * (slope * ends + intercept)
        if some.empty:
            ax.plot(ends, line, "--", color=colour, lw=1, label=arm)
            continue
        ax.plot(some.context, 1000 * some.gap_s, "o", ms=4, alpha=0.7, color=colour, label=arm)
        ax.plot(ends, line, color=colour, lw=1)
    ax.set(xlabel="context (tokens)", ylabel="ITL of a request (ms)", ylim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return ax


ARMS = {"predicted": "black", "longer and longer": "#D55E00", "always short": "#0072B2",
        "FP8 cache": "#009E73"}
