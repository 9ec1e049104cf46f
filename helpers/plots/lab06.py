"""The figures of lab 06: what a neighbour costs an engine, and what keeps tenants apart."""

from matplotlib.patches import Rectangle

from helpers.plots.base import COLOURS, axes

SHADES = {"yes": "#0072B2", "partly": "#9ecae1", "disputed": "#E69F00", "no": "#D55E00",
          "not stated": "#eeeeee"}


def neighbours(found, *, ax=None):
    """How many times as long a token takes beside each neighbour: dots, their intervals as lines.

    found: rows with arm, neighbour, value, low, high, smallest (the control's reach, drawn as a
    band of its own colour around 1) and, where something was predicted, predicted (a cross). NaN
    for an interval that there is not: drawn hollow.
    """
    ax = axes(ax, data=found)
    kinds = list(dict.fromkeys(found.neighbour))
    for at, (arm, rows) in enumerate(found.groupby("arm", sort=False)):
        colour = COLOURS.get(arm, f"C{at}")
        place = {kind: n + 0.5 * (at + 0.5) - 0.5 for n, kind in enumerate(kinds)}
        for row in rows.itertuples():
            y, known = place[row.neighbour], row.low == row.low
            if row.smallest == row.smallest:
                ax.plot([1 - row.smallest, 1 + row.smallest], [y] * 2, color=colour, lw=9,
                        alpha=0.15, solid_capstyle="butt")
            ax.plot([row.low, row.high], [y] * 2, color=colour, lw=2)
            ax.plot(row.value, y, "o", ms=5, color=colour, mfc=colour if known else "none",
                    label=arm if row.neighbour == rows.neighbour.iloc[0] else None)
            ax.plot(getattr(row, "predicted", None) or float("nan"), y, "x", ms=7, color="black")
    ax.axvline(1, color="black", lw=0.8)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set(xlabel="time of a token, over that with no neighbour (ratio)",
           ylim=(len(kinds) - 0.4, -0.6))
    ax.legend(frameon=False, fontsize=8, loc="lower right", ncols=2, bbox_to_anchor=(1, 1),
              borderaxespad=0.2)
    return ax


def isolation(table, *, ax=None):
    """What each mechanism (rows) keeps apart (columns), as words on colours."""
    ax = axes(ax, data=table)
    for y, mechanism in enumerate(table.index):
        for x, resource in enumerate(table.columns):
            word = table.loc[mechanism, resource]
            ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=SHADES[word], lw=0))
            dark = word in ("yes", "no")
            ax.text(x, y, word, ha="center", va="center", fontsize=8,
                    color="white" if dark else "black")
    ax.set_xticks(range(len(table.columns)), table.columns)
    ax.set_yticks(range(len(table)), table.index, fontsize=8)
    ax.set(xlim=(-0.5, len(table.columns) - 0.5), ylim=(len(table) - 0.5, -0.5),
           xlabel="is it kept apart? (by the documents)")
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)
    return ax
