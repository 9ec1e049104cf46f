"""Bytes that a GPU's memory gives to a decode step, counted by Nsight Compute.

    python -m helpers.dram       # on a machine with an NVIDIA GPU, ncu and vLLM; takes minutes

It first counts two kernels whose bytes are known, and says so if the counters cannot be read. Then
it counts whole decode graphs (helpers.dram_probe) and records a row a step as `lab03_dram`.
"""

import sys

import pandas as pd

from helpers import memory, models, ncu, results
from helpers.command import shell_command
from helpers.dram_probe import CONTEXT as CONTEXT
from helpers.errors import LabError

NAME, PROBE = "lab03_dram", "helpers.dram_probe"
MODEL = "shape:Qwen3-0.6B"  # the study's; its bytes are those of any weights
ARMS = {"BF16 cache": "auto", "FP8 cache": "fp8"}
NUMBERS = ["batch", "tokens", "context", "repeat", *ncu.METRICS.values(), "head_bytes",
           "weight_bytes", "cache_bytes"]
BESIDE = 1.5  # a whole graph reads at least so many times what any kernel beside it does


def command():
    """How a probe is run, as a person would type it."""
    return shell_command(ncu.command(PROBE, "decode", "MODEL_FOLDER", "fp8", "STEPS_FILE",
                                     log="COUNTS_FILE"))


def graphs(counted, steps, weight_bytes):
    """The counts of each step's graph, with head_bytes: the most that a kernel after it read.

    counted: of `ncu.read`; steps: how many were watched. A whole graph reads the weights of all
    layers, far more than any kernel beside it, so the `steps` largest reads are the graphs. Raises
    LabError where these do not stand out, or read less than half of weight_bytes: the graph is in
    pieces then, or there is none.
    """
    order = counted.read_bytes.sort_values(ascending=False)
    smallest, beside = (order.iloc[steps - 1] if len(order) >= steps else 0,
                        order.iloc[steps] if len(order) > steps else 0)
    if not smallest > max(BESIDE * beside, weight_bytes / 2):
        raise LabError(
            f"No {steps} whole graphs stand out among {len(counted)} counts.",
            cause="The engine ran its decode steps in pieces, or with no graph.",
            fix="Look for `cudagraph_mode` in the log.",
            log="\n".join(f"{row.read_bytes:.4g} bytes: {row.name_[:80]}" for row in
                          counted.rename(columns={"name": "name_"}).head(40).itertuples()))
    places = sorted(order.index[:steps])
    ends = [*places[1:], len(counted)]
    after = [counted.read_bytes[place + 1:end].max() for place, end in zip(places, ends,
                                                                           strict=True)]
    return counted.loc[places].reset_index(drop=True).assign(head_bytes=after)


def check():
    """Count a sum of 1 GiB and a fill of it: a table of bytes read and written, as shares of that.

    Raises LabError unless the sum reads it all, and the fill nearly nothing: other counters than
    those that are meant would show here.
    """
    known, counted = ncu.count("control", PROBE, "control")
    if len(counted) < 2:
        raise LabError("ncu did not see both kernels of the control.", log=counted.to_string())
    size = known[0]["bytes"]
    shares = counted[["read_bytes", "write_bytes"]] / size
    shares.insert(0, "kernel", counted.name.str[:40])
    if not (shares.read_bytes[0] > 0.98 and shares.read_bytes.iloc[-1] < 0.02
            and shares.read_bytes.sum() < 1.05):
        raise LabError("The counters do not say what is known.", log=shares.to_string(),
                       cause="Another process used the GPU, or these are other counters.")
    return shares


def measure(model=MODEL):
    """Count every point of helpers.dram_probe with both caches; one row a step.

    Beside the counts a row has what predicts them: weight_bytes (of a step) and cache_bytes (a
    token of context, with this cache), both by helpers.memory.
    """
    folder, config, frames = models.prepare(model), models.config(model), []
    weight_bytes = memory.decode_bytes_per_token(config, batch=1, context=0)
    for arm, cache in ARMS.items():
        print(f"{arm}: an engine starts, then its steps are counted", flush=True)
        steps, counted = ncu.count(arm.replace(" ", "_"), PROBE, "decode", folder, cache)
        number_bytes = 1 if cache == "fp8" else 2
        found = graphs(counted, len(steps), weight_bytes)
        frames.append(pd.concat([pd.DataFrame(steps), found], axis=1).assign(
            arm=arm, model=model, outcome="ok", weight_bytes=weight_bytes,
            cache_bytes=memory.kv_bytes_per_token(config, dtype_bytes=number_bytes)))
    return pd.concat(frames, ignore_index=True)


def recorded():
    """The latest run of a GPU, a row a step. Where there is none it says so, and has no rows."""
    found = results.latest(NAME, machine="gpu")
    if found is None:
        print("No GPU's counts of DRAM bytes are recorded yet: what follows shows the arithmetic "
              "and the study's four figures alone.")
        return pd.DataFrame(columns=[*NUMBERS, "arm", "machine"]).astype(
            dict.fromkeys(NUMBERS, float))
    return found


def beside(rows):
    """A row a point of `measure`: MB a token counted (mean of its steps), predicted, and error."""
    rows = rows.assign(
        counted=rows.read_bytes / rows.batch / 1e6,
        predicted=(rows.weight_bytes / rows.batch + rows.context * rows.cache_bytes) / 1e6)
    rows["error"] = rows.counted / rows.predicted - 1
    keys = ["machine", "arm", "tokens", "batch"]
    return rows.groupby(keys, sort=False)[["counted", "predicted", "error"]].mean().reset_index()


def main():
    """The one command: the control, then all points, recorded."""
    try:
        shares = check()
        print("The counters can be read. Of 1 GiB, as shares:", shares, sep="\n", flush=True)
        rows = measure()
        path = results.record(NAME, rows, server=[], command=command(),
                              control=shares.to_dict("records"))
        print(beside(rows.assign(machine="this one")).to_string(), path, sep="\n")
    except LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
