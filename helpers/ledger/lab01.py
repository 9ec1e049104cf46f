"""The claims of lab 01, each about the largest load that was measured. Pure but for `about`.

Its rows have, beside those of `experiment.run`, what the machine and the model are: cores,
bandwidth (bytes a second, read), weight_bytes (of a decode step) and cache_bytes (that a token of
an answer reads of the cache, halfway through it).
"""

import numpy as np

from helpers import experiment, intervals, machine, memory, metrics, pace
from helpers.ledger import Claim

ONE, TWO = "one engine", "two engines"


def about(lab, config):
    """What the machine and the model are: the columns that the claims need beside the run's own."""
    context = lab.input_len + lab.output_len // 2
    return {"cores": machine.cores(), "bandwidth": machine.memory_bandwidth(),
            "weight_bytes": memory.decode_bytes_per_token(
                config, batch=1, context=0, include_lm_head=True),
            "cache_bytes": memory.kv_bytes(config, tokens=context)}


def faster(requests):
    """Output tokens a second, two engines over one: (value, low, high).

    The interval is that of `experiment.against`, `intervals.widened` to what the control (one
    engine again) strayed from 1.
    """
    found = experiment.against(experiment.totals(requests), base=ONE)
    row = found[(found.arm == TWO) & (found.concurrency == found.concurrency.max())].iloc[0]
    return intervals.widened(row[["ratio", "low", "high"]], row.smallest)


def progress(requests):
    """`pace.progress` of two engines; alone is one engine under half the load.

    (value, low, high). Raises ValueError where half the load was not measured.
    """
    most = requests.concurrency.max()
    two = requests[(requests.arm == TWO) & (requests.concurrency == most)]
    alone = requests[(requests.arm == ONE) & (requests.concurrency == most / 2)]
    return pace.progress(two, alone)


def neighbour(requests):
    """The rate of an engine beside a busy one, over its rate alone: half of `progress`."""
    return tuple(number / 2 for number in progress(requests))


def traffic(requests):
    """One row a turn: bytes that decoding moved in a second, as a share of the bandwidth.

    Each engine moves (weight_bytes / batch + cache_bytes) for a token, its batch being the mean
    number of its requests in flight; the engines of an arm add up. Prefill's bytes are not in it.
    """
    keys = ["arm", "repeat", "concurrency"]
    points = metrics.points(requests)
    about = requests.groupby(keys)[["weight_bytes", "cache_bytes", "bandwidth"]].first()
    points = points.merge(about.reset_index(), on=keys)
    points["bytes_per_token"] = points.weight_bytes / points.in_flight + points.cache_bytes
    points["share"] = points.output_tok_per_s * points.bytes_per_token / points.bandwidth
    groups = points.groupby(keys)
    found = groups[["in_flight", "bytes_per_token"]].mean().rename(columns={"in_flight": "batch"})
    return found.assign(share=groups.share.sum(min_count=1)).reset_index()


def hosts(requests):
    """`experiment.totals` with cores_used, of `cores`, and cpu_s_per_token, of all engines."""
    points = experiment.totals(requests).assign(cores=requests["cores"].max())
    points["cores_used"] = points.engine_cpu_s / points.wall_s
    tokens = points.output_tok_per_s * points.duration_s
    return points.assign(cpu_s_per_token=points.engine_cpu_s / tokens)


def over_repeats(points, arm, measure):
    """(value, low, high) of a measure's mean at the largest load; NaN ends below three repeats."""
    at = points[(points.arm == arm) & (points.concurrency == points.concurrency.max())]
    values = at[measure].to_numpy(float)
    if not len(values):
        raise ValueError(f"no turns of {arm!r}")
    low, high = intervals.of_mean(values) if len(values) > 2 else (np.nan, np.nan)
    return float(values.mean()), low, high


def cores_used(requests):
    """Cores that two engines keep busy, as a share of the machine's."""
    points = hosts(requests)
    return over_repeats(points.assign(share=points.cores_used / points.cores), TWO, "share")


def bandwidth_used(requests):
    """Bytes a second of two engines' decoding, as a share of the memory's bandwidth."""
    return over_repeats(traffic(requests), TWO, "share")


def gpu_busy(requests):
    """Share of the time in which one engine has a kernel on the GPU."""
    return over_repeats(experiment.totals(requests), ONE, "gpu_busy")


CLAIMS = [
    Claim("01", "Two engines with half the cache each do less than one", "lab01_sweep",
          "output tokens a second, two over one", faster, below=1),
    Claim("01", "Sharing is useful: two get more done than by taking turns", "lab01_sweep",
          "normalized progress", progress, above=1),
    Claim("01", "Device contention: a busy neighbour costs an engine more than a tenth",
          "lab01_sweep", "rate beside the other over rate alone", neighbour, below=0.9),
    Claim("01", "CPU contention: two engines run out of cores", "lab01_sweep",
          "cores in use, of all", cores_used, above=0.9),
    Claim("01", "Memory bandwidth: two engines move more than half of what memory can",
          "lab01_sweep", "bytes a second of decoding over the bandwidth", bandwidth_used,
          above=0.5),
    Claim("01", "Something else: one engine alone leaves the device waiting", "lab01_sweep",
          "share of the time in which a kernel ran", gpu_busy, below=0.9),
]
