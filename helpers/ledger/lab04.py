"""The claims of lab 04: a text model and a speech model on one device. Pure but for its imports.

Rates are those of `overlap`: of the time in which all services are loaded. Rows have, beside the
columns of `experiment.run`, `cores`: of the machine.
"""

import numpy as np

from helpers import intervals, metrics, overlap
from helpers.ledger import Claim

MIXED, ALIKE = "text and speech", "two text engines"
HALVES, BOTH = "one engine, in halves", "one engine, both loads"
ALONE = {"text": "text alone", "speech": "speech alone"}


def kept(requests):
    """One row per (arm, repeat, engine) of the arms with two services: its rate over its own alone.

    'speech' is compared with the speech engine alone, every other service with the text engine.
    """
    found = overlap.rates(requests)
    solo = found[found.arm.isin(ALONE.values())].set_index(["arm", "repeat"]).tok_per_s
    shared = found[~found.arm.isin(ALONE.values())]
    base = [solo.get((ALONE.get(engine, ALONE["text"]), repeat), np.nan)
            for engine, repeat in zip(shared.engine, shared.repeat, strict=True)]
    return shared.assign(kept=shared.tok_per_s / base)


def table(requests):
    """`kept`, a column a service, by (arm, repeat)."""
    return kept(requests).pivot_table(index="repeat", columns=["arm", "engine"], values="kept",
                                      sort=False)


def progress(arm):
    """effect: `metrics.normalized_progress` of an arm with two services."""
    def effect(requests):
        parts = table(requests)[arm]
        return metrics.normalized_progress(parts, {name: np.ones(len(parts)) for name in parts})
    return effect


def of_service(engine, arm=MIXED):
    """effect: what one service keeps of its speed alone."""
    return lambda requests: _over_repeats(table(requests)[arm][engine])


def strayed(requests):
    """The most by which the control's progress, the halves', differed from 1 in any repeat."""
    return intervals.strayed(table(requests)[HALVES].sum(axis=1), 1)


def counted(effect):
    """effect, with its interval `intervals.widened` to what the control strayed."""
    return lambda requests: intervals.widened(effect(requests), strayed(requests))


def better_than_alike(requests):
    """Progress of the mixed pair less that of two text engines: (value, low, high)."""
    parts = table(requests)
    return _over_repeats(parts[MIXED].sum(axis=1) - parts[ALIKE].sum(axis=1))


def over_one_engine(requests):
    """Tokens a second of two text engines over those of one with both loads."""
    sums = overlap.rates(requests).groupby(["arm", "repeat"]).tok_per_s.sum().unstack("arm")
    return intervals.ratio(sums[ALIKE], sums[BOTH])


def busy(requests):
    """A table, repeat by service: the share of the device that each took alone, 0 to 1.

    On a GPU the share of the time in which a kernel ran; elsewhere CPU seconds of the engine's
    processes over the cores' seconds.
    """
    alone = requests[requests.arm.isin(ALONE.values())]
    turns = alone.groupby(["engine", "repeat"])[["gpu_busy", "engine_cpu_s", "wall_s",
                                                 "cores"]].first().astype(float)
    share = turns.gpu_busy.fillna(turns.engine_cpu_s / (turns.wall_s * turns.cores))
    return share.unstack("engine").clip(upper=1)[list(ALONE)]


def work(requests):
    """Device time that the mixed pair's work would have taken alone, for each second together.

    Sum over services of what it kept times what it took of the device alone. Taking turns can
    fill the device and no more: at most 1. Above it, the work of both went on at the same time.
    """
    return _over_repeats((table(requests)[MIXED] * busy(requests)).sum(axis=1, skipna=False))


def filled(shares):
    """Normalized progress of two services that fill each other's pauses, and keep equal shares.

    shares: what each takes of the device alone. 2 where there is room for both, else 2 / their sum.
    """
    return 2 / max(1, sum(shares))


def _over_repeats(values):
    values = np.asarray(values, dtype=float)
    ends = intervals.of_mean(values) if len(values) > 2 else (np.nan, np.nan)
    return float(values.mean()), *ends


CLAIMS = [
    Claim("04", "The text model is slower beside the speech model than alone", "lab04_mixed",
          "its rate, together over alone", counted(of_service("text")), below=1),
    Claim("04", "The speech model is slower beside the text model than alone", "lab04_mixed",
          "its rate, together over alone", counted(of_service("speech")), below=1),
    Claim("04", "Together they get more done than by taking turns", "lab04_mixed",
          "normalized progress", counted(progress(MIXED)), above=1),
    Claim("04", "Unlike models share better than two alike", "lab04_mixed",
          "progress of the pair, less that of two text engines", better_than_alike, above=0),
    Claim("04", "The gain is only the pauses that each alone leaves", "lab04_mixed",
          "device time at the price of each alone, for a second together", work, below=1),
    Claim("04", "Two text services do less on two engines than on one", "lab04_mixed",
          "tokens a second, two engines over one with both loads", over_one_engine, below=1),
]
