"""From requests, one row each (helpers.rows), to points: throughput and percentiles. Pure."""

import numpy as np
import pandas as pd

from helpers import intervals

KEYS = ["experiment", "arm", "engine", "repeat", "tool", "concurrency", "rate"]
LATENCIES = ["ttft_s", "tpot_s", "itl_s", "e2el_s"]
PERCENTILES = (50, 95, 99)
REFUSED = "HTTP 429"  # how the error of a refused request begins
LATE_GAPS = 0.5  # how late a client may be, in distances between two requests


def percentile(values, q):
    """The q-th percentile (0 to 100) of the values, in their unit.

    Linear interpolation between the two nearest ranks, position (n - 1) * q / 100, which is
    numpy.percentile's default and what vllm/benchmarks/serve.py prints. NaN values do not count.
    Raises ValueError if there is none left, or if q is not within 0 and 100.
    """
    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    if not values.size:
        raise ValueError("there is no percentile of no values")
    return float(np.percentile(values, q))


def points(requests):
    """One row per run: a group of requests with the same KEYS, as many of them as are columns.

    ok, failed, cut_off: requests by outcome; all that follows is over the ok ones.
    duration_s: from the first one sent to the last token of the last one.
    request_per_s, output_tok_per_s, total_tok_per_s: their number, their output tokens, and
    input and output tokens, over duration_s. in_flight: their sum of E2EL over duration_s, which
    by Little's law is the mean number in flight.
    p95_late_s, valid: how late the client sent them, and whether that leaves the run valid (see
    on_schedule); NaN and True in a closed loop.
    mean_, p50_, p95_, p99_ of ttft_s, tpot_s, itl_s and e2el_s, in seconds; itl_s is pooled over
    all gaps of all requests, so long answers weigh more (as in vllm/benchmarks/serve.py).
    NaN where nothing was measured. Raises KeyError for a table without the columns of rows.py.
    """
    keys = [key for key in KEYS if key in requests]
    groups = requests.groupby(keys, dropna=False, sort=False)
    rows = [dict(zip(keys, names, strict=True)) | _point(group) for names, group in groups]
    return pd.DataFrame(rows)


def _point(group):
    ok = group[group["outcome"] == "ok"]
    counts = {name: int((group.outcome == outcome).sum())
              for name, outcome in [("ok", "ok"), ("failed", "error"), ("cut_off", "cut_off")]}
    duration_s = _duration_s(ok)
    output, total = ok.output_tokens.sum(), (ok.input_tokens + ok.output_tokens).sum()
    point = {**counts, "duration_s": duration_s, "request_per_s": len(ok) / duration_s,
             "output_tok_per_s": output / duration_s, "total_tok_per_s": total / duration_s,
             "in_flight": ok.e2el_s.sum() / duration_s, **_client(group)}
    for name in LATENCIES:
        values = _values(ok[name])
        point[f"mean_{name}"] = float(values.mean()) if values.size else np.nan
        for q in PERCENTILES:
            point[f"p{q}_{name}"] = percentile(values, q) if values.size else np.nan
    return point


def _duration_s(ok):
    """From the first of these sent to the last token of the last; NaN if there is none."""
    return (ok.sent_s + ok.e2el_s).max() - ok.sent_s.min() if len(ok) else np.nan


def _client(group):
    late_s = _values(late(group))
    return {"p95_late_s": percentile(late_s, 95) if late_s.size else np.nan,
            "valid": on_schedule(group)}


def late(requests):
    """Seconds by which each request left after the time it was meant for; NaN in a closed loop."""
    return pd.to_numeric(requests.sent_s) - pd.to_numeric(requests.intended_s)


def on_schedule(requests):
    """False for a run whose client was too slow for its own schedule: such a run is invalid.

    requests: those of one run. Too slow is: the 95th percentile of `late` is more than half the
    mean distance between two intended times. Its load was then not the one that was asked for,
    and its TTFT leaves out what the client kept waiting. True where nothing was intended.
    """
    late_s = late(requests).dropna()
    if len(late_s) < 2:
        return True
    intended_s = requests.intended_s[late_s.index]
    gap_s = (intended_s.max() - intended_s.min()) / (len(late_s) - 1)
    return bool(percentile(late_s, 95) <= LATE_GAPS * gap_s)


def meets(requests, *, ttft_s, tpot_s):
    """For each request whether it is good: ok, TTFT <= ttft_s and TPOT <= tpot_s (seconds).

    An answer of one token has no TPOT: it meets that limit.
    """
    single = requests.output_tokens == 1
    return ((requests.outcome == "ok") & (requests.ttft_s <= ttft_s)
            & ((requests.tpot_s <= tpot_s) | single))


def goodput(requests, *, ttft_s, tpot_s):
    """Good requests per second of one run: those that `meets` both limits, over its duration.

    The duration is that of `points`: from the first ok one sent to the last token of the last.
    0 where no request was ok. The name and the idea: Zhong et al., DistServe (2024), section 2;
    `vllm bench serve --goodput` counts alike. Raises ValueError for no requests, or for those of
    several runs, whose clocks each start at 0.
    """
    if not len(requests):
        raise ValueError("there is no goodput of no requests")
    several = [key for key in KEYS if key != "engine" and key in requests
               and requests[key].nunique(dropna=False) > 1]
    if several:
        raise ValueError(f"several runs, that differ in {', '.join(several)}: give one at a time")
    ok = requests[requests.outcome == "ok"]
    if not len(ok):
        return 0.0
    return float(meets(requests, ttft_s=ttft_s, tpot_s=tpot_s).sum() / _duration_s(ok))


def under(requests, *, ttft_s, tpot_s):
    """The rows of `points` with goodput_per_s and good_share of each run.

    good_share: good requests over all that were sent. A run of an invalid client keeps its row.
    """
    found = points(requests)
    keys = [key for key in KEYS if key in requests]
    runs = [run for _, run in requests.groupby(keys, dropna=False, sort=False)]
    limits = {"ttft_s": ttft_s, "tpot_s": tpot_s}
    return found.assign(goodput_per_s=[goodput(run, **limits) for run in runs],
                        good_share=[float(meets(run, **limits).mean()) for run in runs])


def cost_per_acceptable_request(requests, *, price_per_hour, ttft_s, tpot_s, quality_ok,
                                level=0.95):
    """What one acceptable request costs, of one deployment at one load; the repeats told apart by
    the column `repeat`.

    cost = price_per_hour / 3600 * seconds / acceptable, both summed over the repeats. Acceptable:
    it `meets` both limits, and quality_ok: the deployment passed its quality gate. seconds: from
    the first request sent to the last token of all, for which the machine is paid. Returns a
    Series: cost, low, high (`intervals.ratio` over repeats, at `level`: NaN for fewer than three),
    in the price's currency; acceptable, sent, seconds, repeats. Infinite where none was
    acceptable. Raises ValueError for a price that is not positive, for no requests, or for
    requests of more than one `load` or `rate`, where there is such a column.
    """
    if not 0 < price_per_hour < np.inf or not len(requests):
        raise ValueError("a cost needs a price above 0 and some requests")
    if any(requests[name].nunique() > 1 for name in ("load", "rate") if name in requests):
        raise ValueError("these requests were sent at several loads: each has a bill of its own")
    good = meets(requests, ttft_s=ttft_s, tpot_s=tpot_s) & bool(quality_ok)
    ends = requests.sent_s + requests.e2el_s.fillna(0)
    runs = pd.DataFrame({"good": good, "start": requests.sent_s, "end": ends})
    runs = runs.groupby(requests.repeat).agg({"good": "sum", "start": "min", "end": "max"})
    seconds = runs.end - runs.start
    found = intervals.ratio(price_per_hour / 3600 * seconds, runs.good, level=level)
    return pd.Series([*found, runs.good.sum(), len(requests), seconds.sum(), len(runs)], index=[
        "cost", "low", "high", "acceptable", "sent", "seconds", "repeats"])


def refused(requests):
    """For each request whether admission refused it: an error that starts with REFUSED."""
    return requests.error.str.startswith(REFUSED)


def normalized_progress(shared, solo, *, level=0.95):
    """(value, low, high): what the services get done together, each measured by itself alone.

    shared, solo: {service: its rate in each repeat}, or a DataFrame with a column a service; a
    service's rates are in one unit. A repeat's progress is the sum over services of shared rate
    over solo rate. If they took turns on the device instead, it would be 1 whatever their shares
    of the time (the time-split reference); sharing is useful only where the interval lies above.
    Value: the mean over repeats; low, high: `intervals.of_mean`, NaN for fewer than three. The
    measure is the weighted speedup of Snavely and Tullsen (ASPLOS 2000). Raises ValueError for
    other services alone than together, no rates, a solo rate that is not positive, or repeats
    that do not pair up.
    """
    shared, solo = _rates(shared), _rates(solo)
    if set(shared) != set(solo) or not len(shared) or len(shared) != len(solo):
        raise ValueError("shared and solo need the same services, and as many repeats of each")
    if not (solo > 0).all(axis=None):
        raise ValueError("a solo rate has to be above 0")
    progress = (shared / solo).sum(axis=1, skipna=False).to_numpy()
    ends = intervals.of_mean(progress, level=level) if len(progress) > 2 else (np.nan, np.nan)
    return float(progress.mean()), *ends


def _rates(rates):
    """A DataFrame with a row a repeat; a single number is one repeat."""
    columns = {name: np.atleast_1d(np.asarray(rates[name], dtype=float)) for name in rates}
    return pd.DataFrame(columns)


def knee(runs, *, share=0.95):
    """The highest rate, in requests per second, up to which the median share of good requests of
    its valid runs is at least `share`, at it and at every lower rate; 0.0 where there is none.

    runs: rows of `under` with rate.
    """
    held = runs[runs.valid].groupby("rate").good_share.median() >= share
    return float(held.index[held.cummin()].max()) if held.cummin().any() else 0.0


def _values(column):
    """The finite numbers of a column; lists are pooled, None and NaN do not count."""
    values = pd.to_numeric(column.explode(), errors="coerce").to_numpy(dtype=float)
    return values[~np.isnan(values)]
