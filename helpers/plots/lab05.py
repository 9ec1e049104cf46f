"""The figures of lab 05: inside a decode step, and steps of two engines on one clock."""

import numpy as np

from helpers.plots.base import COLOURS, arms_by_machine, axes

PARTS = {"matrices": COLOURS["weights"], "attention": COLOURS["decode"],
         "cache": COLOURS["INT8"], "other": COLOURS["card"]}


def anatomy(work, *, ax=None):
    """One decode step an engine: coloured where something computes, white where nothing does.

    work: rows of `trace.typical` with arm and engine.
    """
    ax = axes(ax, data=work)
    lanes = list(work.groupby(["arm", "engine"], sort=False))
    for place, (_, rows) in enumerate(lanes):
        for part, own in rows.groupby("part"):
            ax.broken_barh(1000 * own[["start_s", "dur_s"]].to_numpy(), (place - 0.35, 0.7),
                           color=PARTS[part], lw=0)
    for part, colour in PARTS.items():
        ax.plot([], [], "s", color=colour, label=part)
    ax.set_yticks(range(len(lanes)), [f"{arm}, {engine}" for (arm, engine), _ in lanes],
                  fontsize=8)
    ends = work.start_s + work.dur_s
    ax.set(xlabel="time in the step (ms)", xlim=(0, 1020 * ends.max()),
           ylim=(len(lanes) - 0.4, -0.6))
    ax.legend(frameon=False, fontsize=8, ncols=4, loc="lower right", bbox_to_anchor=(1, 1),
              borderaxespad=1.6)
    return ax


def lanes(spans, *, seconds, ax=None):
    """Spans of steps of one turn on one clock, a lane an engine.

    spans: rows of `profiling.spans` of one (arm, repeat). The stretch has in its middle a decode
    step that lies beside another engine's, where there is one.
    """
    ax = axes(ax, data=spans)
    decode = spans[spans.kind == "decode"]
    beside = decode[decode.beside_s > decode.span_s / 2]
    middle = (beside if len(beside) else decode).start_s.median()
    start_s, names = middle - seconds / 2, sorted(spans.engine.unique())
    for place, name in enumerate(names):
        rows = spans[spans.engine == name]
        for kind, own in rows.groupby("kind"):
            left = 1000 * (own.start_s - start_s)
            ax.broken_barh(list(zip(left, 1000 * own.span_s, strict=True)), (place - 0.3, 0.6),
                           color=COLOURS[kind], ec="white", lw=0.5)
    for kind in ("prefill", "decode"):
        ax.plot([], [], "s", color=COLOURS[kind], label=kind)
    ax.set_yticks(range(len(names)), [f"engine {name}" for name in names], fontsize=8)
    ax.set(xlabel="time (ms)", xlim=(0, 1000 * seconds), ylim=(len(names) - 0.4, -0.6))
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1),
              borderaxespad=1.6)
    return ax


def grown(found, *, ax=None):
    """Ratios to one engine alone, a row an arm; grey: what the arm differs from itself.

    found: rows with arm, concurrency, value, low, high, smallest, machine.
    """
    ax = axes(ax, data=found)
    places = arms_by_machine(ax, found, "value")
    ax.barh(places, 2 * found.smallest, left=1 - found.smallest, height=0.9, color="#dddddd", lw=0,
            zorder=0)
    ax.axvline(1, color="black", lw=0.8)
    reach = max(1.1 * np.nanmax(np.abs(found[["value", "low", "high"]].to_numpy() - 1)), 0.2)
    ax.set(xlabel="span of a decode step, as a ratio to alone",
           xlim=(max(0, 1 - reach), 1 + reach))
    return ax
