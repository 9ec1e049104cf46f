"""The matrix products of a decode step in several number formats, with no engine around them.

    python -m helpers.bare_formats '{"shapes": [[1536, 576]], ...}'    # prints {format: s}

A process of its own, so that the threads and the GPU memory it takes end with it.
"""

import json
import math
import sys
import time

from helpers import bare_step, profile
from helpers.architecture import count, matrices

WEIGHTS = 128_000_000  # at least so many, so that no cache holds them: as many copies of a layer
REPEATS = 5


def products_s(config, *, batch):
    """{format: seconds} of the products of all layers of a decode step, the best of several.

    Formats: 'BF16', 'INT8' (torch._int_mm), 'FP8' (torch._scaled_mm), and 'FP8 to BF16', which
    only converts the weights. NaN where torch has no such product on this device, or not for this
    batch: cuBLAS takes 17 rows or more at 8 bits. Scales, rounding of activations and the output
    projection are left out; on a GPU it is one CUDA graph. In the engine's environment (its
    OpenMP). Raises LabError.
    """
    device = "cuda" if profile.current().name == "gpu" else "cpu"
    work = {"shapes": matrices(config), "batch": batch, "device": device}
    layers = count(config, "num_hidden_layers")
    found = bare_step.in_own_process("helpers.bare_formats", work)
    return {name: layers * s for name, s in found.items()}


def measure(*, shapes, batch, device):
    """{format: seconds for one layer}, in the process of the caller; needs torch."""
    import torch

    torch.set_grad_enabled(False)
    one = torch.ones(1, device=device)

    def matrix(rows, columns):
        return torch.randn(rows, columns, device=device)

    def fp8(x, weight):
        return torch._scaled_mm(x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    products = {
        "BF16": (torch.bfloat16, lambda x, weight: x @ weight.t()),
        "INT8": (torch.int8, lambda x, weight: torch._int_mm(x, weight.t())),
        "FP8": (torch.float8_e4m3fn, fp8),
        "FP8 to BF16": (torch.float8_e4m3fn, lambda _, weight: weight.to(torch.bfloat16)),
    }
    copies = min(64, math.ceil(WEIGHTS / sum(rows * columns for rows, columns in shapes)))
    found = {}
    for name, (dtype, product) in products.items():
        pairs = [(matrix(batch, columns).to(dtype), matrix(rows, columns).to(dtype))
                 for _ in range(copies) for rows, columns in shapes]
        found[name] = _best(lambda pairs=pairs, product=product: [product(*p) for p in pairs],
                            torch if device == "cuda" else None) / copies
    return found


def _best(run, torch=None):
    """Seconds of the fastest of several runs; NaN where it cannot run.

    torch: the module, where the work is done on a GPU.
    """
    times = []
    try:
        if torch:
            run = bare_step.graph(torch, run)
        for _ in range(REPEATS):
            started = time.perf_counter()
            run()
            if torch:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
    except RuntimeError:  # torch has no such product here
        return math.nan
    return min(times)


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
