"""The figures of lessons 00 to 02: what fits, latencies, throughput, queues."""

from statistics import median

from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from helpers.plots.base import COLOURS, axes


def fits(cards, need_bytes, *, ax=None):
    """Memory of each card (a Series, bytes) as bars; what a model needs as a line."""
    ax = axes(ax)
    memory = cards.sort_values() / 1e9
    colours = [COLOURS["free"] if size > need_bytes / 1e9 else COLOURS["card"] for size in memory]
    ax.barh(memory.index, memory, color=colours)
    ax.axvline(need_bytes / 1e9, color=COLOURS["weights"])
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set_xlabel("memory (GB = 10⁹ bytes, logarithmic); line: the weights")
    ax.tick_params(axis="y", labelsize=7)
    return ax


def timeline(row, *, ax=None):
    """One request from send to last token: each chunk a dot, TTFT, an ITL and E2EL marked.

    row: a request with chunk_times_s (seconds since it was sent), ttft_s and e2el_s.
    """
    ax = axes(ax, data=row)
    times = row["chunk_times_s"]
    ax.axvspan(0, row["ttft_s"], color=COLOURS["prefill"], alpha=0.12, lw=0)
    ax.plot(times, [0] * len(times), "o", ms=4, color=COLOURS["decode"])
    ax.plot([0], [0], "|", ms=18, color="black")
    _span(ax, 0, row["ttft_s"], 1, "TTFT", COLOURS["ttft"])
    if len(times) > 2:
        middle = len(times) // 2
        _span(ax, times[middle - 1], times[middle], 1, "one ITL", COLOURS["itl"])
    _span(ax, 0, row["e2el_s"], 2, "E2EL", COLOURS["e2el"])
    ax.set(ylim=(-0.8, 2.8), yticks=[], xlabel="seconds since the request was sent")
    ax.spines["left"].set_visible(False)
    return ax


def _span(ax, start, end, height, label, colour):
    ax.annotate("", (start, height), (end, height),
                arrowprops={"arrowstyle": "<->", "color": colour, "shrinkA": 0, "shrinkB": 0})
    ax.text((start + end) / 2, height + 0.12, label, ha="center", color=colour, fontsize=9)


def latency(points, *, ax=None):
    """TTFT (median and 95th percentile) and TPOT (median) against requests in flight, in ms."""
    ax = axes(ax, data=points)
    lines = [("p50_ttft_s", "ttft", "-", "TTFT, median"), ("p95_ttft_s", "ttft", ":", "TTFT, p95"),
             ("p50_tpot_s", "tpot", "-", "TPOT, median")]
    for column, colour, style, label in lines:
        grouped = points.groupby("concurrency")[column]
        middle = grouped.median() * 1000
        ax.plot(middle.index, middle, style, marker="o", color=COLOURS[colour], label=label)
        ax.fill_between(middle.index, grouped.min() * 1000, grouped.max() * 1000,
                        color=COLOURS[colour], alpha=0.15, lw=0)
    _powers_of_two(ax, sorted(points.concurrency.unique()))
    ax.set(xlabel="requests in flight", ylabel="milliseconds (logarithmic)", yscale="log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(frameon=False, fontsize=8)
    return ax


def throughput(points, *, ax=None):
    """Output tokens a second against requests in flight; the band is the spread of repeats."""
    ax = axes(ax, data=points)
    grouped = points.groupby("concurrency").output_tok_per_s
    middle = grouped.median()
    ax.plot(middle.index, middle, marker="o", color=COLOURS["throughput"])
    ax.fill_between(middle.index, grouped.min(), grouped.max(), color="black", alpha=0.15, lw=0)
    _powers_of_two(ax, sorted(points.concurrency.unique()))
    ax.set(xlabel="requests in flight", ylabel="output tokens a second", ylim=(0, None))
    return ax


def _powers_of_two(ax, ticks):
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks)
    ax.xaxis.set_major_formatter(ScalarFormatter())


def clients(compared, *, ax=None):
    """Mean |reported - true|, in ms, by tool and figure (see bench_clients.compare_clients)."""
    ax = axes(ax, data=compared)
    table = compared.pivot_table(index="figure", columns="tool", values="mean_s", sort=False) * 1000
    table.plot.bar(ax=ax, rot=0, color=[COLOURS[tool] for tool in table], width=0.8)
    ax.set(xlabel="", ylabel="mean error (ms, logarithmic)", yscale="log")
    ax.legend(frameon=False, fontsize=8)
    return ax


def arms(groups, *, ax=None, ylabel="TTFT (ms)"):
    """One column of dots for each group: {label: values}, the median as a line."""
    ax = axes(ax)
    for at, (label, values) in enumerate(groups.items()):
        colour = COLOURS.get(label, f"C{at}")
        spread = [at + 0.16 * ((k % 5) - 2) / 2 for k in range(len(values))]
        ax.plot(spread, values, "o", ms=4, alpha=0.7, color=colour)
        ax.hlines(median(values), at - 0.3, at + 0.3, color="black", lw=1.5)
    ax.set_xticks(range(len(groups)), groups)
    ax.set(ylabel=ylabel, ylim=(0, None), xlim=(-0.6, len(groups) - 0.4))
    return ax


def in_order(values, *, ax=None, ylabel="TTFT (ms)"):
    """One value for each request, in the order in which they were sent."""
    ax = axes(ax)
    ax.plot(range(1, len(values) + 1), values, "o-", ms=4, color=COLOURS["ttft"])
    ax.set(xlabel="request", ylabel=ylabel, ylim=(0, None))
    return ax


def queue(requests, *, ax=None):
    """Wait for the first token (wait_s) against the time a request was meant for, by arm."""
    ax = axes(ax, data=requests)
    for at, (arm, rows) in enumerate(requests.groupby("arm", sort=False)):
        ax.plot(rows.intended_s, rows.wait_s, "o", ms=3.5, label=arm,
                color=COLOURS.get(arm, f"C{at}"))
    ax.set(xlabel="intended send time (s)", ylabel="first token after that (s)", ylim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return ax
