"""The figures of lab 01: one engine against two, between the two ends that arithmetic gives."""

import numpy as np

from helpers.plots.base import COLOURS, arms_by_machine, axes


def between(points, expected, *, ax=None):
    """Throughput over the load: measured, and as worked out for one engine and for two.

    points: one row a run with arm, concurrency, output_tok_per_s; the bar spans the repeats.
    expected: one row a load with concurrency, one, turns and apart, in tokens a second: two engines
    that take turns on the device, and two that do not feel each other; the area lies between.
    """
    ax = axes(ax, data=points)
    both = COLOURS.get("two engines", "C1")
    ax.plot(expected.concurrency, expected.one, "--", lw=1, color=COLOURS.get("one engine", "C0"),
            label="one engine, worked out")
    ax.fill_between(expected.concurrency, expected.turns, expected.apart, color=both, alpha=0.15,
                    lw=0, label="two, from taking turns to apart")
    for at, (arm, rows) in enumerate(points.groupby("arm", sort=False)):
        found = rows.groupby("concurrency").output_tok_per_s.agg(["mean", "min", "max"])
        x = found.index * 2 ** (0.06 * (at - 1))  # side by side
        ends = [found["mean"] - found["min"], found["max"] - found["mean"]]
        ax.errorbar(x, found["mean"], ends, fmt="o", ms=5, capsize=3, lw=1.2,
                    color=COLOURS.get(arm, f"C{at}"), label=arm)
    ax.set_xscale("log", base=2)
    loads = sorted(points.concurrency.unique())
    ax.set_xticks(loads, [f"{load:g}" for load in loads])
    ax.set(xlabel="requests in flight, over all engines of an arm", ylabel="output tokens/s",
           ylim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return ax


def over_one(found, *, ax=None):
    """Ratios of arms to one engine, a line each; grey: what an arm differs from itself.

    found: of `experiment.against`, with arm, concurrency, ratio, low, high, smallest, and machine,
    which stands above its rows where there are several. A ratio with no interval is hollow.
    """
    ax = axes(ax, data=found)
    places = arms_by_machine(ax, found, "ratio")
    ax.barh(places, 2 * found.smallest, left=1 - found.smallest, height=0.9, color="#dddddd", lw=0,
            zorder=0)
    ax.axvline(1, color="black", lw=0.8)
    ends = found[["ratio", "low", "high"]].to_numpy()
    reach = max(1.1 * np.nanmax(np.abs(ends - 1)), 0.2)
    ax.set(xlabel="output tokens/s, as a ratio to one engine", xlim=(1 - reach, 1 + reach))
    return ax


def beats(requests, *, start_s, seconds, ax=None):
    """Every token of a stretch of time as a tick, one row a request, on one clock.

    requests: rows with engine, sent_s and chunk_times_s of one turn. start_s: where the stretch
    begins, in seconds since the start of the turn.
    """
    ax = axes(ax, data=requests)
    place, seen = 0, []
    for at, (engine, rows) in enumerate(requests.groupby("engine", sort=True)):
        for row in rows.sort_values("sent_s").itertuples():
            times = row.sent_s + np.asarray(row.chunk_times_s) - start_s
            times = times[(times >= 0) & (times <= seconds)]
            if len(times):
                ax.plot(1000 * times, np.full(len(times), place), "|", ms=6, mew=1.2,
                        color=f"C{at}", label="" if engine in seen else f"engine {engine}")
                seen.append(engine)
                place += 1
    ax.set(xlabel="time (ms); each tick is a token", ylabel="request", xlim=(0, 1000 * seconds),
           ylim=(place - 0.2, -0.8), yticks=[])
    ax.legend(frameon=False, fontsize=8, loc="lower right", ncols=2, bbox_to_anchor=(1, 1),
              borderaxespad=1.6)
    return ax
