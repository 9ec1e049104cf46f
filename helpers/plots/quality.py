"""The figures of lesson 08: differences with their intervals, and how many examples one needs."""

from helpers.plots.base import COLOURS, axes


def differences(found, *, ax=None, xlabel="NLL minus BF16's (nats a token)"):
    """One row an arm: the mean difference as a dot, its interval as a line.

    found: {arm, or arm and machine on two lines: quality.Difference}. The grey band reaches as
    far as the smallest effect that the first of them could have shown.
    """
    ax = axes(ax)
    reach = next(iter(found.values())).detectable
    ax.axvspan(-reach, reach, color="#dddddd", lw=0, zorder=0)
    ax.axvline(0, color="black", lw=0.8)
    for at, (arm, each) in enumerate(found.items()):
        colour = COLOURS.get(arm.split("\n")[0], f"C{at}")
        ax.plot([each.low, each.high], [at, at], color=colour, lw=3, solid_capstyle="butt")
        ax.plot(each.mean, at, "o", color=colour, ms=7)
        ax.annotate(f"{each.mean:+.4f}", (each.high, at), xytext=(6, 0), va="center",
                    textcoords="offset points", fontsize=8)
    ax.set_yticks(range(len(found)), found, fontsize=8)
    ax.set(xlabel=xlabel, ylim=(len(found) - 0.5, -0.5))
    ax.margins(x=0.12)
    return ax


def by_examples(drawn, *, ax=None):
    """Where the measured difference of accuracy lands with fewer examples.

    drawn: {arm: table with examples, low, high and mean}; low to high holds 95 of 100 draws.
    """
    ax = axes(ax)
    for at, (arm, table) in enumerate(drawn.items()):
        colour = COLOURS.get(arm, f"C{at}")
        places = [place + 0.16 * (at - (len(drawn) - 1) / 2) for place in range(len(table))]
        ax.vlines(places, 100 * table.low, 100 * table.high, color=colour, lw=4, label=arm)
        ax.plot(places, 100 * table["mean"], "_", ms=10, color="black")
    ax.axhline(0, color="black", lw=0.8)
    ax.set_xticks(range(len(table)), table.examples)
    ax.set(xlabel="questions drawn", ylabel="accuracy minus BF16's (points)",
           xlim=(-0.5, len(table) - 0.5))
    ax.legend(frameon=False, fontsize=8)
    return ax
