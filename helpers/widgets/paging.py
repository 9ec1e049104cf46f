"""The block table of lesson 04: sequences that share a prefix, drawn as their lengths change."""

import random

from ipywidgets import IntSlider, SelectionSlider

from helpers import plots
from helpers.paging import Pool, blocks
from helpers.widgets.base import show

SEED = 7  # of the order in which physical blocks are handed out


def block_table(*, longest=2048):
    """Show the widget. longest: tokens that a contiguous reservation would take for each one."""
    def draw(block_size, prompt, answer, sequences, prefix):
        held, size = sequences_with(block_size, prompt, answer, sequences, prefix)
        ax = plots.block_table(held, block_size=block_size, physical=size)
        ax.set_xlabel(waste(held, block_size, longest), fontsize=8, labelpad=20)
        return ax

    return show(draw, block_size=SelectionSlider(options=[16, 32, 64, 128], value=32,
                                                 description="block size"),
                prompt=_slider("prompt tokens", 123, 16, 320),
                answer=_slider("answer tokens", 40, 0, 160),
                sequences=_slider("sequences", 3, 1, 6),
                prefix=_slider("shared prefix", 100, 0, 320))


def _slider(name, value, low, high):
    return IntSlider(value=value, min=low, max=high, description=name,
                     style={"description_width": "initial"})


def sequences_with(block_size, prompt, answer, sequences, prefix):
    """({name: (tokens, block table)}, physical blocks) of sequences with a common prefix.

    All lengths in tokens; a prefix longer than the prompt is cut to it.
    """
    tokens = prompt + answer
    size = max(24, sequences * blocks(tokens, block_size))
    size = -(-size // 24) * 24  # whole rows of the figure
    pool = Pool(random.Random(SEED).sample(range(size), size), block_size=block_size)
    shared = list(range(min(prefix, prompt)))
    held = {}
    for number in range(1, sequences + 1):
        own = [(number, place) for place in range(tokens - len(shared))]
        held[f"pupil {number}"] = tokens, pool.admit(shared + own)[0]
    return held, size


def waste(held, block_size, longest):
    """Two lines: slots taken and left empty with blocks, and with one reservation each."""
    taken = len({block for _, table in held.values() for block in table}) * block_size
    tables = [(tokens, len(table) * block_size) for tokens, table in held.values()]
    empty = sum(slots - tokens for tokens, slots in tables)
    shared = sum(slots for _, slots in tables) - taken
    tokens, reserved = sum(tokens for tokens, _ in tables), len(held) * longest
    return (f"{taken} slots in blocks: {empty} empty ({empty / taken:.1%}), {shared} saved by "
            f"sharing\none reservation of {longest} for each: {reserved} slots, "
            f"{1 - tokens / reserved:.1%} empty")
