"""Checks of labs/02_mps.ipynb: against the reader's own runs."""

from helpers import check, decision, intervals, pace


def between(answer, alone_tok_per_s):
    """answer: (taking turns, not noticing each other), tokens a second of a pair."""
    if check.unanswered(answer):
        return
    hint = ("(least, most): if they take turns, both together do what one of them does alone; if "
            "they do not notice each other, each does that")
    try:
        least, most = answer
    except (TypeError, ValueError):
        raise check.WrongAnswer(hint) from None
    if check.unanswered(least, most):
        return
    check.number(least, alone_tok_per_s, hint=hint, unit="tok/s at least")
    check.number(most, 2 * alone_tok_per_s, hint=hint, unit="tok/s at most")


def batch(answer, runs, arm, concurrency):
    """answer: tokens that a step of each engine of the pair makes; within a quarter of its own."""
    if check.unanswered(answer):
        return
    at = pace.table(runs[(runs.arm == arm) & (runs.concurrency == concurrency)]).batch.mean()
    check.number(answer, at, within=0.25, unit=f"tokens a step; its counters say {at:.3g}",
                 hint="every running request gets one token in a step: how many does each engine "
                 "have?")


def ratio(answer, points, over, under):
    """answer: output tokens a second of one arm over another's; points: one concurrency."""
    if check.unanswered(answer):
        return
    speeds = points.pivot(index="repeat", columns="arm", values="output_tok_per_s")
    check.number(answer, intervals.ratio(speeds[over], speeds[under])[0], within=0.02,
                 hint=f"output_tok_per_s of '{over}' over that of '{under}': sum each over the "
                 "repeats")


def verdict(answer, interval):
    """answer: the verdict on 'more than 1', given (low, high)."""
    low, high = interval
    known = "no interval" if low != low else f"{low:.3g} to {high:.3g}"
    check.choice(answer, decision.verdict(interval, above=1), why=known,
                 hint="supported if all of the interval lies above 1, contradicted if none of it "
                 "does, else (or where there is no interval) not decided")
