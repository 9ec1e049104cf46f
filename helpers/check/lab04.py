"""Checks of labs/04_mixed_models.ipynb: Whisper's shape, and the reader's own runs."""

import math

from helpers import check, memory, speech
from helpers.ledger import lab04


def fit(answer, config, engine):
    """How many requests of full length fit the speech engine's cache, against its own log."""
    if check.unanswered(answer):
        return
    told = speech.requests_that_fit(engine)
    one = memory.kv_bytes(config, tokens=config["max_target_positions"])
    check.number(answer, told, within=0.01, unit=f"requests; the engine says {told}",
                 hint=f"one takes {one:,} bytes: for each layer of the decoder keys and values of "
                      "its text, and of the sound: d_model numbers each, of 2 bytes, for every "
                      "position. The pool over that")


def filled(answer, shares):
    """Progress of two services that only fill each other's pauses, from their shares alone."""
    check.number(answer, lab04.filled(shares), within=0.01,
                 hint="each keeps a part p of its speed, and takes p times its share: p * (sum of "
                      "both shares) is 1 where the device is full. p is at most 1; there are two")


def progress(answer, runs):
    """Normalized progress of the mixed pair, by the reader's own runs."""
    if check.unanswered(answer):
        return
    check.number(answer, lab04.progress(lab04.MIXED)(runs)[0], within=0.01,
                 hint="for each service its rate together over its rate alone; add the two; the "
                      "mean over repeats")


def verdict(answer, low, high):
    """What an interval says about 'more than by taking turns', above 1."""
    known = not math.isnan(low)
    expected = ("supported" if known and low > 1 else
                "contradicted" if known and high <= 1 else "not decided")
    check.choice(answer, expected, why=f"{expected}",
                 hint=f"the interval is {low:.3g} to {high:.3g}: all of it above 1 is supported, "
                      "none of it is contradicted, and otherwise (or without one) not decided")
