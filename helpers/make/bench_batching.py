"""What `make bench` measures of the batching lesson: the profile's settings, and its step model."""

import itertools
import random

import pandas as pd

from helpers import load, machine, memory, metrics, models, profile, server, steps
from helpers.make.bench import Figure

ROUNDS = 8  # of each arm, forwards and backwards in turn
SWEEPS = 3
BATCHES, CONTEXTS = (1, 2, 4, 8, 16), (128, 512, 1024, 1700)
# The fit sees the batch varied at the shortest context, and the context at two batch sizes.
FITTED = {(1, 128), (4, 128), (16, 128), (1, 1700), (16, 1700)}


def settings():
    """Output tok/s with the profile's cores, OpenMP and block size over the engine's own choice
    of these, 8 in flight. All other flags are the same.

    All engines are resident, each round loads one after the other, every other round backwards.
    """
    env = profile.current().engine_env
    if not env:
        print("This profile takes the engine's own settings: there is nothing to compare.")
        return []
    arms = {
        "the engine's own": {"env": dict.fromkeys(env), "block_size": None},
        "the profile's": {},
        "the profile's, block size 128": {"block_size": 128},
        "the profile's, no preload": {"env": {"LD_PRELOAD": None}},
        "the profile's, one core kept": {"env": {"VLLM_CPU_NUM_OF_RESERVED_CPU": None}},
    }
    path, engines = models.prepare(profile.current().model), {}
    for arm, changes in arms.items():
        engines[arm] = server.serve(path, name=arm, enable_prefix_caching=False, **changes)
        engines[arm].warm_up()
    points = []
    for turn in range(ROUNDS):
        for arm in list(arms)[:: -1 if turn % 2 else 1]:
            requests = load.vllm_bench(engines[arm], input_len=128, output_len=32, concurrency=8,
                                       num_prompts=24, seed=100 + turn)
            points.append({"arm": arm, "turn": turn,
                           "tok": metrics.points(requests).output_tok_per_s[0]})
    for engine in engines.values():
        engine.stop()
    load.stop_worker()
    by_turn = pd.DataFrame(points).pivot(index="turn", columns="arm", values="tok")
    ratios = by_turn.div(by_turn["the engine's own"], axis=0)
    peers = {f"{arm}, tok/s": by_turn[arm].median() for arm in arms}
    ours = ratios["the profile's"]
    return [Figure("the profile's cores, OpenMP, blocks / the engine's own, tok/s", "",
                   ours.median(), bar=1.2, at_least=True, peers=peers,
                   note=f"median of {ROUNDS} rounds, from {ours.min():.2f} to {ours.max():.2f}")]


def step_model():
    """The median error of TPOT that memory.fit_step_time predicts for points it has not seen."""
    path = models.prepare(profile.current().model)
    config, errors, fits = models.config(profile.current().model), [], []
    with server.serve(path, name="bench-steps", max_num_seqs=16, max_model_len=2048) as engine:
        engine.warm_up()
        for turn in range(SWEEPS):
            pairs = list(itertools.product(BATCHES, CONTEXTS))
            random.Random(turn).shuffle(pairs)
            rows = steps.decode_steps(engine, pairs, output_len=48, seed=turn)
            fit, error = _fit(rows, config)
            errors.append(error)
            fits.append(fit)
    read = machine.memory_bandwidth()
    bandwidth = pd.Series([fit.bandwidth for fit in fits]).median()
    return [Figure("TPOT of held-out points, median error over all sweeps", "",
                   pd.concat(errors).median(), bar=0.10,
                   note=", ".join(f"{error.median():.3f}" for error in errors) + " by sweep"),
            Figure("bandwidth of the cache, fitted", "GB/s", bandwidth / 1e9,
                   peers={"read test": read / 1e9})]


def _fit(rows, config):
    """(StepTime of the FITTED points, relative errors at the others)."""
    points = rows.groupby(["batch", "context"]).tpot_s.median().reset_index()
    per_token = memory.kv_bytes_per_token(config)
    points["cache_bytes"] = points.batch * points.context * per_token
    seen = [(batch, int(context) - 24) in FITTED
            for batch, context in zip(points.batch, points.context, strict=True)]
    known, held_out = points[seen], points[[not s for s in seen]]
    fit = memory.fit_step_time(known.batch, known.cache_bytes, known.tpot_s)
    predicted = memory.step_time(fit, batch=held_out.batch, cache_bytes=held_out.cache_bytes)
    return fit, (predicted / held_out.tpot_s - 1).abs()
