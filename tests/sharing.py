"""Runs of engines that share a device, made up: for the tests of labs on sharing."""

import pandas as pd

from helpers import rows


def turn(arm, engines, in_flight, *, repeat=0, step_s=0.01, output=32, steps=None):
    """Rows of one turn as `experiment.run` gives them: every engine takes equal steps in which all
    of its requests get one token; the first step takes in the prompts, too."""
    ends = [step_s * (n + 1) for n in range(output)]
    row = {"sent_s": 0.0, "input_tokens": 128, "output_tokens": output, "outcome": "ok",
           "error": "", "chunk_tokens": [1] * output, **rows.latencies(ends, output)}
    each = in_flight // len(engines)
    found = rows.table([{**row, "engine": name} for name in engines for _ in range(each)],
                       tool="client", settings={})
    return found.assign(
        arm=arm, repeat=repeat, concurrency=in_flight, steps=steps or output, preemptions=0,
        engine_cpu_s=1.0, wall_s=output * step_s, client_cpu_s=0.01, client_share=0.02,
        client_ok=True, gpu_busy=float("nan"))


def runs(step_s, *, loads=(4, 8), repeats=3, noise=0.01):
    """All turns of arms given as {arm: (engines, function of an engine's batch -> step_s)}; the
    repeats differ a little, and arms differ in it, so that there is an interval."""
    return pd.concat([
        turn(arm, engines, load, repeat=repeat,
             step_s=of_batch(load // len(engines)) * (1 + noise * ((repeat + place) % 3 - 1)))
        for repeat in range(repeats) for load in loads
        for place, (arm, (engines, of_batch)) in enumerate(step_s.items())], ignore_index=True)
