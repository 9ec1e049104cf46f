"""A run in the engines' own steps: how many tokens a step makes, and how long it takes. Pure.

All engines of an arm together make  engines * batch / step_s  output tokens a second. So two
engines differ from one in three numbers: they are two, each step makes fewer tokens, and it takes
another time. What shares the device between them can change only the last.
"""

import pandas as pd

from helpers import metrics, overlap

KEYS = ["arm", "concurrency", "repeat"]


def table(runs):
    """One row per (arm, concurrency, repeat): engines, batch, step_s, output_tok_per_s.

    runs: requests with those columns, `engine`, and `steps`, what that engine's own counter went
    up by in that turn.  batch: output tokens of all engines over steps of all.  step_s: engines *
    duration_s / steps of all, so that engines * batch / step_s is the throughput, exactly; a step
    that only takes in prompts counts too. Crashed arms are left out. Raises KeyError without such
    columns.
    """
    runs = runs[runs.outcome == "ok"]
    by_engine = runs.groupby([*KEYS, "engine"]).agg(
        tokens=("output_tokens", "sum"), steps=("steps", "first")).reset_index()
    by_arm = by_engine.groupby(KEYS).agg(
        engines=("engine", "nunique"), tokens=("tokens", "sum"), steps=("steps", "sum"))
    points = metrics.points(runs.drop(columns="engine")).set_index(KEYS)
    found = by_arm.join(points[["duration_s", "output_tok_per_s"]])
    return found.assign(
        batch=found.tokens / found.steps, step_s=found.engines * found.duration_s / found.steps,
    )[["engines", "batch", "step_s", "output_tok_per_s"]].reset_index()


def progress(shared, alone):
    """(value, low, high): what a pair of equal engines gets done, over what one of them does alone.

    shared, alone: runs of one concurrency each, alone with half as many requests in flight, and as
    many repeats. By `metrics.normalized_progress`, the engines of the pair being its services, and
    the one that ran alone the measure for both: 1 is taking turns, 2 is not noticing each other.
    Rates are those of `overlap`. Raises ValueError where the two were never loaded at once.
    """
    pair = overlap.rates(shared).pivot(index="repeat", columns="engine", values="tok_per_s")
    solo = overlap.rates(alone).set_index("repeat").tok_per_s
    return metrics.normalized_progress(pair, pd.DataFrame(dict.fromkeys(pair.columns, solo)))
