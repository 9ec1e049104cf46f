"""The decision table of lesson 06 as code: which signs moved, so what to look at first. Pure.

Four signs: p95 TTFT and median ITL, as a client sees them; the waiting queue and the prefill
time, by the engine's own clocks. `TABLE` is read from the top; the first row that fits counts.
'queue and prefill' and 'prefix reuse' are the classroom tutorial's, the others complete them.
"""

from dataclasses import dataclass

import pandas as pd

from helpers import metrics

UP, SAME, DOWN, ANY = "up", "same", "down", ""
SIGNS = ["p95 TTFT", "ITL", "waiting queue", "prefill time"]
CLOCK_S = 0.001  # what grew by less is no cause of anything
# name, the four signs, what to look at first
TABLE = [
    ("queue", (UP, SAME, UP, SAME),
     "the waiting queue: all places are taken (max-num-seqs), or the cache is full"),
    ("prefill", (UP, SAME, SAME, UP),
     "the prefill: longer prompts, lost prefix hits, or a small token budget"),
    ("queue and prefill", (UP, SAME, UP, UP), "the waiting queue, then the prefill"),
    ("front", (UP, SAME, SAME, SAME),
     "what comes before the engine: the client, the network, the tokenizer"),
    ("queue or prefill", (UP, SAME, ANY, ANY),
     "the engine's clocks: the waiting queue and the prefill"),
    ("full batch", (UP, UP, UP, ANY),
     "the rate: the batch has grown until its places were taken, and the rest waits"),
    ("longer steps", (UP, UP, ANY, ANY),
     "the step: more sequences or longer contexts share it, prompts of others as well"),
    ("decode", (SAME, UP, ANY, ANY), "the decode step: batch and context length"),
    ("prefix reuse", (DOWN, SAME, ANY, ANY),
     "the prefix cache's hits: work on shared text was saved"),
    ("less load", (DOWN, DOWN, ANY, ANY), "the load: fewer requests share a step"),
    ("faster decode", (SAME, DOWN, ANY, ANY), "the decode step: a smaller batch, or less to read"),
    ("longer wait, faster decode", (UP, DOWN, ANY, ANY),
     "limits of the engine: fewer places make waits longer and steps shorter"),
    ("slower decode, shorter wait", (DOWN, UP, ANY, ANY),
     "limits of the engine: more places make waits shorter and steps longer"),
    ("nothing", (SAME, SAME, ANY, ANY), "nothing: no sign moved more than could be seen"),
]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """name: a row of TABLE.  look_at: what to look at first.  signs: {sign: up, same, down}."""

    name: str
    look_at: str
    signs: dict


def table():
    """TABLE as a DataFrame to show; an empty sign may be anything."""
    return pd.DataFrame([{"row": name, **dict(zip(SIGNS, signs, strict=True)),
                          "look first at": look_at} for name, signs, look_at in TABLE])


def compare(before, after, *, seen=1.25):
    """The Diagnosis of what changed from one point to another.

    before, after: rows of metrics.points, or dicts. Of each: p95_ttft_s and p50_itl_s (where a
    tool keeps no gaps, p50_tpot_s stands in); and if known queue_s and prefill_s, the engine's
    mean seconds a request (see `clocks`), beside mean_ttft_s.
    seen: the smallest ratio that the measurement could have seen; what moves by less is 'same'.
    The queue, or the prefill, is up if it makes up a quarter or more of the growth of the mean
    TTFT, and is itself `seen` times what it was. Unknown it is '?', which fits an empty sign
    only. Raises KeyError where a latency is missing, ValueError where it is NaN: a run
    without a success has no signs.
    """
    ttft = _moved(before["p95_ttft_s"], after["p95_ttft_s"], seen)
    itl = _moved(_itl(before), _itl(after), seen)
    signs = (ttft, itl, _part("queue_s", before, after, seen),
             _part("prefill_s", before, after, seen))
    for name, wanted, look_at in TABLE:
        if all(want in (ANY, sign) for want, sign in zip(wanted, signs, strict=True)):
            return Diagnosis(name, look_at, dict(zip(SIGNS, signs, strict=True)))
    raise AssertionError(f"no row of the table fits {signs}")


def within(requests, *, seen=1.25):
    """The Diagnosis of one run: its last third of requests (as sent) against its first.

    A queue that is still growing at the end shows as a TTFT that is up. Only a client's signs are
    known of a third, so queue and prefill are told apart by `compare` alone. Raises ValueError
    for fewer than six requests, or a third without a success.
    """
    number = len(requests) // 3
    if number < 2:
        raise ValueError(f"{len(requests)} requests have no first and last third")
    ordered = requests.sort_values("sent_s")
    first, last = (metrics.points(some).iloc[0]
                   for some in (ordered.iloc[:number], ordered.iloc[-number:]))
    return compare(first, last, seen=seen)


def clocks(before, after):
    """What the engine's own clocks and counters say of the requests between two readings.

    before, after: Server.metrics() of two moments. Returns queue_s and prefill_s, mean seconds
    a request (waiting for a place; from then to the first token), hit_tokens, prompt tokens found
    in the prefix cache, and preemptions. Raises ValueError if no request ended in between.
    """
    def grown(name):
        return after.get(f"vllm:{name}", 0) - before.get(f"vllm:{name}", 0)

    ended = grown("request_queue_time_seconds_count")
    if not ended:
        raise ValueError("no request ended between the two readings")
    return {"queue_s": grown("request_queue_time_seconds_sum") / ended,
            "prefill_s": grown("request_prefill_time_seconds_sum") / ended,
            "hit_tokens": grown("prefix_cache_hits_total"),
            "preemptions": grown("num_preemptions_total")}


def _moved(before, after, seen):
    if not (before > 0 and after > 0):
        raise ValueError(f"no sign can be read from {before} and {after}")
    return UP if after > seen * before else DOWN if before > seen * after else SAME


def _itl(point):
    itl_s = point["p50_itl_s"] if "p50_itl_s" in point else float("nan")
    return itl_s if itl_s == itl_s else point["p50_tpot_s"]


def _part(name, before, after, seen):
    """'up' if this part makes a share of TTFT's growth, 'same' if not, '?' if it is not known."""
    if any(name not in point or point[name] != point[name] for point in (before, after)):
        return "?"
    growth = after["mean_ttft_s"] - before["mean_ttft_s"]
    grown = after[name] - before[name]
    least = max(0.25 * abs(growth), (seen - 1) * before[name], CLOCK_S)
    return UP if grown > least else SAME
