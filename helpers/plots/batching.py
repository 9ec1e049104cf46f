"""The figures of lesson 05: who runs in a step, who waits, and what a step costs."""

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from helpers.plots.base import COLOURS, WORKED_OUT, axes

WAITING = "#bbbbbb"


def scheduler(steps, *, steps_shown=None, ax=None):
    """Steps of helpers.scheduler: one row a request, one column a step, its tokens written in.

    steps_shown: draw only so many of them; the axes stay as long as all of them.
    """
    ax = axes(ax, data=WORKED_OUT)
    names = list(dict.fromkeys(name for step in steps for name in [*step.tokens, *step.waiting]))
    for step in steps[:steps_shown]:
        for name in step.waiting:
            _box(ax, step.number, names.index(name), WAITING, alpha=0.5)
        for name, tokens in step.tokens.items():
            colour = COLOURS["prefill" if name in step.prefill else "decode"]
            _box(ax, step.number, names.index(name), colour)
            if len(steps) <= 40:
                ax.text(step.number, names.index(name), tokens, ha="center", va="center",
                        fontsize=7, color="white")
    ax.set(xlim=(-0.6, steps[-1].number + 0.6), ylim=(len(names) - 0.4, -0.6), xlabel="step")
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _stages(ax)


def _box(ax, at, row, colour, **style):
    ax.barh(row, 0.9, left=at - 0.45, height=0.8, color=colour, lw=0, **style)


def _stages(ax):
    """The legend of the three stages, above the axes, to the right."""
    colours = {"waiting": WAITING, "prefill": COLOURS["prefill"], "decode": COLOURS["decode"]}
    ax.legend(handles=[Patch(color=colour, label=label) for label, colour in colours.items()],
              frameon=False, fontsize=8, loc="lower right", ncols=3, bbox_to_anchor=(1, 1),
              borderaxespad=1.6)
    return ax


def batch(requests, *, ax=None):
    """One row a request: waiting, prefill, decode, on the clock of the run.

    requests: rows with sent_s, ttft_s and e2el_s, and place_s, when it got its place.
    """
    ax = axes(ax, data=requests)
    first_s, end_s = requests.sent_s + requests.ttft_s, requests.sent_s + requests.e2el_s
    rows = range(1, len(requests) + 1)
    for start, end, colour in ((requests.sent_s, requests.place_s, WAITING),
                               (requests.place_s, first_s, COLOURS["prefill"]),
                               (first_s, end_s, COLOURS["decode"])):
        ax.barh(rows, end - start, left=start, height=0.8, color=colour, lw=0)
    ax.set(xlabel="seconds since the start", ylabel="request", xlim=(0, end_s.max() * 1.01),
           ylim=(len(requests) + 0.8, 0.2))
    return _stages(ax)


def counts(samples, *, ax=None):
    """What the engine counted: samples with time_s, running and waiting.

    On axes that are given it adds no caption: it stands beneath a figure that has one.
    """
    ax = ax or axes()
    ax.spines[["top", "right"]].set_visible(False)
    for name, colour in (("running", COLOURS["decode"]), ("waiting", "#777777")):
        ax.plot(samples.time_s, samples[name], "o-", ms=2.5, lw=1, color=colour, label=name)
    ax.set(xlabel="seconds since the start", ylabel="requests", ylim=(0, None))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, fontsize=8)
    return ax


def stalls(runs, *, ax=None):
    """Gaps between the tokens of a running answer, while a long prompt arrives.

    runs: one row a run with label, chunk_times_s and itl_s of the running answer, both in seconds
    since the long prompt was sent, and predicted_s, a stretched gap as predicted (dashed).
    """
    ax = axes(ax)
    for at, run in enumerate(runs.itertuples()):
        ax.plot(run.chunk_times_s[1:], 1000 * np.array(run.itl_s), "o-", ms=3, lw=0.8,
                drawstyle="steps-pre", color=f"C{at}", label=run.label)
        ax.axhline(1000 * run.predicted_s, ls="--", lw=1, color=f"C{at}")
    ax.axvline(0, color="black", lw=0.8)
    ax.set(xlabel="seconds since the long prompt was sent", yscale="log",
           ylabel="ITL (ms, logarithmic)")
    ax.set_ylim(top=3 * ax.get_ylim()[1])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper right",
              title="dashed: a stretched gap as predicted", title_fontsize=8)
    return ax


def roofline(points, bandwidth, *, ax=None):
    """Seconds of a decode step against the bytes it must move; the line is bytes / bandwidth.

    points: one row a measurement with step_bytes, step_s and batch. bandwidth: bytes a second.
    """
    ax = axes(ax, data=points)
    dots = ax.scatter(points.step_bytes / 1e6, 1000 * points.step_s, c=np.log2(points.batch),
                      cmap="viridis_r", s=28)
    ends = np.array([0, points.step_bytes.max() * 1.05])
    ax.plot(ends / 1e6, 1000 * ends / bandwidth, color="black", lw=1)
    ax.annotate("bytes / measured bandwidth", (ends[1] / 1e6, 1000 * ends[1] / bandwidth),
                xytext=(0, 5), textcoords="offset points", ha="right", va="bottom", fontsize=8)
    ax.set(xlabel="bytes that a step must read (MB = 10⁶ bytes)", ylabel="step (ms)",
           xlim=(0, None), ylim=(0, None))
    bar = ax.figure.colorbar(dots, ax=ax, label="sequences in the batch")
    sizes = sorted(points.batch.unique())
    bar.set_ticks(np.log2(sizes), labels=[str(size) for size in sizes])
    return ax


def held_out(points, *, ax=None):
    """Predicted against measured step, in ms; points with step_s, predicted_s, held_out."""
    ax = axes(ax, data=points)
    for held, group in points.groupby("held_out"):
        ax.plot(1000 * group.predicted_s, 1000 * group.step_s, "o", ms=5,
                mfc=COLOURS["tpot"] if held else "none", color=COLOURS["tpot"],
                label="held out" if held else "fitted")
    top = 1.08e3 * max(points.step_s.max(), points.predicted_s.max())
    ax.plot([0, top], [0, top], color="black", lw=1)
    ax.fill_between([0, top], [0, 0.9 * top], [0, 1.1 * top], color="black", alpha=0.1, lw=0,
                    label="within a tenth")
    ax.set(xlabel="predicted step (ms)", ylabel="measured step (ms)", xlim=(0, top), ylim=(0, top))
    ax.legend(frameon=False, fontsize=8)
    return ax
