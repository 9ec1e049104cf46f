"""The figures of lesson 06: an open loop's schedule, the knee, goodput under an SLO."""

import pandas as pd

from helpers.plots.base import COLOURS, axes


def schedule(requests, *, ax=None):
    """Actual against intended send time, by arm: on the line nothing was late.

    requests: rows of open loops with arm, intended_s and sent_s.
    """
    ax = axes(ax, data=requests)
    for at, (arm, rows) in enumerate(requests.groupby("arm", sort=False)):
        ax.plot(rows.intended_s, rows.sent_s, "o", ms=3.5, label=arm,
                color=COLOURS.get(arm, f"C{at}"))
    ends = [0, requests.intended_s.max()]
    ax.plot(ends, ends, color="black", lw=1, zorder=0)
    ax.set(xlabel="intended send time (s)", ylabel="actual send time (s)")
    ax.legend(frameon=False, fontsize=8)
    return ax


def knee(points, *, predicted=None, ax=None):
    """p95 TTFT and median E2EL, in s, against the rate that was offered; bands are the repeats.

    points: rows of metrics.points with rate; invalid ones are left out. predicted: a Series of
    E2EL in s by rate, dashed.
    """
    ax = axes(ax, data=points)
    points = points[points.valid]
    for column, name, label in (("p50_e2el_s", "e2el", "E2EL, median"),
                                ("p95_ttft_s", "ttft", "TTFT, p95")):
        grouped = points.groupby("rate")[column]
        ax.plot(grouped.median().index, grouped.median(), "o-", ms=4, color=COLOURS[name],
                label=label)
        ax.fill_between(grouped.min().index, grouped.min(), grouped.max(), color=COLOURS[name],
                        alpha=0.15, lw=0)
    if predicted is not None:
        ax.plot(predicted.index, predicted, "--", color=COLOURS["e2el"], label="E2EL, predicted")
    ax.set(xlabel="offered (requests a second)", ylabel="seconds", ylim=(0, None),
           xlim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return ax


def goodput(runs, *, intervals=None, ax=None):
    """Answered and good requests a second against the offered rate; invalid runs are hollow.

    runs: rows of metrics.under with rate, one a run; the lines join the medians of the repeats.
    intervals: a DataFrame by rate with low and high, drawn as bars.
    """
    ax = axes(ax, data=runs)
    top = runs.rate.max() * 1.05
    ax.plot([0, top], [0, top], color="black", lw=0.8, ls=":", label="offered")
    for column, colour, label in (("request_per_s", COLOURS["throughput"], "answered"),
                                  ("goodput_per_s", COLOURS["e2el"], "good")):
        middle = runs.groupby("rate")[column].median()
        ax.plot(middle.index, middle, "-", color=colour, lw=1.5, label=label)
        for valid, some in runs.groupby("valid"):
            ax.plot(some.rate, some[column], "o", ms=4, color=colour, alpha=0.7,
                    mfc=colour if valid else "none")
    if intervals is not None:
        ax.vlines(intervals.index, intervals.low, intervals.high, color=COLOURS["e2el"], lw=4,
                  alpha=0.3, label="95% interval, one run")
    ax.set(xlabel="offered (requests a second)", ylabel="requests a second", xlim=(0, top),
           ylim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return ax


def tools(pairs, *, ax=None):
    """One tool's figure over the other's, a dot a repeat: 1 is agreement.

    pairs: rows with figure, ratio and within, the distance from 1 that counts as agreement.
    """
    ax = axes(ax, data=pairs)
    for at, (_, some) in enumerate(pairs.groupby("figure", sort=False)):
        allowed = some.within.iloc[0]
        ax.bar(at, 2 * allowed, 0.6, 1 - allowed, color="black", alpha=0.1, lw=0)
        ax.plot([at] * len(some), some.ratio, "o", ms=5, color=f"C{at}")
    names = list(pd.unique(pairs.figure))
    reach = max(0.15, 1.2 * (pairs.ratio - 1).abs().max())
    ax.axhline(1, color="black", lw=1)
    ax.set_xticks(range(len(names)), names)
    ax.set(ylabel="GuideLLM / vllm bench (ratio)", xlim=(-0.6, len(names) - 0.4),
           ylim=(1 - reach, 1 + reach))
    return ax
