"""What `make bench` measures of the compression lesson: checkpoints' bytes, and INT8's speed."""

import random
import time

import pandas as pd

from helpers import client, compress, intervals, memory, metrics, models, profile, server, steps
from helpers.make.bench import Figure

ROUNDS = 6  # of each arm, forwards and backwards in turn
IN_FLIGHT, OUTPUT_LEN = 8, 32
INPUT_LENS = (128, 512)


def compression():
    """Predicted bytes of each checkpoint against its file; output tok/s of INT8 over BF16."""
    name = compress.source(profile.current().model)
    path, config, figures = models.prepare(name), models.config(name), []
    folders = {scheme: compress.make(name, scheme=scheme) for scheme in ("FP8", "INT8", "4-bit")}
    for scheme, folder in folders.items():
        on_disk = sum(models.tensor_bytes(folder).values())
        error = memory.checkpoint_bytes(config, scheme=scheme) / on_disk - 1
        figures.append(Figure(f"checkpoint bytes, {scheme}: error of the prediction", "%",
                              100 * abs(error), bar=1))
    engines = {arm: server.serve(folder, name=arm, served_model_name="course-model",
                                 gpu_memory_utilization=0.3, kv_cache_memory_bytes="512M")
               for arm, folder in (("BF16", path), ("INT8", folders["INT8"]))}
    for input_len in INPUT_LENS:
        figures.append(_speed(engines, input_len))
    for engine in engines.values():
        engine.stop()
    return figures


def _speed(engines, input_len):
    rows = []
    for turn in range(-1, ROUNDS):  # the first is a warm-up: new shapes are slow once
        for arm in list(engines)[:: -1 if turn % 2 else 1]:
            time.sleep(1)  # on a CPU the other engine's threads spin for a moment
            prompts = [random.Random(f"{arm} {turn} {n} {input_len}").choices(
                steps.TOKEN_IDS, k=input_len) for n in range(3 * IN_FLIGHT)]
            run = client.streams(engines[arm], prompts, concurrency=IN_FLIGHT,
                                 max_tokens=OUTPUT_LEN, ignore_eos=True)
            rows += [run.assign(arm=arm, repeat=turn)] * (turn >= 0)
    points = metrics.points(pd.concat(rows, ignore_index=True))
    table = points.pivot(index="repeat", columns="arm", values="output_tok_per_s")
    ratio, low, high = intervals.ratio(table.INT8, table.BF16)
    return Figure(f"INT8 / BF16, output tok/s, {input_len} in, {OUTPUT_LEN} out, "
                  f"{IN_FLIGHT} in flight", "", ratio, bar=1.15, at_least=True,
                  peers={f"{arm}, tok/s": table[arm].median() for arm in engines},
                  note=f"{ROUNDS} rounds, 95 percent interval {low:.2f} to {high:.2f}")
