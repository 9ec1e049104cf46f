"""The claims of lab 10: which topology does most, which does most in time, and the router's two.

Rows of lab10_topologies have, beside those of `experiment.run`, limit_ttft_s and limit_tpot_s: the
SLO. Rows of lab10_router are questions: text, passage, half ('tuning' or 'judging'), loss. Rows of
lab10_latency are requests with arm 'direct', 'direct again' or 'router'.
"""

import numpy as np
import pandas as pd

from helpers import experiment, intervals, metrics, routing
from helpers.ledger import Claim, as_text

ONE, MIXED = "one engine", "one of each"
KEYS = ["arm", "repeat", "concurrency"]


def names(requests):
    """{"16": arm, "FP8": arm} of the two pairs, whatever way they share this machine."""
    pairs = [arm for arm in requests.arm.unique() if arm.startswith("two engines")]
    return {"FP8" if arm.endswith("FP8") else "16": arm for arm in pairs}


def points(requests):
    """`experiment.totals`, and of each: good_share, goodput_per_s, good_tok_per_s.

    Good: within limit_ttft_s and limit_tpot_s. good_tok_per_s: output tokens of good requests a
    second; it has the unit of the throughput, and is at most as large.
    """
    limits = {name: float(requests[f"limit_{name}"].dropna().iloc[0])
              for name in ("ttft_s", "tpot_s")}
    answered = requests[requests.concurrency > 0].drop(columns="engine")
    good = metrics.under(answered, **limits)[[*KEYS, "good_share", "goodput_per_s"]]
    tokens = answered.assign(good=metrics.meets(answered, **limits) * answered.output_tokens)
    tokens = tokens.groupby(KEYS).good.sum().reset_index()
    found = experiment.totals(requests).merge(good, on=KEYS).merge(tokens, on=KEYS)
    return found.assign(good_tok_per_s=found.good / found.duration_s).drop(columns="good")


def over(arm, base, measure="output_tok_per_s"):
    """effect: a measure of `points` of an arm over that of the base, at the largest load.

    arm, base: names, or '16' and 'FP8' for the pairs. The interval is `intervals.widened` to what
    one engine differed from itself.
    """
    def effect(requests):
        pair = names(requests)
        found = points(requests)
        most = found[found.concurrency == found.concurrency.max()]
        table = most.pivot(index="repeat", columns="arm", values=measure).dropna()
        strayed = intervals.strayed(table[f"{ONE} again"], table[ONE])
        return intervals.widened(
            intervals.ratio(table[pair.get(arm, arm)], table[pair.get(base, base)]), strayed)
    return effect


def preempted_more(requests):
    """Preemptions a repeat, two 16-bit engines less two FP8 engines, at the largest load."""
    pair, found = names(requests), experiment.totals(requests)
    most = found[found.concurrency == found.concurrency.max()]
    table = most.pivot(index="repeat", columns="arm", values="preemptions")
    difference = (table[pair["16"]] - table[pair["FP8"]]).dropna().to_numpy()
    if len(difference) < 3:
        return float(difference.mean()), np.nan, np.nan
    return float(difference.mean()), *intervals.of_mean(difference)


def lost(questions):
    """Mean loss of a question with an FP8 cache, in nats a token; the interval over passages."""
    losses = _at_fp8(questions).groupby("passage").loss.mean()
    return float(losses.mean()), *intervals.of_mean(losses)


def simple_less(questions):
    """Loss of the simple less that of the hard, by the rule tuned on the other half."""
    tuning = _at_fp8(questions)[questions.half == "tuning"]
    found = routing.judge(questions[questions.half == "judging"], routing.tune(tuning))
    return found.difference, found.low, found.high


def _at_fp8(questions):
    """The questions. Raises ValueError where nothing moved: that cache was not in FP8."""
    if not questions.loss.any():
        raise ValueError("both engines have the same cache")
    return questions


def slower(base):
    """effect: median time to the first token through the router over that of `base`, by repeats."""
    def effect(requests):
        table = requests.pivot_table("ttft_s", "repeat", "arm", aggfunc="median")
        return intervals.ratio(table.router, table[base])
    return effect


def table(requests):
    """What a machine's run found, a row an arm and load: speed and goodput over the one engine's
    (ratio, low, high, seen of `experiment.against`), and preemptions a repeat."""
    found = points(requests)
    rows = []
    for measure, name in (("output_tok_per_s", "throughput"), ("good_tok_per_s", "goodput")):
        rows.append(experiment.against(found, base=ONE, measure=measure).assign(measure=name))
    counts = found.groupby(["arm", "concurrency"]).preemptions.mean().reset_index()
    return pd.concat(rows).merge(counts, on=["arm", "concurrency"])


def in_words(requests):
    """The study's two findings, and what its proposal does, on a machine's run."""
    pair = names(requests)
    speed, good = over("FP8", ONE)(requests), over("FP8", ONE, "good_tok_per_s")(requests)
    mixed = over(MIXED, "16")(requests)
    found = points(requests)
    most = found[found.concurrency == found.concurrency.max()]
    best = {name: most.groupby("arm")[measure].mean().drop(f"{ONE} again", errors="ignore").idxmax()
            for name, measure in (("throughput", "output_tok_per_s"),
                                  ("goodput", "good_tok_per_s"))}
    return (f"at {most.concurrency.max()} in flight the most throughput: {best['throughput']}; the "
            f"most goodput: {best['goodput']}. {pair['FP8']} over {ONE}: {as_text(speed)} of the "
            f"throughput, {as_text(good)} of the goodput; {MIXED} over {pair['16']}: "
            f"{as_text(mixed)}.")


SPEED, GOOD = "output tokens a second", "output tokens a second of requests within the SLO"
CLAIMS = [
    Claim("10", "Two engines with FP8 caches do the most in a crowd", "lab10_topologies",
          f"{SPEED}, two FP8 over one 16-bit", over("FP8", ONE), above=1),
    Claim("10", "Yet one 16-bit engine does the most in time", "lab10_topologies",
          f"{GOOD}, two FP8 over one", over("FP8", ONE, "good_tok_per_s"), below=1),
    Claim("10", "One engine of each kind does more than two 16-bit ones", "lab10_topologies",
          f"{SPEED}, one of each over two 16-bit", over(MIXED, "16"), above=1),
    Claim("10", "Two 16-bit engines preempt where two FP8 engines do not", "lab10_topologies",
          "preemptions a repeat, 16 bits less FP8", preempted_more, above=0),
    Claim("10", "An FP8 cache makes the 16-bit answer less likely", "lab10_router",
          "loss, nats a token", lost, above=0),
    Claim("10", "Simple requests lose less than hard ones", "lab10_router",
          "loss of simple less that of hard, nats a token", simple_less, below=0),
    Claim("10", "The router costs less than a tenth of the time to the first token",
          "lab10_latency", "TTFT, through the router over direct", slower("direct"), below=1.1),
]
