"""Checks of notebooks/04_paged_and_prefix.ipynb: counts of blocks and tokens, so all exact."""

from helpers import check, paging


def empty_slots(in_blocks, reserved, *, tokens, block_size, longest):
    """Slots left empty by a sequence of `tokens`: in its last block, and in one reservation."""
    if check.unanswered(in_blocks, reserved):
        return
    expected = paging.blocks(tokens, block_size) * block_size - tokens
    if in_blocks != expected:
        raise check.WrongAnswer("blocks(tokens) whole blocks are taken; how many slots is that, "
                                "and how many of them hold a token?")
    check.choice(reserved, longest - tokens, why=f"{expected} against {longest - tokens}",
                 hint="one reservation takes as many slots as the longest sequence may need")


def second_pupil(predicted, row):
    """row: the second pupil's request with the counter's change in `hits`."""
    check.choice(predicted, row.hits, why=f"the counter rose by {row.hits:.0f} as well",
                 hint="count the tokens that both prompts share from the start, keep whole blocks, "
                      "and answer in tokens")


def name_first(predicted, rows):
    """rows: requests with the name first, with `hits`; predicted: of all of them together."""
    check.choice(predicted, rows.hits.sum(), why="the counter did not move: nothing was found",
                 hint="where does the first difference between two of these prompts stand? "
                      "Is there a whole block before it?")


def rest(computed, rounds, *, row, budget):
    """row: a warm request with `input_tokens` and `hits`; budget: most tokens in one step."""
    if check.unanswered(computed, rounds):
        return
    expected = row.input_tokens - row.hits
    if computed != expected:
        raise check.WrongAnswer("all tokens of the prompt, less those that the cache supplied")
    check.choice(rounds, paging.blocks(int(expected), budget),
                 why=f"{computed:.0f} tokens in {rounds:.0f} step(s)",
                 hint="a step takes as many prompt tokens as the budget allows, and the last may "
                      "take fewer")


def forgotten(others, rows):
    """The fewest other passages after which nothing is found; rows: `others` and `hits`."""
    if check.unanswered(others):
        return
    gone = rows.others[rows.hits == 0]
    if gone.empty:
        raise check.WrongAnswer("nothing was forgotten in this run: the cache is larger than the "
                                "lesson's. Was the engine started by its first cell?")
    measured = gone.min()
    check.choice(others, measured, why=f"after {measured} others the counter stands still",
                 hint="each passage takes whole blocks, oldest first. After how many passages has "
                      "the pool handed out all its blocks, the first passage's included?")
