"""Rates of services that share a device, over the time in which all of them are loaded. Pure.

Before and after that stretch of a turn one of them has the device to itself, and looks better than
it is. Rows are requests on one clock, with columns arm, repeat, engine.
"""

import numpy as np
import pandas as pd

KEYS = ["arm", "repeat", "engine"]


def stretch(turn):
    """(start, end) in seconds: from when every service has begun until a place stays empty.

    It ends with the first answer, of any service, after that service has sent its last request.
    turn: requests of one turn, on one clock. Raises ValueError where there is no such stretch.
    """
    start, ends = 0.0, []
    for _, rows in turn.groupby("engine"):
        done = (rows.sent_s + rows.e2el_s).to_numpy(float)
        start = max(start, rows.sent_s.min())
        ends.append(np.min(done, where=done > rows.sent_s.max(), initial=np.inf))
    if not ends or not start < min(ends) < np.inf:
        raise ValueError("the services were never loaded at the same time")
    return start, min(ends)


def tokens_within(rows, start, end):
    """Output tokens that came within (start, end], by the chunks' times of arrival.

    A recorded run may ship without those: then at equal gaps from the first to the last token.
    """
    total = 0
    for row in rows.itertuples():
        times, each = getattr(row, "chunk_times_s", None), getattr(row, "chunk_tokens", None)
        if not isinstance(times, list) or not times:
            times = np.linspace(row.ttft_s, row.e2el_s, int(row.output_tokens))
        if not isinstance(each, list) or len(each) != len(times):
            each = row.output_tokens / len(times)
        at = row.sent_s + np.asarray(times, dtype=float)
        total += np.sum(np.where((at > start) & (at <= end), each, 0))
    return float(total)


def while_loaded(requests):
    """The requests that were sent before their turn's `stretch` ended; turns as in `rates`."""
    return pd.concat([turn[turn.sent_s < stretch(turn)[1]] for _, turn in _whole(requests)])


def _whole(requests):
    """((arm, repeat), its requests) of the turns in which no request failed."""
    return [(key, turn) for key, turn in requests.groupby(["arm", "repeat"], sort=False)
            if (turn.outcome == "ok").all()]


def rates(requests):
    """One row per (arm, repeat, engine): tok_per_s over the turn's `stretch`, and seconds of it.

    Turns in which a request failed are left out.
    """
    found = []
    for (arm, repeat), turn in _whole(requests):
        start, end = stretch(turn)
        found += [{"arm": arm, "repeat": repeat, "engine": engine, "seconds": end - start,
                   "tok_per_s": tokens_within(rows, start, end) / (end - start)}
                  for engine, rows in turn.groupby("engine", sort=False)]
    return pd.DataFrame(found, columns=[*KEYS, "seconds", "tok_per_s"])
