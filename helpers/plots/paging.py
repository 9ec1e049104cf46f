"""The figures of lesson 04: block tables, what a cached prefix saves, what a small cache loses."""

from collections import Counter

from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from helpers.plots.base import COLOURS, WORKED_OUT, axes

PER_ROW = 24  # physical blocks in one row of the figure
FREE, EMPTY = "#EEEEEE", "#FFFFFF"


def block_table(sequences, *, block_size, physical, ax=None):
    """Logical blocks above, each with the number of its physical block; the memory below.

    sequences: {name: (tokens, block table)}; a block table lists physical blocks in the order of
    the text. physical: blocks in the memory, numbered from 0. A block is filled as far as tokens
    reach into it; one that several tables hold has the colour of shared ones.
    """
    ax = axes(ax, data=WORKED_OUT)
    users = Counter(block for _, table in sequences.values() for block in table)
    colour = {block: COLOURS["shared block" if count > 1 else "own block"]
              for block, count in users.items()}
    longest = max(len(table) for _, table in sequences.values())
    width = 1 / max(longest, 8)
    filled = dict.fromkeys(range(physical), 0.0)
    for row, (name, (tokens, table)) in enumerate(sequences.items()):
        ax.text(-0.01, row + 0.4, name, ha="right", va="center", fontsize=8)
        for logical, block in enumerate(table):
            filled[block] = min(1, (tokens - logical * block_size) / block_size)
            _box(ax, logical * width, row, width, filled[block], colour[block], block)
    top = len(sequences) + 0.9
    ax.text(-0.01, top + 0.4, "memory", ha="right", va="center", fontsize=8)
    for block in range(physical):
        row, column = divmod(block, PER_ROW)
        _box(ax, column / PER_ROW, top + 0.9 * row, 1 / PER_ROW, filled[block],
             colour.get(block, FREE), block, used=block in users)
    bottom = top + 0.9 * (-(-physical // PER_ROW))
    if len(users) <= 6:
        _arrows(ax, sequences, width, top)
    ax.legend(handles=_legend(users), ncols=4, fontsize=7, frameon=False, loc="upper center",
              bbox_to_anchor=(0.5, -0.02))
    ax.set(xlim=(-0.14, 1.01), ylim=(bottom + 0.1, -0.2), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax


def _box(ax, x, y, width, filled, colour, number, *, used=True):
    ax.add_patch(Rectangle((x, y), width * 0.94, 0.8, fc=EMPTY if used else FREE, ec="none"))
    ax.add_patch(Rectangle((x, y), width * 0.94 * filled, 0.8, fc=colour, ec="none"))
    ax.add_patch(Rectangle((x, y), width * 0.94, 0.8, fc="none", ec="#888888", lw=0.6))
    size = 8 if width > 0.06 else 6 if number < 100 else 5
    ax.text(x + width * 0.47, y + 0.42, number, ha="center", va="center", fontsize=size,
            color="black" if used else "#888888")


def _arrows(ax, sequences, width, top):
    """From each logical block to its physical one; for few blocks only."""
    for row, (_, table) in enumerate(sequences.values()):
        for logical, block in enumerate(table):
            down, column = divmod(block, PER_ROW)
            ax.annotate("", ((column + 0.47) / PER_ROW, top + 0.9 * down),
                        ((logical + 0.47) * width, row + 0.8),
                        arrowprops={"arrowstyle": "->", "lw": 0.8, "color": "#555555"})


def _legend(users):
    kinds = {"own block": COLOURS["own block"], "shared block": COLOURS["shared block"]}
    if all(count == 1 for count in users.values()):
        del kinds["shared block"]
    marks = kinds | {"slots not filled": EMPTY, "free block": FREE}
    return [Patch(fc=colour, ec="#888888", lw=0.6, label=name) for name, colour in marks.items()]


def saved(rows, *, ax=None):
    """TTFT saved by a cached prefix against its length, in ms: predicted line, measured dots.

    rows: one a repeat and length, with passage_tokens, saved_s, predicted_s and first_guess_s.
    """
    ax = axes(ax, data=rows)
    medians = rows.groupby("passage_tokens")[["predicted_s", "first_guess_s"]].median() * 1000
    ax.plot(medians.index, medians.predicted_s, color="black", label="predicted")
    ax.plot(medians.index, medians.first_guess_s, "--", color="#888888", label="first guess")
    ax.plot(rows.passage_tokens, rows.saved_s * 1000, "o", ms=5, alpha=0.7,
            color=COLOURS["ttft"], label="measured, each repeat")
    ax.axhline(0, color="#999999", lw=0.8)
    ax.set(xlabel="tokens in the shared passage", ylabel="TTFT saved (ms)", xlim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return ax


def itl_by_arm(rows, *, ax=None):
    """ITL against the length of the passage, in ms: a dot a request, one colour an arm.

    rows: one a request, with passage_tokens, arm ('cold' or 'warm') and itl_ms.
    """
    ax = axes(ax)
    for arm, mine in rows.groupby("arm", sort=False):
        ax.plot(mine.passage_tokens, mine.itl_ms, "o" if arm == "cold" else "x", ms=5,
                color=COLOURS[arm], label=arm)
    ax.set(xlabel="tokens in the shared passage", ylabel="median ITL (ms)", xlim=(0, None),
           ylim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    return ax


def forgotten(rows, *, ax=None):
    """Hits for the first passage against other passages sent since: predicted and counted.

    rows: one a count, with others, predicted and hits (tokens).
    """
    ax = axes(ax, data=rows)
    ax.plot(rows.others, rows.predicted, color="black", marker="s", ms=9, mfc="none",
            label="predicted")
    ax.plot(rows.others, rows.hits, "o", ms=5, color=COLOURS["warm"], label="the engine's counter")
    ax.set(xlabel="other passages in between", ylabel="hits (tokens)", ylim=(-8, None))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, fontsize=8)
    return ax
