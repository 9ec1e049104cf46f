"""A decode step's matrix products and nothing else: what is left of a step without the engine.

    python -m helpers.bare_step '{"layers": 30, "weights": 3540096, ...}'    # prints {batch: s}

A process of its own, so that the threads and the GPU memory it takes end with it.
"""

import json
import os
import subprocess
import sys
import time

from helpers import profile
from helpers.architecture import layer_parameters, value
from helpers.errors import LabError

PARTS = 4  # matrices a layer: queries, keys and values; output; gate and up; down
REPEATS = 10


def matrices_s(config, *, batches):
    """{batch: seconds} of the matrix products of one decode step at 16 bits, the best of several.

    Each layer's weights are cut into PARTS matrices `hidden_size` wide, each layer has its own,
    and the output projection follows: as many bytes to read and as much arithmetic as the model
    has in them. No attention, no norms, no sampling, no scheduler; on a GPU as one CUDA graph,
    so that no launch counts. In the engine's environment (its OpenMP). Raises LabError for
    configs that architecture.layer_parameters refuses, and when the process fails.
    """
    device = "cuda" if profile.current().name == "gpu" else "cpu"
    work = {"layers": value(config, "num_hidden_layers"), "weights": layer_parameters(config),
            "hidden": value(config, "hidden_size"), "vocab": value(config, "vocab_size"),
            "batches": list(batches), "device": device}
    found = in_own_process("helpers.bare_step", work)
    return {int(batch): seconds for batch, seconds in found.items()}


def in_own_process(module, work):
    """What `python -m MODULE WORK`, both JSON, prints; in the engine's environment."""
    done = subprocess.run([sys.executable, "-m", module, json.dumps(work)],
                          capture_output=True, text=True,
                          env=os.environ | profile.current().engine_env)
    if done.returncode:
        raise LabError("The matrix products of a step could not be timed.",
                       cause="Most often too little memory is left beside the engines.",
                       fix="Stop an engine that you no longer need, and run the cell again.",
                       log=done.stderr[-1500:])
    return json.loads(done.stdout)


def measure(*, layers, weights, hidden, vocab, batches, device):
    """The measurement itself, in the process of the caller; needs torch."""
    import torch

    def matrix(rows):
        return torch.randn(rows, hidden, dtype=torch.bfloat16, device=device)

    matrices = [matrix(weights // hidden // PARTS) for _ in range(PARTS * layers)]
    matrices.append(matrix(vocab))
    found = {}
    for batch in batches:
        x = matrix(batch)

        def step(x=x):
            for weight in matrices:
                torch.nn.functional.linear(x, weight)

        found[batch] = _best(torch, step if device == "cpu" else graph(torch, step), device)
    return found


def graph(torch, step):
    """A function that does `step` as one CUDA graph, so that no launch counts."""
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _best(torch, step, device):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
