"""The figures of lab 07: goodput by load and arm; requests while a node is lost."""

import pandas as pd

from helpers import metrics
from helpers.plots.base import COLOURS, axes

OUTCOMES = {"answered": ("#0072B2", "."), "refused (429)": ("#E69F00", "x"),
            "broken": ("#D55E00", "v")}


def admitted(points, *, ax=None):
    """Requests a second by load and arm: full those within the SLO, pale the other answers.

    points: rows of ledger.lab07.points. Bars are means over repeats, dots the repeats.
    """
    ax = axes(ax, data=points)
    arms, loads = list(pd.unique(points.arm)), list(points.sort_values("rate").load.unique())
    width = 0.84 / len(arms)
    for at, arm in enumerate(arms):
        for place, load in enumerate(loads):
            turns = points[(points.arm == arm) & (points.load == load)]
            x = place + (at - (len(arms) - 1) / 2) * width
            for measure, alpha in (("request_per_s", 0.3), ("goodput_per_s", 1)):
                ax.bar(x, turns[measure].mean(), 0.9 * width, color=COLOURS.get(arm, f"C{at}"),
                       alpha=alpha, lw=0, label=arm if alpha == 1 and place == 0 else None)
                ax.plot([x] * len(turns), turns[measure], ".", ms=3, color="black")
    rates = points.groupby("load").rate.first()
    ax.set_xticks(range(len(loads)), [f"{load} the knee: {rates[load]:.1f} a second"
                                      for load in loads], fontsize=8)
    ax.set(ylabel="answers a second", ylim=(0, 1.5 * points.request_per_s.max()))
    ax.legend(frameon=False, fontsize=7, ncols=3, loc="upper left", title_fontsize=7,
              title="full: within the SLO; pale: later")
    return ax


def node_loss(requests, *, ax=None):
    """Every request at the time it was sent: how long its answer took, or how it failed.

    requests: with lost_s, missed_s, full_s (seconds; NaN: not seen), of one run.
    """
    ax = axes(ax, data=requests)
    refused = metrics.refused(requests)
    kinds = {"answered": requests.outcome == "ok", "refused (429)": refused,
             "broken": (requests.outcome != "ok") & ~refused}
    for name, which in kinds.items():
        some, (colour, mark) = requests[which], OUTCOMES[name]
        ax.plot(some.sent_s, some.e2el_s.fillna(0), mark, color=colour, ms=5, label=name,
                clip_on=False)
    top = max(1.0, 1.35 * requests.e2el_s.max())
    first = requests.iloc[0]
    for at, (name, word) in enumerate((("lost_s", "node lost"), ("missed_s", "missed"),
                                       ("full_s", "full service"))):
        if first[name] == first[name]:
            ax.axvline(first[name], color="#666666", lw=1, ls=":")
            ax.annotate(word, (first[name], top * (0.98 - 0.07 * at)), fontsize=8, va="top",
                        xytext=(3, 0), textcoords="offset points", color="#666666")
    ax.set(xlabel="sent (s)", ylabel="E2EL (s); 0: no answer", ylim=(0, top))
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.04))
    return ax
