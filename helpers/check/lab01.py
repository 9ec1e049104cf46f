"""Checks of labs/01_two_engines.ipynb."""

from helpers import check, memory
from helpers.ledger import lab01


def cache_left(share, memory_bytes, utilization, weight_bytes):
    """share: two engines' caches together, over the cache of one that has all the memory."""
    one = utilization * memory_bytes - weight_bytes
    check.number(share, 2 * (utilization / 2 * memory_bytes - weight_bytes) / one, within=0.01,
                 hint="each engine keeps its own weights: take them off each half, then add")


def rates(turns, apart, *, in_flight, output_len, prompt_s, step_s):
    """turns, apart: tokens a second of two engines, in_flight over both together.

    prompt_s: seconds of prefill a request. step_s: function of a batch -> seconds of a step.
    """
    if check.unanswered(turns, apart):
        return
    each = in_flight / 2
    round_s = each * prompt_s + output_len * step_s(each)
    check.number(apart, in_flight * output_len / round_s, unit="tokens a second, apart",
                 hint="for `apart`, one round of an engine prefills half of the prompts and "
                      "decodes half the batch; meanwhile the other engine does as much")
    check.number(turns, in_flight * output_len / (2 * round_s), unit="tokens a second, in turns",
                 hint="for `turns`, the same work takes the rounds of both engines, one after the "
                      "other")


def bytes_each(mb, config, *, in_flight, context):
    """mb: MB (10⁶ bytes) that a token moves where two engines share in_flight equally."""
    moved = memory.decode_bytes_per_token(config, batch=in_flight / 2, context=context,
                                          include_lm_head=True)
    check.number(mb, moved / 1e6, unit="MB",
                 hint="each engine reads all weights for its half of the batch; in MB, 10⁶ bytes")


def progress(answer, runs):
    """answer: the normalized progress of two engines at the largest load of these runs."""
    check.number(answer, lab01.progress(runs)[0],
                 hint="for each engine, its rate in the pair over the rate of one engine under "
                      "half the load; mean over repeats; the sum of both")


def verdict(answer, table):
    """answer: the verdict on the first claim; table: of `ledger.verdicts`."""
    words = ("supported", "contradicted", "not decided")
    if isinstance(answer, str) and answer not in words:
        raise check.WrongAnswer(f"a verdict is one of {', '.join(words)}")
    check.choice(answer, table.verdict.iloc[0], why=f"{table.claim.iloc[0]}: {answer}",
                 hint="all of the interval where the claim says: supported; none of it: "
                      "contradicted; else, or with no interval: not decided")
